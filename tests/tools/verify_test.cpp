// crossover audit verify.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include "evidence.hpp"
#include "harness.hpp"

namespace crossover::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// Changes the file behind the library's back: no triggers, no checks of references.
void change(const std::string& database, const std::string& sql) {
  sqlite3* handle = nullptr;
  ASSERT_EQ(sqlite3_open_v2(database.c_str(), &handle, SQLITE_OPEN_READWRITE, nullptr), SQLITE_OK);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(handle, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << (error ? error : "");
  sqlite3_free(error);
  EXPECT_GT(sqlite3_total_changes(handle), 0) << sql;
  sqlite3_close(handle);
}

class Verify : public ::testing::Test {
 protected:
  Output verify(const char* format = "json") const {
    return run({"audit", "verify", "--db", database_, "--format", format});
  }

  Folder folder_;
  std::string database_ = (folder_ / "tuning.db").string();
};

TEST_F(Verify, WhatIsIntactHolds) {
  store_evidence(database_);
  store_evidence(database_, {.n = "512", .processes = 2});
  store_gpu_evidence(database_);
  const auto before = snapshot(folder_.path());
  const Output output = verify();
  EXPECT_EQ(output.code, 0) << output.out << output.err;
  const Json document = output.json();
  EXPECT_EQ(document["ok"], true);
  EXPECT_EQ(document["verdicts"], 3);
  EXPECT_EQ(document["runs"], 5);
  EXPECT_GT(document["samples"], 0);
  EXPECT_EQ(document["faults"], Json::array());
  EXPECT_EQ(document["failed"], Json::array());
  EXPECT_GE(document["checked"], document["samples"]);
  EXPECT_THAT(verify("text").out, HasSubstr("everything holds"));
  EXPECT_EQ(snapshot(folder_.path()), before);
}

struct Damage {
  const char* name;
  const char* sql;
  const char* says;
};
class VerifyDamage : public Verify, public ::testing::WithParamInterface<Damage> {};
TEST_P(VerifyDamage, IsNamedAndExitCode4) {
  store_evidence(database_);
  store_evidence(database_, {.n = "512"});
  change(database_, GetParam().sql);
  const Output output = verify();
  EXPECT_EQ(output.code, 4) << output.out << output.err;
  const Json document = output.json();
  EXPECT_EQ(document["ok"], false);
  EXPECT_THAT(document["faults"].dump(), HasSubstr(GetParam().says));
  EXPECT_THAT(verify("text").out, HasSubstr("fault"));
}
INSTANTIATE_TEST_SUITE_P(
    Damages, VerifyDamage,
    ::testing::Values(
        Damage{"Median", "UPDATE sample SET median_ns = median_ns * 1.01 WHERE rowid = 1", "digest does not hold"},
        Damage{"Raw", "UPDATE sample SET raw = zeroblob(length(raw)) WHERE rowid = 1", "digest does not hold"},
        Damage{"SampleGone", "DELETE FROM sample WHERE rowid = 1", "not all that were measured"},
        Damage{"SampleOfNoRun", "UPDATE sample SET run_id = zeroblob(16) WHERE rowid = 1", "refer to rows of run"},
        Damage{"AllRunsGone", "DELETE FROM run", "was stored and is not there"},
        Damage{"RunSeed", "UPDATE run SET seed = seed + 1 WHERE rowid = 1", "digest does not hold"},
        Damage{"VerdictStatus", "UPDATE verdict SET status = 'confirmed' WHERE rowid = 1", "verdict"},
        Damage{"VerdictSegments", "UPDATE verdict SET segments = '[]' WHERE rowid = 1", "verdict"},
        Damage{"Device", "UPDATE device SET json = json || ' '", "device"},
        Damage{"NoUuid", "DELETE FROM meta WHERE key = 'database_uuid'", "database_uuid"},
        Damage{"ShortUuid", "UPDATE meta SET value = x'00' WHERE key = 'database_uuid'", "database_uuid"},
        Damage{"NoGeneration", "DELETE FROM meta WHERE key = 'generation'", "generation"},
        Damage{"TextGeneration", "UPDATE meta SET value = 'zz' WHERE key = 'generation'", "generation"},
        Damage{"NoList", "DELETE FROM live WHERE rowid = (SELECT min(rowid) FROM live)", "list of runs"},
        Damage{"EmptyList", "UPDATE live SET run_ids = '[]'", "list of runs"},
        Damage{"UnusedArm", "INSERT INTO arm VALUES (zeroblob(16), 'a', 'f', 'a16', '{}')", "arm 0000"},
        Damage{"UnusedProblem", "INSERT INTO problem VALUES (zeroblob(16), 'o', '{}')", "problem 0000"},
        Damage{"UnusedRegime", "INSERT INTO regime VALUES (zeroblob(16), 'eager', 'cold', 'x')", "regime 0000"},
        Damage{"UnusedEnvironment", "INSERT INTO environment VALUES (zeroblob(16), '{}')", "environment 0000"}),
    [](const auto& p) { return p.param.name; });

// Every column of every table of facts, changed by the least that its type allows, and one row of each gone.
TEST_F(Verify, EveryColumnAndEveryRowOfAFactIsWatched) {
  store_evidence(database_);
  {
    const auto store = Store::open(database_, Store::Access::read_write);
    crossover::Run run = store->all_runs().front();
    ASSERT_TRUE(store->load(run));
    run.id = {};
    ++run.seed;
    run.attempts.push_back({0, run.samples.front().arm, Outcome::failed, "made so"});
    store->append(run);
  }
  const std::string intact = database_ + ".intact";
  std::filesystem::copy_file(database_, intact);
  const auto columns = [&](const std::string& table) {
    std::vector<std::string> names;
    sqlite3* handle = nullptr;
    sqlite3_stmt* statement = nullptr;
    EXPECT_EQ(sqlite3_open(intact.c_str(), &handle), SQLITE_OK);
    const std::string sql = "SELECT name FROM pragma_table_info('" + table + "')";
    EXPECT_EQ(sqlite3_prepare_v2(handle, sql.c_str(), -1, &statement, nullptr), SQLITE_OK);
    while (sqlite3_step(statement) == SQLITE_ROW)
      names.emplace_back(reinterpret_cast<const char*>(sqlite3_column_text(statement, 0)));
    sqlite3_finalize(statement);
    sqlite3_close(handle);
    return names;
  };
  int walked = 0;
  const auto is_named = [&](const std::string& table, const std::string& sql) {
    std::filesystem::copy_file(intact, database_, std::filesystem::copy_options::overwrite_existing);
    change(database_, ("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF; " + sql).c_str());
    const Output output = verify();
    ASSERT_EQ(output.code, 4) << sql << output.out << output.err;
    std::set<std::string> tables;
    const Json document = output.json();
    for (const Json& failed : document["failed"]) tables.insert(failed["table"].get<std::string>());
    // A row that is gone is known by the runs that refer to it or that it belonged to.
    EXPECT_TRUE(tables.contains(table) || tables.contains("run")) << sql << output.out;
    ++walked;
  };
  for (const std::string table : {"device", "environment", "problem", "regime", "arm", "run", "sample", "attempt"}) {
    const std::string one = " WHERE rowid = (SELECT min(rowid) FROM " + table + ")";
    for (const std::string& column : columns(table)) {
      const std::string to = "CASE typeof(" + column + ") WHEN 'integer' THEN " + column +
                             " + 1000003 WHEN 'real' THEN " + column + " * 1.0001 WHEN 'text' THEN " + column +
                             " || ' ' WHEN 'null' THEN 1 ELSE CAST(X'" + std::string(32, 'a') + "' AS BLOB) END";
      is_named(table, "UPDATE " + table + " SET " + column + " = " + to + one);
    }
    is_named(table, "DELETE FROM " + table + one);
  }
  EXPECT_GT(walked, 50);
}

// A verdict whose digest holds, and that its runs do not give: what only computing it again finds.
TEST_F(Verify, AVerdictThatItsRunsDoNotGiveIsNamed) {
  store_evidence(database_);
  {
    const auto store = Store::open(database_, Store::Access::read_write);
    Verdict forged = store->all_verdicts().front();
    forged.threshold = 7;
    forged.id = {};
    store->put(forged);
  }
  const Output output = verify();
  EXPECT_EQ(output.code, 4) << output.out;
  EXPECT_THAT(output.json()["faults"].dump(), HasSubstr("its runs give another threshold"));
}

TEST_F(Verify, AMissingDatabaseIsExitCode2) {
  const Output output = verify();
  EXPECT_EQ(output.code, 2);
  EXPECT_EQ(output.out, "");
}

}  // namespace
}  // namespace crossover::testing
