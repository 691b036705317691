#include "sqlite.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace crossover::db {
namespace {

// A read that takes more than this many instructions of SQLite's machine is a loop in a damaged or hostile file: the
// largest honest query of ours takes a few thousand.
constexpr int kInstructionsPerCallback = 100'000;
constexpr int kMaxCallbacks = 500;

// How long to wait for other processes. Readers wait only while another process commits.
constexpr int kReadTimeoutMs = 2'000;
constexpr int kWriteTimeoutMs = 10'000;

// SQLite's own advice for files that may be hostile (sqlite.org/security.html); variables: as many as our longest
// INSERT.
constexpr std::pair<int, int> kLimits[] = {
    {SQLITE_LIMIT_LENGTH, 1'000'000},   {SQLITE_LIMIT_SQL_LENGTH, 100'000}, {SQLITE_LIMIT_COLUMN, 100},
    {SQLITE_LIMIT_EXPR_DEPTH, 10},      {SQLITE_LIMIT_COMPOUND_SELECT, 3},  {SQLITE_LIMIT_VDBE_OP, 25'000},
    {SQLITE_LIMIT_FUNCTION_ARG, 8},     {SQLITE_LIMIT_ATTACHED, 0},         {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 50},
    {SQLITE_LIMIT_VARIABLE_NUMBER, 32}, {SQLITE_LIMIT_TRIGGER_DEPTH, 10},   {SQLITE_LIMIT_WORKER_THREADS, 0},
};

constexpr std::pair<int, int> kSwitches[] = {
    {SQLITE_DBCONFIG_DEFENSIVE, 1},
    {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
    {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
    {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
    {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
    {SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, 0},
    {SQLITE_DBCONFIG_DQS_DDL, 0},
    {SQLITE_DBCONFIG_DQS_DML, 0},
    {SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0},
    {SQLITE_DBCONFIG_ENABLE_FKEY, 1},
};

// `path` as a URI that cannot be mistaken for options.
std::string immutable_uri(const std::string& path) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string uri = "file:";
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' ||
                       c == '.' || c == '-' || c == '_';
    if (plain) {
      uri += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      uri += '%';
      uri += kHex[byte >> 4];
      uri += kHex[byte & 15];
    }
  }
  return uri + "?immutable=1";
}

}  // namespace

Query::~Query() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

void Query::check(int result) {
  if (result != SQLITE_OK) connection_.fail(result);
}

Query& Query::bind(std::int64_t value) { return check(sqlite3_bind_int64(statement_, ++bound_, value)), *this; }
Query& Query::bind(double value) { return check(sqlite3_bind_double(statement_, ++bound_, value)), *this; }
Query& Query::bind(std::nullopt_t) { return check(sqlite3_bind_null(statement_, ++bound_)), *this; }
Query& Query::bind(std::string_view text) {
  // A null pointer would bind NULL; the null destructor says that the text stays where it is.
  const char* const data = text.data() == nullptr ? "" : text.data();
  check(sqlite3_bind_text64(statement_, ++bound_, data, text.size(), nullptr, SQLITE_UTF8));
  return *this;
}
Query& Query::bind(std::span<const std::uint8_t> blob) {
  if (blob.empty()) {
    check(sqlite3_bind_zeroblob(statement_, ++bound_, 0));
  } else {
    check(sqlite3_bind_blob64(statement_, ++bound_, blob.data(), blob.size(), nullptr));
  }
  return *this;
}

bool Query::step() {
  connection_.progress_ = 0;
  const int result = sqlite3_step(statement_);
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  connection_.fail(result);
}

void Query::run() {
  while (step()) {
  }
}

void Query::expect(int column, int type) const {
  if (sqlite3_column_type(statement_, column) != type)
    throw BadRow(std::string("column ") + sqlite3_column_name(statement_, column) + " has the wrong type");
}

bool Query::is_null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
std::int64_t Query::integer(int column) const {
  expect(column, SQLITE_INTEGER);
  return sqlite3_column_int64(statement_, column);
}
std::optional<std::int64_t> Query::optional_integer(int column) const {
  if (is_null(column)) return std::nullopt;
  return integer(column);
}
double Query::real(int column) const {
  expect(column, SQLITE_FLOAT);
  return sqlite3_column_double(statement_, column);
}
std::string_view Query::text(int column) const {
  expect(column, SQLITE_TEXT);
  const unsigned char* const data = sqlite3_column_text(statement_, column);
  if (data == nullptr) connection_.fail(SQLITE_NOMEM);
  return {reinterpret_cast<const char*>(data), static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}
std::span<const std::uint8_t> Query::blob(int column) const {
  expect(column, SQLITE_BLOB);
  const auto bytes = static_cast<std::size_t>(sqlite3_column_bytes(statement_, column));
  return {static_cast<const std::uint8_t*>(sqlite3_column_blob(statement_, column)), bytes};
}
Id Query::id(int column) const {
  const auto bytes = blob(column);
  Id id;
  if (bytes.size() != id.bytes.size()) throw BadRow("an id that is not 16 bytes long");
  std::memcpy(id.bytes.data(), bytes.data(), bytes.size());
  return id;
}

Connection::Connection(const std::filesystem::path& path, Mode mode) : path_(path), mode_(mode) {
  if (sqlite3_threadsafe() == 0) throw StoreError("This SQLite was built without support for threads");
  if (sqlite3_libversion_number() < 3'037'000)
    throw StoreError(std::string("SQLite 3.37 or newer is needed; this is ") + sqlite3_libversion());
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
  std::string name = path.string();
  switch (mode) {
    case Mode::read_only:
      flags |= SQLITE_OPEN_READONLY;
      break;
    case Mode::read_only_immutable:
      flags |= SQLITE_OPEN_READONLY | SQLITE_OPEN_URI;
      name = immutable_uri(name);
      break;
    case Mode::read_write:
      flags |= SQLITE_OPEN_READWRITE;
      break;
    case Mode::memory:
      flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_MEMORY;
      name = ":memory:";
      break;
  }
  try {
    const int result = sqlite3_open_v2(name.c_str(), &handle_, flags, nullptr);
    if (result != SQLITE_OK) fail(result);
    struct stat status {};
    if (mode == Mode::read_only_immutable && ::lstat(path_.c_str(), &status) == 0) {
      device_ = status.st_dev;
      inode_ = status.st_ino;
    }
    configure();
  } catch (...) {
    sqlite3_close_v2(handle_);
    throw;
  }
}

void Connection::configure() {
  for (const auto& [limit, value] : kLimits) sqlite3_limit(handle_, limit, value);
  for (const auto& [option, value] : kSwitches) {
    const int result = sqlite3_db_config(handle_, option, value, nullptr);
    // An SQLite without extensions or FTS3 does not know those switches, and has nothing to switch off.
    const bool optional =
        option == SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION || option == SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER;
    if (result != SQLITE_OK && !optional) fail(result);
  }
  const bool writes = mode_ == Mode::read_write || mode_ == Mode::memory;
  sqlite3_busy_timeout(handle_, writes ? kWriteTimeoutMs : kReadTimeoutMs);
  if (!writes) sqlite3_progress_handler(handle_, kInstructionsPerCallback, &Connection::on_progress, this);
  // None of these reads the file, which nobody has looked at yet.
  execute("PRAGMA mmap_size = 0; PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY");
}

Connection::~Connection() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close_v2(handle_);
}

int Connection::on_progress(void* self) noexcept {
  return ++static_cast<Connection*>(self)->progress_ > kMaxCallbacks ? 1 : 0;
}

void Connection::allow_triggers() {
  const int result = sqlite3_db_config(handle_, SQLITE_DBCONFIG_ENABLE_TRIGGER, 1, nullptr);
  if (result != SQLITE_OK) fail(result);
}

void Connection::execute(const char* script) {
  progress_ = 0;
  const int result = sqlite3_exec(handle_, script, nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) fail(result);
}

void Connection::roll_back() noexcept { sqlite3_exec(handle_, "ROLLBACK", nullptr, nullptr, nullptr); }

Query Connection::query(const char* sql) {
  sqlite3_stmt*& statement = statements_[sql];
  if (statement == nullptr) {
    progress_ = 0;
    const int result = sqlite3_prepare_v3(handle_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (result != SQLITE_OK) fail(result);
  }
  return {*this, statement};
}

std::int64_t Connection::integer(const char* sql) {
  Query query = this->query(sql);
  if (!query.step()) fail(SQLITE_CORRUPT);
  return query.integer(0);
}

bool Connection::moved() const noexcept {
  if (mode_ == Mode::read_only_immutable) {  // of which SQLite keeps no inode
    struct stat status {};
    return ::lstat(path_.c_str(), &status) != 0 || status.st_dev != device_ || status.st_ino != inode_;
  }
  int moved = 0;
  sqlite3_file_control(handle_, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  return moved != 0;
}

void Connection::peek(std::span<std::uint8_t> to, std::int64_t offset) const {
  sqlite3_file* file = nullptr;
  std::memset(to.data(), 0, to.size());
  sqlite3_file_control(handle_, "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (file != nullptr && file->pMethods != nullptr)
    file->pMethods->xRead(file, to.data(), static_cast<int>(to.size()), offset);
}

std::int64_t Connection::file_bytes() const {
  sqlite3_file* file = nullptr;
  sqlite3_int64 bytes = 0;
  sqlite3_file_control(handle_, "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (file != nullptr && file->pMethods != nullptr) file->pMethods->xFileSize(file, &bytes);
  return bytes;
}

void Connection::fail(int result) {
  const int code = handle_ == nullptr ? result : sqlite3_extended_errcode(handle_);
  const int extended = (code & 0xff) == (result & 0xff) ? code : result;
  const int error = handle_ == nullptr ? 0 : sqlite3_system_errno(handle_);
  const std::string of_system = error == 0 ? "" : ": " + std::generic_category().message(error);
  const std::string message = handle_ == nullptr ? sqlite3_errstr(result) : sqlite3_errmsg(handle_);
  const std::string prefix =
      mode_ == Mode::memory ? std::string("The database in memory: ") : "The database " + path_.string() + ": ";
  switch (extended) {
    case SQLITE_READONLY_ROLLBACK:
    case SQLITE_READONLY_RECOVERY:
      throw UnfinishedWrite(prefix + "a process died while it wrote, and what it left has to be rolled back first",
                            "Any command that writes to it repairs it, `crossover tune` for one.");
    case SQLITE_CANTOPEN_SYMLINK:
      throw StoreError(prefix + "is a symbolic link", "Give the path that it points to.");
    case SQLITE_READONLY_DIRECTORY:
      throw StoreError(prefix + "its folder cannot be written" + of_system);
    default:
      break;
  }
  switch (extended & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw StoreError(prefix + "another process has kept it locked for " +
                       std::to_string((mode_ == Mode::read_only ? kReadTimeoutMs : kWriteTimeoutMs) / 1000) +
                       " seconds");
    case SQLITE_FULL:
      throw StoreError(prefix + "no space is left on its disk" + of_system);
    case SQLITE_READONLY:
      throw StoreError(prefix + "cannot be written, it is read-only" + of_system);
    case SQLITE_CANTOPEN:
      throw StoreError(prefix + "it or its journal cannot be opened" + of_system);
    case SQLITE_PERM:
    case SQLITE_AUTH:
      throw StoreError(prefix + "access denied" + of_system);
    case SQLITE_NOTADB:
      throw Damaged(prefix + "is not a SQLite database");
    case SQLITE_CORRUPT:
      throw Damaged(prefix + "is damaged or truncated (" + message + ")");
    case SQLITE_INTERRUPT:
      throw Damaged(prefix + "is damaged: a simple query does not end");
    case SQLITE_TOOBIG:
      throw StoreError(prefix + "one value is larger than " + std::to_string(kLimits[0].second) + " bytes");
    case SQLITE_NOMEM:
      throw StoreError(prefix + "out of memory");
    case SQLITE_IOERR:
      throw StoreError(prefix + "input/output error (" + message + of_system + ")");
    default:
      throw StoreError(prefix + message);
  }
}

Transaction::Transaction(Connection& connection, Kind kind) : connection_(connection) {
  connection.query(kind == Kind::read        ? "BEGIN"
                   : kind == Kind::immediate ? "BEGIN IMMEDIATE"
                                             : "BEGIN EXCLUSIVE")
      .run();
}
Transaction::~Transaction() {
  if (open_ && connection_.in_transaction()) connection_.roll_back();
}
void Transaction::commit() {
  connection_.query("COMMIT").run();
  open_ = false;
}

}  // namespace crossover::db
