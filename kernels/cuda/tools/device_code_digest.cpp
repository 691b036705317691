// Writes a C++ source with the digests of the machine code in object files made by nvcc.
//
//   device_code_digest OUTPUT.cpp OBJECT …
//
// For each object and each architecture in it: the contents of the cubin's sections .text.* and .nv.constantN.* (N > 0,
// literals of the code), sorted by contents and digested. Names, and whatever else a cubin holds, do not count: they
// change with the source folder and the list of architectures. The device code in the objects must not be compressed
// (nvcc --no-compress).

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

// The parts of ELF64, little-endian, that are needed.
struct ElfHeader {
  unsigned char identification[16];
  std::uint16_t type, machine;
  std::uint32_t version;
  std::uint64_t entry, program_headers, section_headers;
  std::uint32_t flags;
  std::uint16_t header_size, program_header_size, program_header_count, section_header_size, section_count, names_index;
};
struct SectionHeader {
  std::uint32_t name, type;
  std::uint64_t flags, address, offset, size;
  std::uint32_t link, info;
  std::uint64_t alignment, entry_size;
};
static_assert(sizeof(ElfHeader) == 64 && sizeof(SectionHeader) == 64);
constexpr std::uint16_t kMachineCuda = 190;
constexpr int kAbiVersionByte = 8;

template <typename T>
T read(std::string_view bytes, std::size_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) throw std::runtime_error("a cubin is truncated");
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

bool is_code(std::string_view name) {
  constexpr std::string_view kText = ".text.", kConstant = ".nv.constant";
  if (name.starts_with(kText)) return true;
  return name.starts_with(kConstant) && name.size() > kConstant.size() + 1 && name[kConstant.size()] != '0';
}

// Digests by architecture (90 for sm_90a) of all cubins in an object.
std::map<unsigned, std::string> digests(std::string_view object) {
  std::map<unsigned, std::vector<std::string_view>> sections;
  constexpr std::string_view kMagic{
      "\x7f"
      "ELF\x02\x01",
      6};
  for (std::size_t at = object.find(kMagic); at != std::string_view::npos; at = object.find(kMagic, at + 1)) {
    const std::string_view cubin = object.substr(at);
    if (cubin.size() < sizeof(ElfHeader)) break;
    const auto header = read<ElfHeader>(cubin, 0);
    if (header.machine != kMachineCuda || header.section_header_size != sizeof(SectionHeader)) continue;
    // Since CUDA 13 (ABI version 8) the second byte of the flags, before that the first.
    const unsigned architecture =
        header.identification[kAbiVersionByte] >= 8 ? header.flags >> 8 & 0xFFu : header.flags & 0xFFu;
    const auto section = [&](std::size_t index) {
      return read<SectionHeader>(cubin, header.section_headers + index * sizeof(SectionHeader));
    };
    const SectionHeader names = section(header.names_index);
    for (std::size_t i = 0; i < header.section_count; ++i) {
      const SectionHeader one = section(i);
      const std::size_t name = names.offset + one.name, end = cubin.find('\0', name);
      if (end == std::string_view::npos) throw std::runtime_error("a cubin is truncated");
      constexpr std::uint32_t kNoBits = 8;
      if (one.type == kNoBits || !is_code(cubin.substr(name, end - name))) continue;
      if (one.offset > cubin.size() || cubin.size() - one.offset < one.size) {
        throw std::runtime_error("a cubin is truncated");
      }
      sections[architecture].push_back(cubin.substr(one.offset, one.size));
    }
  }
  std::map<unsigned, std::string> result;
  for (auto& [architecture, contents] : sections) {
    std::sort(contents.begin(), contents.end());
    std::string all;
    for (const std::string_view content : contents) {
      all += std::to_string(content.size()) + ":";
      all += content;
    }
    const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
    char text[33];
    std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                  static_cast<unsigned long long>(hash.low64));
    result[architecture] = text;
  }
  return result;
}

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw std::runtime_error("cannot read " + path);
  return bytes;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count < 3) throw std::runtime_error("usage: device_code_digest OUTPUT.cpp OBJECT …");
    std::string text =
        "#include \"device_code.hpp\"\n\nnamespace crossover::fp8_block_linear_detail {\n\n"
        "const DeviceCode kDeviceCode[] = {\n";
    std::size_t lines = 0;
    std::vector<std::string> objects(arguments + 2, arguments + count);
    std::sort(objects.begin(), objects.end());
    for (const std::string& path : objects) {
      // gemv.cu.o is "gemv".
      const std::string file = std::filesystem::path(path).filename().string();
      const std::string part = file.substr(0, file.find('.'));
      const auto found = digests(slurp(path));
      if (found.empty()) throw std::runtime_error(path + " has no machine code that can be read");
      for (const auto& [architecture, digest] : found) {
        text += "    {\"" + part + "\", " + std::to_string(architecture) + ", \"" + digest + "\"},\n";
        ++lines;
      }
    }
    text += "};\nconst std::size_t kDeviceCodeCount = " + std::to_string(lines) +
            ";\n\n}  // namespace crossover::fp8_block_linear_detail\n";
    std::ofstream output(arguments[1], std::ios::binary);
    output << text;
    output.close();
    if (!output) throw std::runtime_error(std::string("cannot write ") + arguments[1]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "device_code_digest: %s\n", error.what());
    return 1;
  }
}
