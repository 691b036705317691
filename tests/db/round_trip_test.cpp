// What goes in comes out, whatever it is.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <bit>
#include <cmath>

#include "codec.hpp"
#include "digest.hpp"
#include "rows.hpp"
#include "support.hpp"

namespace crossover {
namespace {

using test::make_key;
using test::make_run;
using test::make_verdict;

// Text of any code points that UTF-8 has, zero and controls included.
rc::Gen<std::string> any_text() {
  return rc::gen::map(rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange<std::uint32_t>(0, 0x800)),
                      [](const std::vector<std::uint32_t>& points) {
                        std::string text;
                        for (const std::uint32_t point : points) {
                          if (point < 0x80) {
                            text += static_cast<char>(point);
                          } else {
                            text += static_cast<char>(0xc0 | (point >> 6));
                            text += static_cast<char>(0x80 | (point & 0x3f));
                          }
                        }
                        return text;
                      });
}
std::string text() { return *any_text(); }
template <class Value>
Value any() {
  return *rc::gen::arbitrary<Value>();
}
int small(int from, int to) { return *rc::gen::inRange(from, to); }
double finite() {
  const double value = std::bit_cast<double>(any<std::uint64_t>());
  return std::isfinite(value) ? value : 0.1;
}
std::map<std::string, std::string> fields() {
  return *rc::gen::container<std::map<std::string, std::string>>(any_text(), any_text());
}
EvidenceKey any_key() {
  EvidenceKey key;
  key.device = {text(), text(), text(), any<int>(), any<std::int64_t>(), any<std::int64_t>()};
  key.problem = {text(), fields()};
  key.regime = {any<bool>() ? LaunchMode::graph : LaunchMode::eager, any<bool>() ? L2State::hot : L2State::cold,
                text()};
  return key;
}
Id any_id() {
  Id id;
  for (auto& byte : id.bytes) byte = any<std::uint8_t>();
  return id;
}
std::vector<Segment> any_segments() {
  std::vector<Segment> segments(static_cast<std::size_t>(small(0, 4)));
  for (Segment& segment : segments) segment = {any<Rows>(), any<Rows>(), text(), text()};
  return segments;
}

crossover::Run any_run() {
  const EvidenceKey key = any_key();
  crossover::Run run;
  run.process_uuid = any_id();
  run.device = key.device;
  run.problem = key.problem;
  run.regime = key.regime;
  run.environment = fields();
  const int arms = small(1, 5);
  for (int i = 0; i < arms; ++i)
    run.arm_set.arms.push_back(
        {{std::to_string(i) + text(), text()}, text(), any<bool>(), any<bool>(), any<bool>(), text()});
  run.arm_set.defaults = {{any<Rows>(), text()}, {kMaxRows, text()}};
  run.arm_set.numerics = {{text(), any<bool>()}};
  run.gpu_uuid = text();
  run.boot_id = text();
  run.host = text();
  run.protocol = small(1, 1000);
  run.seed = any<std::uint64_t>();
  run.started_us = any<std::int64_t>();
  run.duration_us = small(1, 1'000'000);
  run.dirty_mask = any<std::uint64_t>();
  run.conditions = {{text(), fields()}, {text(), fields()}};
  const auto arm = [&](int i) { return run.arm_set.arms[static_cast<std::size_t>(i % arms)].id.name; };
  const int samples = small(0, 8);
  for (int i = 0; i < samples; ++i) {
    Sample sample = test::make_sample(1 + i, arm(i), any<std::uint64_t>(), small(2, 12));
    sample.config = text();
    sample.role = i % 3 == 0 ? Role::grid : i % 3 == 1 ? Role::placebo : Role::held_out;
    sample.dirty_mask = any<std::uint64_t>();
    run.samples.push_back(sample);
  }
  const int attempts = small(0, 5);
  for (int i = 0; i < attempts; ++i) run.attempts.push_back({i, arm(i), static_cast<Outcome>(small(0, 7)), text()});
  return run;
}

Verdict any_verdict() {
  Verdict verdict;
  verdict.key = any_key();
  verdict.policy = {{text(), text()}, any<std::uint64_t>(), any<std::uint64_t>(), any<bool>(), std::nullopt, {text()},
                    {text()},         any<bool>()};
  if (any<bool>()) verdict.policy.max_error = finite();
  const int runs = small(0, 4);
  for (int i = 0; i < runs; ++i) verdict.run_ids.push_back(any_id());
  verdict.incumbent = any_segments();
  verdict.rule = small(0, 100);
  verdict.status = static_cast<VerdictStatus>(small(0, 3));
  verdict.why = text();
  verdict.segments = any_segments();
  for (int i = small(0, 3); i > 0; --i)
    verdict.crossovers.push_back({any<Rows>(), any<Rows>(), any<Rows>(), text(), text()});
  if (any<bool>()) verdict.threshold = any<Rows>();
  if (any<bool>()) verdict.first_win = any<Rows>();
  verdict.library_arm = text();
  if (any<bool>()) verdict.held_out = HeldOut{finite(), finite(), any<int>()};
  verdict.decided_us = small(1, 1'000'000);
  return verdict;
}

EvidenceKey key_of(const crossover::Run& run) { return {run.device, run.problem, run.regime}; }

TEST(RoundTrip, EveryFieldOfARun) {
  const auto store = Store::in_memory();
  ASSERT_TRUE(rc::check("a run comes back as it was", [&] {
    crossover::Run run = any_run();
    const Id id = store->append(run);
    std::vector<crossover::Run> found = store->runs(key_of(run));
    std::erase_if(found, [&](const crossover::Run& other) { return other.id != id; });
    RC_ASSERT(found.size() == 1u);
    RC_ASSERT(found[0].samples.empty() && found[0].attempts.empty());
    RC_ASSERT(store->load(found[0]));
    RC_ASSERT(test::same(found[0], run));
    RC_ASSERT((run.host.empty() ? found[0].host.empty() : found[0].host.starts_with("xxh3:")));
    const auto by_id = store->run(id);
    RC_ASSERT(by_id.has_value());
    RC_ASSERT(by_id->device == run.device && by_id->problem == run.problem && by_id->regime == run.regime);
    // The same content is no change, given as it was or as it came back, in any order.
    std::reverse(run.samples.begin(), run.samples.end());
    const std::uint64_t before = store->generation();
    RC_ASSERT(store->append(run) == id);
    RC_ASSERT(store->append(found[0]) == id);
    RC_ASSERT(store->generation() == before);
    RC_ASSERT(store->warnings().empty());
  }));
}

TEST(RoundTrip, EveryFieldOfAVerdict) {
  const auto store = Store::in_memory();
  ASSERT_TRUE(rc::check("a verdict comes back as it was", [&] {
    Verdict verdict = any_verdict();
    const Id id = store->put(verdict);
    RC_ASSERT(id == Store::id_of(verdict));
    const std::vector<Verdict> found = store->verdicts(verdict.key);
    const auto place = std::find_if(found.begin(), found.end(), [&](const Verdict& other) { return other.id == id; });
    RC_ASSERT(place != found.end());
    RC_ASSERT(test::same(*place, verdict));
    const auto by_prefix = store->find_verdicts(id.hex().substr(0, 9));
    RC_ASSERT(by_prefix.size() == 1u);
    RC_ASSERT(test::same(by_prefix[0], verdict));
    const std::uint64_t before = store->generation();
    verdict.decided_us += 5;
    RC_ASSERT(store->put(verdict) == id);
    RC_ASSERT(store->generation() == before);
    RC_ASSERT(canonical_json(*place) == canonical_json(verdict));
    RC_ASSERT(store->warnings().empty());
  }));
}

TEST(RoundTrip, FileAndMemoryGiveTheSameIds) {
  const test::Folder folder;
  const auto file = Store::open(folder / "a.db", Store::Access::read_write);
  const auto memory = Store::in_memory();
  crossover::Run run = make_run(make_key(1), 1);
  run.host.clear();  // its hash is keyed with the database
  EXPECT_EQ(file->append(run), memory->append(run));
  EXPECT_EQ(file->put(make_verdict(make_key(1), {})), memory->put(make_verdict(make_key(1), {})));
}

TEST(RoundTrip, AnyFieldThatDecideComputesChangesTheVerdictsId) {
  const Verdict base = make_verdict(make_key(1), {Id{{1}}});
  std::vector<std::pair<const char*, std::function<void(Verdict&)>>> changes = {
      {"device", [](Verdict& v) { v.key.device.sm_count = 3; }},
      {"problem", [](Verdict& v) { v.key.problem.attributes["dtype"] = "f16"; }},
      {"regime", [](Verdict& v) { v.key.regime.l2 = L2State::hot; }},
      {"policy", [](Verdict& v) { v.policy.cached_bytes = 1; }},
      {"run_ids", [](Verdict& v) { v.run_ids.push_back(Id{{2}}); }},
      {"incumbent", [](Verdict& v) { v.incumbent.clear(); }},
      {"rule", [](Verdict& v) { ++v.rule; }},
      {"status", [](Verdict& v) { v.status = VerdictStatus::provisional; }},
      {"segments", [](Verdict& v) { v.segments[0].config = "other"; }},
      {"crossovers", [](Verdict& v) { v.crossovers[0].m_high = 36; }},
      {"threshold", [](Verdict& v) { v.threshold.reset(); }},
      {"first_win", [](Verdict& v) { v.first_win = 41; }},
      {"held_out", [](Verdict& v) { v.held_out->max_regret = 0.02; }},
  };
  for (const auto& [name, change] : changes) {
    Verdict changed = base;
    change(changed);
    EXPECT_NE(Store::id_of(changed), Store::id_of(base)) << name;
  }
  Verdict later = base;
  later.decided_us += 1;
  later.id = Id{{9}};
  EXPECT_EQ(Store::id_of(later), Store::id_of(base));
  EXPECT_EQ(canonical_json(later), canonical_json(base));
}

TEST(RoundTrip, DecidedNowWhereItIsNotSaid) {
  const auto store = Store::in_memory();
  Verdict verdict = make_verdict(make_key(1), {});
  verdict.decided_us = 0;
  store->put(verdict);
  EXPECT_GT(store->all_verdicts().at(0).decided_us, 1'600'000'000'000'000);
}

TEST(RoundTrip, RunsAndVerdictsAreOldestFirstAndAllVerdictsNewestFirst) {
  const auto store = Store::in_memory();
  const EvidenceKey key = make_key(1);
  for (const std::uint64_t seed : {5u, 1u, 9u, 3u}) {
    store->append(make_run(key, seed));
    Verdict verdict = make_verdict(key, {});
    verdict.decided_us = static_cast<std::int64_t>(seed);
    verdict.threshold = static_cast<Rows>(seed);
    store->put(verdict);
  }
  std::vector<std::uint64_t> started;
  for (const crossover::Run& run : store->runs(key)) started.push_back(static_cast<std::uint64_t>(run.started_us) % 10);
  EXPECT_EQ(started, (std::vector<std::uint64_t>{1, 3, 5, 9}));
  std::vector<std::int64_t> decided;
  for (const Verdict& verdict : store->verdicts(key)) decided.push_back(verdict.decided_us);
  EXPECT_EQ(decided, (std::vector<std::int64_t>{1, 3, 5, 9}));
  decided.clear();
  for (const Verdict& verdict : store->all_verdicts()) decided.push_back(verdict.decided_us);
  EXPECT_EQ(decided, (std::vector<std::int64_t>{9, 5, 3, 1}));
}

// hipBLASLt#1587: near-identical problems defeat the lookup. vllm#43119: a layout flag missing from the key.
TEST(RoundTrip, HipBLASLt1587ProblemsThatDifferInOneAttributeAreApart) {
  const auto store = Store::in_memory();
  std::vector<EvidenceKey> keys(9, make_key(1024));
  keys[1].problem.attributes["dtype"] = "f16";
  keys[2].problem.attributes["bias"] = "n";
  keys[3].problem.attributes["k"] = "1025";
  keys[4].regime.l2 = L2State::hot;
  keys[5].regime.launch_mode = LaunchMode::graph;
  keys[6].regime.fill = "uniform";
  keys[7].device.sm_count += 1;
  keys[8].problem.operation += "_";
  for (std::size_t i = 0; i < keys.size(); ++i) {
    store->append(make_run(keys[i], i));
    store->put(make_verdict(keys[i], {}));
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(store->runs(keys[i]).size(), 1u) << i;
    EXPECT_EQ(store->runs(keys[i])[0].started_us, make_run(keys[i], i).started_us);
    ASSERT_EQ(store->verdicts(keys[i]).size(), 1u);
    EXPECT_EQ(store->verdicts(keys[i])[0].key, keys[i]);
  }
  EXPECT_EQ(store->devices().size(), 2u);
}

TEST(RoundTrip, DevicesAreFoundByTheBeginningOfTheirId) {
  const auto store = Store::in_memory();
  EvidenceKey other = make_key(1);
  other.device.model = "Another";
  store->append(make_run(make_key(1), 1));
  store->append(make_run(other, 2));
  const std::string id = Store::id_of(other.device).hex();
  for (const std::size_t digits : {4u, 9u, 32u}) {
    const auto found = store->find_devices(id.substr(0, digits));
    ASSERT_EQ(found.size(), 1u) << digits;
    EXPECT_EQ(found[0], other.device);
  }
  EXPECT_TRUE(store->find_devices("").empty());
  EXPECT_TRUE(store->find_devices("xyz1").empty());
  EXPECT_TRUE(store->find_devices(id + "0").empty());
  EXPECT_TRUE(store->find_verdicts("abc").empty());
  EXPECT_TRUE(store->find_verdicts("abcg").empty());
}

TEST(RoundTrip, TheHostIsKeptAsAHashThatDiffersBetweenDatabases) {
  const auto a = Store::in_memory(), b = Store::in_memory();
  const crossover::Run run = make_run(make_key(1), 1);
  const std::string in_a = a->run(a->append(run))->host, in_b = b->run(b->append(run))->host;
  EXPECT_NE(in_a, in_b);
  EXPECT_EQ(in_a.size(), 5u + 32u);
  EXPECT_EQ(in_a.find("node"), std::string::npos);
  EXPECT_EQ(a->run(a->append(make_run(make_key(2), 2)))->host, in_a);
}

TEST(RoundTrip, RawHasTheDocumentedLayout) {
  // The worked example of db/FORMAT.md.
  const std::vector<Round> rounds = {{7, 1, 1500.0, 1980.0}};
  const std::vector<std::uint8_t> expected = {7, 0,    0,    0,    1, 0, 0, 0, 0, 0,    0,    0,
                                              0, 0x70, 0x97, 0x40, 0, 0, 0, 0, 0, 0xf0, 0x9e, 0x40};
  EXPECT_EQ(db::encode_raw(rounds), expected);
  EXPECT_EQ(db::decode_raw(expected), rounds);
  EXPECT_THROW(db::decode_raw(std::span(expected).first(23)), codec::Malformed);
}

// nvbench#231: every sample throttled, an empty row published.
TEST(Refuse, Nvbench231SampleWithoutACountedRoundBecomesAnAttempt) {
  const auto store = Store::in_memory();
  crossover::Run run = make_run(make_key(1), 1);
  for (Round& round : run.samples[0].raw) round.flags |= kDiscarded;
  run.samples[0].median_ns = median_ns(run.samples[0]);
  run.samples[0].mad_ns = mad_ns(run.samples[0]);
  crossover::Run stored = *store->run(store->append(run));
  ASSERT_TRUE(store->load(stored));
  EXPECT_EQ(stored.samples.size(), run.samples.size() - 1);
  ASSERT_EQ(stored.attempts.size(), run.attempts.size() + 1);
  const Attempt& attempt = stored.attempts[1];
  EXPECT_EQ(attempt.m, run.samples[0].m);
  EXPECT_EQ(attempt.arm, run.samples[0].arm);
  EXPECT_EQ(attempt.outcome, Outcome::failed);
  EXPECT_EQ(attempt.detail, "none of its 5 rounds counts");
}

// pytorch#193658: negative times. No check lets NaN pass.
class RefusedRun : public ::testing::TestWithParam<std::pair<const char*, void (*)(crossover::Run&)>> {};
TEST_P(RefusedRun, IsNotStoredAndChangesNothing) {
  const auto store = Store::in_memory();
  store->append(make_run(make_key(1), 1));
  const std::uint64_t before = store->generation();
  crossover::Run run = make_run(make_key(1), 2);
  GetParam().second(run);
  const std::string message = test::store_error([&] { store->append(run); });
  EXPECT_NE(message.find(GetParam().first), std::string::npos) << message;
  EXPECT_EQ(store->generation(), before);
  EXPECT_EQ(store->runs(make_key(1)).size(), 1u);
}
constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
INSTANTIATE_TEST_SUITE_P(
    Refuse, RefusedRun,
    ::testing::Values(
        std::pair{"m is 0", +[](crossover::Run& r) { r.samples[0].m = 0; }},
        std::pair{"m is -1", +[](crossover::Run& r) { r.samples[0].m = -1; }},
        std::pair{"no launches", +[](crossover::Run& r) { r.samples[0].launches = 0; }},
        std::pair{"a time that is not", +[](crossover::Run& r) { r.samples[0].raw[0].total_ns = kNan; }},
        std::pair{"a time that is not", +[](crossover::Run& r) { r.samples[0].raw[0].total_ns = kInf; }},
        std::pair{"a time that is not", +[](crossover::Run& r) { r.samples[0].raw[0].total_ns = 0; }},
        std::pair{"a time that is not", +[](crossover::Run& r) { r.samples[0].raw[0].total_ns = -5; }},
        std::pair{"a time that is not", +[](crossover::Run& r) { r.samples[0].raw[1].total_ns = kNan; }},
        std::pair{"a clock", +[](crossover::Run& r) { r.samples[0].raw[0].sm_clock_mhz = kNan; }},
        std::pair{"a clock", +[](crossover::Run& r) { r.samples[0].raw[0].sm_clock_mhz = -1; }},
        std::pair{"its median is not above", +[](crossover::Run& r) { r.samples[0].median_ns = kNan; }},
        std::pair{"its median is not above", +[](crossover::Run& r) { r.samples[0].median_ns = 0; }},
        std::pair{"its median is not that",
                  +[](crossover::Run& r) { r.samples[0].median_ns = std::nextafter(r.samples[0].median_ns, kInf); }},
        std::pair{"its MAD is negative", +[](crossover::Run& r) { r.samples[0].mad_ns = kNan; }},
        std::pair{"its MAD is not that", +[](crossover::Run& r) { r.samples[0].mad_ns += 1; }},
        std::pair{"its error", +[](crossover::Run& r) { r.samples[0].error = kNan; }},
        std::pair{"its error", +[](crossover::Run& r) { r.samples[0].error = -1e-9; }},
        std::pair{"2^63 bytes", +[](crossover::Run& r) { r.samples[0].workspace_bytes = std::uint64_t{1} << 63; }},
        std::pair{"2^63 bytes", +[](crossover::Run& r) { r.samples[0].cached_bytes = ~std::uint64_t{0}; }},
        std::pair{"rounds", +[](crossover::Run& r) { r.samples[0].raw.resize(100'000, r.samples[0].raw[0]); }},
        std::pair{"not in the run's arm set", +[](crossover::Run& r) { r.samples[0].arm = "unknown"; }},
        std::pair{"not in the run's arm set", +[](crossover::Run& r) { r.attempts[0].arm = "unknown"; }},
        std::pair{"more than one", +[](crossover::Run& r) { r.samples.push_back(r.samples[0]); }},
        std::pair{"more than one", +[](crossover::Run& r) { r.attempts.push_back(r.attempts[0]); }},
        std::pair{"m is negative", +[](crossover::Run& r) { r.attempts[0].m = -1; }},
        std::pair{"two arms", +[](crossover::Run& r) { r.arm_set.arms.push_back(r.arm_set.arms[0]); }},
        std::pair{"duration", +[](crossover::Run& r) { r.duration_us = 0; }},
        std::pair{"protocol", +[](crossover::Run& r) { r.protocol = 0; }},
        std::pair{"UTF-8", +[](crossover::Run& r) { r.samples[0].config = "\xff"; }},
        std::pair{"UTF-8", +[](crossover::Run& r) { r.device.model = "\xc0\x80"; }},
        std::pair{"larger than", +[](crossover::Run& r) { r.environment["driver"] = std::string(1'100'000, 'x'); }}));

TEST(Refuse, SentencesThatAreNotUtf8AreMended) {
  const auto store = Store::in_memory();
  crossover::Run run = make_run(make_key(1), 1);
  run.attempts[0].detail = "bad \xff byte";
  crossover::Run stored = *store->run(store->append(run));
  ASSERT_TRUE(store->load(stored));
  EXPECT_EQ(stored.attempts[0].detail, "bad \xef\xbf\xbd byte");
}

TEST(Refuse, AVerdictWithNumbersThatAreNotFinite) {
  const auto store = Store::in_memory();
  Verdict verdict = make_verdict(make_key(1), {});
  verdict.held_out->max_regret = kNan;
  EXPECT_NE(test::store_error([&] { store->put(verdict); }), "");
  verdict = make_verdict(make_key(1), {});
  verdict.policy.max_error = kInf;
  EXPECT_NE(test::store_error([&] { store->put(verdict); }), "");
  EXPECT_TRUE(store->all_verdicts().empty());
}

TEST(RoundTrip, AKeyThatCannotBeStoredIsJustNotThere) {
  const auto store = Store::in_memory();
  EvidenceKey key = make_key(1);
  key.problem.operation = "\xff";
  EXPECT_TRUE(store->runs(key).empty());
  EXPECT_TRUE(store->verdicts(key).empty());
}

}  // namespace
}  // namespace crossover
