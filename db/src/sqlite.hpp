#pragma once
// Owning wrappers of SQLite: a connection that trusts nothing in its file, and statements that check what they read.
// One thread at a time per connection; the store serialises.

#include <sqlite3.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "crossover/dispatch/error.hpp"
#include "crossover/dispatch/problem.hpp"

namespace crossover::db {

// A row whose content is not what was written: wrong type, wrong digest, text that does not parse. The row is skipped.
class BadRow : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The file's structure is damaged (SQLITE_CORRUPT, SQLITE_NOTADB).
class Damaged : public StoreError {
 public:
  using StoreError::StoreError;
};

// A crashed writer left a journal that has to be rolled back, and this connection must not write (or may not).
class UnfinishedWrite : public StoreError {
 public:
  using StoreError::StoreError;
};

class Connection;

// One run of a prepared statement that the connection keeps; gives it back, reset, when it dies.
class Query {
 public:
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;
  ~Query();

  // Bound text and blobs are not copied: they outlive the query.
  Query& bind(std::int64_t value);
  Query& bind(std::uint64_t value) { return bind(static_cast<std::int64_t>(value)); }  // bit pattern
  Query& bind(std::uint32_t value) { return bind(static_cast<std::int64_t>(value)); }
  Query& bind(int value) { return bind(static_cast<std::int64_t>(value)); }
  Query& bind(bool value) { return bind(static_cast<std::int64_t>(value)); }
  Query& bind(double value);
  Query& bind(std::string_view text);
  Query& bind(const char* text) { return bind(std::string_view(text)); }
  Query& bind(std::span<const std::uint8_t> blob);
  Query& bind(const Id& id) { return bind(std::span<const std::uint8_t>(id.bytes)); }
  Query& bind(std::nullopt_t);
  template <class Value>
  Query& bind(const std::optional<Value>& value) {
    return value ? bind(*value) : bind(std::nullopt);
  }

  bool step();  // true: there is a row
  void run();   // to the end, without rows

  // Columns of the current row, from 0. Text and blobs are valid until the next step. BadRow where the type is another.
  bool is_null(int column) const;
  std::int64_t integer(int column) const;
  double real(int column) const;
  std::string_view text(int column) const;
  std::span<const std::uint8_t> blob(int column) const;
  Id id(int column) const;
  std::optional<std::int64_t> optional_integer(int column) const;

 private:
  friend class Connection;
  Query(Connection& connection, sqlite3_stmt* statement) : connection_(connection), statement_(statement) {}
  void expect(int column, int type) const;
  void check(int result);
  Connection& connection_;
  sqlite3_stmt* statement_;
  int bound_ = 0;
};

class Connection {
 public:
  enum class Mode { read_only, read_only_immutable, read_write, memory };

  // Opens `path` (absolute, not a symbolic link) without creating it and without reading it. Throws StoreError.
  Connection(const std::filesystem::path& path, Mode mode);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  Mode mode() const noexcept { return mode_; }
  sqlite3* handle() const noexcept { return handle_; }

  void execute(const char* script);       // statements whose rows, if any, are of no interest
  Query query(const char* sql);           // `sql` has static storage duration: statements are kept by its address
  std::int64_t integer(const char* sql);  // the one integer that a query gives
  void allow_triggers();                  // ours are checked against the schema first
  void roll_back() noexcept;
  bool in_transaction() const noexcept { return sqlite3_get_autocommit(handle_) == 0; }

  // The path now names another file than the one that is open, or none.
  bool moved() const noexcept;
  // Reads the file through the descriptor that SQLite holds, without a lock; bytes past the end read as 0. Never opens
  // or closes the file: closing any descriptor of it would drop the POSIX locks of every connection in the process.
  void peek(std::span<std::uint8_t> to, std::int64_t offset) const;
  std::int64_t file_bytes() const;

  [[noreturn]] void fail(int result);  // throws what `result` means for this file

 private:
  static int on_progress(void* self) noexcept;
  friend class Query;
  void configure();

  std::filesystem::path path_;
  Mode mode_;
  sqlite3* handle_ = nullptr;
  ::dev_t device_ = 0;  // of an immutable file when it was opened
  ::ino_t inode_ = 0;
  std::map<const char*, sqlite3_stmt*> statements_;
  int progress_ = 0;  // callbacks since the statement began
};

// A transaction that ends without effect unless committed.
class Transaction {
 public:
  enum class Kind { read, immediate, exclusive };
  Transaction(Connection& connection, Kind kind);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Connection& connection_;
  bool open_ = true;
};

}  // namespace crossover::db
