#include "open.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <system_error>
#include <thread>

namespace crossover::db {
namespace {

namespace fs = std::filesystem;

constexpr auto kCreationLockTimeout = std::chrono::seconds(10);
constexpr ::mode_t kFileMode = 0600, kFolderMode = 0700;

// SQLite before 3.51.3 can lose data in write-ahead mode, and reads are served from memory anyway.
constexpr const char* kJournal = "PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = FULL";

std::string error_text(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail(const fs::path& path, const std::string& cause, std::string advice = {}) {
  throw StoreError("The database " + path.string() + ": " + cause, std::move(advice));
}

enum class Kind { absent, empty, file };

fs::path journal_of(const fs::path& database) { return database.string() + "-journal"; }

// What lies at `path`, without following a link there. Throws for anything that cannot be a database.
Kind inspect(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return Kind::absent;
    fail(path, "it cannot be reached: " + error_text(errno));
  }
  if (S_ISLNK(status.st_mode)) fail(path, "is a symbolic link", "Give the path that it points to.");
  if (S_ISDIR(status.st_mode)) fail(path, "is a folder, not a file");
  if (!S_ISREG(status.st_mode)) fail(path, "is not a regular file");
  return status.st_size == 0 ? Kind::empty : Kind::file;
}

// Absolute, with the links in its folders resolved. SQLite, which is told to follow none, would refuse a home behind
// one.
fs::path resolve(const fs::path& path) {
  if (path.empty()) throw StoreError("The database has no path", "Set CROSSOVER_DB, XDG_DATA_HOME or HOME.");
  if (!path.has_filename()) fail(path, "is a folder, not a file");
  if (path.native().find('\0') != std::string::npos) fail(path.c_str(), "its path contains a zero byte");
  const auto too_long = [](const fs::path& name) { return name.native().size() > NAME_MAX; };
  if (too_long(journal_of(path.filename())) || std::any_of(path.begin(), path.end(), too_long))
    fail(path, "a name in its path is too long");
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  if (error) fail(path, "the current folder cannot be read: " + error.message());
  const fs::path folder = fs::weakly_canonical(absolute.parent_path(), error);
  if (error) fail(path, "its folder cannot be reached: " + error.message());
  return folder / absolute.filename();
}

void create_folders(const fs::path& folder, const fs::path& database) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) == 0) {
    if (!S_ISDIR(status.st_mode)) fail(database, folder.string() + " is not a folder");
    return;
  }
  if (errno != ENOENT) fail(database, "its folder cannot be reached: " + error_text(errno));
  if (folder.has_relative_path()) create_folders(folder.parent_path(), database);
  if (::mkdir(folder.c_str(), kFolderMode) == 0) {
    ::chmod(folder.c_str(), kFolderMode);  // whatever the umask took away
  } else if (errno != EEXIST) {
    fail(database, "the folder " + folder.string() + " cannot be created: " + error_text(errno));
  }
}

// A new file of no bytes, 0600 whatever the umask; false if the name is taken. Made without opening it: a descriptor
// that is closed again would drop the locks of any connection that another thread opened meanwhile.
bool create_empty(const fs::path& path) {
  if (::mknod(path.c_str(), S_IFREG | kFileMode, 0) != 0) {
    if (errno == EEXIST) return false;
    fail(path, "it cannot be created: " + error_text(errno));
  }
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && (status.st_mode & 07777) != kFileMode) ::chmod(path.c_str(), kFileMode);
  return true;
}

// Held while a file is created, recovered or migrated: of many processes that open a new database at once, one makes
// it.
class CreationLock {
 public:
  explicit CreationLock(const fs::path& database) {
    const std::string path = database.string() + ".lock";
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kFileMode);
    if (descriptor_ < 0) {
      const std::string cause = errno == ELOOP ? "it is a symbolic link" : error_text(errno);
      fail(database, "its lock file " + path + " cannot be opened: " + cause);
    }
    struct stat status {};
    if (::fstat(descriptor_, &status) == 0 && status.st_uid == ::geteuid() && (status.st_mode & 07777) != kFileMode)
      ::fchmod(descriptor_, kFileMode);
    const auto deadline = std::chrono::steady_clock::now() + kCreationLockTimeout;
    while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      if (error == EINTR) continue;
      if (error != EWOULDBLOCK || std::chrono::steady_clock::now() > deadline) {
        ::close(descriptor_);
        fail(database, error == EWOULDBLOCK ? "another process has kept it locked for 10 seconds"
                                            : "its lock file cannot be locked: " + error_text(error));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  ~CreationLock() { ::close(descriptor_); }
  CreationLock(const CreationLock&) = delete;
  CreationLock& operator=(const CreationLock&) = delete;

 private:
  int descriptor_ = -1;
};

bool has_bytes(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && status.st_size > 0;
}

// Looks at the header without taking a lock, so that the file of another application, or one in a journal mode that
// makes SQLite create files, is refused before SQLite does anything with it.
void check_header(Connection& connection) {
  std::array<std::uint8_t, 100> header{};
  connection.peek(header, 0);
  const bool all_zero = std::all_of(header.begin(), header.end(), [](std::uint8_t byte) { return byte == 0; });
  // A crash while the file was created: its journal says that the file was empty.
  if (all_zero && has_bytes(journal_of(connection.path()))) return;
  if (std::memcmp(header.data(), "SQLite format 3", 16) != 0) connection.fail(SQLITE_NOTADB);
  if (const std::int64_t bytes = connection.file_bytes(); bytes < std::ssize(header))
    throw Damaged("The database " + connection.path().string() + ": is truncated: it ends after " +
                  std::to_string(bytes) + " bytes");
  const auto application = (std::uint32_t{header[68]} << 24) | (std::uint32_t{header[69]} << 16) |
                           (std::uint32_t{header[70]} << 8) | std::uint32_t{header[71]};
  if (application != static_cast<std::uint32_t>(kApplicationId))
    fail(connection.path(), "belongs to another application", "Give the path of a Crossover database.");
  if (header[18] != 1 || header[19] != 1)
    fail(connection.path(), "another program has switched it to write-ahead logging, which Crossover does not use",
         "Run `sqlite3 FILE 'PRAGMA journal_mode = delete'` once.");
}

// SQLite itself notices a missing page only when it comes to it, and part of one not at all.
void check_length(Connection& connection) {
  const std::int64_t bytes = connection.integer("PRAGMA page_count") * connection.integer("PRAGMA page_size");
  if (connection.file_bytes() < bytes)
    throw Damaged("The database " + connection.path().string() + ": is truncated: " +
                  std::to_string(connection.file_bytes()) + " of " + std::to_string(bytes) + " bytes");
}

void check_structure(Connection& connection) {
  const Transaction transaction(connection, Transaction::Kind::read);
  Query query = connection.query("PRAGMA quick_check(1)");
  if (!query.step()) connection.fail(SQLITE_CORRUPT);
  if (const std::string found(query.text(0)); found != "ok") {
    throw Damaged("The database " + connection.path().string() + ": is damaged (" + found.substr(0, 200) + ")",
                  "It can still be read; move it away to start a new one.");
  }
}

// A copy of the file as it was, beside it, under a name that was free.
void back_up(Connection& from, int version) {
  const std::string stem = from.path().string() + ".v" + std::to_string(version) + ".backup";
  fs::path path = stem;
  for (int count = 2; !create_empty(path); ++count) path = stem + "-" + std::to_string(count);
  try {
    Connection to(path, Connection::Mode::read_write);
    sqlite3_backup* const backup = sqlite3_backup_init(to.handle(), "main", from.handle(), "main");
    if (backup == nullptr) to.fail(sqlite3_errcode(to.handle()));
    const int stepped = sqlite3_backup_step(backup, -1);
    sqlite3_backup_finish(backup);
    if (stepped != SQLITE_DONE) to.fail(stepped);
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
}

// Under the creation lock.
void create(Connection& connection, const Schema& schema) {
  Transaction transaction(connection, Transaction::Kind::immediate);
  apply_steps(connection, schema, 0);
  transaction.commit();
}

// Under the creation lock.
void migrate(Connection& connection, const Schema& schema, int version) {
  check_structure(connection);
  back_up(connection, version);
  Transaction transaction(connection, Transaction::Kind::exclusive);
  version = validate(connection, schema, true);  // a program without the lock may have come in between
  apply_steps(connection, schema, version);
  validate(connection, schema, true);
  transaction.commit();
}

std::unique_ptr<Connection> open_existing(const fs::path& path, Connection::Mode mode, const Schema& schema,
                                          bool for_writing) {
  auto connection = std::make_unique<Connection>(path, mode);
  check_header(*connection);
  const Transaction transaction(*connection, Transaction::Kind::read);
  validate(*connection, schema, for_writing);
  check_length(*connection);
  return connection;
}

// What may not be written is refused before a lock file lies beside it.
void check_before_lock(const fs::path& path, const Schema& schema) {
  try {
    open_existing(path, Connection::Mode::read_only, schema, true);
  } catch (const UnfinishedWrite&) {
    // It is rolled back under the lock, and then looked at again.
  }
}

}  // namespace

std::unique_ptr<Connection> open_reader(const fs::path& path, const Schema& schema) {
  const fs::path resolved = resolve(path);
  if (inspect(resolved) != Kind::file) return nullptr;
  try {
    return open_existing(resolved, Connection::Mode::read_only, schema, false);
  } catch (const UnfinishedWrite&) {
    // SQLite takes a journal that it may not open for one that must be rolled back. One of no bytes is what every
    // commit leaves; then nothing is unfinished.
    if (has_bytes(journal_of(resolved))) throw;
    return open_existing(resolved, Connection::Mode::read_only_immutable, schema, false);
  }
}

std::unique_ptr<Connection> open_writer(const fs::path& path, const Schema& schema) {
  const fs::path resolved = resolve(path);
  if (inspect(resolved) == Kind::file) check_before_lock(resolved, schema);
  create_folders(resolved.parent_path(), resolved);
  std::unique_ptr<Connection> connection;
  {
    const CreationLock lock(resolved);
    if (inspect(resolved) == Kind::absent) create_empty(resolved);
    connection = std::make_unique<Connection>(resolved, Connection::Mode::read_write);
    if (sqlite3_db_readonly(connection->handle(), "main") != 0) fail(resolved, "it is read-only");
    if (connection->file_bytes() > 0) {
      check_header(*connection);
      connection->integer("PRAGMA schema_version");  // reads, and so rolls back what a crash left
    }
    if (connection->file_bytes() == 0) {
      connection->execute(kJournal);
      create(*connection, schema);
    } else {
      int version = 0;
      {
        const Transaction transaction(*connection, Transaction::Kind::read);
        version = validate(*connection, schema, true);
        check_length(*connection);
      }
      connection->execute(kJournal);
      if (version < schema.version()) migrate(*connection, schema, version);
    }
  }
  check_structure(*connection);
  connection->allow_triggers();
  return connection;
}

void check_creatable(const fs::path& path) {
  const fs::path resolved = resolve(path);
  create_folders(resolved.parent_path(), resolved);
  const fs::path trial = resolved.string() + ".trial";
  if (::mknod(trial.c_str(), S_IFREG | kFileMode, 0) == 0) {
    ::unlink(trial.c_str());
  } else if (errno != EEXIST) {
    fail(resolved, "it cannot be created: " + error_text(errno));
  }
}

std::unique_ptr<Connection> open_memory(const Schema& schema) {
  auto connection = std::make_unique<Connection>(fs::path(), Connection::Mode::memory);
  Transaction transaction(*connection, Transaction::Kind::immediate);
  apply_steps(*connection, schema, 0);
  transaction.commit();
  connection->allow_triggers();
  return connection;
}

}  // namespace crossover::db
