// The rule of dispatch/DECIDE.md. Deterministic to the byte: containers are ordered, arms are looked at by name, the
// only arithmetic on times is + - * / sqrt in double precision (compiled without contraction), the generator is our
// own.

#include "crossover/dispatch/decide.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace crossover {
namespace {

constexpr double kSegmentCost = 0.01;  // relative loss at one grid point that an extra segment must save
constexpr double kMismatch = 1e-4;     // breaks ties between plans of equal loss towards the arm that won at the point
constexpr double kUnmeasured = 1e9;    // loss of an arm at a point where it has no usable sample
constexpr double kUndecided = 0.10;    // a rival that might be this much faster leaves a point undecided
constexpr double kUndecidedShare = 0.5;                // of the points, beyond which the whole verdict is inconclusive
constexpr double kAgreeMean = 0.01, kAgreeMax = 0.03;  // losses up to which two processes' plans agree
constexpr double kBandApart = 1.25;      // factor around the ratio of medians from different runs, before their spread
constexpr std::size_t kFewestApart = 8;  // rounds that each of them must have
constexpr int kBootstraps = 1000;

// splitmix64 (Steele, Lea, Flood 2014).
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(((next() >> 32) * n) >> 32); }

 private:
  std::uint64_t state_;
};

struct TimedRound {
  std::size_t run;  // index into Table::runs
  std::uint32_t number;
  double time_ns;  // of one launch
};

// What one arm has at one row count, over all runs; ascending by (run, number).
double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Cell {
  std::vector<TimedRound> rounds;
  std::optional<double> error;
  double median() const {
    std::vector<double> times;
    for (const TimedRound& round : rounds) times.push_back(round.time_ns);
    return median_of(std::move(times));
  }
  // MAD over median.
  double spread() const {
    const double middle = median();
    std::vector<double> distances;
    for (const TimedRound& round : rounds) distances.push_back(std::fabs(round.time_ns - middle));
    return median_of(std::move(distances)) / middle;
  }
};

using Cells = std::map<std::string, Cell>;  // by arm

// The usable samples of one role under a policy, by row count.
struct Table {
  std::vector<const Run*> runs;  // as ordered() gives them
  std::map<Rows, Cells> points;
  // Arms that were measured at a row count, and rightly, but whose times there are all dirty, with the least median of
  // those: not for the arm, and against it only where it is far slower.
  std::map<Rows, std::map<std::string, double>> unknown;
  std::map<std::string, std::string> config;  // by arm
};

std::string refusal(const Policy& policy, const ArmSet& set, const ArmRecord& arm) {
  const auto names = [&](const std::vector<std::string>& list) {
    return std::any_of(list.begin(), list.end(), [&](const std::string& name) { return names_arm(name, arm.id.name); });
  };
  if (names(policy.disabled)) return "disabled";
  if (!policy.arms.empty() && !names(policy.arms)) return "not among the arms asked for";
  if (policy.batch_invariant && !arm.batch_invariant) return "its rows depend on the batch";
  if (policy.allow.empty()) {
    for (const NumericsClass& numerics : set.numerics)
      if (numerics.name == arm.numerics)
        return numerics.allowed_by_default ? "" : "class " + arm.numerics + " is opt-in";
    return "class " + arm.numerics + " is unknown";
  }
  if (std::find(policy.allow.begin(), policy.allow.end(), arm.numerics) == policy.allow.end())
    return "class " + arm.numerics + " is not allowed";
  return "";
}

std::string refusal(const Policy& policy, const ArmSet& set, const ArmRecord& arm, const Sample& sample) {
  std::string reason = refusal(policy, set, arm);
  if (!reason.empty()) return reason;
  if (sample.cached_bytes > policy.cached_bytes) return "keeps " + std::to_string(sample.cached_bytes) + " bytes";
  if (sample.workspace_bytes > policy.workspace_bytes)
    return "needs " + std::to_string(sample.workspace_bytes) + " bytes of workspace";
  // Written so that an error that is NaN is refused.
  if (policy.max_error && !(sample.error && *sample.error <= *policy.max_error)) return "error above the bound";
  return "";
}

bool usable(const Run& run) { return run.dirty_mask == 0 && run.protocol >= kMinProtocol; }

using Runs = std::vector<const Run*>;

// Oldest first, each run once, unusable ones left out.
Runs ordered(const Runs& runs) {
  Runs result;
  for (const Run* run : runs)
    if (usable(*run)) result.push_back(run);
  const auto key = [](const Run* run) { return std::make_pair(run->started_us, run->id); };
  std::sort(result.begin(), result.end(), [&](const Run* a, const Run* b) { return key(a) < key(b); });
  result.erase(std::unique(result.begin(), result.end(), [](const Run* a, const Run* b) { return a->id == b->id; }),
               result.end());
  return result;
}

Runs pointers_to(std::span<const Run> runs) {
  Runs result;
  for (const Run& run : runs) result.push_back(&run);
  return result;
}

// `keep_refused`: also what the policy refuses (for standings).
Table tabulate(const Runs& runs, const Policy& policy, Role role, bool keep_refused = false) {
  Table table;
  table.runs = ordered(runs);
  // Of an arm that was measured under several fingerprints or configs, the newest run's counts.
  std::map<std::string, std::pair<std::string, std::string>> newest;  // arm -> fingerprint, config
  for (const Run* run : table.runs)
    for (const Sample& sample : run->samples)
      if (const ArmRecord* arm = run->arm_set.find(sample.arm); arm != nullptr && sample.role == role)
        newest[sample.arm] = {arm->id.fingerprint, sample.config};

  for (std::size_t index = 0; index < table.runs.size(); ++index) {
    const Run& run = *table.runs[index];
    for (const Sample& sample : run.samples) {
      if (sample.role != role || sample.m < 1) continue;
      const ArmRecord* arm = run.arm_set.find(sample.arm);
      if (arm == nullptr) continue;
      const auto& [fingerprint, config] = newest[sample.arm];
      if (arm->id.fingerprint != fingerprint || sample.config != config) continue;
      if (!keep_refused && !refusal(policy, run.arm_set, *arm, sample).empty()) continue;
      if (sample.dirty_mask != 0) {
        double& least = table.unknown[sample.m].try_emplace(sample.arm, sample.median_ns).first->second;
        least = std::min(least, sample.median_ns);
        continue;
      }
      Cell& cell = table.points[sample.m][sample.arm];
      for (const Round& round : sample.raw)
        if (counts(round) && round.total_ns > 0 && sample.launches > 0)
          cell.rounds.push_back({index, round.number, round.total_ns / sample.launches});
      if (sample.error) cell.error = std::max(cell.error.value_or(*sample.error), *sample.error);
      table.config[sample.arm] = config;
    }
  }
  for (auto point = table.points.begin(); point != table.points.end();) {
    std::erase_if(point->second, [](const auto& entry) { return entry.second.rounds.empty(); });
    point = point->second.empty() ? table.points.erase(point) : std::next(point);
  }
  for (auto& [m, cells] : table.points)
    for (auto& [arm, cell] : cells) table.unknown[m].erase(arm);
  for (auto& [m, cells] : table.points)
    for (auto& [arm, cell] : cells)
      std::sort(cell.rounds.begin(), cell.rounds.end(), [](const TimedRound& a, const TimedRound& b) {
        return std::make_pair(a.run, a.number) < std::make_pair(b.run, b.number);
      });
  return table;
}

struct PairedRatio {
  std::size_t run;
  std::uint32_t number;
  double ratio;
};

// a/b over the rounds that both have.
std::vector<PairedRatio> paired(const Cell& a, const Cell& b) {
  std::vector<PairedRatio> result;
  auto x = a.rounds.begin();
  auto y = b.rounds.begin();
  while (x != a.rounds.end() && y != b.rounds.end()) {
    const auto left = std::make_pair(x->run, x->number);
    const auto right = std::make_pair(y->run, y->number);
    if (left < right) {
      ++x;
    } else if (right < left) {
      ++y;
    } else {
      result.push_back({x->run, x->number, x->time_ns / y->time_ns});
      ++x;
      ++y;
    }
  }
  return result;
}

// Of arms that were never timed in the same round, the ratio of the medians. Only a difference far beyond what one
// process repeats of another counts; everything else stays open.
void compare_apart(const Cell& a, const Cell& b, Ratio& result) {
  result.median = a.median() / b.median();
  if (std::min(a.rounds.size(), b.rounds.size()) < kFewestApart) return;
  const double band = kBandApart * (1 + 4 * (a.spread() + b.spread()));
  result.low = result.median / band;
  result.high = result.median * band;
  if (result.high < 1 / (1 + kTieBand)) result.comparison = Comparison::win;
  if (result.low > 1 + kTieBand) result.comparison = Comparison::loss;
}

Ratio ratio_of(const Cell& a, const Cell& b, double alpha) {
  std::vector<double> ratios;
  for (const PairedRatio& pair : paired(a, b)) ratios.push_back(pair.ratio);
  Ratio result = compare(ratios, alpha);
  if (result.pairs == 0) compare_apart(a, b, result);
  return result;
}

// The level of one comparison at a point. Before rule 2 what else was measured there had a say in it.
double alpha_among(const Cells& cells, int rule) {
  return rule >= 2 ? kAlphaPerComparison
                   : kAlphaPerLook / static_cast<double>(std::max<std::size_t>(1, cells.size() - 1));
}

const std::string* arm_of(std::span<const Segment> segments, Rows m) {
  for (const Segment& segment : segments)
    if (m >= segment.from && m <= segment.to) return &segment.arm;
  return nullptr;
}

// The answer at one row count, and what it costs to serve another arm there.
struct Point {
  Rows m = 0;
  std::string winner;
  std::map<std::string, double> loss;  // 0 for the winner
  bool undecided = false;
};

// Among `names`, the first by name of those that are as good as the fastest: not shown to be slower, and no further off
// than plans of two processes may be. Noise between equals must not change the pick from one tuning to the next, and a
// few rounds, which show little, must not make equals of what is not.
std::string stable_pick(const Cells& cells, const std::vector<std::string>& names, double alpha) {
  const std::string* leader = nullptr;
  double best = std::numeric_limits<double>::infinity();
  for (const std::string& name : names) {
    const double median = cells.at(name).median();
    if (leader == nullptr || median < best) {
      leader = &name;
      best = median;
    }
  }
  for (const std::string& name : names) {
    if (name == *leader) return name;
    const Ratio ratio = ratio_of(cells.at(name), cells.at(*leader), alpha);
    if (ratio.low <= 1 && ratio.median <= 1 + kAgreeMax) return name;
  }
  return *leader;
}

Point judge(Rows m, const Cells& cells, const std::map<std::string, double>& unknown, const std::string* incumbent,
            const std::string& default_name, int rule) {
  Point point{.m = m, .winner = {}, .loss = {}, .undecided = false};
  const double alpha = alpha_among(cells, rule);
  std::string reference;
  if (incumbent != nullptr && cells.contains(*incumbent))
    reference = *incumbent;
  else if (cells.contains(default_name))
    reference = default_name;

  std::vector<std::string> winners;
  if (reference.empty()) {
    for (const auto& [name, cell] : cells) winners.push_back(name);
  } else {
    for (const auto& [name, cell] : cells) {
      if (name == reference) continue;
      const Ratio ratio = ratio_of(cell, cells.at(reference), alpha);
      if (ratio.comparison == Comparison::win) winners.push_back(name);
      if (ratio.comparison == Comparison::open && ratio.low < 1 / (1 + kUndecided)) point.undecided = true;
    }
  }
  point.winner = winners.empty() ? reference : stable_pick(cells, winners, alpha);
  if (!winners.empty() && !reference.empty()) point.undecided = false;
  for (const auto& [name, cell] : cells) {
    const double ratio = name == point.winner ? 1 : ratio_of(cell, cells.at(point.winner), alpha).median;
    point.loss[name] = std::max(0.0, ratio - 1);
  }
  for (const auto& [name, median] : unknown) {
    const double slower = median / cells.at(point.winner).median();
    point.loss[name] = slower > kBandApart ? slower - 1 : 0;
  }
  return point;
}

double loss_at(const Point& point, const std::string& arm) {
  const auto found = point.loss.find(arm);
  if (found == point.loss.end()) return kUnmeasured;
  return found->second + (arm == point.winner ? 0 : kMismatch);
}

// The arm for each point: least total loss plus kSegmentCost for each change. Ties: no change, then the first by name.
std::vector<std::string> least_loss(const std::vector<Point>& points, const std::vector<std::string>& arms,
                                    bool one_arm) {
  const std::size_t count = arms.size();
  std::vector<double> cost(count, 0);
  std::vector<std::vector<std::size_t>> from(points.size(), std::vector<std::size_t>(count));
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto cheapest = static_cast<std::size_t>(std::min_element(cost.begin(), cost.end()) - cost.begin());
    std::vector<double> next(count);
    for (std::size_t a = 0; a < count; ++a) {
      const bool change = i > 0 && !one_arm && cost[cheapest] + kSegmentCost < cost[a];
      from[i][a] = change ? cheapest : a;
      next[a] = (change ? cost[cheapest] + kSegmentCost : cost[a]) + loss_at(points[i], arms[a]);
    }
    cost = std::move(next);
  }
  std::vector<std::string> plan(points.size());
  auto arm = static_cast<std::size_t>(std::min_element(cost.begin(), cost.end()) - cost.begin());
  for (std::size_t i = points.size(); i-- > 0;) {
    plan[i] = arms[arm];
    arm = from[i][arm];
  }
  return plan;
}

std::vector<Point> judge_all(const Table& table, std::span<const Segment> incumbent, int rule) {
  std::vector<Point> points;
  const Run* newest = table.runs.empty() ? nullptr : table.runs.back();
  for (const auto& [m, cells] : table.points)
    points.push_back(
        judge(m, cells, table.unknown.at(m), arm_of(incumbent, m), default_arm(newest->arm_set.defaults, m), rule));
  return points;
}

// Where B takes over from A between two neighbouring row counts, at each of which its own arm is served: where the
// ratio of their times, taken to be a straight line, is 1; just above the lower one where B is no slower even there (A
// stayed because nothing beats it beyond noise); the upper one where B is no faster at it.
Rows between(const Table& table, Rows lower, Rows upper, const std::string& a, const std::string& b, int rule) {
  const auto ratio_at = [&](Rows m) {
    const Cells& cells = table.points.at(m);
    if (!cells.contains(a) || !cells.contains(b)) return 1.0;
    return ratio_of(cells.at(a), cells.at(b), alpha_among(cells, rule)).median;
  };
  const double low = ratio_at(lower), high = ratio_at(upper);
  if (!(high > 1)) return upper;
  if (!(low < 1)) return lower + 1;
  const double distance = (1 - low) / (high - low) * static_cast<double>(upper - lower);
  return std::clamp(lower + static_cast<Rows>(std::ceil(distance)), lower + 1, upper);
}

// The plan that serves plan[i] at points[i]; none where it passes through a point at which its arm was never measured.
std::vector<Segment> segments_from(const Table& table, const std::vector<Point>& points,
                                   const std::vector<std::string>& plan, int rule) {
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < points.size(); ++i) {
    // One arm for every row count that lacks a sample somewhere is no answer.
    if (!points[i].loss.contains(plan[i])) return {};
    if (segments.empty() || segments.back().arm != plan[i]) {
      Rows from = segments.empty() ? 1 : points[i].m;
      if (rule >= 2 && !segments.empty())
        from = between(table, points[i - 1].m, points[i].m, plan[i - 1], plan[i], rule);
      if (!segments.empty()) segments.back().to = from - 1;
      segments.push_back({.from = from, .to = points[i].m, .arm = plan[i], .config = table.config.at(plan[i])});
    }
    segments.back().to = points[i].m;
  }
  return segments;
}

std::vector<Segment> segments_of(const Table& table, const std::vector<Point>& points, bool one_arm, int rule) {
  std::vector<std::string> arms;
  for (const auto& [arm, config] : table.config) arms.push_back(arm);
  if (arms.empty() || points.empty()) return {};
  return segments_from(table, points, least_loss(points, arms, one_arm), rule);
}

std::uint64_t seed_from(const std::vector<Id>& ids) {
  std::uint64_t seed = 0xcbf29ce484222325u;  // FNV-1a over the ids
  for (const Id& id : ids)
    for (const std::uint8_t byte : id.bytes) seed = (seed ^ byte) * 0x100000001b3u;
  return seed;
}

// Where A gives way to B, with the interval that a bootstrap over whole rounds leaves.
class CrossoverBounds {
 public:
  CrossoverBounds(const Table& table, std::uint64_t seed) : table_(table), generator_(seed) {
    for (const Run* run : table.runs) {
      std::vector<std::uint32_t> numbers;
      for (const Sample& sample : run->samples)
        if (sample.role == Role::grid)
          for (const Round& round : sample.raw) numbers.push_back(round.number);
      std::sort(numbers.begin(), numbers.end());
      numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
      numbers_.push_back(std::move(numbers));
    }
  }

  // `before` and `after` are neighbouring segments.
  Crossover between(const Segment& before, const Segment& after) {
    std::vector<RatiosAt> points;
    std::size_t decided = 0;
    for (const auto& [m, cells] : table_.points) {
      if (m < before.from || m > after.to) continue;
      if (m < after.from) decided = points.size() + 1;
      points.push_back(ratios_at(m, cells, before.arm, after.arm));
    }
    std::vector<std::size_t> splits(kBootstraps);
    for (std::size_t& split : splits) split = split_of(points, resample(), decided);
    std::sort(splits.begin(), splits.end());
    const std::size_t low = std::min(decided, splits[kBootstraps * 25 / 1000]);
    const std::size_t high = std::max(decided, splits[kBootstraps * 975 / 1000 - 1]);
    // The crossover is somewhere above the last point that is still A's, and not above the first that is B's.
    return {.m = after.from,
            .m_low = low == 0 ? before.from : points[low - 1].m + 1,
            .m_high = high < points.size() ? points[high].m : after.to,
            .from_arm = before.arm,
            .to_arm = after.arm};
  }

 private:
  struct RatiosAt {
    Rows m;
    std::vector<PairedRatio> sorted;  // A/B by ratio, then (run, number)
    bool a_measured, b_measured;
  };
  using Weights = std::vector<std::vector<std::uint16_t>>;  // how often each round of each run was drawn

  RatiosAt ratios_at(Rows m, const Cells& cells, const std::string& a, const std::string& b) const {
    const auto& unknown = table_.unknown.at(m);
    RatiosAt result{.m = m,
                    .sorted = {},
                    .a_measured = cells.contains(a) || unknown.contains(a),
                    .b_measured = cells.contains(b) || unknown.contains(b)};
    if (!cells.contains(a) || !cells.contains(b)) return result;
    result.sorted = paired(cells.at(a), cells.at(b));
    for (PairedRatio& pair : result.sorted) {
      const auto& numbers = numbers_[pair.run];
      pair.number =
          static_cast<std::uint32_t>(std::lower_bound(numbers.begin(), numbers.end(), pair.number) - numbers.begin());
    }
    std::sort(result.sorted.begin(), result.sorted.end(), [](const PairedRatio& x, const PairedRatio& y) {
      return std::tie(x.ratio, x.run, x.number) < std::tie(y.ratio, y.run, y.number);
    });
    return result;
  }

  Weights resample() {
    Weights weights;
    for (const auto& numbers : numbers_) {
      std::vector<std::uint16_t> drawn(numbers.size(), 0);
      for (std::size_t i = 0; i < numbers.size(); ++i) ++drawn[generator_.below(numbers.size())];
      weights.push_back(std::move(drawn));
    }
    return weights;
  }

  // The number of points that stay A's, for the least total loss. Ties: the split nearest to the decided one.
  static std::size_t split_of(const std::vector<RatiosAt>& points, const Weights& weights, std::size_t decided) {
    std::vector<double> a_loss(points.size(), 0), b_loss(points.size(), 0);
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (!points[i].a_measured) a_loss[i] = kUnmeasured;
      if (!points[i].b_measured) b_loss[i] = kUnmeasured;
      const double ratio = weighted_median(points[i].sorted, weights);
      if (ratio > 1) a_loss[i] += ratio - 1;
      if (ratio < 1) b_loss[i] += 1 / ratio - 1;
    }
    double cost = 0;
    for (const double loss : b_loss) cost += loss;
    double best_cost = cost;
    std::size_t best = 0;
    const auto distance = [&](std::size_t split) { return split > decided ? split - decided : decided - split; };
    for (std::size_t split = 1; split <= points.size(); ++split) {
      cost += a_loss[split - 1] - b_loss[split - 1];
      if (cost < best_cost || (!(cost > best_cost) && distance(split) < distance(best))) {
        best_cost = cost;
        best = split;
      }
    }
    return best;
  }

  // 1 where no round that both arms have was drawn.
  static double weighted_median(const std::vector<PairedRatio>& sorted, const Weights& weights) {
    std::uint64_t total = 0;
    for (const PairedRatio& pair : sorted) total += weights[pair.run][pair.number];
    std::uint64_t seen = 0;
    for (const PairedRatio& pair : sorted) {
      seen += weights[pair.run][pair.number];
      if (2 * seen > total) return pair.ratio;
    }
    return 1;
  }

  const Table& table_;
  Generator generator_;
  std::vector<std::vector<std::uint32_t>> numbers_;  // per run, the rounds it had
};

// Whether a process's own plan loses next to nothing against the pooled one on the pooled evidence, counting only what
// is beyond noise. Row counts at which the process has no clean sample of the pooled plan's arm say nothing: there it
// knows less, which is no disagreement. Under half of them left, it knows too little to agree.
bool agrees(const Table& table, std::span<const Segment> pooled, const Table& own, std::span<const Segment> segments,
            int rule) {
  double sum = 0, max = 0;
  std::size_t judged = 0;
  for (const auto& [m, cells] : table.points) {
    const std::string* reference = arm_of(pooled, m);
    const auto seen = own.points.find(m);
    if (reference == nullptr || seen == own.points.end() || !seen->second.contains(*reference)) continue;
    ++judged;
    const std::string* arm = arm_of(segments, m);
    if (arm == nullptr || *arm == *reference) continue;
    const auto unknown = table.unknown.find(m);
    double loss = unknown != table.unknown.end() && unknown->second.contains(*arm) ? 0 : kUnmeasured;
    if (cells.contains(*arm)) {
      const Ratio ratio = ratio_of(cells.at(*arm), cells.at(*reference), alpha_among(cells, rule));
      loss = ratio.comparison == Comparison::loss ? ratio.median - 1 : 0;
    }
    sum += loss;
    max = std::max(max, loss);
  }
  return 2 * judged >= table.points.size() && sum < kAgreeMean * static_cast<double>(judged) && max < kAgreeMax;
}

// The incumbent's plan over the points, if it may stay: every arm of it measured, and served instead of `segments` it
// loses less than two processes' plans may differ by, counting only what is beyond noise. A boundary that moves within
// its bounds, or a gain under 1%, is not worth a change. Beyond the incumbent's largest M the new plan goes on.
std::vector<Segment> kept_incumbent(const Table& table, const std::vector<Point>& points,
                                    std::span<const Segment> incumbent, std::span<const Segment> segments, int rule) {
  std::vector<std::string> plan;
  double sum = 0, max = 0;
  bool differs = false;
  for (const Point& point : points) {
    const std::string* now = arm_of(segments, point.m);
    const std::string* arm = arm_of(incumbent, point.m);
    if (now == nullptr) return {};
    if (arm == nullptr) arm = now;
    plan.push_back(*arm);
    if (*arm == *now) continue;
    differs = true;
    const Cells& cells = table.points.at(point.m);
    if (!cells.contains(*arm) || !cells.contains(*now)) return {};
    const Ratio ratio = ratio_of(cells.at(*arm), cells.at(*now), alpha_among(cells, rule));
    const double loss = ratio.comparison == Comparison::loss ? ratio.median - 1 : 0;
    sum += loss;
    max = std::max(max, loss);
  }
  if (!differs || !(sum < kAgreeMean * static_cast<double>(points.size())) || !(max < kAgreeMax)) return {};
  return segments_from(table, points, plan, rule);
}

// Whether the process knows that nobody else used the device while it measured, as far as its device tells.
bool was_alone(const Runs& runs) {
  return std::any_of(runs.begin(), runs.end(), [](const Run* run) {
    const auto before = run->conditions.find("before");
    if (before == run->conditions.end()) return true;
    const auto others = before->second.find("other_work");
    return others == before->second.end() || others->second != "unknown";
  });
}

void set_status(Verdict& verdict, const Table& table, const std::vector<Point>& points) {
  if (verdict.segments.empty()) {
    verdict.status = VerdictStatus::inconclusive;
    verdict.why =
        points.empty() ? "no clean sample that the policy allows" : "no allowed arm was measured at every row count";
    return;
  }
  const auto undecided =
      std::count_if(points.begin(), points.end(), [](const Point& point) { return point.undecided; });
  if (static_cast<double>(undecided) > kUndecidedShare * static_cast<double>(points.size())) {
    verdict.status = VerdictStatus::inconclusive;
    verdict.why = std::to_string(undecided) + " of " + std::to_string(points.size()) +
                  " row counts have a rival that may be over 10% faster, within the noise";
    return;
  }
  std::map<Id, Runs> by_process;
  for (const Run* run : table.runs) by_process[run->process_uuid].push_back(run);
  if (by_process.size() < 2) {
    verdict.status = VerdictStatus::provisional;
    verdict.why = "measured by one process";
    return;
  }
  int agreeing = 0, unseeing = 0;
  for (const auto& [process, own] : by_process) {
    if (verdict.rule >= 2 && !was_alone(own)) {
      ++unseeing;
      continue;
    }
    const Table own_table = tabulate(own, verdict.policy, Role::grid);
    const std::vector<Segment> own_segments = segments_of(
        own_table, judge_all(own_table, verdict.incumbent, verdict.rule), verdict.policy.batch_invariant, verdict.rule);
    if (!own_segments.empty() && agrees(table, verdict.segments, own_table, own_segments, verdict.rule)) ++agreeing;
  }
  if (unseeing > 0 && agreeing < 2) {
    verdict.status = VerdictStatus::provisional;
    verdict.why = std::to_string(unseeing) + " of " + std::to_string(by_process.size()) +
                  " processes could not see whether others used the device";
    return;
  }
  verdict.status = agreeing >= 2 ? VerdictStatus::confirmed : VerdictStatus::inconclusive;
  verdict.why = std::to_string(agreeing) + " of " + std::to_string(by_process.size()) + " processes agree";
}

void set_threshold(Verdict& verdict, const Table& table) {
  if (verdict.segments.empty()) return;
  const Run& newest = *table.runs.back();
  const auto is_library = [&](const std::string& name) {
    const ArmRecord* arm = newest.arm_set.find(name);
    return arm != nullptr && arm->library;
  };
  const Segment& last = verdict.segments.back();
  if (is_library(last.arm)) {
    verdict.library_arm = last.arm;
    verdict.threshold = last.from;
  } else {
    double best = std::numeric_limits<double>::infinity();
    for (auto point = table.points.rbegin(); point != table.points.rend() && verdict.library_arm.empty(); ++point)
      for (const auto& [name, cell] : point->second)
        if (is_library(name) && cell.median() < best) {
          best = cell.median();
          verdict.library_arm = name;
        }
  }
  if (verdict.library_arm.empty()) return;
  for (const auto& [m, cells] : table.points) {
    const auto own = cells.find(verdict.library_arm);
    if (own == cells.end() || cells.size() < 2) continue;
    const double alpha = alpha_among(cells, verdict.rule);
    const bool beats_all = std::all_of(cells.begin(), cells.end(), [&](const auto& rival) {
      return rival.first == verdict.library_arm ||
             ratio_of(own->second, rival.second, alpha).comparison == Comparison::win;
    });
    if (beats_all) {
      verdict.first_win = m;
      return;
    }
  }
}

std::optional<HeldOut> regret_off_grid(const Table& table, std::span<const Segment> segments, int rule) {
  HeldOut result;
  for (const auto& [m, cells] : table.points) {
    const std::string* arm = arm_of(segments, m);
    if (arm == nullptr || !cells.contains(*arm) || cells.size() < 2) continue;  // nothing to lose against
    double regret = 0;
    for (const auto& [name, cell] : cells)
      if (name != *arm) regret = std::max(regret, ratio_of(cells.at(*arm), cell, alpha_among(cells, rule)).median - 1);
    result.mean_regret += regret;
    result.max_regret = std::max(result.max_regret, regret);
    ++result.points;
  }
  if (result.points == 0) return std::nullopt;
  result.mean_regret /= result.points;
  return result;
}

}  // namespace

std::string_view to_string(VerdictStatus status) noexcept {
  switch (status) {
    case VerdictStatus::provisional:
      return "provisional";
    case VerdictStatus::confirmed:
      return "confirmed";
    case VerdictStatus::inconclusive:
      break;
  }
  return "inconclusive";
}

std::optional<VerdictStatus> verdict_status_from(std::string_view text) noexcept {
  for (const VerdictStatus status : {VerdictStatus::provisional, VerdictStatus::confirmed, VerdictStatus::inconclusive})
    if (to_string(status) == text) return status;
  return std::nullopt;
}

bool allows(const Policy& policy, const ArmSet& set, const ArmRecord& arm, const Sample& sample) {
  return refusal(policy, set, arm, sample).empty();
}

bool allows(const Policy& policy, const ArmSet& set, const ArmRecord& arm) { return refusal(policy, set, arm).empty(); }

Verdict decide(const EvidenceKey& key, std::span<const Run> runs, const Policy& policy,
               std::span<const Segment> incumbent, bool bounds, int rule) {
  Runs own;
  for (const Run& run : runs)
    if (run.device == key.device && run.problem == key.problem && run.regime == key.regime) own.push_back(&run);
  const Table table = tabulate(own, policy, Role::grid);

  Verdict verdict;
  verdict.key = key;
  verdict.policy = policy;
  verdict.rule = rule;
  verdict.incumbent.assign(incumbent.begin(), incumbent.end());
  for (const Run* run : own) verdict.run_ids.push_back(run->id);  // dirty ones too: they say why there is no more
  std::sort(verdict.run_ids.begin(), verdict.run_ids.end());
  verdict.run_ids.erase(std::unique(verdict.run_ids.begin(), verdict.run_ids.end()), verdict.run_ids.end());

  const std::vector<Point> points = judge_all(table, incumbent, rule);
  verdict.segments = segments_of(table, points, policy.batch_invariant, rule);
  if (rule >= 2 && !incumbent.empty() && !policy.batch_invariant) {
    std::vector<Segment> kept = kept_incumbent(table, points, incumbent, verdict.segments, rule);
    if (!kept.empty()) verdict.segments = std::move(kept);
  }
  set_status(verdict, table, points);
  set_threshold(verdict, table);
  if (bounds) {
    CrossoverBounds crossovers(table, seed_from(verdict.run_ids));
    for (std::size_t i = 1; i < verdict.segments.size(); ++i)
      verdict.crossovers.push_back(crossovers.between(verdict.segments[i - 1], verdict.segments[i]));
  }
  verdict.held_out = regret_off_grid(tabulate(own, policy, Role::held_out), verdict.segments, rule);
  return verdict;
}

Standings standings(std::span<const Run> runs, const Policy& policy, Rows rows) {
  const Table table = tabulate(pointers_to(runs), policy, Role::grid, true);
  Standings result;
  if (table.points.empty()) return result;
  auto point = table.points.upper_bound(rows);
  if (point != table.points.begin()) --point;
  const Cells& cells = point->second;
  result.m = point->first;

  // The newest run that has the arm there knows what the policy says of it.
  const auto why_not = [&](const std::string& name) {
    for (auto run = table.runs.rbegin(); run != table.runs.rend(); ++run)
      for (const Sample& sample : (*run)->samples)
        if (sample.m == result.m && sample.arm == name && sample.role == Role::grid)
          return refusal(policy, (*run)->arm_set, *(*run)->arm_set.find(name), sample);
    return std::string();
  };
  const Cell* best = nullptr;
  for (const auto& [name, cell] : cells) {
    Standing standing{.arm = name,
                      .config = table.config.at(name),
                      .median_ns = cell.median(),
                      .to_best = {},
                      .error = cell.error,
                      .allowed = true,
                      .why_not = why_not(name)};
    standing.allowed = standing.why_not.empty();
    if (standing.allowed && (best == nullptr || standing.median_ns < best->median())) best = &cell;
    result.arms.push_back(std::move(standing));
  }
  std::sort(result.arms.begin(), result.arms.end(), [](const Standing& a, const Standing& b) {
    return std::tie(a.median_ns, a.arm) < std::tie(b.median_ns, b.arm);
  });
  if (best != nullptr)
    for (Standing& standing : result.arms)
      standing.to_best = ratio_of(cells.at(standing.arm), *best, alpha_among(cells, kRule));
  return result;
}

}  // namespace crossover
