// crossover device: what this host is, and what could not be read.

#include <fmt/format.h>

#include <array>
#include <span>

#include "command.hpp"
#include "host.hpp"
#include "json.hpp"
#include "text.hpp"

namespace crossover::program {
namespace {

constexpr Usage kDeviceUsage{
    "crossover device [options]",
    "Says what this host's device is, in which state it is, and what could not be read. Identity "
    "(the fields of `device`)\n"
    "is the key of all evidence; the rest is recorded with each measurement.",
    "crossover device --json"};

// What a back end records where it can.
constexpr std::array<std::string_view, 3> kCpuConditions{"governor", "load_average", "affinity_cpus"};
constexpr std::array<std::string_view, 3> kGpuConditions{"power_limit_w", "ecc", "mig_profile"};

std::string shown(const std::string& value) { return value.empty() ? "(unknown)" : value; }
std::string shown(std::int64_t value) { return value > 0 ? std::to_string(value) : "(unknown)"; }

void describe_device(Described& options) {
  add_device_option(options, false);
  add_database_option(options);
  add_output_options(options);
}

int run_device(const Arguments& arguments) {
  const auto options = Options::parse(kDeviceCommand, arguments);
  if (!options) return kDone;
  const Format format = options->format();

  const auto runtime = open_runtime(*options, {.access = Store::Access::lookup_only, .overrides = Overrides{}});
  const Device& device = runtime->backend().device();
  const Environment environment = runtime->backend().environment();
  const Conditions conditions = runtime->backend().conditions();

  std::vector<std::string> unknown;
  const auto note = [&](bool known, std::string_view name) {
    if (!known) unknown.emplace_back(name);
  };
  note(!device.model.empty(), "model");
  note(!device.compute_capability.empty(), "compute_capability");
  note(device.sm_count > 0, "sm_count");
  note(device.l2_bytes > 0, "l2_bytes");
  note(device.memory_gib > 0, "memory_gib");
  const bool gpu = device.kind == "cuda";
  for (const std::string_view name : kStalingEnvironment) {
    if (gpu != (name == environment_field::blas)) note(environment.contains(std::string(name)), name);
  }
  for (const std::string_view name : gpu ? std::span(kGpuConditions) : std::span(kCpuConditions)) {
    note(conditions.contains(std::string(name)), name);
  }

  Document document;
  std::vector<std::string> modes;
  for (const LaunchMode mode : runtime->backend().launch_modes()) modes.emplace_back(to_string(mode));
  const std::string database = runtime->database().string();
  document.json = {{"device", to_json(device)},
                   {"environment", environment},
                   {"conditions", conditions},
                   {"unknown", unknown},
                   {"launch_modes", modes},
                   {"devices", Runtime::device_names()},
                   {"database", database.empty() ? Json(nullptr) : Json(database)}};

  document.blocks.emplace_back(Heading{fmt::format("device {}", short_id(Store::id_of(device)))});
  document.blocks.emplace_back(Fields{{{"kind", device.kind},
                                       {"model", shown(device.model)},
                                       {"compute capability", shown(device.compute_capability)},
                                       {gpu ? "SMs" : "threads", shown(device.sm_count)},
                                       {gpu ? "L2 bytes" : "last-level cache bytes", shown(device.l2_bytes)},
                                       {"memory GiB", shown(device.memory_gib)},
                                       {"launch modes", join(modes)},
                                       {"devices here", join(Runtime::device_names())},
                                       {"database", database.empty() ? "(none)" : database}}});
  const auto section = [&](const char* title, const std::map<std::string, std::string>& values) {
    Fields fields{{values.begin(), values.end()}};
    if (fields.entries.empty()) fields.entries.emplace_back("(nothing could be read)", "");
    document.blocks.emplace_back(Heading{title});
    document.blocks.emplace_back(std::move(fields));
  };
  section("environment", environment);
  section("conditions", conditions);
  document.blocks.emplace_back(
      Paragraph{unknown.empty() ? "Everything could be read." : "Could not be read: " + join(unknown) + "."});
  write_output(render(document, format));
  return kDone;
}

}  // namespace

constinit const Command kDeviceCommand{
    "device", "", "what this host is, and what could not be read", kDeviceUsage, "", describe_device, run_device};

}  // namespace crossover::program
