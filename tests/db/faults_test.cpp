// Every operation on the file fails once, or from then on: the answer is an error or the truth, and nothing is lost.

#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>
#include <cstring>

#include "support.hpp"

namespace crossover {
namespace {

namespace fs = std::filesystem;
using test::Folder;
using test::make_key;
using test::make_run;
using Access = Store::Access;

// An SQLite VFS over the default one. Operation number `fail_at` of the process fails, or all from it on.
struct FaultyFile {
  sqlite3_file base;
  sqlite3_file* real;
};
struct Faults {
  sqlite3_vfs* real = nullptr;
  int count = 0, fail_at = -1;
  bool forever = false;
  bool fails() { return ++count == fail_at || (forever && fail_at > 0 && count > fail_at); }
} faults;

sqlite3_file* real(sqlite3_file* file) { return reinterpret_cast<FaultyFile*>(file)->real; }

int close_file(sqlite3_file* file) {
  const int result = real(file)->pMethods == nullptr ? SQLITE_OK : real(file)->pMethods->xClose(real(file));
  sqlite3_free(real(file));
  return result;
}
int read_bytes(sqlite3_file* file, void* to, int bytes, sqlite3_int64 at) {
  return faults.fails() ? SQLITE_IOERR_READ : real(file)->pMethods->xRead(real(file), to, bytes, at);
}
int write_bytes(sqlite3_file* file, const void* from, int bytes, sqlite3_int64 at) {
  if (!faults.fails()) return real(file)->pMethods->xWrite(real(file), from, bytes, at);
  if (faults.count % 2 == 0) return SQLITE_FULL;
  real(file)->pMethods->xWrite(real(file), from, bytes / 2, at);  // a short write
  return SQLITE_IOERR_WRITE;
}
int truncate(sqlite3_file* file, sqlite3_int64 bytes) {
  return faults.fails() ? SQLITE_IOERR_TRUNCATE : real(file)->pMethods->xTruncate(real(file), bytes);
}
int sync(sqlite3_file* file, int flags) {
  return faults.fails() ? SQLITE_IOERR_FSYNC : real(file)->pMethods->xSync(real(file), flags);
}
int file_size(sqlite3_file* file, sqlite3_int64* bytes) {
  return faults.fails() ? SQLITE_IOERR_FSTAT : real(file)->pMethods->xFileSize(real(file), bytes);
}
int lock(sqlite3_file* file, int level) {
  return faults.fails() ? SQLITE_IOERR_LOCK : real(file)->pMethods->xLock(real(file), level);
}
int unlock(sqlite3_file* file, int level) { return real(file)->pMethods->xUnlock(real(file), level); }
int check_lock(sqlite3_file* file, int* reserved) {
  return faults.fails() ? SQLITE_IOERR_CHECKRESERVEDLOCK
                        : real(file)->pMethods->xCheckReservedLock(real(file), reserved);
}
int control(sqlite3_file* file, int operation, void* argument) {
  return real(file)->pMethods->xFileControl(real(file), operation, argument);
}
int sector_size(sqlite3_file* file) { return real(file)->pMethods->xSectorSize(real(file)); }
int characteristics(sqlite3_file* file) { return real(file)->pMethods->xDeviceCharacteristics(real(file)); }

const sqlite3_io_methods kMethods = {
    1,       close_file,  read_bytes,      write_bytes, truncate, sync,    file_size, lock,    unlock, check_lock,
    control, sector_size, characteristics, nullptr,     nullptr,  nullptr, nullptr,   nullptr, nullptr};

int open_file(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  auto* const faulty = reinterpret_cast<FaultyFile*>(file);
  faulty->base.pMethods = nullptr;
  if (faults.fails()) return SQLITE_CANTOPEN;
  faulty->real = static_cast<sqlite3_file*>(sqlite3_malloc(faults.real->szOsFile));
  std::memset(faulty->real, 0, static_cast<std::size_t>(faults.real->szOsFile));
  const int result = faults.real->xOpen(faults.real, name, faulty->real, flags, out_flags);
  if (result == SQLITE_OK) {
    faulty->base.pMethods = &kMethods;
  } else {
    sqlite3_free(faulty->real);
  }
  return result;
}

void install_faults() {
  faults.real = sqlite3_vfs_find(nullptr);
  static sqlite3_vfs vfs = *faults.real;
  vfs.zName = "faulty";
  vfs.szOsFile = sizeof(FaultyFile);
  vfs.xOpen = open_file;
  sqlite3_vfs_register(&vfs, 1);
}

// What must hold after any failure, seen without faults: the first run is there, and a second one is there whole or not
// at all; the store can be written again.
void expect_intact(const fs::path& path, bool second_was_stored) {
  const auto store = Store::open(path, Access::read_write);
  auto runs = store->runs(make_key(1));
  ASSERT_GE(runs.size(), second_was_stored ? 2u : 1u);
  ASSERT_LE(runs.size(), 2u);
  for (crossover::Run& run : runs) EXPECT_TRUE(store->load(run));
  store->append(make_run(make_key(2), 9, 1));
  EXPECT_EQ(store->runs(make_key(2)).size(), 1u);
  EXPECT_TRUE(store->warnings().empty());
}

class Faulty : public ::testing::TestWithParam<bool> {};

TEST_P(Faulty, WritesLoseNothing) {
  EXPECT_EQ(test::in_child([] {
              const Folder folder;
              const fs::path path = folder / "a.db";
              Store::open(path, Access::read_write)->append(make_run(make_key(1), 1));
              const std::string pristine = test::read_file(path);
              install_faults();
              faults.forever = GetParam();
              int failed = 0, last = 0;
              for (int at = 1; at < 5'000; ++at) {
                faults.count = 0;
                faults.fail_at = at;
                bool stored = false;
                try {
                  const auto store = Store::open(path, Access::read_write);
                  store->append(make_run(make_key(1), 2));
                  stored = true;
                  EXPECT_LE(store->runs(make_key(1)).size(), 2u);
                } catch (const StoreError& error) {
                  ++failed;
                  EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
                }
                last = faults.count;
                faults.fail_at = -1;
                expect_intact(path, stored);
                if (::testing::Test::HasFailure()) return at;
                fs::remove(path.string() + "-journal");
                test::write_file(path, pristine);
                if (last < at) break;
              }
              EXPECT_GT(failed, 50);
              EXPECT_LT(last, 5'000);
              return 0;
            }),
            0);
}

TEST_P(Faulty, ReadsGiveTheTruthOrAnError) {
  EXPECT_EQ(test::in_child([] {
              const Folder folder;
              const fs::path path = folder / "a.db";
              const EvidenceKey key = make_key(1);
              {
                const auto store = Store::open(path, Access::read_write);
                store->put(test::make_verdict(key, {store->append(make_run(key, 1))}));
              }
              const test::Contents original = test::read_all(path, {key});
              const auto before = test::snapshot(folder.path());
              install_faults();
              faults.forever = GetParam();
              int failed = 0;
              for (int at = 1; at < 5'000; ++at) {
                faults.count = 0;
                faults.fail_at = at;
                const test::Contents found = test::read_all(path, {key});
                const int last = faults.count;
                faults.fail_at = -1;
                EXPECT_TRUE(test::nothing_wrong(found, original)) << at;
                if (found.errors > 0) ++failed;
                EXPECT_TRUE(found.errors > 0 || !found.warnings.empty() || test::nothing_missing(found, original))
                    << at;
                if (::testing::Test::HasFailure()) return 1;
                if (last < at) break;
              }
              EXPECT_GT(failed, 20);
              EXPECT_EQ(test::snapshot(folder.path()), before);
              return 0;
            }),
            0);
}

TEST_P(Faulty, TheFirstOpenLeavesSomethingThatCanBeUsed) {
  EXPECT_EQ(test::in_child([] {
              install_faults();
              faults.forever = GetParam();
              int failed = 0;
              for (int at = 1; at < 5'000; ++at) {
                const Folder folder;
                const fs::path path = folder / "x" / "a.db";
                faults.count = 0;
                faults.fail_at = at;
                bool stored = false;
                try {
                  Store::open(path, Access::read_write)->append(make_run(make_key(1), 1, 1));
                  stored = true;
                } catch (const StoreError&) {
                  ++failed;
                }
                const int last = faults.count;
                faults.fail_at = -1;
                const auto store = Store::open(path, Access::read_write);
                EXPECT_LE(store->runs(make_key(1)).size(), 1u);
                EXPECT_TRUE(!stored || store->runs(make_key(1)).size() == 1) << at;
                store->append(make_run(make_key(1), 1, 1));
                EXPECT_EQ(store->runs(make_key(1)).size(), 1u) << at;
                if (::testing::Test::HasFailure()) return 1;
                if (last < at) break;
              }
              EXPECT_GT(failed, 50);
              return 0;
            }),
            0);
}
INSTANTIATE_TEST_SUITE_P(Faults, Faulty, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "FromThenOn" : "Once"; });

// 300 KB of real disk.
TEST(Faults, AFullFileSystemKeepsOldRows) {
  const Folder folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=300k") != 0)
    GTEST_SKIP() << "mounting a small file system takes root's rights";
  const fs::path path = folder / "a.db";
  std::size_t stored = 0;
  std::string message;
  {
    const auto store = Store::open(path, Access::read_write);
    for (int round = 0; round < 100; ++round) {
      const std::string error = test::store_error([&] { store->append(make_run(make_key(1), stored + 1, 20)); });
      if (error.empty()) {
        ++stored;
      } else {
        message = error;
      }
      auto runs = store->runs(make_key(1));
      EXPECT_EQ(runs.size(), stored);
    }
    for (crossover::Run& run : store->runs(make_key(1))) EXPECT_TRUE(store->load(run));
    EXPECT_TRUE(store->warnings().empty());
  }
  EXPECT_GT(stored, 0u);
  EXPECT_NE(message.find("no space is left"), std::string::npos) << message;
  EXPECT_EQ(Store::open(path, Access::lookup_only)->runs(make_key(1)).size(), stored);
  ::umount(folder.path().c_str());
}

}  // namespace
}  // namespace crossover
