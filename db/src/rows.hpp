#pragma once
// Rows of the fact tables: what each digest covers, the layout of raw rounds, and what may be stored at all.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec.hpp"
#include "crossover/dispatch/decide.hpp"
#include "crossover/dispatch/evidence.hpp"

namespace crossover::db {

// Ids of the tables whose id is the digest of all their columns.
Id device_id(std::string_view json);
Id environment_id(std::string_view json);
Id problem_id(std::string_view operation, std::string_view attributes_json);
Id regime_id(std::string_view launch_mode, std::string_view l2, std::string_view fill);
Id arm_id(std::string_view name, std::string_view fingerprint, std::string_view numerics, std::string_view json);
std::string arm_json(const ArmRecord& arm);  // what the table's other columns do not say of it
Id id_of(const ArmRecord& arm);

struct KeyIds {
  Id device, problem, regime;
  bool operator==(const KeyIds&) const = default;
};
KeyIds ids_of(const EvidenceKey& key);

// Columns of a row as they are stored; text is canonical JSON where the value is structured.
struct RunColumns {
  Id process_uuid;
  KeyIds key;
  Id environment;
  std::string_view arm_set, gpu_uuid, host_hash, boot_id, conditions;
  std::int64_t protocol = 0, started_us = 0, duration_us = 0;
  std::uint64_t seed = 0, dirty_mask = 0;
  Id sample_digest;
};
Id run_id(const RunColumns& columns);  // covers every column, so it is the row's digest too

struct SampleColumns {
  Rows m = 0;
  Id arm;
  std::string_view role, config;
  std::int64_t launches = 0, workspace_bytes = 0, cached_bytes = 0;
  double median_ns = 0, mad_ns = 0;
  std::uint64_t dirty_mask = 0;
  std::optional<double> error;
  std::span<const std::uint8_t> raw;
};
// Digests of samples and attempts do not cover run_id: run.sample_digest, which covers them, is part of what run_id is.
Id sample_digest(const SampleColumns& columns);
Id attempt_digest(Rows m, const Id& arm, std::string_view outcome, std::string_view detail);
// run.sample_digest: of all samples' and attempts' digests, in any order.
Id samples_digest(std::vector<Id> samples, std::vector<Id> attempts);

struct VerdictColumns {
  KeyIds key;
  std::string_view policy, run_ids, incumbent, status, why, segments, crossovers, library_arm;
  std::optional<std::string_view> held_out;
  std::int64_t rule = 0, decided_us = 0;
  std::optional<std::int64_t> threshold, first_win;
};
Id verdict_id(const VerdictColumns& columns);      // everything but `why` and `decided_us`
Id verdict_digest(const VerdictColumns& columns);  // everything

// Rounds as the column `raw` holds them: 24 bytes each, little-endian: number u32, flags u32, total_ns f64,
// sm_clock_mhz f64.
std::vector<std::uint8_t> encode_raw(std::span<const Round> rounds);
std::vector<Round> decode_raw(std::span<const std::uint8_t> raw);  // throws codec::Malformed

// Why a sample must not be kept, or be believed: times that are not above 0 and finite, statistics that are not those
// of its rounds. Empty if it may.
std::string fault_of(const Sample& sample);
bool has_counted_round(const Sample& sample) noexcept;

// The run as it is stored: samples without a counted round have become attempts, sentences are UTF-8, -0.0 is 0.0.
// Throws StoreError that names what cannot be stored.
Run prepared_for_storage(const Run& run);

}  // namespace crossover::db
