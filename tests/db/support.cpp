#include "support.hpp"

#include <grp.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <sstream>
#include <system_error>
#include <tuple>

#include "digest.hpp"

namespace crossover::test {

namespace fs = std::filesystem;

Folder::Folder() {
  const bool in_memory = ::access("/dev/shm", W_OK) == 0;
  std::string name = (in_memory ? std::string("/dev/shm") : fs::temp_directory_path().string()) + "/crossover-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = name;
}
Folder::~Folder() {
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(path_, ignored))
    if (entry.is_directory(ignored) && !entry.is_symlink(ignored))
      fs::permissions(entry.path(), fs::perms::owner_all, fs::perm_options::add, ignored);
  fs::permissions(path_, fs::perms::owner_all, fs::perm_options::add, ignored);
  fs::remove_all(path_, ignored);
}

EvidenceKey make_key(int n) {
  EvidenceKey key;
  key.device = {"cpu", "Test CPU \"Ω\"", "x86-64-v3", 2, 32 << 20, 16};
  key.problem = {"fp8_block_linear", {{"n", std::to_string(n)}, {"k", "1024"}, {"dtype", "bf16"}}};
  key.regime = {LaunchMode::eager, L2State::cold, "normal"};
  return key;
}

Sample make_sample(Rows m, const std::string& arm, std::uint64_t seed, int rounds) {
  std::mt19937_64 random(seed);
  Sample sample;
  sample.m = m;
  sample.arm = arm;
  sample.config = "tile=" + std::to_string(random() % 7);
  sample.launches = static_cast<std::uint32_t>(1 + random() % 9);
  for (int round = 0; round < rounds; ++round)
    sample.raw.push_back({static_cast<std::uint32_t>(round), round == 1 ? kDiscarded : 0u,
                          1000.0 + static_cast<double>(random() % 100'000) / 7.0,
                          static_cast<double>(random() % 2000)});
  sample.median_ns = median_ns(sample);
  sample.mad_ns = mad_ns(sample);
  sample.dirty_mask = random() % 4 == 0 ? std::uint64_t{1} << 63 : 0;
  if (random() % 2 == 0) sample.error = static_cast<double>(random() % 1000) * 1e-5;
  sample.workspace_bytes = random() % 1000;
  sample.cached_bytes = random() % 1000;
  return sample;
}

Run make_run(const EvidenceKey& key, std::uint64_t seed, int samples) {
  std::mt19937_64 random(seed);
  Run run;
  for (auto& byte : run.process_uuid.bytes) byte = static_cast<std::uint8_t>(random());
  run.device = key.device;
  run.problem = key.problem;
  run.regime = key.regime;
  run.environment = {{"driver", "535"}, {"crossover", "0.1.0"}, {"blas", "OpenBLAS 0.3.21"}};
  run.arm_set.arms = {{{"host_vector", "aa"}, "a16", true, false, true, ""},
                      {{"host_dequant_blas", "bb"}, "w16", false, true, true, ""},
                      {{"other", "cc"}, "a8", false, false, false, "N % 8 != 0 (N = 2113)"}};
  run.arm_set.defaults = {{8, "host_vector"}, {kMaxRows, "host_vector"}};
  run.arm_set.numerics = {{"a16", true}, {"w16", true}, {"a8", false}};
  run.gpu_uuid = "GPU-1";
  run.boot_id = "boot";
  run.host = "node-7";
  run.seed = random();
  run.started_us = 1'700'000'000'000'000 + static_cast<std::int64_t>(seed);
  run.duration_us = 1'000'000;
  run.conditions = {{"before", {{"governor", "performance"}}},
                    {"after", {{"governor", "performance"}, {"load", "0.5"}}}};
  for (int i = 0; i < samples; ++i)
    for (const char* arm : {"host_vector", "host_dequant_blas"})
      run.samples.push_back(make_sample(1 + i, arm, random()));
  run.attempts = {{0, "other", Outcome::ineligible, "N % 8 != 0 (N = 2113)"}};
  return run;
}

Verdict make_verdict(const EvidenceKey& key, std::vector<Id> run_ids) {
  Verdict verdict;
  verdict.key = key;
  verdict.policy.allow = {"a16", "w16"};
  verdict.policy.max_error = 0.02;
  verdict.run_ids = std::move(run_ids);
  verdict.incumbent = {{1, 256, "host_vector", "-"}};
  verdict.status = VerdictStatus::confirmed;
  verdict.why = "two runs agree";
  verdict.segments = {{1, 31, "host_vector", "-"}, {32, 256, "host_dequant_blas", "threads=2"}};
  verdict.crossovers = {{32, 28, 35, "host_vector", "host_dequant_blas"}};
  verdict.threshold = 32;
  verdict.first_win = 40;
  verdict.library_arm = "host_dequant_blas";
  verdict.held_out = HeldOut{0.001, 0.01, 5};
  verdict.decided_us = 1'700'000'000'000'001;
  return verdict;
}

bool same(const Run& a, const Run& b) {
  const auto fields = [](const Run& run) {
    return std::tie(run.process_uuid, run.device, run.environment, run.problem, run.regime, run.gpu_uuid, run.boot_id,
                    run.protocol, run.seed, run.started_us, run.duration_us, run.dirty_mask, run.conditions);
  };
  return fields(a) == fields(b) && a.arm_set == b.arm_set && a.samples.size() == b.samples.size() &&
         a.attempts.size() == b.attempts.size() &&
         std::is_permutation(a.samples.begin(), a.samples.end(), b.samples.begin()) &&
         std::is_permutation(a.attempts.begin(), a.attempts.end(), b.attempts.begin());
}

bool same(const Verdict& a, const Verdict& b) {
  const auto fields = [](const Verdict& verdict) {
    return std::tie(verdict.run_ids, verdict.rule, verdict.status, verdict.why, verdict.threshold, verdict.first_win,
                    verdict.library_arm, verdict.decided_us);
  };
  return fields(a) == fields(b) && a.key == b.key && a.policy == b.policy && a.incumbent == b.incumbent &&
         a.segments == b.segments && a.crossovers == b.crossovers && a.held_out == b.held_out;
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::map<std::string, std::string> snapshot(const fs::path& folder) {
  std::map<std::string, std::string> entries;
  const auto describe = [&](const fs::path& path) {
    struct stat status {};
    ::lstat(path.c_str(), &status);
    std::ostringstream text;
    text << status.st_size << ' ' << std::oct << status.st_mode << std::dec << ' ' << status.st_mtim.tv_sec << '.'
         << status.st_mtim.tv_nsec << ' ' << status.st_ino << ' ';
    if (S_ISREG(status.st_mode)) text << db::digest("file", read_file(path)).hex();
    return text.str();
  };
  entries["."] = describe(folder);
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    entries[entry.path().string()] = describe(entry.path());
  return entries;
}

int vandalise(const fs::path& path, const std::string& sql) {
  db::Connection connection(path, db::Connection::Mode::read_write);
  connection.execute("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF");
  connection.execute(sql.c_str());
  return sqlite3_changes(connection.handle());
}

Contents read_all(const fs::path& path, const std::vector<EvidenceKey>& keys) {
  Contents contents;
  std::unique_ptr<Store> store;
  const auto attempt = [&](auto body) {
    try {
      body();
    } catch (const StoreError&) {
      ++contents.errors;
    }
  };
  attempt([&] { store = Store::open(path, Store::Access::lookup_only); });
  if (store == nullptr) return contents;
  for (const EvidenceKey& key : keys) {
    attempt([&] {
      for (Run& run : store->runs(key)) {
        if (store->load(run)) contents.runs.push_back(run);
        store->run(run.id);
      }
    });
    attempt([&] {
      for (Verdict& verdict : store->verdicts(key)) contents.verdicts.push_back(std::move(verdict));
    });
  }
  attempt([&] {
    for (Verdict& verdict : store->all_verdicts()) contents.verdicts.push_back(std::move(verdict));
  });
  attempt([&] { contents.devices = store->devices(); });
  attempt([&] { store->requests(); });
  contents.warnings = store->warnings();
  return contents;
}

namespace {

template <class Items, class Equal>
bool subset(const Items& part, const Items& whole, Equal equal) {
  return std::all_of(part.begin(), part.end(), [&](const auto& item) {
    return std::any_of(whole.begin(), whole.end(), [&](const auto& other) { return equal(item, other); });
  });
}
bool contained(const Contents& part, const Contents& whole) {
  return subset(part.runs, whole.runs,
                [](const Run& a, const Run& b) { return a.id == b.id && same(a, b) && a.host == b.host; }) &&
         subset(part.verdicts, whole.verdicts,
                [](const Verdict& a, const Verdict& b) { return a.id == b.id && same(a, b); }) &&
         subset(part.devices, whole.devices, [](const Device& a, const Device& b) { return a == b; });
}

}  // namespace

bool nothing_wrong(const Contents& found, const Contents& original) { return contained(found, original); }
bool nothing_missing(const Contents& found, const Contents& original) { return contained(original, found); }

pid_t start_child(const std::function<int()>& body) {
  std::cout.flush();
  std::cerr.flush();
  const pid_t child = ::fork();
  // Never hand out -1: to kill(), that is every process there is.
  if (child < 0) throw std::runtime_error("fork: " + std::generic_category().message(errno));
  if (child != 0) return child;
  int code = 255;
  try {
    code = body();
    if (::testing::Test::HasFailure()) code = 254;
  } catch (const std::exception& error) {
    std::cerr << "child: " << error.what() << std::endl;
  }
  std::cout.flush();
  ::_exit(code);
}
int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
int in_child(const std::function<int()>& body) { return wait_for(start_child(body)); }

void become_nobody() {
  if (::geteuid() != 0) return;
  constexpr uid_t kNobody = 65534;
  if (::setgroups(0, nullptr) != 0 || ::setresgid(kNobody, kNobody, kNobody) != 0 ||
      ::setresuid(kNobody, kNobody, kNobody) != 0)
    throw std::runtime_error("cannot become another user");
}

std::string store_error(const std::function<void()>& body) {
  try {
    body();
  } catch (const StoreError& error) {
    return error.what();
  }
  return {};
}

}  // namespace crossover::test
