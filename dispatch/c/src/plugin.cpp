#include "crossover/plugin.hpp"

#include <dlfcn.h>

#include <cstddef>
#include <system_error>

#include "crossover/runtime.hpp"
#include "tables.hpp"

namespace crossover {

std::vector<std::string> load_plugin(const std::filesystem::path& path) {
  using c::copied;
  const std::string name = path.string();
  if (name.empty()) throw PluginError("a plug-in is named by the path of its file, not by ''");
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error || !std::filesystem::exists(absolute, error)) throw PluginError("there is no plug-in " + name);
  if (!std::filesystem::is_regular_file(absolute, error)) throw PluginError(name + " is no file, so it is no plug-in");

  void* const module = dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    const char* const why = dlerror();
    throw PluginError("the plug-in cannot be loaded: " + (why != nullptr ? std::string(why) : name));
  }
  const auto entry = reinterpret_cast<decltype(&crossover_plugin_entry)>(dlsym(module, "crossover_plugin_entry"));
  if (entry == nullptr) throw PluginError(name + " is no plug-in: it exports no crossover_plugin_entry");
  const crossover_plugin* const given = entry();
  if (given == nullptr) throw PluginError("the plug-in " + name + " says that it cannot work here");
  if (given->struct_size < CROSSOVER_SIZE_TO(crossover_plugin, abi_version) ||
      given->abi_version != CROSSOVER_ABI_VERSION) {
    throw PluginError("the plug-in " + name + " was compiled for version " + std::to_string(given->abi_version) +
                      " of the interface, and this is version " + std::to_string(CROSSOVER_ABI_VERSION));
  }
  try {
    const auto plugin = copied(given, CROSSOVER_SIZE_TO(crossover_plugin, operations), "crossover_plugin");
    if (plugin.operation_count == 0 || plugin.operations == nullptr) throw InvalidArgument("it has no operation");
    std::vector<std::unique_ptr<const Operation>> operations;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < plugin.operation_count; ++i) {
      operations.push_back(operation_of(plugin.operations[i]));
      names.emplace_back(operations.back()->name());
    }
    Runtime::register_operations(std::move(operations));
    return names;
  } catch (const InvalidArgument& fault) {
    throw InvalidArgument("the plug-in " + name + ": " + fault.what(), fault.advice());
  }
}

}  // namespace crossover
