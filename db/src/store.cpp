#include "crossover/db/store.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>  // secure_getenv
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "codec.hpp"
#include "copies.hpp"
#include "digest.hpp"
#include "open.hpp"
#include "rows.hpp"

namespace crossover {
namespace db {
namespace {

std::int64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

// An environment variable that is set and not empty. Ignored in a program that runs with another user's rights.
std::string environment_variable(const char* name) {
  const char* const value = ::secure_getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Everything that a call on a store may touch, and whose locks a fork waits for.
class Forkable {
 public:
  Forkable();
  ~Forkable();
  Forkable(const Forkable&) = delete;
  Forkable& operator=(const Forkable&) = delete;
  std::mutex mutex;
  bool in_child = false;  // this copy is a child's; the file handles belong to the parent
};

// While a process forks, no thread of it is inside a store: the child finds SQLite's global state at rest and no lock
// held, so that it can open a store of its own. In the child the stores of the parent are marked.
class ForkGuard {
 public:
  static ForkGuard& instance() {
    static ForkGuard* const guard =
        new ForkGuard;  // never destroyed: stores with static storage duration outlive it otherwise
    return *guard;
  }
  void add(Forkable* store) {
    const std::lock_guard lock(mutex_);
    stores_.insert(store);
  }
  void remove(Forkable* store) {
    const std::lock_guard lock(mutex_);
    stores_.erase(store);
  }

 private:
  ForkGuard() { ::pthread_atfork(&ForkGuard::before, &ForkGuard::in_parent, &ForkGuard::in_child); }
  static void before() {
    instance().mutex_.lock();
    for (Forkable* store : instance().stores_) store->mutex.lock();
  }
  static void in_parent() {
    for (Forkable* store : instance().stores_) store->mutex.unlock();
    instance().mutex_.unlock();
  }
  static void in_child() {
    for (Forkable* store : instance().stores_) store->in_child = true;
    in_parent();
  }
  std::mutex mutex_;
  std::set<Forkable*> stores_;
};

Forkable::Forkable() { ForkGuard::instance().add(this); }
Forkable::~Forkable() { ForkGuard::instance().remove(this); }

constexpr std::size_t kMaxWarnings = 100;  // kept until they are asked for
constexpr std::size_t kMaxSaid = 10'000;   // remembered, so that each is said once

// Columns that verdict_of(), run_of() and key_of() read.
#define CROSSOVER_KEY_COLUMNS "d.json, p.operation, p.json, g.launch_mode, g.l2, g.fill"
#define CROSSOVER_KEY_JOINS(table)                \
  " LEFT JOIN device d ON d.device_id = " table   \
  ".device_id"                                    \
  " LEFT JOIN problem p ON p.problem_id = " table \
  ".problem_id"                                   \
  " LEFT JOIN regime g ON g.regime_id = " table ".regime_id"
#define CROSSOVER_RUN_COLUMNS                                                                                   \
  "r.run_id, r.process_uuid, r.device_id, r.environment_id, r.problem_id, r.regime_id, r.arm_set, r.gpu_uuid, " \
  "r.host_hash, r.boot_id, r.protocol, r.seed, r.started_us, r.duration_us, r.dirty_mask, r.conditions, "       \
  "r.sample_digest, e.json, EXISTS(SELECT 1 FROM received WHERE digest = r.run_id)"
#define CROSSOVER_RUN_TABLES " FROM run r LEFT JOIN environment e ON e.environment_id = r.environment_id"
constexpr int kRunColumns = 19;
#define CROSSOVER_VERDICT_COLUMNS                                                                              \
  "v.verdict_id, v.device_id, v.problem_id, v.regime_id, v.policy, v.run_ids, v.incumbent, v.rule, v.status, " \
  "v.why, v.segments, v.crossovers, v.threshold, v.first_win, v.library_arm, v.held_out, v.decided_us, v.digest"
constexpr int kVerdictColumns = 18;

// The key whose ids are `ids`, from CROSSOVER_KEY_COLUMNS beginning at `column`.
EvidenceKey key_of(const Query& row, int column, const KeyIds& ids) {
  if (row.is_null(column) || row.is_null(column + 1) || row.is_null(column + 3))
    throw BadRow("its device, problem or regime is missing");
  const std::string_view device = row.text(column), operation = row.text(column + 1), attributes = row.text(column + 2);
  const std::string_view mode = row.text(column + 3), l2 = row.text(column + 4), fill = row.text(column + 5);
  if (device_id(device) != ids.device) throw BadRow("its device is damaged");
  if (problem_id(operation, attributes) != ids.problem) throw BadRow("its problem is damaged");
  if (regime_id(mode, l2, fill) != ids.regime) throw BadRow("its regime is damaged");
  EvidenceKey key;
  key.device = codec::decode<Device>(device);
  key.problem = {std::string(operation), codec::decode<std::map<std::string, std::string>>(attributes)};
  const auto launch_mode = launch_mode_from(mode);
  const auto l2_state = l2_state_from(l2);
  if (!launch_mode || !l2_state) throw BadRow("its regime is not known");
  key.regime = {*launch_mode, *l2_state, std::string(fill)};
  return key;
}

// A run without samples and attempts, from CROSSOVER_RUN_COLUMNS, and CROSSOVER_KEY_COLUMNS unless the key is known.
Run run_of(const Query& row, const EvidenceKey* known_key) {
  RunColumns columns;
  columns.process_uuid = row.id(1);
  columns.key = {row.id(2), row.id(4), row.id(5)};
  columns.environment = row.id(3);
  columns.arm_set = row.text(6);
  columns.gpu_uuid = row.text(7);
  columns.host_hash = row.text(8);
  columns.boot_id = row.text(9);
  columns.protocol = row.integer(10);
  columns.seed = static_cast<std::uint64_t>(row.integer(11));
  columns.started_us = row.integer(12);
  columns.duration_us = row.integer(13);
  columns.dirty_mask = static_cast<std::uint64_t>(row.integer(14));
  columns.conditions = row.text(15);
  columns.sample_digest = row.id(16);
  if (run_id(columns) != row.id(0)) throw BadRow("its digest does not hold");
  if (row.is_null(17)) throw BadRow("its environment is missing");
  const std::string_view environment = row.text(17);
  if (environment_id(environment) != columns.environment) throw BadRow("its environment is damaged");
  if (columns.protocol > std::numeric_limits<int>::max()) throw BadRow("its protocol is not known");

  Run run;
  run.id = row.id(0);
  run.process_uuid = columns.process_uuid;
  const EvidenceKey key = known_key != nullptr ? *known_key : key_of(row, kRunColumns, columns.key);
  run.device = key.device;
  run.problem = key.problem;
  run.regime = key.regime;
  run.environment = codec::decode<Environment>(environment);
  run.arm_set = codec::decode<ArmSet>(columns.arm_set);
  run.gpu_uuid = columns.gpu_uuid;
  run.boot_id = columns.boot_id;
  run.host = columns.host_hash;
  run.received = row.integer(18) != 0;
  run.protocol = static_cast<int>(columns.protocol);
  run.seed = columns.seed;
  run.started_us = columns.started_us;
  run.duration_us = columns.duration_us;
  run.dirty_mask = columns.dirty_mask;
  run.conditions = codec::decode<std::map<std::string, Conditions>>(columns.conditions);
  return run;
}

// A verdict, from CROSSOVER_VERDICT_COLUMNS, and CROSSOVER_KEY_COLUMNS unless the key is known.
// `policies` has what was decoded before: nearly every verdict of a database is for the same policy.
using Policies = std::map<std::string, Policy, std::less<>>;
Verdict verdict_of(const Query& row, const EvidenceKey* known_key, Policies& policies) {
  VerdictColumns columns;
  columns.key = {row.id(1), row.id(2), row.id(3)};
  columns.policy = row.text(4);
  columns.run_ids = row.text(5);
  columns.incumbent = row.text(6);
  columns.rule = row.integer(7);
  columns.status = row.text(8);
  columns.why = row.text(9);
  columns.segments = row.text(10);
  columns.crossovers = row.text(11);
  columns.threshold = row.optional_integer(12);
  columns.first_win = row.optional_integer(13);
  columns.library_arm = row.text(14);
  if (!row.is_null(15)) columns.held_out = row.text(15);
  columns.decided_us = row.integer(16);
  if (verdict_id(columns) != row.id(0) || verdict_digest(columns) != row.id(17))
    throw BadRow("its digest does not hold");
  if (columns.rule < 0 || columns.rule > std::numeric_limits<int>::max()) throw BadRow("its rule is not known");

  Verdict verdict;
  verdict.id = row.id(0);
  verdict.key = known_key != nullptr ? *known_key : key_of(row, kVerdictColumns, columns.key);
  auto policy = policies.find(columns.policy);
  if (policy == policies.end())
    policy = policies.emplace(std::string(columns.policy), codec::decode<Policy>(columns.policy)).first;
  verdict.policy = policy->second;
  verdict.run_ids = codec::decode<std::vector<Id>>(columns.run_ids);
  verdict.incumbent = codec::decode<std::vector<Segment>>(columns.incumbent);
  verdict.rule = static_cast<int>(columns.rule);
  const auto status = verdict_status_from(columns.status);
  if (!status) throw BadRow("its status is not known");
  verdict.status = *status;
  verdict.why = columns.why;
  verdict.segments = codec::decode<std::vector<Segment>>(columns.segments);
  verdict.crossovers = codec::decode<std::vector<Crossover>>(columns.crossovers);
  verdict.threshold = columns.threshold;
  verdict.first_win = columns.first_win;
  verdict.library_arm = columns.library_arm;
  if (columns.held_out) verdict.held_out = codec::decode<HeldOut>(*columns.held_out);
  verdict.decided_us = columns.decided_us;
  return verdict;
}

// A verdict's structured columns as text, and the view of them that its ids are made of.
struct EncodedVerdict {
  explicit EncodedVerdict(const Verdict& verdict)
      : policy(codec::encode(verdict.policy)),
        run_ids(codec::encode(verdict.run_ids)),
        incumbent(codec::encode(verdict.incumbent)),
        segments(codec::encode(verdict.segments)),
        crossovers(codec::encode(verdict.crossovers)) {
    if (verdict.held_out) held_out = codec::encode(*verdict.held_out);
    columns.key = ids_of(verdict.key);
    columns.policy = policy;
    columns.run_ids = run_ids;
    columns.incumbent = incumbent;
    columns.status = to_string(verdict.status);
    columns.why = verdict.why;
    columns.segments = segments;
    columns.crossovers = crossovers;
    columns.library_arm = verdict.library_arm;
    if (held_out) columns.held_out = *held_out;
    columns.rule = verdict.rule;
    columns.decided_us = verdict.decided_us;
    columns.threshold = verdict.threshold;
    columns.first_win = verdict.first_win;
  }
  EncodedVerdict(const EncodedVerdict&) = delete;
  EncodedVerdict& operator=(const EncodedVerdict&) = delete;

  std::string policy, run_ids, incumbent, segments, crossovers;
  std::optional<std::string> held_out;
  VerdictColumns columns;
};

// The ids that begin with some hex digits: [low, high], both inclusive. Nothing for too few digits, more than 32, or
// other characters.
std::optional<std::pair<Id, Id>> id_range(std::string_view prefix, std::size_t min_digits) {
  constexpr std::size_t kDigits = 32;
  if (prefix.size() < min_digits || prefix.size() > kDigits) return std::nullopt;
  std::string low(prefix), high(prefix);
  low.resize(kDigits, '0');
  high.resize(kDigits, 'f');
  const auto from = Id::from_hex(low), to = Id::from_hex(high);
  if (!from || !to) return std::nullopt;
  return std::pair{*from, *to};
}

void insert_key(Connection& connection, const EvidenceKey& key, const KeyIds& ids) {
  const std::string device = codec::encode(key.device), attributes = codec::encode(key.problem.attributes);
  connection.query("INSERT INTO device VALUES(?1, ?2) ON CONFLICT DO NOTHING").bind(ids.device).bind(device).run();
  connection.query("INSERT INTO problem VALUES(?1, ?2, ?3) ON CONFLICT DO NOTHING")
      .bind(ids.problem)
      .bind(key.problem.operation)
      .bind(attributes)
      .run();
  connection.query("INSERT INTO regime VALUES(?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING")
      .bind(ids.regime)
      .bind(to_string(key.regime.launch_mode))
      .bind(to_string(key.regime.l2))
      .bind(key.regime.fill)
      .run();
}

bool exists(Connection& connection, const char* sql, const Id& id) {
  Query query = connection.query(sql);
  return query.bind(id).step();
}

// Writes the key's row of `live`: its runs, best first. Measured here > received and confirmed > the rest; then the
// newer protocol, the later start, the smaller id: one total order, the same on every host that has the same facts.
void update_live(Connection& connection, const KeyIds& ids) {
  std::set<Id> confirmed;
  {
    Query query = connection.query(
        "SELECT run_ids FROM verdict WHERE device_id = ?1 AND problem_id = ?2 AND regime_id = ?3 AND status = "
        "'confirmed'");
    query.bind(ids.device).bind(ids.problem).bind(ids.regime);
    while (query.step()) {
      try {
        for (const Id& id : codec::decode<std::vector<Id>>(query.text(0))) confirmed.insert(id);
      } catch (const codec::Malformed&) {  // a damaged verdict confirms nothing
      }
    }
  }
  struct Entry {
    int rank;
    std::int64_t protocol, started_us;
    Id id;
  };
  std::vector<Entry> entries;
  {
    Query query = connection.query(
        "SELECT run_id, protocol, started_us, EXISTS(SELECT 1 FROM received WHERE digest = run_id) FROM run "
        "WHERE device_id = ?1 AND problem_id = ?2 AND regime_id = ?3");
    query.bind(ids.device).bind(ids.problem).bind(ids.regime);
    while (query.step()) {
      const Id id = query.id(0);
      entries.push_back({query.integer(3) == 0    ? 0
                         : confirmed.contains(id) ? 1
                                                  : 2,
                         query.integer(1), query.integer(2), id});
    }
  }
  if (entries.empty()) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.rank, b.protocol, b.started_us, a.id) < std::tie(b.rank, a.protocol, a.started_us, b.id);
  });
  std::vector<Id> run_ids;
  for (const Entry& entry : entries) run_ids.push_back(entry.id);
  const std::string json = codec::encode(run_ids);
  connection
      .query(
          "INSERT INTO live VALUES(?1, ?2, ?3, ?4) ON CONFLICT(device_id, problem_id, regime_id) "
          "DO UPDATE SET run_ids = excluded.run_ids")
      .bind(ids.device)
      .bind(ids.problem)
      .bind(ids.regime)
      .bind(json)
      .run();
}

std::string short_hex(const Id& id) { return id.hex().substr(0, 12); }

}  // namespace
}  // namespace db

using namespace db;

std::filesystem::path default_database_path() {
  if (const std::string path = environment_variable("CROSSOVER_DB"); !path.empty()) return path;
  // The XDG base directory specification: a path that is not absolute is to be ignored.
  if (const std::filesystem::path data = environment_variable("XDG_DATA_HOME"); data.is_absolute())
    return data / "crossover" / "tuning.db";
  if (const std::filesystem::path home = environment_variable("HOME"); !home.empty())
    return home / ".local" / "share" / "crossover" / "tuning.db";
  return {};
}

struct Store::State : Forkable {
  State(std::filesystem::path database, Access wanted, bool memory)
      : path(std::move(database)), access(wanted), in_memory(memory) {}
  ~State() {
    const std::lock_guard lock(mutex);  // a fork waits until they are closed
    if (in_child) {                     // closing would touch the parent's file: leaked on purpose
      static_cast<void>(reader_.release());
      static_cast<void>(writer_.release());
    }
    reader_.reset();
    writer_.reset();
  }

  // Runs `body(connection)` in a read transaction; `empty` where there is no database. A store that may write repairs
  // what a crashed writer left and tries again.
  template <class Result, class Body>
  Result read(Result empty, Body body) {
    const std::lock_guard lock(mutex);
    if (in_child) return empty;
    const auto once = [&]() -> Result {
      Connection* const connection = reader();
      if (connection == nullptr) return std::move(empty);
      const Transaction transaction(*connection, Transaction::Kind::read);
      return body(*connection);
    };
    try {
      return once();
    } catch (const codec::Malformed&) {
      return empty;  // what was asked for cannot be in any database: a name that is not UTF-8
    } catch (const UnfinishedWrite&) {
      if (access != Access::read_write) throw;
    }
    reader_.reset();
    writer();
    return once();
  }

  // Runs `body(connection)` in a write transaction, which is committed if it returns true.
  template <class Body>
  void write(Body body) {
    const std::lock_guard lock(mutex);
    if (in_child) throw StoreError("This database was opened by the parent process; open it again after fork()");
    if (access == Access::lookup_only)
      throw StoreError("The database " + path.string() + ": was opened for lookups only");
    try {
      Connection& connection = writer();
      Transaction transaction(connection, Transaction::Kind::immediate);
      if (connection.integer("PRAGMA user_version") != schema.version())
        throw StoreError("The database " + path.string() + ": another program has moved it to a newer version",
                         "Update this program, or use another database.");
      if (!body(connection)) return;
      connection.query("UPDATE meta SET value = value + 1 WHERE key = 'generation'").run();
      transaction.commit();
      ++memory_generation_;
    } catch (const codec::Malformed& error) {
      throw StoreError(std::string("This cannot be stored: ") + error.what());
    } catch (const BadRow& error) {
      throw Damaged("The database " + path.string() + ": is damaged (" + error.what() + ")");
    }
  }

  // Null where there is no database.
  Connection* reader() {
    if (in_memory) return &writer();
    if (reader_ != nullptr && (reader_->moved() || (reader_is_snapshot() && change_counter() != opened_at_)))
      reader_.reset();
    if (reader_ == nullptr) {
      reader_ = open_reader(path, schema);
      if (reader_ == nullptr) return nullptr;
      ++epoch_;
      opened_at_ = change_counter();
    }
    return reader_.get();
  }

  Connection& writer() {
    if (in_memory) {
      if (writer_ == nullptr) writer_ = open_memory(schema);
      return *writer_;
    }
    if (writer_ != nullptr && writer_->moved()) writer_.reset();
    if (writer_ == nullptr) {
      warn_of_copies();
      writer_ = open_writer(path, schema);
    }
    return *writer_;
  }

  // Of the file that the reader has open: SQLite raises it with every transaction that changes something, before other
  // connections can see the change.
  std::uint32_t change_counter() const {
    std::array<std::uint8_t, 4> bytes{};
    reader_->peek(bytes, 24);
    return (std::uint32_t{bytes[0]} << 24) | (std::uint32_t{bytes[1]} << 16) | (std::uint32_t{bytes[2]} << 8) |
           bytes[3];
  }

  std::uint64_t generation() {
    const std::lock_guard lock(mutex);
    if (in_child) return 0;
    if (in_memory) return memory_generation_;
    try {
      if (reader() == nullptr) return 0;
    } catch (const StoreError&) {
      return 1;  // there is something, and it cannot be read
    }
    return (std::uint64_t{epoch_} << 32) | change_counter();
  }

  void warn_of_copies() {
    const SqliteCopies copies = sqlite_copies();
    if (copies.others.empty()) return;
    std::string others;
    for (const std::string& each : copies.others) others += (others.empty() ? "" : ", ") + each;
    warn("this process has a second SQLite, in " + others + ", beside the one in " + copies.ours +
         " that is used here: if both open this file, neither one's locks hold");
  }

  void warn(const std::string& what) {
    const std::string text =
        (in_memory ? std::string("The database in memory: ") : "The database " + path.string() + ": ") + what;
    if (said_.size() < kMaxSaid && !said_.insert(text).second) return;
    if (warnings_.size() < kMaxWarnings) {
      warnings_.push_back(text);
    } else {
      ++unsaid_;
    }
  }

  std::vector<std::string> take_warnings() {
    const std::lock_guard lock(mutex);
    if (unsaid_ > 0) warnings_.push_back("… and " + std::to_string(unsaid_) + " more like these");
    unsaid_ = 0;
    return std::exchange(warnings_, {});
  }

  // Calls `take(row)` for each row. What is wrong with a single row, or with the pages of the rest, becomes a warning,
  // and the rows that are intact are still there. Throws Damaged if not even the first row can be reached.
  template <class Take>
  void for_each_row(Query& query, const std::string& what, Take take) {
    for (std::size_t count = 0;; ++count) {
      try {
        if (!query.step()) return;
      } catch (const Damaged& error) {
        if (count == 0) throw;
        warn(std::string("not every ") + what + " could be read; " + error.what());
        return;
      }
      std::string name = what;
      try {
        if (const auto id = row_id(query)) name += " " + short_hex(*id);
        take(query);
      } catch (const BadRow& error) {
        warn(name + " was skipped: " + error.what());
      } catch (const codec::Malformed& error) {
        warn(name + " was skipped: " + error.what());
      }
    }
  }

  static std::optional<Id> row_id(const Query& row) {
    try {
      return row.id(0);
    } catch (const BadRow&) {
      return std::nullopt;
    }
  }

  std::vector<Verdict> verdicts(Query& query, const EvidenceKey* key) {
    std::vector<Verdict> verdicts;
    Policies policies;
    for_each_row(query, "verdict", [&](const Query& row) { verdicts.push_back(verdict_of(row, key, policies)); });
    std::sort(verdicts.begin(), verdicts.end(), [](const Verdict& a, const Verdict& b) {
      return std::tie(a.decided_us, a.id) < std::tie(b.decided_us, b.id);
    });
    return verdicts;
  }

  // `live` names every run that was ever stored for a key: one that is not there any more has been lost.
  void check_live(Connection& connection, const KeyIds& ids, const std::set<Id>& seen) {
    Query query =
        connection.query("SELECT run_ids FROM live WHERE device_id = ?1 AND problem_id = ?2 AND regime_id = ?3");
    query.bind(ids.device).bind(ids.problem).bind(ids.regime);
    try {
      if (!query.step()) return;
      for (const Id& id : codec::decode<std::vector<Id>>(query.text(0)))
        if (!seen.contains(id)) warn("run " + short_hex(id) + " is missing");
    } catch (const std::runtime_error& error) {  // BadRow, Malformed, Damaged: `live` is only an index
      warn(std::string("the list of a problem's runs is damaged: ") + error.what());
    }
  }

  bool load(Connection& connection, Run& run);

  const std::filesystem::path path;
  const Access access;
  const bool in_memory;
  const Schema& schema = current_schema();

  // What could not be written; null while there is nothing.
  Store* kept() const { return kept_.load(std::memory_order_acquire); }
  Store& keeper() {
    const std::lock_guard lock(mutex);
    if (!kept_owner_) {
      kept_owner_ = Store::in_memory();
      kept_.store(kept_owner_.get(), std::memory_order_release);
    }
    return *kept_owner_;
  }

 private:
  // Opened as unchanging, because its journal could not be looked at: SQLite does not notice what others write.
  bool reader_is_snapshot() const { return reader_->mode() == Connection::Mode::read_only_immutable; }

  std::unique_ptr<Connection> reader_, writer_;
  std::uint32_t epoch_ = 0;      // how often the reader was opened
  std::uint32_t opened_at_ = 0;  // change counter then
  std::uint64_t memory_generation_ = 1;
  std::vector<std::string> warnings_;
  std::set<std::string> said_;
  std::size_t unsaid_ = 0;
  std::unique_ptr<Store> kept_owner_;
  std::atomic<Store*> kept_ = nullptr;
};

bool Store::State::load(Connection& connection, Run& run) {
  const std::string name = "run " + short_hex(run.id);
  std::optional<ArmSet> set;
  Id expected;
  {
    Query query = connection.query("SELECT " CROSSOVER_RUN_COLUMNS CROSSOVER_RUN_TABLES " WHERE r.run_id = ?1");
    query.bind(run.id);
    bool found = false;
    for_each_row(query, "run", [&](const Query& row) {
      found = true;
      const EvidenceKey any;
      set = run_of(row, &any).arm_set;
      expected = row.id(16);
    });
    if (!found) warn(name + " cannot be found");
  }
  if (!set) return false;
  std::map<Id, const ArmRecord*> arms;
  for (const ArmRecord& arm : set->arms) arms.emplace(db::id_of(arm), &arm);
  const auto arm_of = [&](const Id& id) -> const std::string& {
    const auto place = arms.find(id);
    if (place == arms.end()) throw BadRow("its arm is not one of the run's");
    return place->second->id.name;
  };

  std::vector<Sample> samples;
  std::vector<Attempt> attempts;
  std::vector<Id> sample_digests, attempt_digests;
  {
    Query query = connection.query(
        "SELECT run_id, m, arm_id, role, config, launches, median_ns, mad_ns, dirty_mask, error, workspace_bytes, "
        "cached_bytes, raw, digest FROM sample WHERE run_id = ?1");
    query.bind(run.id);
    for_each_row(query, "a sample of run", [&](const Query& row) {
      SampleColumns columns;
      columns.m = row.integer(1);
      columns.arm = row.id(2);
      columns.role = row.text(3);
      const auto config = row.blob(4);
      columns.config = {reinterpret_cast<const char*>(config.data()), config.size()};
      columns.launches = row.integer(5);
      columns.median_ns = row.real(6);
      columns.mad_ns = row.real(7);
      columns.dirty_mask = static_cast<std::uint64_t>(row.integer(8));
      if (!row.is_null(9)) columns.error = row.real(9);
      columns.workspace_bytes = row.integer(10);
      columns.cached_bytes = row.integer(11);
      columns.raw = row.blob(12);
      if (sample_digest(columns) != row.id(13)) throw BadRow("its digest does not hold");
      const auto role = role_from(columns.role);
      if (!role || columns.launches < 1 || columns.launches > std::numeric_limits<std::uint32_t>::max() ||
          columns.workspace_bytes < 0 || columns.cached_bytes < 0)
        throw BadRow("a value is out of range");
      Sample sample;
      sample.m = columns.m;
      sample.arm = arm_of(columns.arm);
      sample.role = *role;
      sample.config = columns.config;
      sample.launches = static_cast<std::uint32_t>(columns.launches);
      sample.median_ns = columns.median_ns;
      sample.mad_ns = columns.mad_ns;
      sample.dirty_mask = columns.dirty_mask;
      sample.error = columns.error;
      sample.workspace_bytes = static_cast<std::uint64_t>(columns.workspace_bytes);
      sample.cached_bytes = static_cast<std::uint64_t>(columns.cached_bytes);
      sample.raw = decode_raw(columns.raw);
      if (const std::string fault = fault_of(sample); !fault.empty()) throw BadRow(fault);
      sample_digests.push_back(row.id(13));
      samples.push_back(std::move(sample));
    });
  }
  {
    Query query = connection.query("SELECT run_id, m, arm_id, outcome, detail, digest FROM attempt WHERE run_id = ?1");
    query.bind(run.id);
    for_each_row(query, "an attempt of run", [&](const Query& row) {
      Attempt attempt;
      attempt.m = row.integer(1);
      const Id arm = row.id(2);
      if (attempt_digest(attempt.m, arm, row.text(3), row.text(4)) != row.id(5))
        throw BadRow("its digest does not hold");
      attempt.arm = arm_of(arm);
      const auto outcome = outcome_from(row.text(3));
      if (!outcome || attempt.m < 0) throw BadRow("a value is out of range");
      attempt.outcome = *outcome;
      attempt.detail = row.text(4);
      attempt_digests.push_back(row.id(5));
      attempts.push_back(std::move(attempt));
    });
  }
  if (samples_digest(std::move(sample_digests), std::move(attempt_digests)) != expected) {
    warn(name + " was skipped: its samples and attempts are not all that were measured");
    return false;
  }
  // What programs that read the tables join with; the run itself does not need it.
  for (const auto& entry : arms) {
    const Id id = entry.first;
    Query query = connection.query("SELECT arm_id, name, fingerprint, numerics, json FROM arm WHERE arm_id = ?1");
    query.bind(id);
    bool found = false;
    for_each_row(query, "arm", [&](const Query& row) {
      found = true;
      if (arm_id(row.text(1), row.text(2), row.text(3), row.text(4)) != id) throw BadRow("its digest does not hold");
    });
    if (!found) warn("arm " + entry.second->id.name + " of " + name + " is missing from the table of arms");
  }
  std::sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) {
    return std::tie(a.m, a.arm, a.role) < std::tie(b.m, b.arm, b.role);
  });
  std::sort(attempts.begin(), attempts.end(),
            [](const Attempt& a, const Attempt& b) { return std::tie(a.m, a.arm) < std::tie(b.m, b.arm); });
  run.samples = std::move(samples);
  run.attempts = std::move(attempts);
  return true;
}

Store::Store(std::unique_ptr<State> state) : state_(std::move(state)) {}
Store::~Store() = default;

std::unique_ptr<Store> Store::open(const std::filesystem::path& path, Access access) {
  std::unique_ptr<Store> store(new Store(std::make_unique<State>(path, access, false)));
  store->state_->read(true, [](Connection&) { return true; });
  return store;
}

std::unique_ptr<Store> Store::in_memory() {
  return std::unique_ptr<Store>(new Store(std::make_unique<State>("", Access::read_write, true)));
}

std::vector<Run> Store::runs(const EvidenceKey& key) {
  std::vector<Run> runs = state_->read(std::vector<Run>(), [&](Connection& connection) {
    const KeyIds ids = ids_of(key);
    std::vector<Run> stored;
    std::set<Id> seen;
    {
      Query query = connection.query("SELECT " CROSSOVER_RUN_COLUMNS CROSSOVER_RUN_TABLES
                                     " WHERE r.device_id = ?1 AND r.problem_id = ?2 AND r.regime_id = ?3");
      query.bind(ids.device).bind(ids.problem).bind(ids.regime);
      state_->for_each_row(query, "run", [&](const Query& row) {
        seen.insert(row.id(0));
        stored.push_back(run_of(row, &key));
      });
    }
    state_->check_live(connection, ids, seen);
    return stored;
  });
  if (Store* kept = state_->kept()) {
    for (Run& run : kept->runs(key)) runs.push_back(std::move(run));
  }
  std::sort(runs.begin(), runs.end(),
            [](const Run& a, const Run& b) { return std::tie(a.started_us, a.id) < std::tie(b.started_us, b.id); });
  return runs;
}

bool Store::load(Run& run) {
  if (Store* kept = state_->kept(); kept != nullptr && kept->run(run.id)) return kept->load(run);
  return state_->read(false, [&](Connection& connection) { return state_->load(connection, run); });
}

std::vector<Verdict> Store::verdicts(const EvidenceKey& key) {
  std::vector<Verdict> verdicts = state_->read(std::vector<Verdict>(), [&](Connection& connection) {
    const KeyIds ids = ids_of(key);
    Query query = connection.query("SELECT " CROSSOVER_VERDICT_COLUMNS
                                   " FROM verdict v WHERE device_id = ?1 AND problem_id = ?2 AND regime_id = ?3");
    query.bind(ids.device).bind(ids.problem).bind(ids.regime);
    return state_->verdicts(query, &key);
  });
  if (Store* kept = state_->kept()) {
    for (Verdict& verdict : kept->verdicts(key)) verdicts.push_back(std::move(verdict));
  }
  return verdicts;
}

std::uint64_t Store::generation() {
  Store* const kept = state_->kept();
  return state_->generation() + (kept != nullptr ? kept->generation() : 0);
}
void Store::require_writable() {
  std::error_code error;
  const bool missing = !state_->in_memory && !std::filesystem::exists(state_->path, error);
  if (missing && state_->access == Access::read_write) {
    check_creatable(state_->path);
  } else {
    state_->write([](Connection&) { return false; });
  }
}

Id Store::keep(const Run& run) { return state_->keeper().append(run); }
Id Store::keep(const Verdict& verdict) { return state_->keeper().put(verdict); }
std::uint64_t Store::generation_of(const EvidenceKey& key) {
  const std::uint64_t kept = state_->kept() != nullptr ? state_->kept()->generation() : 0;
  return state_->read(kept, [&](Connection& connection) {
    const KeyIds ids = ids_of(key);
    std::uint64_t hash = 0xcbf29ce484222325u ^ kept;  // FNV-1a
    const auto add = [&](std::string_view text) {
      for (const char each : text) hash = (hash ^ static_cast<std::uint8_t>(each)) * 0x100000001b3u;
    };
    for (const char* sql :
         {"SELECT run_ids FROM live WHERE device_id = ?1 AND problem_id = ?2 AND regime_id = ?3",
          "SELECT count(*) FROM verdict WHERE device_id = ?1 AND problem_id = ?2 AND regime_id = ?3"}) {
      Query query = connection.query(sql);
      query.bind(ids.device).bind(ids.problem).bind(ids.regime);
      try {
        if (query.step()) add(sql[7] == 'r' ? query.text(0) : std::to_string(query.integer(0)));
      } catch (const BadRow&) {  // the lookup says so
      }
    }
    return hash;
  });
}

std::vector<std::string> Store::warnings() { return state_->take_warnings(); }

Id Store::append(const Run& original) {
  const Run run = prepared_for_storage(original);
  Id result;
  state_->write([&](Connection& connection) {
    const EvidenceKey key{run.device, run.problem, run.regime};
    const KeyIds ids = ids_of(key);
    const std::string environment = codec::encode(run.environment), arm_set = codec::encode(run.arm_set),
                      conditions = codec::encode(run.conditions);
    std::string host;
    {
      Query query = connection.query("SELECT value FROM meta WHERE key = 'database_uuid'");
      const auto uuid = query.step() ? Id::from_hex(query.text(0)) : std::nullopt;
      if (!uuid) throw BadRow("the table meta has no database_uuid");
      host = hash_host(*uuid, run.host);
    }

    std::map<std::string_view, Id> arms;
    for (const ArmRecord& arm : run.arm_set.arms) arms.emplace(arm.id.name, db::id_of(arm));
    struct Row {
      SampleColumns columns;
      std::vector<std::uint8_t> raw;
      Id digest;
    };
    std::vector<Row> rows;
    std::vector<Id> sample_digests, attempt_digests;
    for (const Sample& sample : run.samples) {
      Row& row = rows.emplace_back();
      row.raw = encode_raw(sample.raw);
      row.columns = {sample.m,
                     arms.at(sample.arm),
                     to_string(sample.role),
                     sample.config,
                     sample.launches,
                     static_cast<std::int64_t>(sample.workspace_bytes),
                     static_cast<std::int64_t>(sample.cached_bytes),
                     sample.median_ns,
                     sample.mad_ns,
                     sample.dirty_mask,
                     sample.error,
                     row.raw};
      row.digest = sample_digest(row.columns);
      sample_digests.push_back(row.digest);
    }
    for (const Attempt& attempt : run.attempts)
      attempt_digests.push_back(
          attempt_digest(attempt.m, arms.at(attempt.arm), to_string(attempt.outcome), attempt.detail));

    RunColumns columns;
    columns.process_uuid = run.process_uuid;
    columns.key = ids;
    columns.environment = environment_id(environment);
    columns.arm_set = arm_set;
    columns.gpu_uuid = run.gpu_uuid;
    columns.host_hash = host;
    columns.boot_id = run.boot_id;
    columns.conditions = conditions;
    columns.protocol = run.protocol;
    columns.started_us = run.started_us;
    columns.duration_us = run.duration_us;
    columns.seed = run.seed;
    columns.dirty_mask = run.dirty_mask;
    columns.sample_digest = samples_digest(sample_digests, attempt_digests);
    result = run_id(columns);
    if (exists(connection, "SELECT 1 FROM run WHERE run_id = ?1", result)) return false;

    insert_key(connection, key, ids);
    connection.query("INSERT INTO environment VALUES(?1, ?2) ON CONFLICT DO NOTHING")
        .bind(columns.environment)
        .bind(environment)
        .run();
    for (const ArmRecord& arm : run.arm_set.arms) {
      const std::string json = arm_json(arm);
      connection.query("INSERT INTO arm VALUES(?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING")
          .bind(arms.at(arm.id.name))
          .bind(arm.id.name)
          .bind(arm.id.fingerprint)
          .bind(arm.numerics)
          .bind(json)
          .run();
    }
    connection
        .query("INSERT INTO run VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)")
        .bind(result)
        .bind(columns.process_uuid)
        .bind(ids.device)
        .bind(columns.environment)
        .bind(ids.problem)
        .bind(ids.regime)
        .bind(columns.arm_set)
        .bind(columns.gpu_uuid)
        .bind(columns.host_hash)
        .bind(columns.boot_id)
        .bind(columns.protocol)
        .bind(columns.seed)
        .bind(columns.started_us)
        .bind(columns.duration_us)
        .bind(columns.dirty_mask)
        .bind(columns.conditions)
        .bind(columns.sample_digest)
        .run();
    for (const Row& row : rows) {
      const std::string_view config = row.columns.config;
      connection.query("INSERT INTO sample VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)")
          .bind(result)
          .bind(row.columns.m)
          .bind(row.columns.arm)
          .bind(row.columns.role)
          .bind(std::span(reinterpret_cast<const std::uint8_t*>(config.data()), config.size()))
          .bind(row.columns.launches)
          .bind(row.columns.median_ns)
          .bind(row.columns.mad_ns)
          .bind(row.columns.dirty_mask)
          .bind(row.columns.error)
          .bind(row.columns.workspace_bytes)
          .bind(row.columns.cached_bytes)
          .bind(row.columns.raw)
          .bind(row.digest)
          .run();
    }
    for (std::size_t i = 0; i < run.attempts.size(); ++i) {
      const Attempt& attempt = run.attempts[i];
      connection.query("INSERT INTO attempt VALUES(?1, ?2, ?3, ?4, ?5, ?6)")
          .bind(result)
          .bind(attempt.m)
          .bind(arms.at(attempt.arm))
          .bind(to_string(attempt.outcome))
          .bind(attempt.detail)
          .bind(attempt_digests[i])
          .run();
    }
    update_live(connection, ids);
    return true;
  });
  return result;
}

Id Store::put(const Verdict& original) {
  Verdict verdict = original;
  if (verdict.decided_us == 0) verdict.decided_us = now_us();
  Id result;
  state_->write([&](Connection& connection) {
    const EncodedVerdict encoded(verdict);
    const VerdictColumns& columns = encoded.columns;
    if (verdict.rule < 0) throw codec::Malformed("a verdict with a negative rule");
    result = verdict_id(columns);
    if (exists(connection, "SELECT 1 FROM verdict WHERE verdict_id = ?1", result)) return false;
    insert_key(connection, verdict.key, columns.key);
    const Id digest = verdict_digest(columns);
    connection
        .query(
            "INSERT INTO verdict VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, "
            "?18)")
        .bind(result)
        .bind(columns.key.device)
        .bind(columns.key.problem)
        .bind(columns.key.regime)
        .bind(columns.policy)
        .bind(columns.run_ids)
        .bind(columns.incumbent)
        .bind(columns.rule)
        .bind(columns.status)
        .bind(columns.why)
        .bind(columns.segments)
        .bind(columns.crossovers)
        .bind(columns.threshold)
        .bind(columns.first_win)
        .bind(columns.library_arm)
        .bind(columns.held_out)
        .bind(columns.decided_us)
        .bind(digest)
        .run();
    update_live(connection, columns.key);
    return true;
  });
  return result;
}

void Store::request(const Request& request) {
  if (request.max_m < 0) throw StoreError("A request for a negative number of rows cannot be stored");
  state_->write([&](Connection& connection) {
    const KeyIds ids = ids_of(request.key);
    const std::string reason = codec::scrub_utf8(request.reason);
    insert_key(connection, request.key, ids);
    connection
        .query(
            "INSERT INTO request VALUES(?1, ?2, ?3, ?4, ?5, ?6, 1, 0, ?7) "
            "ON CONFLICT(device_id, problem_id, regime_id) DO UPDATE SET max_m = max(max_m, excluded.max_m), "
            "reason = excluded.reason, low_priority = min(low_priority, excluded.low_priority), count = count + 1")
        .bind(ids.device)
        .bind(ids.problem)
        .bind(ids.regime)
        .bind(request.max_m)
        .bind(reason)
        .bind(request.low_priority)
        .bind(request.not_before_us)
        .run();
    return true;
  });
}

// One byte of NAME.tuning for every key: an open file description lock, which belongs to this one descriptor.
std::optional<Claim> Store::claim(const EvidenceKey& key) {
  if (state_->in_memory || state_->access == Access::lookup_only) return Claim();
  try {
    require_writable();  // and makes the folder
  } catch (const StoreError&) {
    return Claim();
  }
  const std::string path = state_->path.string() + ".tuning";
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (descriptor < 0) return Claim();
  Claim claim(descriptor);
  const KeyIds ids = ids_of(key);
  std::uint64_t offset = 0xcbf29ce484222325u;  // FNV-1a
  for (const Id* id : {&ids.device, &ids.problem, &ids.regime})
    for (const std::uint8_t byte : id->bytes) offset = (offset ^ byte) * 0x100000001b3u;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(offset >> 2);
  lock.l_len = 1;
  if (::fcntl(descriptor, F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES)) return claim;
  return std::nullopt;
}

void Store::served(const EvidenceKey& key) {
  state_->write([&](Connection& connection) {
    const KeyIds ids = ids_of(key);
    connection.query("DELETE FROM request WHERE device_id = ?1 AND problem_id = ?2 AND regime_id = ?3")
        .bind(ids.device)
        .bind(ids.problem)
        .bind(ids.regime)
        .run();
    return sqlite3_changes(connection.handle()) > 0;
  });
}

void Store::failed(const EvidenceKey& key, std::int64_t not_before_us) {
  state_->write([&](Connection& connection) {
    const KeyIds ids = ids_of(key);
    connection
        .query(
            "UPDATE request SET fails = fails + 1, not_before_us = ?4 "
            "WHERE device_id = ?1 AND problem_id = ?2 AND regime_id = ?3")
        .bind(ids.device)
        .bind(ids.problem)
        .bind(ids.regime)
        .bind(not_before_us)
        .run();
    return sqlite3_changes(connection.handle()) > 0;
  });
}

std::vector<Request> Store::requests() {
  return state_->read(std::vector<Request>(), [&](Connection& connection) {
    std::vector<Request> requests;
    Query query = connection.query(
        "SELECT q.device_id, q.problem_id, q.regime_id, q.max_m, q.reason, q.low_priority, q.count, q.fails, "
        "q.not_before_us, " CROSSOVER_KEY_COLUMNS " FROM request q" CROSSOVER_KEY_JOINS("q"));
    state_->for_each_row(query, "a request for device", [&](const Query& row) {
      Request request;
      request.key = key_of(row, 9, {row.id(0), row.id(1), row.id(2)});
      request.max_m = row.integer(3);
      request.reason = row.text(4);
      request.low_priority = row.integer(5) != 0;
      const auto saturated = [](std::int64_t value) {
        return static_cast<int>(std::clamp<std::int64_t>(value, 0, std::numeric_limits<int>::max()));
      };
      request.count = saturated(row.integer(6));
      request.fails = saturated(row.integer(7));
      request.not_before_us = row.integer(8);
      if (request.max_m < 0) throw BadRow("a value is out of range");
      requests.push_back(std::move(request));
    });
    std::sort(requests.begin(), requests.end(), [](const Request& a, const Request& b) {
      return std::tie(a.low_priority, b.count, a.key) < std::tie(b.low_priority, a.count, b.key);
    });
    return requests;
  });
}

std::vector<Verdict> Store::all_verdicts() {
  return state_->read(std::vector<Verdict>(), [&](Connection& connection) {
    Query query = connection.query("SELECT " CROSSOVER_VERDICT_COLUMNS ", " CROSSOVER_KEY_COLUMNS
                                   " FROM verdict v" CROSSOVER_KEY_JOINS("v"));
    auto verdicts = state_->verdicts(query, nullptr);
    std::reverse(verdicts.begin(), verdicts.end());
    return verdicts;
  });
}

std::vector<Verdict> Store::find_verdicts(std::string_view id_prefix) {
  const auto range = id_range(id_prefix, 4);
  if (!range) return {};
  return state_->read(std::vector<Verdict>(), [&](Connection& connection) {
    Query query = connection.query("SELECT " CROSSOVER_VERDICT_COLUMNS ", " CROSSOVER_KEY_COLUMNS
                                   " FROM verdict v" CROSSOVER_KEY_JOINS("v") " WHERE v.verdict_id BETWEEN ?1 AND ?2");
    query.bind(range->first).bind(range->second);
    auto verdicts = state_->verdicts(query, nullptr);
    std::reverse(verdicts.begin(), verdicts.end());
    return verdicts;
  });
}

std::optional<Run> Store::run(const Id& id) {
  if (Store* kept = state_->kept()) {
    if (auto run = kept->run(id)) return run;
  }
  return state_->read(std::optional<Run>(), [&](Connection& connection) {
    std::optional<Run> run;
    Query query = connection.query(
        "SELECT " CROSSOVER_RUN_COLUMNS
        ", " CROSSOVER_KEY_COLUMNS CROSSOVER_RUN_TABLES CROSSOVER_KEY_JOINS("r") " WHERE r.run_id = ?1");
    query.bind(id);
    state_->for_each_row(query, "run", [&](const Query& row) { run = run_of(row, nullptr); });
    return run;
  });
}

std::vector<Run> Store::all_runs() {
  return state_->read(std::vector<Run>(), [&](Connection& connection) {
    std::vector<Run> runs;
    Query query = connection.query("SELECT " CROSSOVER_RUN_COLUMNS
                                   ", " CROSSOVER_KEY_COLUMNS CROSSOVER_RUN_TABLES CROSSOVER_KEY_JOINS("r"));
    state_->for_each_row(query, "run", [&](const Query& row) { runs.push_back(run_of(row, nullptr)); });
    std::sort(runs.begin(), runs.end(),
              [](const Run& a, const Run& b) { return std::tie(a.started_us, a.id) < std::tie(b.started_us, b.id); });
    return runs;
  });
}

std::vector<std::string> Store::check() {
  return state_->read(std::vector<std::string>(), [&](Connection& connection) {
    std::vector<std::string> faults;
    const auto each = [&](const char* sql, const std::string& what, const auto& look) {
      try {
        Query query = connection.query(sql);
        while (query.step()) {
          const auto id = State::row_id(query);
          const std::string name = what + (id ? " " + short_hex(*id) : "");
          try {
            look(query, name);
          } catch (const BadRow& error) {
            faults.push_back(name + ": " + error.what());
          } catch (const codec::Malformed& error) {
            faults.push_back(name + ": " + error.what());
          }
        }
      } catch (const Damaged& error) {
        faults.push_back(what + ": " + error.what());
      }
    };
    each("SELECT * FROM pragma_integrity_check(100)", "SQLite's check", [&](const Query& row, const std::string&) {
      if (row.text(0) != "ok") faults.push_back("SQLite's check: " + std::string(row.text(0)));
    });
    each("SELECT \"table\", parent, count(*) FROM pragma_foreign_key_check GROUP BY 1, 2", "references",
         [&](const Query& row, const std::string&) {
           faults.push_back(std::to_string(row.integer(2)) + " rows of " + std::string(row.text(0)) +
                            " refer to rows of " + std::string(row.text(1)) + " that are not there");
         });
    const auto holds = [](const Id& found, const Id& computed) {
      if (found != computed) throw BadRow("its digest does not hold");
    };
    each("SELECT device_id, json FROM device", "device",
         [&](const Query& row, const std::string&) { holds(row.id(0), device_id(row.text(1))); });
    each("SELECT environment_id, json FROM environment", "environment",
         [&](const Query& row, const std::string&) { holds(row.id(0), environment_id(row.text(1))); });
    each("SELECT problem_id, operation, json FROM problem", "problem",
         [&](const Query& row, const std::string&) { holds(row.id(0), problem_id(row.text(1), row.text(2))); });
    each("SELECT regime_id, launch_mode, l2, fill FROM regime", "regime", [&](const Query& row, const std::string&) {
      holds(row.id(0), regime_id(row.text(1), row.text(2), row.text(3)));
    });
    each("SELECT arm_id, name, fingerprint, numerics, json FROM arm", "arm", [&](const Query& row, const std::string&) {
      holds(row.id(0), arm_id(row.text(1), row.text(2), row.text(3), row.text(4)));
    });
    std::set<std::string> keys;
    each("SELECT key, typeof(value), CAST(value AS TEXT) FROM meta", "meta", [&](const Query& row, const std::string&) {
      const std::string key(row.text(0));
      const bool valid = key == "database_uuid" ? row.text(1) == "text" && Id::from_hex(row.text(2)).has_value()
                                                : row.text(1) == "integer";
      if (valid) keys.insert(key);
    });
    for (const char* key : {"database_uuid", "generation", "min_reader", "min_writer"})
      if (!keys.contains(key)) faults.push_back("the table meta has no " + std::string(key) + ", or not a valid one");
    std::set<Id> runs, listed;
    each("SELECT run_id FROM run", "run", [&](const Query& row, const std::string&) { runs.insert(row.id(0)); });
    each("SELECT device_id, run_ids FROM live", "a list of runs", [&](const Query& row, const std::string&) {
      for (const Id& id : codec::decode<std::vector<Id>>(row.text(1))) {
        if (!runs.contains(id)) faults.push_back("run " + short_hex(id) + " was stored and is not there");
        listed.insert(id);
      }
    });
    for (const Id& id : runs)
      if (!listed.contains(id)) faults.push_back("run " + short_hex(id) + " is not in its problem's list of runs");
    return faults;
  });
}

std::vector<Device> Store::devices() {
  return state_->read(std::vector<Device>(), [&](Connection& connection) {
    std::vector<Device> devices;
    Query query = connection.query("SELECT device_id, json FROM device");
    state_->for_each_row(query, "device", [&](const Query& row) {
      if (device_id(row.text(1)) != row.id(0)) throw BadRow("its digest does not hold");
      devices.push_back(codec::decode<Device>(row.text(1)));
    });
    std::sort(devices.begin(), devices.end());
    return devices;
  });
}

std::vector<Device> Store::find_devices(std::string_view id_prefix) {
  const auto range = id_range(id_prefix, 1);
  if (!range) return {};
  std::vector<Device> found = devices();
  std::erase_if(found, [&](const Device& device) {
    const Id id = id_of(device);
    return id < range->first || id > range->second;
  });
  return found;
}

Id Store::id_of(const Device& device) { return device_id(codec::encode(device)); }
Id Store::id_of(const Problem& problem) { return problem_id(problem.operation, codec::encode(problem.attributes)); }
Id Store::id_of(const Verdict& verdict) { return verdict_id(EncodedVerdict(verdict).columns); }

}  // namespace crossover
