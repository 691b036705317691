// Files as they are found in the world: what may be opened, what is refused, and what is left behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "schema.hpp"
#include "support.hpp"

namespace crossover {
namespace {

namespace fs = std::filesystem;
using test::Folder;
using test::make_key;
using test::make_run;
using test::make_verdict;
using ::testing::HasSubstr;
using Access = Store::Access;

void fill(const fs::path& path) {
  const auto store = Store::open(path, Access::read_write);
  store->put(make_verdict(make_key(1), {store->append(make_run(make_key(1), 1))}));
}
// Whether the one run and the one verdict of fill() are served.
bool answers(const fs::path& path, Access access = Access::lookup_only) {
  const auto store = Store::open(path, access);
  auto runs = store->runs(make_key(1));
  return runs.size() == 1 && store->load(runs[0]) && store->verdicts(make_key(1)).size() == 1 &&
         store->warnings().empty();
}
unsigned mode(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

// Opens for lookups, then for writing, and writes. Gives the message of each failure.
struct Failures {
  std::string lookup, write;
};
Failures failures(const fs::path& path) {
  return {test::store_error([&] { Store::open(path, Access::lookup_only)->runs(make_key(1)); }),
          test::store_error([&] { Store::open(path, Access::read_write)->append(make_run(make_key(1), 2)); })};
}

// Both accesses are refused with a sentence that names the path and the cause, and nothing in the folder has changed.
void expect_refused(const Folder& folder, const fs::path& path, const std::string& cause) {
  const auto before = test::snapshot(folder.path());
  const Failures found = failures(path);
  EXPECT_THAT(found.lookup, HasSubstr(cause));
  EXPECT_THAT(found.lookup, HasSubstr(path.string()));
  EXPECT_THAT(found.write, HasSubstr(cause));
  EXPECT_THAT(found.write, HasSubstr(path.string()));
  EXPECT_EQ(test::snapshot(folder.path()), before);
}

TEST(Files, LookupsOfAMissingFileAreEmptyAndCreateNothing) {
  const Folder folder;
  const auto before = test::snapshot(folder.path());
  for (const fs::path& path : {folder / "a.db", folder / "x" / "y" / "a.db"}) {
    const auto store = Store::open(path, Access::lookup_only);
    EXPECT_TRUE(store->runs(make_key(1)).empty());
    EXPECT_TRUE(store->verdicts(make_key(1)).empty());
    EXPECT_TRUE(store->all_verdicts().empty());
    EXPECT_TRUE(store->find_verdicts("abcd").empty());
    EXPECT_TRUE(store->devices().empty());
    EXPECT_TRUE(store->requests().empty());
    EXPECT_FALSE(store->run(Id{{1}}).has_value());
    crossover::Run run = make_run(make_key(1), 1);
    EXPECT_FALSE(store->load(run));
    EXPECT_EQ(store->generation(), 0u);
    EXPECT_TRUE(store->warnings().empty());
    EXPECT_THAT(test::store_error([&] { store->append(make_run(make_key(1), 1)); }), HasSubstr("lookups only"));
  }
  EXPECT_EQ(test::snapshot(folder.path()), before);
}

TEST(Files, OpeningForWritingCreatesNothingBeforeSomethingIsWritten) {
  const Folder folder;
  const auto before = test::snapshot(folder.path());
  const auto store = Store::open(folder / "a.db", Access::read_write);
  EXPECT_TRUE(store->runs(make_key(1)).empty());
  EXPECT_EQ(store->generation(), 0u);
  EXPECT_EQ(test::snapshot(folder.path()), before);
}

TEST(Files, AStoreNoticesWhenTheFileAppearsChangesAndIsReplaced) {
  const Folder folder;
  const auto store = Store::open(folder / "a.db", Access::lookup_only);
  const std::uint64_t missing = store->generation();
  EXPECT_EQ(store->generation(), missing);
  fill(folder / "a.db");
  const std::uint64_t filled = store->generation();
  EXPECT_NE(filled, missing);
  EXPECT_EQ(store->generation(), filled);
  EXPECT_EQ(store->runs(make_key(1)).size(), 1u);
  EXPECT_EQ(store->generation(), filled);
  ASSERT_EQ(test::in_child([&] {
              Store::open(folder / "a.db", Access::read_write)->append(make_run(make_key(1), 7));
              return 0;
            }),
            0);
  const std::uint64_t appended = store->generation();
  EXPECT_NE(appended, filled);
  EXPECT_EQ(store->runs(make_key(1)).size(), 2u);
  fill(folder / "b.db");
  fs::rename(folder / "b.db", folder / "a.db");
  EXPECT_NE(store->generation(), appended);
  EXPECT_EQ(store->runs(make_key(1)).size(), 1u);
  fs::remove(folder / "a.db");
  EXPECT_EQ(store->generation(), 0u);
  EXPECT_TRUE(store->runs(make_key(1)).empty());
}

TEST(Files, AWriterWhoseFileWasRemovedMakesANewOne) {
  const Folder folder;
  const auto store = Store::open(folder / "a.db", Access::read_write);
  store->append(make_run(make_key(1), 1));
  fs::remove(folder / "a.db");
  store->append(make_run(make_key(1), 2));
  EXPECT_EQ(Store::open(folder / "a.db", Access::lookup_only)->runs(make_key(1)).size(), 1u);
}

// quda#1558: a run with tuning disabled overwrote good data.
TEST(Files, Quda1558LookupsChangeNoByteAndCreateNoFile) {
  const Folder folder;
  fill(folder / "a.db");
  // Also where the files that a writer leaves beside it are gone.
  for (int round = 0; round < 2; ++round) {
    const auto before = test::snapshot(folder.path());
    EXPECT_TRUE(answers(folder / "a.db"));
    EXPECT_TRUE(answers(folder / "a.db", Access::read_write));  // nothing is written, so nothing is touched
    Store::open(folder / "a.db", Access::lookup_only)->generation();
    EXPECT_EQ(test::snapshot(folder.path()), before);
    fs::remove(folder / "a.db-journal");
    fs::remove(folder / "a.db.lock");
  }
}

// llm-d#1430: an unwritable cache folder crashes the pod.
TEST(Files, Llmd1430AReadOnlyFolderAsAnotherUserStillAnswers) {
  const Folder folder;
  fill(folder / "a.db");
  for (const bool with_journal : {true, false}) {
    if (!with_journal) fs::remove(folder / "a.db-journal");
    fs::permissions(folder.path(), fs::perms(0555));
    for (const auto& entry : fs::directory_iterator(folder.path())) fs::permissions(entry.path(), fs::perms(0444));
    const auto before = test::snapshot(folder.path());
    EXPECT_EQ(test::in_child([&] {
                test::become_nobody();
                if (std::ofstream(folder / "probe") || std::ofstream(folder / "a.db", std::ios::app)) return 1;
                if (!answers(folder / "a.db")) return 2;
                if (!answers(folder / "a.db", Access::read_write)) return 3;
                const std::string message = failures(folder / "a.db").write;
                EXPECT_THAT(message, HasSubstr("Permission denied"));
                EXPECT_THAT(message, HasSubstr(folder / "a.db"));
                return 0;
              }),
              0);
    EXPECT_EQ(test::snapshot(folder.path()), before);
    fs::permissions(folder.path(), fs::perms(0755));
  }
}

// The journal that a writer leaves is as private as the database was; opening the database up for others must be
// enough.
TEST(Files, AReadableDatabaseBesideAPrivateJournalStillAnswers) {
  const Folder folder;
  fill(folder / "a.db");
  ASSERT_TRUE(fs::exists(folder / "a.db-journal"));
  fs::permissions(folder / "a.db", fs::perms(0644));
  fs::permissions(folder.path(), fs::perms(0755));
  EXPECT_EQ(test::in_child([&] {
              test::become_nobody();
              return answers(folder / "a.db") ? 0 : 1;
            }),
            0);
  if (::geteuid() != 0) return;
  // What others write is still noticed.
  int ready[2], go[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(go), 0);
  const pid_t child = test::start_child([&] {
    test::become_nobody();
    const auto store = Store::open(folder / "a.db", Access::lookup_only);
    if (store->runs(make_key(1)).size() != 1) return 1;
    const std::uint64_t before = store->generation();
    char byte = 0;
    if (::write(ready[1], &byte, 1) != 1 || ::read(go[0], &byte, 1) != 1) return 2;
    if (store->generation() == before) return 3;
    return store->runs(make_key(1)).size() == 2 ? 0 : 4;
  });
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  Store::open(folder / "a.db", Access::read_write)->append(make_run(make_key(1), 5));
  ASSERT_EQ(::write(go[1], &byte, 1), 1);
  EXPECT_EQ(test::wait_for(child), 0);
  for (const int descriptor : {ready[0], ready[1], go[0], go[1]}) ::close(descriptor);
}

TEST(Files, ADatabaseOrFolderThatCannotBeReadIsAnError) {
  const Folder folder;
  fs::create_directory(folder / "inner");
  fill(folder / "inner" / "a.db");
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(folder / "inner", fs::perms(0755));
  const auto nobody = [&](const std::string& cause) {
    return test::in_child([&] {
      test::become_nobody();
      const Failures found = failures(folder / "inner" / "a.db");
      EXPECT_THAT(found.lookup, HasSubstr(cause));
      EXPECT_THAT(found.write, HasSubstr("Permission denied"));
      return 0;
    });
  };
  fs::permissions(folder / "inner" / "a.db", fs::perms(0));
  EXPECT_EQ(nobody("Permission denied"), 0);
  fs::permissions(folder / "inner" / "a.db", fs::perms(0600));
  fs::permissions(folder / "inner", fs::perms(0));
  EXPECT_EQ(nobody("Permission denied"), 0);
}

TEST(Files, AFolderThatCannotBeCreatedIsAnError) {
  const Folder folder;
  fs::permissions(folder.path(), fs::perms(0555));
  EXPECT_EQ(test::in_child([&] {
              test::become_nobody();
              const Failures found = failures(folder / "x" / "a.db");
              EXPECT_EQ(found.lookup, "");
              EXPECT_THAT(found.write, HasSubstr("cannot be created: Permission denied"));
              return 0;
            }),
            0);
  EXPECT_FALSE(fs::exists(folder / "x"));
}

TEST(Files, WhatCannotBeWrittenIsKnownBeforeThereIsAnythingToWrite) {
  const Folder folder;
  const auto fault = [](const fs::path& path) {
    return test::store_error([&] { Store::open(path, Access::read_write)->require_writable(); });
  };
  EXPECT_EQ(fault(folder / "x" / "a.db"), "");
  EXPECT_TRUE(fs::is_empty(folder / "x")) << "no file yet";
  fill(folder / "x" / "a.db");
  EXPECT_EQ(fault(folder / "x" / "a.db"), "");
  EXPECT_TRUE(answers(folder / "x" / "a.db"));
  fs::create_symlink(folder / "nowhere", folder / "dangling");
  for (const fs::path& path : {folder / "dangling" / "a.db", fs::path("/proc/nosuch/a.db"), fs::path("/proc/a.db")})
    EXPECT_THAT(fault(path), HasSubstr("cannot be created")) << path;
  EXPECT_THAT(test::store_error([&] { Store::open(folder / "b.db", Access::lookup_only)->require_writable(); }),
              HasSubstr("lookups only"));
  Store::in_memory()->require_writable();
  fs::permissions(folder / "x", fs::perms(0555));
  fs::permissions(folder.path(), fs::perms(0755));
  EXPECT_EQ(test::in_child([&] {
              test::become_nobody();
              EXPECT_THAT(fault(folder / "x" / "b.db"), HasSubstr("cannot be created: Permission denied"));
              return 0;
            }),
            0);
  fs::permissions(folder / "x", fs::perms(0755));
}

TEST(Files, AReadOnlyFileIsAnErrorForAWriter) {
  const Folder folder;
  fill(folder / "a.db");
  fs::remove(folder / "a.db.lock");
  fs::permissions(folder / "a.db", fs::perms(0444));
  fs::permissions(folder.path(), fs::perms(0777));
  EXPECT_EQ(test::in_child([&] {
              test::become_nobody();
              EXPECT_THAT(failures(folder / "a.db").write, HasSubstr("read-only"));
              return 0;
            }),
            0);
}

TEST(Files, ModesDoNotDependOnTheUmask) {
  for (const mode_t mask : {mode_t{0}, mode_t{077}, mode_t{022}, mode_t{0777}}) {
    const Folder folder;
    ASSERT_EQ(test::in_child([&] {
                ::umask(mask);
                fill(folder / "x" / "y" / "a.db");
                return 0;
              }),
              0)
        << mask;
    EXPECT_EQ(mode(folder / "x"), 0700u) << mask;
    EXPECT_EQ(mode(folder / "x" / "y"), 0700u) << mask;
    for (const auto& entry : fs::directory_iterator(folder / "x" / "y"))
      EXPECT_EQ(mode(entry.path()), 0600u) << entry.path();
    EXPECT_TRUE(answers(folder / "x" / "y" / "a.db"));
  }
}

TEST(Files, ATextFileIsRefused) {
  const Folder folder;
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{15}, std::size_t{99}, std::size_t{500}, std::size_t{100'000}}) {
    test::write_file(folder / "a.db", std::string(size, 'x'));
    expect_refused(folder, folder / "a.db", "is not a SQLite database");
  }
}

TEST(Files, AFileThatEndsInItsHeaderIsNoDatabase) {
  const Folder folder;
  fill(folder / "a.db");
  const std::string whole = test::read_file(folder / "a.db");
  for (const std::size_t size : {1, 15, 16, 50, 71, 99}) {
    test::write_file(folder / "b.db", whole.substr(0, size));
    expect_refused(folder, folder / "b.db", size < 15 ? "is not a SQLite database" : "is truncated");
  }
}

// TensorRT#2144: a foreign cache aborts the build.
TEST(Files, TensorRT2144AnotherApplicationsDatabaseIsRefused) {
  const Folder folder;
  {
    test::write_file(folder / "a.db", "");
    test::vandalise(folder / "a.db", "CREATE TABLE notes(text); INSERT INTO notes VALUES('mine')");
  }
  expect_refused(folder, folder / "a.db", "belongs to another application");
  test::vandalise(folder / "a.db", "PRAGMA application_id = 5");
  expect_refused(folder, folder / "a.db", "belongs to another application");
}

TEST(Files, AnotherApplicationsUnfinishedWriteIsNotTouched) {
  const Folder folder;
  test::write_file(folder / "a.db", "");
  test::vandalise(folder / "a.db", "CREATE TABLE notes(text); INSERT INTO notes VALUES(zeroblob(100000))");
  db::Connection connection(folder / "a.db", db::Connection::Mode::read_write);
  connection.execute("PRAGMA cache_size = 1; BEGIN; UPDATE notes SET text = randomblob(100000)");
  fs::copy_file(folder / "a.db", folder / "b.db");
  fs::copy_file(folder / "a.db-journal", folder / "b.db-journal");
  ASSERT_GT(fs::file_size(folder / "b.db-journal"), 0u);
  expect_refused(folder, folder / "b.db", "belongs to another application");
}

TEST(Files, ADatabaseInWriteAheadModeIsRefusedAndNotConverted) {
  const Folder folder;
  fill(folder / "a.db");
  fs::remove(folder / "a.db-journal");
  test::vandalise(folder / "a.db", "PRAGMA journal_mode = WAL");
  expect_refused(folder, folder / "a.db", "write-ahead");
}

// A crash between creating the file and the first commit leaves this, and so does `touch`: it is a database without
// facts.
TEST(Files, AnEmptyFileIsAnEmptyDatabase) {
  const Folder folder;
  test::write_file(folder / "a.db", "");
  {
    const auto before = test::snapshot(folder.path());
    const auto store = Store::open(folder / "a.db", Access::lookup_only);
    EXPECT_TRUE(store->runs(make_key(1)).empty());
    EXPECT_EQ(store->generation(), 0u);
    EXPECT_EQ(test::snapshot(folder.path()), before);
    fill(folder / "a.db");
    EXPECT_NE(store->generation(), 0u);
  }
  EXPECT_TRUE(answers(folder / "a.db"));
}

TEST(Files, SymbolicLinksAreRefused) {
  const Folder folder;
  fs::create_directory(folder / "real");
  fill(folder / "real" / "a.db");
  fs::create_symlink(folder / "real" / "a.db", folder / "link.db");
  expect_refused(folder, folder / "link.db", "is a symbolic link");
  fs::create_symlink(folder / "nowhere.db", folder / "dangling.db");
  expect_refused(folder, folder / "dangling.db", "is a symbolic link");
  EXPECT_FALSE(fs::exists(folder / "nowhere.db"));
}

TEST(Files, ALockFileOrJournalThatIsALinkIsRefused) {
  const Folder folder;
  fill(folder / "a.db");
  test::write_file(folder / "victim", "precious");
  fs::remove(folder / "a.db.lock");
  fs::create_symlink(folder / "victim", folder / "a.db.lock");
  EXPECT_THAT(failures(folder / "a.db").write, HasSubstr("it is a symbolic link"));
  fs::remove(folder / "a.db.lock");
  fs::remove(folder / "a.db-journal");
  fs::create_symlink(folder / "victim", folder / "a.db-journal");
  EXPECT_NE(failures(folder / "a.db").write, "");
  EXPECT_EQ(test::read_file(folder / "victim"), "precious");
}

// A home behind a link is common; only the database itself must not be one.
TEST(Files, AFolderBehindALinkIsFine) {
  const Folder folder;
  fs::create_directory(folder / "real");
  fs::create_directory_symlink(folder / "real", folder / "home");
  fill(folder / "home" / "a.db");
  EXPECT_TRUE(answers(folder / "home" / "a.db"));
  EXPECT_TRUE(answers(folder / "real" / "a.db"));
}

TEST(Files, WhatIsNotAFileIsRefused) {
  const Folder folder;
  fs::create_directory(folder / "a.db");
  expect_refused(folder, folder / "a.db", "is a folder");
  ASSERT_EQ(::mkfifo((folder / "pipe.db").c_str(), 0600), 0);
  expect_refused(folder, folder / "pipe.db", "is not a regular file");
  test::write_file(folder / "file", "x");
  const Failures below = failures(folder / "file" / "a.db");
  EXPECT_THAT(below.lookup, HasSubstr("Not a directory"));
  EXPECT_THAT(below.write, HasSubstr("Not a directory"));
}

// SQLite's journal has the longest name of the files beside a database.
TEST(Files, ANameThatIsTooLongIsRefused) {
  const Folder folder;
  fill(folder / std::string(247, 'a'));
  EXPECT_TRUE(answers(folder / std::string(247, 'a')));
  for (const std::size_t size : {248, 251, 255, 256, 5000})
    expect_refused(folder, folder / std::string(size, 'a'), "a name in its path is too long");
  expect_refused(folder, folder / "x" / std::string(256, 'a') / "a.db", "a name in its path is too long");
}

TEST(Files, NamesThatSqliteCouldMisreadAreJustNames) {
  const Folder folder;
  for (const char* name : {"file:x?mode=memory", "a b#c%20.db", ":memory:", "ü\n.db", "-journal", "a'b\".db"}) {
    fill(folder / name);
    EXPECT_TRUE(fs::is_regular_file(folder / name)) << name;
    EXPECT_TRUE(answers(folder / name)) << name;
  }
}

TEST(Files, ARelativePathIsTakenFromTheCurrentFolder) {
  const Folder folder;
  EXPECT_EQ(test::in_child([&] {
              fs::current_path(folder.path());
              fill("a.db");
              fill("x/../y/b.db");
              return answers("a.db") && answers(folder / "a.db") ? 0 : 1;
            }),
            0);
}

TEST(Files, ANewerVersionIsReadIfItAllowsAndNeverWritten) {
  const Folder folder;
  fill(folder / "a.db");
  test::vandalise(folder / "a.db",
                  "PRAGMA user_version = 2; ALTER TABLE device ADD COLUMN note TEXT; CREATE TABLE more(x BLOB) STRICT;"
                  "CREATE INDEX more_x ON more(x)");
  EXPECT_TRUE(answers(folder / "a.db"));
  for (const char* beside : {"a.db.lock", "a.db-journal"}) fs::remove(folder / beside);
  const auto before = test::snapshot(folder.path());
  EXPECT_THAT(failures(folder / "a.db").write, HasSubstr("newer version"));
  EXPECT_EQ(test::snapshot(folder.path()), before);
  test::vandalise(folder / "a.db", "UPDATE meta SET value = 2 WHERE key = 'min_reader'");
  expect_refused(folder, folder / "a.db", "newer version");
}

// A file may hold what runs when it is only read: such objects are refused before anything of theirs is used.
TEST(Files, UnknownSchemaObjectsAreRefused) {
  for (const char* sql :
       {"CREATE TABLE extra(x)", "CREATE VIEW extra AS SELECT 1", "CREATE INDEX extra ON sample(median_ns)",
        "CREATE TRIGGER extra AFTER INSERT ON run BEGIN DELETE FROM meta; END", "DROP TRIGGER sample_no_delete",
        "DROP INDEX run_of_key", "ALTER TABLE sample ADD COLUMN more INTEGER",
        "CREATE VIRTUAL TABLE extra USING fts5(x)", "DROP TABLE live; CREATE VIEW live AS SELECT 1",
        "CREATE INDEX extra ON run(abs(seed))"}) {
    const Folder folder;
    fill(folder / "a.db");
    {
      db::Connection connection(folder / "a.db", db::Connection::Mode::read_write);
      sqlite3_db_config(connection.handle(), SQLITE_DBCONFIG_DEFENSIVE, 0, nullptr);
      connection.execute(sql);
    }
    expect_refused(folder, folder / "a.db", "tables are not those of version 1");
  }
  for (const char* sql : {"CREATE VIEW extra AS SELECT 1", "CREATE VIRTUAL TABLE extra USING fts5(x)",
                          "ALTER TABLE device ADD COLUMN more TEXT AS (hex(device_id))"}) {
    const Folder folder;
    fill(folder / "a.db");
    test::vandalise(folder / "a.db", std::string(sql) + "; PRAGMA user_version = 2");
    EXPECT_NE(failures(folder / "a.db").lookup, "") << sql;
  }
}

TEST(Files, AnUnfinishedWriteIsRecoveredByAWriterAndLeftByLookups) {
  const Folder folder;
  fill(folder / "a.db");
  {
    db::Connection connection(folder / "a.db", db::Connection::Mode::read_write);
    connection.execute(
        "PRAGMA journal_mode = TRUNCATE; PRAGMA cache_size = 1; BEGIN;"
        "UPDATE sample SET raw = zeroblob(240000); UPDATE verdict SET segments = '[]'");
    fs::copy_file(folder / "a.db", folder / "b.db");
    fs::copy_file(folder / "a.db-journal", folder / "b.db-journal");
  }
  ASSERT_GT(fs::file_size(folder / "b.db-journal"), 0u);
  const auto before = test::snapshot(folder.path());
  EXPECT_THAT(test::store_error([&] { Store::open(folder / "b.db", Access::lookup_only); }),
              HasSubstr("died while it wrote"));
  EXPECT_EQ(test::snapshot(folder.path()), before);
  EXPECT_TRUE(answers(folder / "b.db", Access::read_write));
  EXPECT_TRUE(answers(folder / "b.db"));
}

TEST(Files, DefaultPath) {
  const auto path_of = [](const std::map<std::string, std::string>& variables) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    test::in_child([&] {
      for (const char* name : {"CROSSOVER_DB", "XDG_DATA_HOME", "HOME"}) ::unsetenv(name);
      for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
      const std::string path = default_database_path();
      return ::write(ends[1], path.data(), path.size()) == static_cast<ssize_t>(path.size()) ? 0 : 1;
    });
    ::close(ends[1]);
    char text[500];
    const ssize_t got = ::read(ends[0], text, sizeof text);
    ::close(ends[0]);
    return std::string(text, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  };
  EXPECT_EQ(path_of({{"CROSSOVER_DB", "x.db"}, {"XDG_DATA_HOME", "/d"}, {"HOME", "/h"}}), "x.db");
  EXPECT_EQ(path_of({{"CROSSOVER_DB", ""}, {"XDG_DATA_HOME", "/d"}, {"HOME", "/h"}}), "/d/crossover/tuning.db");
  EXPECT_EQ(path_of({{"XDG_DATA_HOME", "relative"}, {"HOME", "/h"}}), "/h/.local/share/crossover/tuning.db");
  EXPECT_EQ(path_of({{"HOME", "/h"}}), "/h/.local/share/crossover/tuning.db");
  EXPECT_EQ(path_of({}), "");
}

TEST(Files, WithoutAPathThereIsOneClearSentence) {
  EXPECT_THAT(test::store_error([] { Store::open("", Access::lookup_only); }), HasSubstr("has no path"));
  EXPECT_THAT(test::store_error([] { Store::open("", Access::read_write); }), HasSubstr("has no path"));
}

TEST(Files, ALockedDatabaseIsAnErrorAfterAWait) {
  const Folder folder;
  fill(folder / "a.db");
  db::Connection other(folder / "a.db", db::Connection::Mode::read_write);
  other.execute("BEGIN EXCLUSIVE");
  EXPECT_EQ(test::in_child([&] {
              EXPECT_THAT(test::store_error([&] { Store::open(folder / "a.db", Access::lookup_only); }),
                          HasSubstr("kept it locked"));
              return 0;
            }),
            0);
}

// A file-size limit stands for a full disk: the write fails in the middle.
TEST(Files, AFullDiskIsAnErrorAndOldRowsStay) {
  const Folder folder;
  fill(folder / "a.db");
  const auto size = static_cast<rlim_t>(fs::file_size(folder / "a.db"));
  for (const rlim_t more : {rlim_t{0}, rlim_t{512}, rlim_t{4096}, rlim_t{20'000}, rlim_t{50'000}}) {
    EXPECT_EQ(test::in_child([&] {
                ::signal(SIGXFSZ, SIG_IGN);
                const auto store = Store::open(folder / "a.db", Access::read_write);
                const rlimit limit{size + more, size + more};
                if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
                const std::string message = test::store_error([&] { store->append(make_run(make_key(1), 3, 2000)); });
                EXPECT_THAT(message, HasSubstr(folder / "a.db"));
                EXPECT_FALSE(message.empty());
                return store->runs(make_key(1)).size() == 1 ? 0 : 2;
              }),
              0)
        << more;
    EXPECT_TRUE(answers(folder / "a.db")) << more;
  }
  // Already while the file is created.
  for (const rlim_t limit_bytes : {rlim_t{0}, rlim_t{100}, rlim_t{5000}, rlim_t{60'000}}) {
    EXPECT_EQ(test::in_child([&] {
                ::signal(SIGXFSZ, SIG_IGN);
                const rlimit limit{limit_bytes, limit_bytes};
                if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
                const auto store = Store::open(folder / "new.db", Access::read_write);
                EXPECT_NE(test::store_error([&] { store->append(make_run(make_key(1), 3)); }), "");
                return store->runs(make_key(1)).empty() ? 0 : 2;
              }),
              0);
    EXPECT_TRUE(Store::open(folder / "new.db", Access::lookup_only)->runs(make_key(1)).empty());
  }
  fill(folder / "new.db");
  EXPECT_TRUE(answers(folder / "new.db"));
}

}  // namespace
}  // namespace crossover
