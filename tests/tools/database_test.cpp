// Databases that cannot be used: `select` warns and gives the fallback, `tune` and `audit` end with exit code 1, and
// the file is never touched.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "evidence.hpp"
#include "harness.hpp"

namespace crossover::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

class Unusable : public ::testing::Test {
 protected:
  void expect_unusable() const {
    const auto before = snapshot(folder_.path());
    const Output select = run({"select", "--shape", "256,256", "--rows", "7", "--json", "--db", database_});
    EXPECT_EQ(select.code, 0) << select.err;
    EXPECT_EQ(select.json()["origin"], "fallback");
    EXPECT_THAT(select.err, StartsWith("crossover: warning: "));
    EXPECT_EQ(std::count(select.err.begin(), select.err.end(), '\n'), 1) << select.err;
    const std::size_t from = std::string("crossover: warning: ").size();
    const std::string cause = select.err.substr(from, select.err.find("; going on without") - from);
    for (const Environ& environment : {Environ{{"CROSSOVER_ON_MISS", "error"}}, Environ{{"CROSSOVER_FROZEN", "1"}}}) {
      const Output strict = run({"select", "--shape", "256,256", "--rows", "7", "--db", database_}, environment);
      EXPECT_EQ(strict.code, 3) << strict.err;
      EXPECT_THAT(strict.err.substr(strict.err.find('\n') + 1), HasSubstr(cause));
    }
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"tune", "--shape", "64,64", "--max-rows", "2", "--budget", "100ms", "--db",
                                   database_},
          {"audit", "list", "--db", database_, "--json"},
          {"audit", "show", "abcdef", "--db", database_, "--json"}}) {
      const Output output = run(arguments);
      EXPECT_EQ(output.code, 1) << arguments[0] << ": " << output.err;
      EXPECT_EQ(output.out, "");
      EXPECT_THAT(output.err, StartsWith("crossover: "));
    }
    EXPECT_EQ(snapshot(folder_.path()), before);
  }
  // Only what concerns lookups: nothing is wrong with the file.
  void patch(std::size_t offset, const std::string& bytes) const {
    std::string content = file_bytes(database_);
    ASSERT_GE(content.size(), offset + bytes.size());
    content.replace(offset, bytes.size(), bytes);
    write_file(database_, content);
  }

  void execute(const char* sql) const {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(database_.c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
    sqlite3_close(database);
  }

  Folder folder_;
  std::string database_ = (folder_ / "tuning.db").string();
};

// TensorRT#2144: a foreign cache aborts the build.
TEST_F(Unusable, TensorRtIssue2144AnotherProgramsDatabase) {
  store_evidence(database_);
  patch(68, "ABCD");  // application_id
  expect_unusable();
}

TEST_F(Unusable, NotADatabase) {
  write_file(database_, "This is a text file, and a rather long one: " + std::string(8192, 'x'));
  expect_unusable();
}

TEST_F(Unusable, Truncated) {
  store_evidence(database_);
  std::filesystem::resize_file(database_, std::filesystem::file_size(database_) / 2);
  expect_unusable();
}

TEST_F(Unusable, ANewerVersion) {
  store_evidence(database_);
  execute("PRAGMA user_version = 999; UPDATE meta SET value = 999 WHERE key IN ('min_reader', 'min_writer')");
  expect_unusable();
}

TEST_F(Unusable, ANewerVersionThatMayBeReadIsReadAndNeverWritten) {
  store_evidence(database_);
  execute("PRAGMA user_version = 999");
  for (const char* beside : {".lock", "-journal"}) std::filesystem::remove(database_ + beside);
  const auto before = snapshot(folder_.path());
  EXPECT_EQ(run({"select", "--shape", "256,256", "--rows", "7", "--json", "--db", database_}).json()["origin"],
            "tuned");
  const Output tune = run({"tune", "--shape", "64,64", "--max-rows", "2", "--budget", "100ms", "--db", database_});
  EXPECT_EQ(tune.code, 1);
  EXPECT_EQ(tune.out, "") << "found out before anything was measured";
  EXPECT_THAT(tune.err, HasSubstr("newer version"));
  EXPECT_EQ(snapshot(folder_.path()), before);
}

TEST_F(Unusable, AFolder) {
  std::filesystem::create_directory(database_);
  expect_unusable();
}

TEST_F(Unusable, ASymbolicLink) {
  store_evidence(folder_ / "other.db");
  std::filesystem::create_symlink(folder_ / "other.db", database_);
  expect_unusable();
}

TEST_F(Unusable, Unreadable) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody who may not read the file";
  store_evidence(database_);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(database_.c_str(), 0600), 0);
  const auto before = snapshot(folder_.path());
  const Output select = run(Invocation{
      .arguments = {"select", "--shape", "256,256", "--rows", "7", "--json", "--db", database_}, .user = 65534});
  EXPECT_EQ(select.code, 0) << select.err;
  EXPECT_EQ(select.json()["origin"], "fallback");
  EXPECT_THAT(select.err, StartsWith("crossover: warning: "));
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"tune", "--shape", "64,64", "--max-rows", "2", "--budget", "100ms", "--db", database_},
        {"audit", "list", "--db", database_}}) {
    const Output output = run(Invocation{.arguments = arguments, .user = 65534});
    EXPECT_EQ(output.code, 1) << output.err;
  }
  EXPECT_EQ(snapshot(folder_.path()), before);
}

// llm-d#1430: an unwritable cache folder crashes the pod.
TEST_F(Unusable, LlmDIssue1430AReadOnlyFolderStillGivesTheTunedAnswer) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody who may not write the folder";
  store_evidence(database_);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0555), 0);
  ASSERT_EQ(::chmod(database_.c_str(), 0444), 0);
  const auto before = snapshot(folder_.path());
  const auto as_nobody = [&](std::vector<std::string> arguments, Environ environment = {}) {
    arguments.insert(arguments.end(), {"--db", database_});
    return run(Invocation{.arguments = std::move(arguments), .environment = std::move(environment), .user = 65534});
  };
  const Output select = as_nobody({"select", "--shape", "256,256", "--rows", "7", "--json"});
  EXPECT_EQ(select.code, 0) << select.err;
  EXPECT_EQ(select.err, "");
  EXPECT_EQ(select.json()["origin"], "tuned");
  EXPECT_EQ(as_nobody({"audit", "list"}).code, 0);
  for (const char* mode : {"record", "tune"}) {
    const Output lookup =
        as_nobody({"select", "--shape", "64,64", "--rows", "2", "--max-rows", "2", "--budget", "100ms", "--json"},
                  {{"CROSSOVER_ON_MISS", mode}});
    EXPECT_EQ(lookup.code, 0) << lookup.err;
    EXPECT_FALSE(lookup.json().is_null());
    EXPECT_THAT(lookup.err, HasSubstr("warning"));
  }
  const Output tune = as_nobody({"tune", "--shape", "64,64", "--max-rows", "2", "--budget", "100ms"});
  EXPECT_EQ(tune.code, 1) << tune.err;
  EXPECT_THAT(tune.err, HasSubstr("read-only"));
  EXPECT_EQ(snapshot(folder_.path()), before);
}

TEST_F(Unusable, APathThatCannotBecomeADatabaseIsFoundBeforeMeasuring) {
  write_file(folder_ / "file", "x");
  const auto before = snapshot(folder_.path());
  const Folder links;
  std::filesystem::create_symlink(links / "nowhere", links / "dangling");
  std::vector<std::string> paths{"/proc/nosuch/tuning.db", "/proc/tuning.db", links / "dangling" / "tuning.db"};
  for (const std::size_t length : {248, 251, 255, 256, 5000}) paths.push_back(folder_ / std::string(length, 'a'));
  for (const std::string& below :
       {std::string("file"), std::string("file/x"), std::string(256, 'a'), std::string("x/") + std::string(256, 'a')})
    paths.push_back(folder_ / below / "tuning.db");
  for (const std::string& path : paths) {
    const Output tune = run({"tune", "--shape", "64,64", "--max-rows", "2", "--budget", "100ms", "--db", path});
    EXPECT_EQ(tune.code, 1) << path;
    EXPECT_EQ(tune.out, "") << "found out before anything was measured";
    EXPECT_THAT(tune.err, StartsWith("crossover: "));
    EXPECT_THAT(tune.err, HasSubstr(path));
    EXPECT_EQ(std::count(tune.err.begin(), tune.err.end(), '\n'), 1) << tune.err;
  }
  EXPECT_EQ(snapshot(folder_.path()), before);
  const std::string longest = folder_ / std::string(247, 'a');
  EXPECT_EQ(run({"tune", "--shape", "64,64", "--max-rows", "2", "--budget", "100ms", "--db", longest}).code, 0);
}

TEST_F(Unusable, NoHomeIsNoDatabase) {
  const Output select = run({"select", "--shape", "256,256", "--rows", "7", "--json"}, {{"HOME", ""}});
  EXPECT_EQ(select.code, 0) << select.err;
  EXPECT_EQ(select.json()["origin"], "fallback");
  EXPECT_THAT(select.err, HasSubstr("CROSSOVER_DB"));
  const Output tune = run({"tune", "--shape", "64,64", "--max-rows", "2", "--budget", "100ms"}, {{"HOME", ""}});
  EXPECT_EQ(tune.code, 1);
  EXPECT_EQ(run({"device"}, {{"HOME", ""}}).code, 0);
}

TEST_F(Unusable, DamagedRowsAreSkippedAndSaid) {
  store_evidence(database_, {.n = "512"});
  store_evidence(database_);
  // One digit of a stored time or digest is enough; find the verdict's own text.
  std::string content = file_bytes(database_);
  const std::size_t at = content.rfind("fp8_block_linear");
  ASSERT_NE(at, std::string::npos);
  content[at] = 'F';
  write_file(database_, content);
  const auto before = snapshot(folder_.path());
  const Output list = run({"audit", "list", "--db", database_, "--json"});
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_THAT(list.err, HasSubstr("warning"));
  EXPECT_FALSE(list.json().is_null()) << "one document, whatever is said on standard error";
  const Output select = run({"select", "--shape", "256,256", "--rows", "7", "--json", "--db", database_});
  EXPECT_EQ(select.code, 0) << select.err;
  EXPECT_FALSE(select.json().is_null());
  EXPECT_EQ(snapshot(folder_.path()), before);
}

}  // namespace
}  // namespace crossover::testing
