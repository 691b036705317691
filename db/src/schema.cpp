#include "schema.hpp"

#include <algorithm>
#include <array>

#include "digest.hpp"

namespace crossover::db {
namespace {

constexpr std::array kFactTables{"device", "environment", "problem", "regime", "arm",
                                 "run",    "sample",      "attempt", "verdict"};

constexpr const char* kVersion1 = R"sql(
CREATE TABLE meta(
  key TEXT NOT NULL PRIMARY KEY,
  value ANY NOT NULL
) STRICT;

CREATE TABLE device(
  device_id BLOB NOT NULL PRIMARY KEY CHECK(length(device_id) = 16),
  json TEXT NOT NULL
) STRICT;

CREATE TABLE environment(
  environment_id BLOB NOT NULL PRIMARY KEY CHECK(length(environment_id) = 16),
  json TEXT NOT NULL
) STRICT;

CREATE TABLE problem(
  problem_id BLOB NOT NULL PRIMARY KEY CHECK(length(problem_id) = 16),
  operation TEXT NOT NULL,
  json TEXT NOT NULL
) STRICT;

CREATE TABLE regime(
  regime_id BLOB NOT NULL PRIMARY KEY CHECK(length(regime_id) = 16),
  launch_mode TEXT NOT NULL CHECK(launch_mode IN ('eager', 'graph')),
  l2 TEXT NOT NULL CHECK(l2 IN ('cold', 'hot')),
  fill TEXT NOT NULL
) STRICT;

CREATE TABLE arm(
  arm_id BLOB NOT NULL PRIMARY KEY CHECK(length(arm_id) = 16),
  name TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  numerics TEXT NOT NULL,
  json TEXT NOT NULL
) STRICT;

CREATE TABLE run(
  run_id BLOB NOT NULL PRIMARY KEY CHECK(length(run_id) = 16),
  process_uuid BLOB NOT NULL CHECK(length(process_uuid) = 16),
  device_id BLOB NOT NULL REFERENCES device,
  environment_id BLOB NOT NULL REFERENCES environment,
  problem_id BLOB NOT NULL REFERENCES problem,
  regime_id BLOB NOT NULL REFERENCES regime,
  arm_set TEXT NOT NULL,
  gpu_uuid TEXT NOT NULL,
  host_hash TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  protocol INTEGER NOT NULL CHECK(protocol >= 1),
  seed INTEGER NOT NULL,
  started_us INTEGER NOT NULL,
  duration_us INTEGER NOT NULL CHECK(duration_us > 0),
  dirty_mask INTEGER NOT NULL,
  conditions TEXT NOT NULL,
  sample_digest BLOB NOT NULL CHECK(length(sample_digest) = 16)
) STRICT;
CREATE INDEX run_of_key ON run(device_id, problem_id, regime_id);

CREATE TABLE sample(
  run_id BLOB NOT NULL REFERENCES run,
  m INTEGER NOT NULL CHECK(m >= 1),
  arm_id BLOB NOT NULL REFERENCES arm,
  role TEXT NOT NULL CHECK(role IN ('grid', 'placebo', 'held_out')),
  config BLOB NOT NULL,
  launches INTEGER NOT NULL CHECK(launches >= 1),
  median_ns REAL NOT NULL CHECK(median_ns > 0),
  mad_ns REAL NOT NULL CHECK(mad_ns >= 0),
  dirty_mask INTEGER NOT NULL,
  error REAL CHECK(error >= 0),
  workspace_bytes INTEGER NOT NULL CHECK(workspace_bytes >= 0),
  cached_bytes INTEGER NOT NULL CHECK(cached_bytes >= 0),
  raw BLOB NOT NULL CHECK(length(raw) % 24 = 0),
  digest BLOB NOT NULL CHECK(length(digest) = 16),
  PRIMARY KEY(run_id, m, arm_id, role)
) STRICT;

CREATE TABLE attempt(
  run_id BLOB NOT NULL REFERENCES run,
  m INTEGER NOT NULL CHECK(m >= 0),
  arm_id BLOB NOT NULL REFERENCES arm,
  outcome TEXT NOT NULL CHECK(outcome IN (
    'ineligible', 'wrong_result', 'failed', 'timed_out', 'out_of_memory', 'dropped', 'over_budget')),
  detail TEXT NOT NULL,
  digest BLOB NOT NULL CHECK(length(digest) = 16),
  PRIMARY KEY(run_id, m, arm_id)
) STRICT;

CREATE TABLE verdict(
  verdict_id BLOB NOT NULL PRIMARY KEY CHECK(length(verdict_id) = 16),
  device_id BLOB NOT NULL REFERENCES device,
  problem_id BLOB NOT NULL REFERENCES problem,
  regime_id BLOB NOT NULL REFERENCES regime,
  policy TEXT NOT NULL,
  run_ids TEXT NOT NULL,
  incumbent TEXT NOT NULL,
  rule INTEGER NOT NULL,
  status TEXT NOT NULL CHECK(status IN ('provisional', 'confirmed', 'inconclusive')),
  why TEXT NOT NULL,
  segments TEXT NOT NULL,
  crossovers TEXT NOT NULL,
  threshold INTEGER,
  first_win INTEGER,
  library_arm TEXT NOT NULL,
  held_out TEXT,
  decided_us INTEGER NOT NULL,
  digest BLOB NOT NULL CHECK(length(digest) = 16)
) STRICT;
CREATE INDEX verdict_of_key ON verdict(device_id, problem_id, regime_id);

CREATE TABLE received(
  digest BLOB NOT NULL PRIMARY KEY CHECK(length(digest) = 16),
  from_uuid BLOB NOT NULL CHECK(length(from_uuid) = 16),
  received_us INTEGER NOT NULL
) STRICT;

CREATE TABLE live(
  device_id BLOB NOT NULL REFERENCES device,
  problem_id BLOB NOT NULL REFERENCES problem,
  regime_id BLOB NOT NULL REFERENCES regime,
  run_ids TEXT NOT NULL,
  PRIMARY KEY(device_id, problem_id, regime_id)
) STRICT;

CREATE TABLE request(
  device_id BLOB NOT NULL REFERENCES device,
  problem_id BLOB NOT NULL REFERENCES problem,
  regime_id BLOB NOT NULL REFERENCES regime,
  max_m INTEGER NOT NULL CHECK(max_m >= 0),
  reason TEXT NOT NULL,
  low_priority INTEGER NOT NULL CHECK(low_priority IN (0, 1)),
  count INTEGER NOT NULL CHECK(count >= 1),
  fails INTEGER NOT NULL CHECK(fails >= 0),
  not_before_us INTEGER NOT NULL,
  PRIMARY KEY(device_id, problem_id, regime_id)
) STRICT;
)sql";

// Facts are written once. The triggers also stop other programs, unless they switch triggers off.
std::string append_only_triggers() {
  std::string sql;
  for (const std::string table : kFactTables)
    for (const std::string action : {"update", "delete"})
      sql += "CREATE TRIGGER " + table + "_no_" + action + " BEFORE " + action + " ON " + table +
             " BEGIN SELECT raise(ABORT, 'facts are only ever added'); END;\n";
  return sql;
}

std::vector<SchemaObject> read_objects(Connection& connection) {
  std::vector<SchemaObject> objects;
  Query query = connection.query("SELECT type, name, tbl_name, sql FROM sqlite_schema");
  while (query.step())
    objects.push_back({std::string(query.text(0)), std::string(query.text(1)), std::string(query.text(2)),
                       query.is_null(3) ? std::string() : std::string(query.text(3))});
  std::sort(objects.begin(), objects.end());
  return objects;
}

std::string prefix(const Connection& connection) { return "The database " + connection.path().string() + ": "; }

// What a file from the future may have beside what we know: more tables, indexes and columns, and triggers, which never
// run while we read.
void check_newer_objects(Connection& connection, const std::vector<SchemaObject>& objects,
                         const std::vector<SchemaObject>& known) {
  for (const SchemaObject& object : objects) {
    if (std::binary_search(known.begin(), known.end(), object)) continue;
    const bool harmless = object.type == "index" || object.type == "trigger" ||
                          (object.type == "table" && object.sql.starts_with("CREATE TABLE "));
    if (!harmless)
      throw StoreError(prefix(connection) + "holds the " + object.type + " \"" + object.name +
                       "\", which no version of Crossover puts there");
  }
  for (const SchemaObject& object : known) {
    if (object.type != "table") continue;
    Query query = connection.query("SELECT count(*) FROM pragma_table_xinfo(?1) WHERE hidden <> 0");
    query.bind(object.name);
    if (query.step() && query.integer(0) != 0)
      throw StoreError(prefix(connection) + "the table \"" + object.name + "\" has generated columns");
  }
}

std::int64_t meta_integer(Connection& connection, std::string_view key) {
  try {
    Query query = connection.query("SELECT value FROM meta WHERE key = ?1");
    query.bind(key);
    if (query.step()) return query.integer(0);
  } catch (const BadRow&) {
  }
  throw Damaged(prefix(connection) + "is damaged: no \"" + std::string(key) + "\" in its table meta");
}

}  // namespace

const std::vector<SchemaObject>& Schema::objects(int version) const {
  const std::lock_guard lock(mutex_);
  auto& objects = objects_[version];
  if (objects.empty()) {
    Connection connection({}, Connection::Mode::memory);
    for (int step = 0; step < version; ++step)
      connection.execute(steps_.at(static_cast<std::size_t>(step)).sql.c_str());
    objects = read_objects(connection);
  }
  return objects;
}

const Schema& current_schema() {
  static const Schema schema({{kVersion1 + append_only_triggers(), 1, 1}});
  return schema;
}

void apply_steps(Connection& connection, const Schema& schema, int from) {
  for (int step = from; step < schema.version(); ++step)
    connection.execute(schema.steps()[static_cast<std::size_t>(step)].sql.c_str());
  if (from == 0) {
    connection.execute(("PRAGMA application_id = " + std::to_string(kApplicationId)).c_str());
    const std::string uuid = random_uuid().hex();
    connection.query("INSERT INTO meta VALUES('database_uuid', ?1)").bind(uuid).run();
    connection.execute("INSERT INTO meta VALUES('generation', 0)");
  }
  connection.execute(("PRAGMA user_version = " + std::to_string(schema.version())).c_str());
  const Step& last = schema.steps().back();
  connection.query("INSERT INTO meta VALUES('min_reader', ?1) ON CONFLICT(key) DO UPDATE SET value = excluded.value")
      .bind(last.min_reader)
      .run();
  connection.query("INSERT INTO meta VALUES('min_writer', ?1) ON CONFLICT(key) DO UPDATE SET value = excluded.value")
      .bind(last.min_writer)
      .run();
}

int validate(Connection& connection, const Schema& schema, bool for_writing) {
  // Both come from the file's header: no table is looked at before the file is known to be ours.
  if (connection.integer("PRAGMA application_id") != kApplicationId)
    throw StoreError(prefix(connection) + "belongs to another application", "Give the path of a Crossover database.");
  const std::int64_t version = connection.integer("PRAGMA user_version");
  if (version < 1) throw Damaged(prefix(connection) + "is damaged: it has no version");
  try {
    const std::vector<SchemaObject> objects = read_objects(connection);
    if (version <= schema.version()) {
      const std::vector<SchemaObject>& expected = schema.objects(static_cast<int>(version));
      if (objects != expected) {
        const auto odd = std::mismatch(objects.begin(), objects.end(), expected.begin(), expected.end());
        const bool is_there = odd.first != objects.end();
        const SchemaObject& object = is_there ? *odd.first : *odd.second;
        throw StoreError(prefix(connection) + "its tables are not those of version " + std::to_string(version) +
                         (is_there ? ", beginning with the " : ", it lacks the ") + object.type + " \"" + object.name +
                         '"');
      }
    } else {
      const std::int64_t min_reader = meta_integer(connection, "min_reader");
      if (for_writing || min_reader > schema.version())
        throw StoreError(prefix(connection) + "was written by a newer version of Crossover (format " +
                             std::to_string(version) + ", this program " + (for_writing ? "writes " : "reads ") +
                             std::to_string(schema.version()) + ")",
                         "Update this program, or use another database.");
      check_newer_objects(connection, objects, schema.objects(schema.version()));
    }
  } catch (const BadRow& error) {
    throw Damaged(prefix(connection) + "its table of tables is damaged (" + error.what() + ")");
  }
  if (for_writing && meta_integer(connection, "min_writer") > schema.version())
    throw StoreError(prefix(connection) + "may only be written by a newer version of Crossover");
  return static_cast<int>(version);
}

}  // namespace crossover::db
