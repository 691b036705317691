#pragma once
// The database: append-only facts in SQLite, each row with a digest. See db/FORMAT.md for the file and its promises.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossover/db/claim.hpp"
#include "crossover/dispatch/decide.hpp"
#include "crossover/dispatch/evidence.hpp"

namespace crossover {

// $CROSSOVER_DB, else $XDG_DATA_HOME/crossover/tuning.db, else $HOME/.local/share/crossover/tuning.db. Empty if none of
// the three is set. Reads through secure_getenv.
std::filesystem::path default_database_path();

struct Request {
  EvidenceKey key;
  Rows max_m = 0;
  std::string reason;
  bool low_priority = false;
  int count = 0, fails = 0;
  std::int64_t not_before_us = 0;
};

// Thread-safe: calls are serialised. SQLite connections are opened when first needed, one for reading and one for
// writing. After fork() the child's store answers as if it were empty and never touches the parent's connection.
class Store final : public EvidenceSource {
 public:
  enum class Access { lookup_only, read_write };

  // Never touches the file beyond what `access` needs: lookup_only creates nothing, changes no byte, and treats a
  // missing file as an empty database. read_write creates the file (0600) and its folder (0700) when something is first
  // written. Throws StoreError: unreadable, foreign, newer, truncated, a symbolic link. The file is then as it was.
  static std::unique_ptr<Store> open(const std::filesystem::path& path, Access access);
  // Keeps everything in memory: for a process whose database cannot be used, and for tests.
  static std::unique_ptr<Store> in_memory();
  ~Store() override;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // EvidenceSource
  std::vector<Run> runs(const EvidenceKey& key) override;
  bool load(Run& run) override;
  std::vector<Verdict> verdicts(const EvidenceKey& key) override;
  std::uint64_t generation() override;
  std::uint64_t generation_of(const EvidenceKey& key) override;
  std::vector<std::string> warnings() override;

  // Writing. Each is one transaction of a few milliseconds, atomic and durable when it returns. Throws StoreError.
  Id append(const Run& run);       // the run with its samples and attempts; the same content again is no change
  Id put(const Verdict& verdict);  // returns the verdict's id; decided_us = 0 is set to now
  // For those who are about to do work whose result is to be stored: throws the StoreError that storing would throw.
  // Where there is no file yet, none is created, but its folder is.
  void require_writable();
  // The right to measure this key into this database, among all its processes and all stores of this one. Nothing:
  // somebody has it. Where no lock can be made nothing can be stored either, and everybody has it.
  std::optional<Claim> claim(const EvidenceKey& key);
  // For what could not be written: kept in memory until the store dies, and answered like everything else. Lookups of
  // this process then find it; nobody else does. Throws what append and put throw for content that is refused.
  Id keep(const Run& run);
  Id keep(const Verdict& verdict);
  void request(const Request& request);                             // counts up if the key is already there
  void served(const EvidenceKey& key);                              // removes the key's request
  void failed(const EvidenceKey& key, std::int64_t not_before_us);  // counts a failed try
  std::vector<Request> requests();                                  // high priority first, then the most asked for

  // Auditing.
  std::vector<Verdict> all_verdicts();                             // newest first
  std::vector<Verdict> find_verdicts(std::string_view id_prefix);  // hex digits, at least 4
  std::optional<Run> run(const Id& id);                            // not loaded
  std::vector<Run> all_runs();                                     // oldest first, not loaded
  // Reads all of the file and looks for what no lookup would meet: SQLite's own checks, rows that refer to rows that
  // are gone, rows of any table whose digest does not hold, runs that were stored and are not there. One sentence each.
  std::vector<std::string> check();
  std::vector<Device> devices();
  // A device whose id starts with these hex digits, for `--device ID`. The id is Store::id_of(device).
  std::vector<Device> find_devices(std::string_view id_prefix);
  static Id id_of(const Device& device);
  static Id id_of(const Problem& problem);
  static Id id_of(const Verdict& verdict);  // digest of what decide() computed from and what it found

 private:
  struct State;
  explicit Store(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace crossover
