#pragma once

#include <string>

namespace crossover::c {

struct Module {
  std::string path;      // "" for the program itself, where the system does not name it
  std::string build_id;  // lower-case hexadecimal digits of its ELF note; empty: it has none
};
// The module of this process that holds `address`; both texts are empty if none does.
Module module_of(const void* address);

}  // namespace crossover::c
