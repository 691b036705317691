#pragma once
// Shared by the tests of the store: folders that vanish, runs and verdicts to store, and a look at a file from outside.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "crossover/db/store.hpp"
#include "sqlite.hpp"

namespace crossover::test {

// An empty folder, in memory where the host has such a file system. Gone when this dies.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

EvidenceKey make_key(int n);
// `samples` per arm, two arms, valid statistics, and one attempt. Different seeds give different runs of the same key.
Run make_run(const EvidenceKey& key, std::uint64_t seed, int samples = 4);
Verdict make_verdict(const EvidenceKey& key, std::vector<Id> run_ids);
// A sample of `rounds` rounds with the statistics that belong to them.
Sample make_sample(Rows m, const std::string& arm, std::uint64_t seed, int rounds = 5);

// Equal in everything that is stored: not the host, which is hashed, nor the order of samples and attempts.
bool same(const Run& a, const Run& b);
bool same(const Verdict& a, const Verdict& b);

std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& bytes);
// Size, mode, modification time in ns, inode and digest of everything in a folder, by path.
std::map<std::string, std::string> snapshot(const std::filesystem::path& folder);

// Runs SQL on the file as a program would that knows nothing of the rules: no triggers, no constraints. Gives the
// number of rows that the last statement changed.
int vandalise(const std::filesystem::path& path, const std::string& sql);

// Everything that a store can be asked for.
struct Contents {
  std::vector<Run> runs;  // loaded
  std::vector<Verdict> verdicts;
  std::vector<Device> devices;
  std::vector<std::string> warnings;
  int errors = 0;  // calls that threw StoreError
};
Contents read_all(const std::filesystem::path& path, const std::vector<EvidenceKey>& keys);
// Whether everything in `found` is also in `original`.
bool nothing_wrong(const Contents& found, const Contents& original);
bool nothing_missing(const Contents& found, const Contents& original);

// Runs `body` in a child process; its result is the exit code (255: it threw; 128 + n: it died of signal n).
int in_child(const std::function<int()>& body);
pid_t start_child(const std::function<int()>& body);
int wait_for(pid_t child);
// Gives up root's rights for good, so that file permissions apply; nothing where there are none to give up.
void become_nobody();

// The message of the StoreError that `body` throws; empty if it does not.
std::string store_error(const std::function<void()>& body);

}  // namespace crossover::test
