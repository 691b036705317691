// From version to version. Only version 1 exists; the later ones here are made up.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "open.hpp"
#include "support.hpp"

namespace crossover {
namespace {

namespace fs = std::filesystem;
using test::Folder;
using test::make_key;
using test::make_run;

db::Schema with_steps(std::initializer_list<db::Step> more) {
  std::vector<db::Step> steps = db::current_schema().steps();
  steps.insert(steps.end(), more);
  return db::Schema(steps);
}
db::Schema version_2() {
  return with_steps(
      {{"ALTER TABLE device ADD COLUMN note TEXT; CREATE TABLE more(x BLOB NOT NULL) STRICT;"
        "CREATE TRIGGER more_no_delete BEFORE DELETE ON more BEGIN SELECT raise(ABORT, 'no'); END",
        1, 2}});
}
void fill_with_one_run(const fs::path& path) {
  Store::open(path, Store::Access::read_write)->append(make_run(make_key(1), 1));
}
std::size_t runs_in(const fs::path& path) {
  const auto store = Store::open(path, Store::Access::lookup_only);
  auto runs = store->runs(make_key(1));
  return runs.size() == 1 && store->load(runs[0]) ? 1 : 0;
}

TEST(Migration, KeepsEveryFactAndACopyOfTheOldFile) {
  const Folder folder;
  const fs::path path = folder / "a.db";
  fill_with_one_run(path);
  const std::string before = test::read_file(path);
  const db::Schema schema = version_2();
  {
    const auto connection = db::open_writer(path, schema);
    EXPECT_EQ(connection->integer("PRAGMA user_version"), 2);
    EXPECT_EQ(connection->integer("SELECT count(*) FROM run"), 1);
    EXPECT_EQ(connection->integer("SELECT count(*) FROM more"), 0);
    EXPECT_EQ(connection->integer("SELECT value FROM meta WHERE key = 'min_reader'"), 1);
    EXPECT_EQ(connection->integer("SELECT value FROM meta WHERE key = 'min_writer'"), 2);
  }
  // A file that was created has the same tables, to the byte.
  db::open_writer(folder / "new.db", schema);
  EXPECT_EQ(db::open_reader(folder / "new.db", schema)->integer("SELECT count(*) FROM sqlite_schema"),
            db::open_reader(path, schema)->integer("SELECT count(*) FROM sqlite_schema"));
  // The copy is the old database, and private.
  const fs::path copy = folder / "a.db.v1.backup";
  struct stat status {};
  ASSERT_EQ(::stat(copy.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_EQ(runs_in(copy), 1u);
  EXPECT_EQ(test::read_file(copy).size(), before.size());
  // Version 1 still reads the new file, because it allows that, and never writes it.
  EXPECT_EQ(runs_in(path), 1u);
  const std::string migrated = test::read_file(path);
  EXPECT_NE(test::store_error([&] {
              Store::open(path, Store::Access::read_write)->append(make_run(make_key(1), 2));
            }).find("newer version"),
            std::string::npos);
  EXPECT_EQ(test::read_file(path), migrated);
  // Opening again migrates nothing.
  db::open_writer(path, schema);
  EXPECT_FALSE(fs::exists(folder / "a.db.v1.backup-2"));
}

TEST(Migration, GoesThroughEveryVersion) {
  const Folder folder;
  fill_with_one_run(folder / "a.db");
  const db::Schema schema =
      with_steps({{"CREATE TABLE two(x TEXT) STRICT", 1, 1}, {"ALTER TABLE two ADD COLUMN y TEXT", 1, 1}});
  const auto connection = db::open_writer(folder / "a.db", schema);
  EXPECT_EQ(connection->integer("PRAGMA user_version"), 3);
  EXPECT_EQ(connection->integer("SELECT count(y) FROM two"), 0);
}

TEST(Migration, AReaderDoesNotMigrate) {
  const Folder folder;
  fill_with_one_run(folder / "a.db");
  const auto before = test::snapshot(folder.path());
  const db::Schema schema = version_2();
  EXPECT_EQ(db::open_reader(folder / "a.db", schema)->integer("SELECT count(*) FROM run"), 1);
  EXPECT_EQ(test::snapshot(folder.path()), before);
}

TEST(Migration, ThatFailsChangesNothing) {
  const Folder folder;
  fill_with_one_run(folder / "a.db");
  const std::string before = test::read_file(folder / "a.db");
  const db::Schema broken =
      with_steps({{"CREATE TABLE good(x TEXT) STRICT; INSERT INTO no_such_table VALUES(1)", 1, 1}});
  EXPECT_NE(test::store_error([&] { db::open_writer(folder / "a.db", broken); }).find("no_such_table"),
            std::string::npos);
  EXPECT_EQ(test::read_file(folder / "a.db"), before);
  EXPECT_EQ(runs_in(folder / "a.db"), 1u);
  // A second try keeps the first one's copy.
  EXPECT_NE(test::store_error([&] { db::open_writer(folder / "a.db", broken); }), "");
  EXPECT_TRUE(fs::exists(folder / "a.db.v1.backup"));
  EXPECT_TRUE(fs::exists(folder / "a.db.v1.backup-2"));
}

TEST(Migration, AWriterThatHasTheFileOpenStopsWriting) {
  const Folder folder;
  const auto store = Store::open(folder / "a.db", Store::Access::read_write);
  store->append(make_run(make_key(1), 1));
  db::open_writer(folder / "a.db", version_2());
  EXPECT_NE(test::store_error([&] { store->append(make_run(make_key(1), 2)); }).find("newer version"),
            std::string::npos);
  EXPECT_EQ(store->runs(make_key(1)).size(), 1u);
}

TEST(Migration, ManyProcessesMigrateOnce) {
  const Folder folder;
  fill_with_one_run(folder / "a.db");
  const db::Schema schema = version_2();
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i)
    children.push_back(test::start_child(
        [&] { return db::open_writer(folder / "a.db", schema)->integer("SELECT count(*) FROM run") == 1 ? 0 : 1; }));
  for (const pid_t child : children) EXPECT_EQ(test::wait_for(child), 0);
  EXPECT_TRUE(fs::exists(folder / "a.db.v1.backup"));
  EXPECT_FALSE(fs::exists(folder / "a.db.v1.backup-2"));
}

}  // namespace
}  // namespace crossover
