#pragma once
// Measuring one problem: candidates, correctness gate, interleaved rounds, clean rows. See tuner/MEASURING.md.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossover/db/store.hpp"
#include "crossover/dispatch/dispatcher.hpp"
#include "crossover/tuner/backend.hpp"

namespace crossover {

struct TuneOptions;

// For progress on a terminal. Called from the tuning thread, at most ten times a second.
struct Progress {
  std::string stage;    // "preparing", "checking", "measuring", "held-out"
  double fraction = 0;  // of the budget
  std::string detail;
};
using OnProgress = std::function<void(const Progress&)>;

// Something that does what measure() does, in another process for example.
using Measure = std::function<Run(Backend& backend, const Operation& operation, const Problem& problem,
                                  const TuneOptions& options, std::span<const Run> known, const OnProgress& progress)>;

struct TuneOptions {
  Rows max_rows = 8192;
  std::chrono::duration<double> budget{10};
  bool thorough = false;
  L2State l2 = L2State::cold;
  std::optional<LaunchMode> launch_mode;        // default: the machine's first
  std::uint64_t seed = 0;                       // 0: from the process and the clock
  std::vector<std::string> keep_arms;           // names or families that are measured however slow they are
  std::chrono::duration<double> patience{600};  // for other processes that are measuring
  // Off: one arm after the other instead of rounds, to see what drift makes of a comparison. Such a run is no evidence.
  bool interleaved = true;
  // Arms that are known to be bad: nothing of them is called, and the run has these attempts. A default arm among them
  // is a Failure.
  std::vector<Attempt> excluded;
  // Called before a function of an arm is (with m = 0 where it is not a launch), and with no name after it. Never in a
  // time that is measured.
  std::function<void(std::string_view arm, Rows m)> on_arm;
  Measure measure;  // what Tuner calls; default: measure()
};

// The row counts that a tuning up to max_rows measures: 1…16, √2 steps, tile edges; ascending, unique, includes
// max_rows.
std::vector<Rows> grid(Rows max_rows, std::span<const Rows> tile_edges);

// Measures and stores nothing. `problem` is normalised. Throws InvalidArgument, OutOfMemory, DeviceError.
Run measure(Backend& backend, const Operation& operation, const Problem& problem, const TuneOptions& options,
            std::span<const Run> known = {}, const OnProgress& progress = {});

// Runs one arm alone, over poisoned outputs and checked, at the smallest row count of the grid that it supports, at a
// tile edge and at the largest. What is wrong with it, with the row count in the detail and m = 0; nothing: it may be
// measured, or is not eligible. Throws what measure() does for anything that is not the arm's fault.
std::optional<Attempt> probe(Backend& backend, const Operation& operation, const Problem& problem,
                             const TuneOptions& options, const std::string& arm);

// Times the arms that `arms` names against each other at `rows`, to the end of the budget: nothing is dropped, and
// every sample that can have them gets the rounds of the last look. The first is what the others are compared with, and
// is timed twice for that: roles grid and placebo. `arms` are names or families, the first a name; options.max_rows and
// keep_arms do not matter. The run is a comparison, not evidence: never store it. Throws what measure() does.
Run measure_selected(Backend& backend, const Operation& operation, const Problem& problem, const TuneOptions& options,
                     const std::vector<std::string>& arms, const std::vector<Rows>& rows,
                     const OnProgress& progress = {});

struct Tuning {
  Run run;
  Verdict verdict;  // for the default policy, stored
  double duration_s = 0;
  std::size_t rows_measured = 0, rows_dirty = 0;  // samples of role grid
  std::string not_stored;                         // why the result is only in memory (Store::keep); empty: it is stored
};

// Measures, stores the run and the verdict for the default policy. Any thread; one tuning at a time per Tuner. The
// progress callback runs on the tuning thread. A tuning that is conclusive serves the request for its problem, if there
// is one; one that is not, or that failed, puts it off: by ten minutes, an hour, and then a day each time.
class Tuner final : public OnMiss {
 public:
  Tuner(Backend& backend, Store& store, TuneOptions options, OnProgress progress = {});
  // Waits for its turn: among the threads of this tuner, and until no other process measures on the same GPU or the
  // same problem (for TuneOptions::patience; then it throws Failure). Throws what measure() does. A store that fails
  // loses nothing: Tuning::not_stored says why.
  Tuning tune(const Operation& operation, const Problem& problem);
  Tuning tune(const Operation& operation, const Problem& problem, const TuneOptions& options);
  // In the regime of the miss. Measures nothing where the store has what the lookup missed by now, or where it failed
  // or was inconclusive and is not to be tried again yet. False, at once: this tuner, another one of the key, or one on
  // the same GPU is at work. Throws also StoreError.
  bool tune(const Miss& miss) override;
  void record(const Miss& miss) override;

 private:
  Verdict decided(const EvidenceKey& key, const Run& run);
  Tuning tune_locked(const Operation& operation, const EvidenceKey& key, const TuneOptions& options);
  Regime regime_of(const TuneOptions& options) const;
  std::vector<Claim> wait_for_claims(const EvidenceKey& key, const TuneOptions& options);
  std::optional<Request> request_for(const EvidenceKey& key);
  void settle_request(const EvidenceKey& key, Rows max_rows, const Tuning* tuning, bool asked = false);
  bool served_already(const Miss& miss, std::int64_t asked_us);

  Backend& backend_;
  Store& store_;
  TuneOptions options_;
  OnProgress progress_;
  std::mutex mutex_;
};

// The host CPU as a device; `extra` adds to its environment (the BLAS of the arms, say).
std::unique_ptr<Backend> cpu_backend(Environment extra = {});

}  // namespace crossover
