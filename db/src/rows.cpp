#include "rows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "crossover/dispatch/error.hpp"
#include "digest.hpp"

namespace crossover::db {
namespace {

constexpr std::size_t kRoundBytes = 24;
constexpr std::size_t kMaxRounds = codec::kMaxBytes / kRoundBytes - 1;

template <class Unsigned>
void put_little_endian(std::vector<std::uint8_t>& out, Unsigned value) {
  for (std::size_t byte = 0; byte < sizeof value; ++byte) out.push_back(static_cast<std::uint8_t>(value >> (8 * byte)));
}
template <class Unsigned>
Unsigned get_little_endian(const std::uint8_t* from) {
  Unsigned value = 0;
  for (std::size_t byte = 0; byte < sizeof value; ++byte) value |= static_cast<Unsigned>(from[byte]) << (8 * byte);
  return value;
}

void put_optional(codec::Object& object, std::string_view key, const std::optional<std::int64_t>& value) {
  value ? object.field(key, *value) : object.null(key);
}

// All of a verdict's columns, or those that its id is made of.
std::string verdict_content(const VerdictColumns& columns, bool whole_row) {
  codec::Object object;
  object.json("crossovers", columns.crossovers);
  if (whole_row) object.field("decided_us", columns.decided_us);
  object.field("device_id", columns.key.device);
  put_optional(object, "first_win", columns.first_win);
  columns.held_out ? object.json("held_out", *columns.held_out) : object.null("held_out");
  object.json("incumbent", columns.incumbent)
      .field("library_arm", columns.library_arm)
      .json("policy", columns.policy)
      .field("problem_id", columns.key.problem)
      .field("regime_id", columns.key.regime)
      .field("rule", columns.rule)
      .json("run_ids", columns.run_ids)
      .json("segments", columns.segments)
      .field("status", columns.status);
  put_optional(object, "threshold", columns.threshold);
  if (whole_row) object.field("why", columns.why);
  return object.str();
}

bool is_time(double value) { return std::isfinite(value) && value > 0; }

}  // namespace

Id device_id(std::string_view json) { return digest("device", json); }
Id environment_id(std::string_view json) { return digest("environment", json); }
Id problem_id(std::string_view operation, std::string_view attributes_json) {
  return digest("problem", codec::Object().json("attributes", attributes_json).field("operation", operation).str());
}
Id regime_id(std::string_view launch_mode, std::string_view l2, std::string_view fill) {
  return digest("regime", codec::Object().field("fill", fill).field("l2", l2).field("launch_mode", launch_mode).str());
}
Id arm_id(std::string_view name, std::string_view fingerprint, std::string_view numerics, std::string_view json) {
  return digest("arm", codec::Object()
                           .field("fingerprint", fingerprint)
                           .field("name", name)
                           .field("numerics", numerics)
                           .json("traits", json)
                           .str());
}
std::string arm_json(const ArmRecord& arm) {
  return codec::Object().field("batch_invariant", arm.batch_invariant).field("library", arm.library).str();
}
Id id_of(const ArmRecord& arm) { return arm_id(arm.id.name, arm.id.fingerprint, arm.numerics, arm_json(arm)); }

KeyIds ids_of(const EvidenceKey& key) {
  return {device_id(codec::encode(key.device)),
          problem_id(key.problem.operation, codec::encode(key.problem.attributes)),
          regime_id(to_string(key.regime.launch_mode), to_string(key.regime.l2), key.regime.fill)};
}

Id run_id(const RunColumns& columns) {
  return digest("run", codec::Object()
                           .json("arm_set", columns.arm_set)
                           .field("boot_id", columns.boot_id)
                           .json("conditions", columns.conditions)
                           .field("device_id", columns.key.device)
                           .field("dirty_mask", columns.dirty_mask)
                           .field("duration_us", columns.duration_us)
                           .field("environment_id", columns.environment)
                           .field("gpu_uuid", columns.gpu_uuid)
                           .field("host_hash", columns.host_hash)
                           .field("problem_id", columns.key.problem)
                           .field("process_uuid", columns.process_uuid)
                           .field("protocol", columns.protocol)
                           .field("regime_id", columns.key.regime)
                           .field("sample_digest", columns.sample_digest)
                           .field("seed", columns.seed)
                           .field("started_us", columns.started_us)
                           .str());
}

Id sample_digest(const SampleColumns& columns) {
  const std::string_view raw(reinterpret_cast<const char*>(columns.raw.data()), columns.raw.size());
  codec::Object object;
  object.field("arm_id", columns.arm)
      .field("cached_bytes", columns.cached_bytes)
      .field("config", columns.config)
      .field("dirty_mask", columns.dirty_mask);
  columns.error ? object.field("error", *columns.error) : object.null("error");
  return digest("sample", object.field("launches", columns.launches)
                              .field("m", columns.m)
                              .field("mad_ns", columns.mad_ns)
                              .field("median_ns", columns.median_ns)
                              .field("raw", digest("raw", raw))
                              .field("role", columns.role)
                              .field("workspace_bytes", columns.workspace_bytes)
                              .str());
}

Id attempt_digest(Rows m, const Id& arm, std::string_view outcome, std::string_view detail) {
  return digest(
      "attempt",
      codec::Object().field("arm_id", arm).field("detail", detail).field("m", m).field("outcome", outcome).str());
}

Id samples_digest(std::vector<Id> samples, std::vector<Id> attempts) {
  std::sort(samples.begin(), samples.end());
  std::sort(attempts.begin(), attempts.end());
  return digest(
      "samples",
      codec::Object().json("attempts", codec::encode(attempts)).json("samples", codec::encode(samples)).str());
}

Id verdict_id(const VerdictColumns& columns) { return digest("verdict", verdict_content(columns, false)); }
Id verdict_digest(const VerdictColumns& columns) { return digest("verdict row", verdict_content(columns, true)); }

std::vector<std::uint8_t> encode_raw(std::span<const Round> rounds) {
  std::vector<std::uint8_t> raw;
  raw.reserve(rounds.size() * kRoundBytes);
  for (const Round& round : rounds) {
    put_little_endian(raw, round.number);
    put_little_endian(raw, round.flags);
    put_little_endian(raw, std::bit_cast<std::uint64_t>(round.total_ns));
    put_little_endian(raw, std::bit_cast<std::uint64_t>(round.sm_clock_mhz));
  }
  return raw;
}

std::vector<Round> decode_raw(std::span<const std::uint8_t> raw) {
  if (raw.size() % kRoundBytes != 0) throw codec::Malformed("raw rounds that are not a multiple of 24 bytes");
  std::vector<Round> rounds(raw.size() / kRoundBytes);
  const std::uint8_t* from = raw.data();
  for (Round& round : rounds) {
    round.number = get_little_endian<std::uint32_t>(from);
    round.flags = get_little_endian<std::uint32_t>(from + 4);
    round.total_ns = std::bit_cast<double>(get_little_endian<std::uint64_t>(from + 8));
    round.sm_clock_mhz = std::bit_cast<double>(get_little_endian<std::uint64_t>(from + 16));
    from += kRoundBytes;
  }
  return rounds;
}

bool has_counted_round(const Sample& sample) noexcept {
  return std::any_of(sample.raw.begin(), sample.raw.end(),
                     [](const Round& round) { return (round.flags & kDiscarded) == 0; });
}

std::string fault_of(const Sample& sample) {
  constexpr auto kMaxBytes = std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  if (sample.m < 1) return "m is " + std::to_string(sample.m) + ", not 1 or more";
  if (sample.launches < 1) return "it has no launches";
  if (sample.raw.size() > kMaxRounds) return "it has " + std::to_string(sample.raw.size()) + " rounds";
  if (!has_counted_round(sample)) return "none of its rounds counts";
  for (const Round& round : sample.raw) {
    const bool counts = (round.flags & kDiscarded) == 0;
    if (counts ? !is_time(round.total_ns) : !std::isfinite(round.total_ns))
      return "round " + std::to_string(round.number) + " has a time that is not above 0 and finite";
    if (!std::isfinite(round.sm_clock_mhz) || round.sm_clock_mhz < 0)
      return "round " + std::to_string(round.number) + " has a clock that is negative or not finite";
  }
  if (!is_time(sample.median_ns)) return "its median is not above 0 and finite";
  if (sample.median_ns != median_ns(sample)) return "its median is not that of its rounds";
  if (!std::isfinite(sample.mad_ns) || sample.mad_ns < 0) return "its MAD is negative or not finite";
  if (sample.mad_ns != mad_ns(sample)) return "its MAD is not that of its rounds";
  if (sample.error && (!std::isfinite(*sample.error) || *sample.error < 0))
    return "its error is negative or not finite";
  if (sample.workspace_bytes > kMaxBytes || sample.cached_bytes > kMaxBytes) return "it needs 2^63 bytes or more";
  return {};
}

Run prepared_for_storage(const Run& original) {
  Run run = original;
  const auto fail = [](const std::string& what) { throw StoreError("This run cannot be stored: " + what); };
  if (run.duration_us <= 0) fail("its duration is not above 0");
  if (run.protocol < 1) fail("its protocol is below 1");

  std::set<std::string_view> names;
  for (ArmRecord& arm : run.arm_set.arms) {
    if (!names.insert(arm.id.name).second) fail("two arms are named \"" + arm.id.name + '"');
    arm.reason = codec::scrub_utf8(arm.reason);
  }
  std::set<std::pair<Rows, std::string_view>> attempted;
  for (Attempt& attempt : run.attempts) {
    const std::string where = "the attempt of \"" + attempt.arm + "\" at M = " + std::to_string(attempt.m);
    if (attempt.m < 0) fail(where + ": m is negative");
    if (!names.contains(attempt.arm)) fail(where + ": the arm is not in the run's arm set");
    if (!attempted.insert({attempt.m, attempt.arm}).second) fail("there is more than one of " + where);
    attempt.detail = codec::scrub_utf8(attempt.detail);
  }

  std::vector<Sample> samples;
  std::vector<Attempt> empty;
  std::set<std::tuple<Rows, std::string_view, Role>> measured;
  for (const Sample& sample : original.samples) {
    const std::string where = "the sample of \"" + sample.arm + "\" at M = " + std::to_string(sample.m);
    if (!names.contains(sample.arm)) fail(where + ": the arm is not in the run's arm set");
    if (sample.m >= 1 && !has_counted_round(sample)) {
      if (attempted.insert({sample.m, sample.arm}).second)
        empty.push_back({sample.m, sample.arm, Outcome::failed,
                         "none of its " + std::to_string(sample.raw.size()) + " rounds counts"});
      continue;
    }
    if (const std::string fault = fault_of(sample); !fault.empty()) fail(where + ": " + fault);
    if (!measured.insert({sample.m, sample.arm, sample.role}).second) fail("there is more than one of " + where);
    samples.push_back(sample);
    // SQLite stores no sign of zero, and the digest must be that of what is stored.
    if (Sample& kept = samples.back(); kept.error) *kept.error += 0.0;
    samples.back().mad_ns += 0.0;
  }
  run.samples = std::move(samples);
  run.attempts.insert(run.attempts.end(), empty.begin(), empty.end());
  return run;
}

}  // namespace crossover::db
