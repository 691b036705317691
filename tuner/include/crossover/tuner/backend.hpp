#pragma once
// What the tuner needs of a device: memory, launches timed in rounds, conditions, a clock. CUDA, the CPU, and the
// simulator of the tests implement it; the tuner is the same code for all of them. One thread at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "crossover/dispatch/dispatcher.hpp"

namespace crossover {

// One call of one arm, fully described.
struct Launch {
  Prepared* prepared = nullptr;
  Arguments arguments;
  Rows rows = 0;
  Workspace workspace;
};

// Launches that are timed as one: a CUDA graph, or a loop of calls.
class Batch {
 public:
  virtual ~Batch() = default;
};

struct Timing {
  Status status;            // of the first launch that failed
  double total_ns = 0;      // all launches of the batch
  double sm_clock_mhz = 0;  // 0: unknown
  std::uint32_t flags = 0;  // of Round::flags, what the back end saw; kDiscarded where it does not believe this round
};

// Limits beyond which a sample or a run is dirty. They belong to the back end: what is noise on a GPU is quiet on a VM.
struct CleanLimits {
  double mad_over_median = 0.03;
  double outlier_z = 10;  // modified z-score
  double outlier_share = 0.25;
  double discarded_share = 0.30;
  double placebo_median = 0.003;  // |median ratio - 1| of the A/A comparison
  double clock_step = 0.20;       // of the median clock of a sample's rounds: one that is further off is discarded
  double clock_spread = 0.20;     // p95 - p5 of all rounds' clocks, each over the highest of its sample
  double utilisation = 0.10;      // of the device by others, before anything is launched
  double roofline = 0.9;          // of the least time that the bytes of a cold launch need; below it a time is a fault
  double thermal_share = 0.01;    // of the run's duration under thermal slowdown
};

class Backend : public Machine {
 public:
  virtual Memory& memory() = 0;
  // Bytes of inputs to rotate over so that each launch finds its inputs outside the last cache.
  virtual std::size_t cold_pool_bytes() = 0;
  // Launches the batch once and waits; for warm-up and for the correctness gate. Returns the time it took as well.
  virtual Timing run(const Launch& launch) = 0;
  // Prepares `launches` to be timed in order. The launches' arms, arguments and workspaces outlive the batch.
  virtual std::unique_ptr<Batch> batch(LaunchMode mode, std::vector<Launch> launches) = 0;
  virtual Timing time(Batch& batch) = 0;
  virtual double min_round_ns() const = 0;  // how long a round must last for the clock's resolution not to matter
  virtual CleanLimits limits() const = 0;
  // The most that device memory delivers; 0: unknown.
  virtual double peak_bytes_per_second() const { return 0; }
  // Whether others can work on the device unseen: conditions() must then say what they do, or the run says that nobody
  // knows.
  virtual bool is_shared() const { return false; }
  virtual bool reads_clock() const { return false; }  // Timing::sm_clock_mhz is set; a run then waits until it settles
  virtual std::string gpu_uuid() const { return {}; }
  virtual std::int64_t now_ns() = 0;  // monotonic
  // When a run on it ended, by now_ns(): for a while its utilisation is still that run's. Set by measure().
  std::optional<std::int64_t> last_run_ended_ns;
  // Processes that have the device open and do nothing with it: conditions() does not count them among the others.
  std::vector<int> idle_partners;
  virtual std::int64_t unix_time_us() = 0;
  virtual void sleep_ns(std::int64_t ns) = 0;
};

}  // namespace crossover
