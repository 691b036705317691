#include "copies.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sqlite3.h>

#include <algorithm>
#include <map>
#include <memory>

namespace crossover::db {
namespace {

int take_name(dl_phdr_info* object, std::size_t, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(object->dlpi_name);
  return 0;
}

struct CloseObject {
  void operator()(void* handle) const noexcept { ::dlclose(handle); }
};

std::string path_of(const Dl_info& object) {
  return object.dli_fname == nullptr || *object.dli_fname == '\0' ? "the program itself" : object.dli_fname;
}

}  // namespace

SqliteCopies sqlite_copies() {
  SqliteCopies copies;
  // The text lies in the object itself. The function's address may be that of a jump in the program.
  Dl_info ours{};
  if (::dladdr(sqlite3_libversion(), &ours) == 0) return copies;
  copies.ours = path_of(ours);

  std::vector<std::string> names;  // dlopen() must not be called while they are walked
  ::dl_iterate_phdr(take_name, &names);
  std::map<const void*, std::string> found;  // by the address at which the object is mapped
  for (const std::string& name : names) {
    const std::unique_ptr<void, CloseObject> handle(
        ::dlopen(name.empty() ? nullptr : name.c_str(), RTLD_LAZY | RTLD_NOLOAD));
    if (handle == nullptr) continue;
    // Also finds what the object is linked with, hence the question where that lies.
    for (const char* function : {"sqlite3_libversion", "sqlite3_open_v2"}) {
      Dl_info owner{};
      const void* const address = ::dlsym(handle.get(), function);
      if (address == nullptr || ::dladdr(address, &owner) == 0 || owner.dli_fbase == ours.dli_fbase) continue;
      found.emplace(owner.dli_fbase, path_of(owner));
    }
  }
  for (const auto& [base, path] : found) copies.others.push_back(path);
  std::sort(copies.others.begin(), copies.others.end());
  return copies;
}

}  // namespace crossover::db
