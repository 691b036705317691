// Damage: every kind is noticed, and nothing that is wrong is served.

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "support.hpp"

namespace crossover {
namespace {

namespace fs = std::filesystem;
using test::Contents;
using test::make_key;
using test::make_run;
using test::make_verdict;

const std::vector<EvidenceKey> kKeys = {make_key(1), make_key(2)};

// A small database with every kind of fact.
void fill_with_every_fact(const fs::path& path) {
  const auto store = Store::open(path, Store::Access::read_write);
  for (const EvidenceKey& key : kKeys) {
    std::vector<Id> ids;
    for (std::uint64_t seed = 0; seed < 2; ++seed)
      ids.push_back(store->append(make_run(key, seed + static_cast<std::uint64_t>(key.problem.attributes.size()), 3)));
    store->put(make_verdict(key, ids));
    Request request;
    request.key = key;
    store->request(request);
  }
}

// The fact tables and their columns.
std::vector<std::pair<std::string, std::string>> fact_columns() {
  std::vector<std::pair<std::string, std::string>> columns;
  const test::Folder folder;
  fill_with_every_fact(folder / "a.db");
  db::Connection connection(folder / "a.db", db::Connection::Mode::read_only);
  for (const char* table :
       {"device", "environment", "problem", "regime", "arm", "run", "sample", "attempt", "verdict"}) {
    db::Query query = connection.query("SELECT name FROM pragma_table_info(?1)");
    query.bind(table);
    while (query.step()) columns.emplace_back(table, query.text(0));
  }
  return columns;
}

class Column : public ::testing::TestWithParam<std::pair<std::string, std::string>> {};

// Ways to change a value that keep its type, and that the constraints would not even notice.
const char* const kChanges[] = {
    "CASE typeof(@) WHEN 'integer' THEN @ + 1000 WHEN 'real' THEN @ * 1.0000001 WHEN 'text' THEN @ || ' ' "
    "WHEN 'blob' THEN CAST(substr(@, 1, length(@) - 1) || iif(substr(@, -1) = x'5a', x'a5', x'5a') AS BLOB) ELSE 1 END",
    "CASE typeof(@) WHEN 'integer' THEN -@ - 7 WHEN 'real' THEN -@ - 1.0 WHEN 'text' THEN '' "
    "WHEN 'blob' THEN zeroblob(length(@)) ELSE 0 END",
    "CASE typeof(@) WHEN 'integer' THEN ~@ WHEN 'real' THEN 1e300 WHEN 'text' THEN "
    "'#' || substr(@, 2) "
    "WHEN 'blob' THEN zeroblob(17) ELSE 77 END",
};

TEST_P(Column, ChangedInOneRowIsNoticed) {
  const auto& [table, column] = GetParam();
  const test::Folder folder;
  fill_with_every_fact(folder / "a.db");
  const Contents original = test::read_all(folder / "a.db", kKeys);
  ASSERT_EQ(original.errors, 0);
  ASSERT_EQ(original.runs.size(), 4u);
  ASSERT_EQ(original.verdicts.size(), 4u);  // by key and all
  ASSERT_TRUE(original.warnings.empty()) << original.warnings[0];
  const std::string pristine = test::read_file(folder / "a.db");
  int tried = 0;
  for (std::string change : kChanges) {
    for (std::size_t at; (at = change.find('@')) != std::string::npos;) change.replace(at, 1, column);
    const fs::path copy = folder / ("copy" + std::to_string(tried++) + ".db");
    test::write_file(copy, pristine);
    ASSERT_EQ(test::vandalise(copy, "UPDATE " + table + " SET " + column + " = " + change + " WHERE rowid = 1"), 1);
    const Contents found = test::read_all(copy, kKeys);
    EXPECT_TRUE(test::nothing_wrong(found, original)) << change;
    EXPECT_TRUE(!found.warnings.empty() || found.errors > 0)
        << table << '.' << column << " was not noticed: " << change;
  }
}
INSTANTIATE_TEST_SUITE_P(Integrity, Column, ::testing::ValuesIn(fact_columns()),
                         [](const auto& param) { return param.param.first + "_" + param.param.second; });

class Deleted : public ::testing::TestWithParam<const char*> {};
TEST_P(Deleted, RowIsNoticed) {
  const test::Folder folder;
  fill_with_every_fact(folder / "a.db");
  const Contents original = test::read_all(folder / "a.db", kKeys);
  test::vandalise(folder / "a.db", std::string("DELETE FROM ") + GetParam() + " WHERE rowid = 1");
  const Contents found = test::read_all(folder / "a.db", kKeys);
  EXPECT_TRUE(test::nothing_wrong(found, original));
  EXPECT_FALSE(test::nothing_missing(found, original) && found.warnings.empty());
  EXPECT_EQ(found.errors, 0);
  ASSERT_FALSE(found.warnings.empty());
}
INSTANTIATE_TEST_SUITE_P(Integrity, Deleted,
                         ::testing::Values("sample", "attempt", "run", "environment", "arm", "problem", "regime",
                                           "device"));

TEST(Integrity, ABadRowIsSkippedNamedAndTheOthersAreServed) {
  const test::Folder folder;
  fill_with_every_fact(folder / "a.db");
  const Contents original = test::read_all(folder / "a.db", kKeys);
  test::vandalise(folder / "a.db", "UPDATE sample SET median_ns = median_ns + 1 WHERE rowid = 1");
  const Contents found = test::read_all(folder / "a.db", kKeys);
  EXPECT_EQ(found.runs.size(), original.runs.size() - 1);
  EXPECT_EQ(found.verdicts.size(), original.verdicts.size());
  ASSERT_EQ(found.warnings.size(), 2u);  // the sample, and the run that is not whole without it
  EXPECT_NE(found.warnings[0].find("a sample of run"), std::string::npos) << found.warnings[0];
  EXPECT_NE(found.warnings[0].find("digest does not hold"), std::string::npos) << found.warnings[0];
  EXPECT_NE(found.warnings[1].find("was skipped"), std::string::npos) << found.warnings[1];
}

TEST(Integrity, EachWarningIsSaidOnce) {
  const test::Folder folder;
  fill_with_every_fact(folder / "a.db");
  test::vandalise(folder / "a.db", "UPDATE run SET seed = seed + 1 WHERE rowid = 1");
  const auto store = Store::open(folder / "a.db", Store::Access::lookup_only);
  store->runs(kKeys[0]);
  EXPECT_EQ(store->warnings().size(), 1u);
  store->runs(kKeys[0]);
  EXPECT_TRUE(store->warnings().empty());
}

// A sample that a program wrote with a valid digest, but whose statistics are not those of its rounds.
TEST(Integrity, StatisticsAreRecomputedFromTheRounds) {
  const test::Folder folder;
  fill_with_every_fact(folder / "a.db");
  const Contents original = test::read_all(folder / "a.db", kKeys);
  for (const char* change : {"raw = zeroblob(length(raw))", "raw = x''", "launches = launches + 1", "mad_ns = 0.0"}) {
    const std::string pristine = test::read_file(folder / "a.db");
    test::write_file(folder / "b.db", pristine);
    test::vandalise(folder / "b.db", std::string("UPDATE sample SET ") + change);
    const Contents found = test::read_all(folder / "b.db", kKeys);
    EXPECT_TRUE(found.runs.empty()) << change;
    EXPECT_FALSE(found.warnings.empty()) << change;
    fs::remove(folder / "b.db");
  }
}

TEST(Integrity, FactsCannotBeChangedByAccident) {
  const test::Folder folder;
  fill_with_every_fact(folder / "a.db");
  db::Connection connection(folder / "a.db", db::Connection::Mode::read_write);
  connection.allow_triggers();
  for (const char* table :
       {"device", "environment", "problem", "regime", "arm", "run", "sample", "attempt", "verdict"}) {
    const std::string update = std::string("DELETE FROM ") + table,
                      replace = std::string("UPDATE ") + table + " SET rowid = 99";
    EXPECT_NE(test::store_error([&] { connection.execute(update.c_str()); }).find("only ever added"),
              std::string::npos);
    EXPECT_NE(test::store_error([&] { connection.execute(replace.c_str()); }).find("only ever added"),
              std::string::npos);
  }
}

// A damaged `live` or `request` is no reason to lose facts.
TEST(Integrity, WhatIsDerivedIsRebuilt) {
  const test::Folder folder;
  fill_with_every_fact(folder / "a.db");
  test::vandalise(folder / "a.db", "UPDATE live SET run_ids = '[\"zz\"]'; UPDATE request SET device_id = zeroblob(16)");
  const Contents found = test::read_all(folder / "a.db", kKeys);
  EXPECT_EQ(found.runs.size(), 4u);
  EXPECT_FALSE(found.warnings.empty());
  Store::open(folder / "a.db", Store::Access::read_write)->append(make_run(kKeys[0], 50));
  const auto store = Store::open(folder / "a.db", Store::Access::read_write);
  EXPECT_EQ(store->runs(kKeys[0]).size(), 3u);
  EXPECT_TRUE(store->warnings().empty());
}

// of 1,500 random bit flips integrity_check caught 23%, and 74% gave wrong rows while it said "ok".
class BitFlips : public ::testing::TestWithParam<int> {};
TEST_P(BitFlips, NeverServeAWrongRow) {
  const test::Folder folder;
  fill_with_every_fact(folder / "a.db");
  const Contents original = test::read_all(folder / "a.db", kKeys);
  const std::string pristine = test::read_file(folder / "a.db");
  std::mt19937_64 random(static_cast<std::uint64_t>(GetParam()));
  int noticed = 0;
  for (int flip = 0; flip < 700; ++flip) {
    std::string bytes = pristine;
    const std::size_t bit = random() % (bytes.size() * 8);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    test::write_file(folder / "b.db", bytes);
    const Contents found = test::read_all(folder / "b.db", kKeys);
    ASSERT_TRUE(test::nothing_wrong(found, original)) << "bit " << bit;
    const bool whole = test::nothing_missing(found, original);
    noticed += whole ? 0 : 1;
    ASSERT_TRUE(whole || !found.warnings.empty() || found.errors > 0)
        << "something is missing and nobody says so, bit " << bit;
  }
  EXPECT_GT(noticed, 50);
}
INSTANTIATE_TEST_SUITE_P(Integrity, BitFlips, ::testing::Range(0, 6));

TEST(Integrity, SwappedAndZeroedPagesNeverServeAWrongRow) {
  const test::Folder folder;
  fill_with_every_fact(folder / "a.db");
  const Contents original = test::read_all(folder / "a.db", kKeys);
  const std::string pristine = test::read_file(folder / "a.db");
  constexpr std::size_t kPage = 4096;
  const std::size_t pages = pristine.size() / kPage;
  std::mt19937_64 random(3);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = pristine;
    const std::size_t a = random() % pages, b = random() % pages;
    if (i % 2 == 0) {
      bytes.replace(a * kPage, kPage, pristine, b * kPage, kPage);
      bytes.replace(b * kPage, kPage, pristine, a * kPage, kPage);
    } else {
      bytes.replace(a * kPage, kPage, kPage, i % 4 == 1 ? '\0' : '\xff');
    }
    test::write_file(folder / "b.db", bytes);
    ASSERT_TRUE(test::nothing_wrong(test::read_all(folder / "b.db", kKeys), original)) << a << ' ' << b;
  }
}

TEST(Integrity, TruncatedFilesNeverServeAWrongRow) {
  const test::Folder folder;
  fill_with_every_fact(folder / "a.db");
  const Contents original = test::read_all(folder / "a.db", kKeys);
  const std::string pristine = test::read_file(folder / "a.db");
  std::mt19937_64 random(5);
  for (int i = 0; i < 200; ++i) {
    const std::size_t size =
        i < 100 ? 1 + random() % (pristine.size() - 1) : 4096 * (1 + random() % (pristine.size() / 4096 - 1));
    test::write_file(folder / "b.db", pristine.substr(0, size));
    const Contents found = test::read_all(folder / "b.db", kKeys);
    ASSERT_GT(found.errors, 0) << size;
    ASSERT_TRUE(found.runs.empty() && found.verdicts.empty()) << size;
    // A writer refuses it too, and leaves it as it is.
    if (i % 20 != 0) continue;
    EXPECT_NE(test::store_error(
                  [&] { Store::open(folder / "b.db", Store::Access::read_write)->append(make_run(kKeys[0], 9)); }),
              "");
    EXPECT_EQ(test::read_file(folder / "b.db"), pristine.substr(0, size));
  }
}

TEST(Integrity, AWriterRefusesADamagedFileAndLeavesItAsItIs) {
  const test::Folder folder;
  fill_with_every_fact(folder / "a.db");
  std::string bytes = test::read_file(folder / "a.db");
  for (std::size_t at = 5 * 4096; at < 6 * 4096; ++at) bytes[at] = 'x';
  test::write_file(folder / "a.db", bytes);
  const std::string message = test::store_error(
      [&] { Store::open(folder / "a.db", Store::Access::read_write)->append(make_run(kKeys[0], 9)); });
  EXPECT_NE(message.find("damaged"), std::string::npos) << message;
  EXPECT_EQ(test::read_file(folder / "a.db"), bytes);
}

}  // namespace
}  // namespace crossover
