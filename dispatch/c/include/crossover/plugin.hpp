#pragma once
// Operations that come as tables of C functions (crossover/crossover.h), for C++ programs: the same as those of the C
// interface, in the registry of Runtime.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "crossover/crossover.h"
#include "crossover/dispatch/error.hpp"
#include "crossover/dispatch/operation.hpp"

namespace crossover {

// A file that is no plug-in for this version.
class PluginError : public InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

// The operation that the table describes; tables, arrays and texts are copied. Throws InvalidArgument with one sentence
// for a table that is incomplete or contradicts itself, and where an arm gives no fingerprint and its module has no
// build-id.
std::unique_ptr<const Operation> operation_of(const crossover_operation* table);

// Loads a shared library by its path, registers the operations that crossover_plugin_entry() gives, and returns their
// names. All are registered, or none. Throws PluginError for a file that is missing or is no plug-in of this
// CROSSOVER_ABI_VERSION, else what operation_of() and Runtime::register_operation() throw. What was loaded is never
// unloaded. Thread-safe.
std::vector<std::string> load_plugin(const std::filesystem::path& path);

}  // namespace crossover
