#include "build_id.hpp"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace crossover::c {
namespace {

struct Search {
  std::uintptr_t address = 0;
  Module module;
};

// The build-id among the notes from `begin` to `end`.
std::string build_id_in(const unsigned char* begin, const unsigned char* end, std::size_t alignment) {
  const auto aligned = [alignment](std::size_t size) { return (size + alignment - 1) / alignment * alignment; };
  while (static_cast<std::size_t>(end - begin) >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, begin, sizeof note);
    const auto left = static_cast<std::size_t>(end - begin) - sizeof note;
    const std::size_t name_size = aligned(note.n_namesz);
    if (name_size > left || note.n_descsz > left - name_size) break;
    const unsigned char* const name = begin + sizeof note;
    const unsigned char* const content = name + name_size;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof "GNU" &&
        std::memcmp(name, "GNU", sizeof "GNU") == 0) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      std::string id;
      for (std::size_t i = 0; i < note.n_descsz; ++i) {
        id += kDigits[content[i] >> 4];
        id += kDigits[content[i] & 15];
      }
      return id;
    }
    if (aligned(note.n_descsz) > left - name_size) break;
    begin = content + aligned(note.n_descsz);
  }
  return {};
}

int look_at(dl_phdr_info* info, std::size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  bool holds = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const std::uintptr_t start = info->dlpi_addr + segment.p_vaddr;
    holds = holds || (segment.p_type == PT_LOAD && search.address >= start && search.address - start < segment.p_memsz);
  }
  if (!holds) return 0;
  search.module.path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  for (int i = 0; i < info->dlpi_phnum && search.module.build_id.empty(); ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): this is how the loader says where a module lies
    const auto* const notes = reinterpret_cast<const unsigned char*>(info->dlpi_addr + segment.p_vaddr);
    search.module.build_id = build_id_in(notes, notes + segment.p_memsz, segment.p_align == 8 ? 8 : 4);
  }
  return 1;
}

}  // namespace

Module module_of(const void* address) {
  Search search{reinterpret_cast<std::uintptr_t>(address), {}};
  dl_iterate_phdr(look_at, &search);
  return search.module;
}

}  // namespace crossover::c
