#pragma once
// The tables, how they came about, and what else may be in a file that we read.

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "sqlite.hpp"

namespace crossover::db {

inline constexpr std::int32_t kApplicationId = 0x584f5652;  // "XOVR", at offset 68 of the file

// Takes a file from one version to the next. Additive: readers of earlier versions go on working, or min_reader says
// not.
struct Step {
  std::string sql;
  int min_reader = 1, min_writer = 1;  // the oldest version of the program that may read and write the result
};

// One kind of object in sqlite_schema.
struct SchemaObject {
  std::string type, name, table, sql;  // sql is empty for the indexes that SQLite makes itself
  auto operator<=>(const SchemaObject&) const = default;
};

// steps[i] makes version i + 1 out of version i; version 0 is an empty file. So a file that was created and one that
// was migrated have the same tables, to the byte. Thread-safe.
class Schema {
 public:
  explicit Schema(std::vector<Step> steps) : steps_(std::move(steps)) {}
  int version() const noexcept { return static_cast<int>(steps_.size()); }
  const std::vector<Step>& steps() const noexcept { return steps_; }
  const std::vector<SchemaObject>& objects(int version) const;  // of a file of that version, sorted

 private:
  std::vector<Step> steps_;
  mutable std::mutex mutex_;
  mutable std::map<int, std::vector<SchemaObject>> objects_;
};

const Schema& current_schema();

// Applies the steps after `from`, and sets user_version, application_id and meta. Inside a transaction of the caller's.
void apply_steps(Connection& connection, const Schema& schema, int from);

// Throws unless the file is ours, of a version that may be read (or written), and holds the objects of its version and
// no others; of a newer version: no views, virtual tables or generated columns. Gives the version. Inside a transaction
// of the caller's.
int validate(Connection& connection, const Schema& schema, bool for_writing);

}  // namespace crossover::db
