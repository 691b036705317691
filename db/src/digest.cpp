#include "digest.hpp"

#include <sys/random.h>

#include <cstring>

#include "crossover/dispatch/error.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace crossover::db {
namespace {

constexpr std::string_view kHostPrefix = "xxh3:";

Id to_id(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  Id id;
  static_assert(sizeof canonical.digest == std::tuple_size_v<decltype(id.bytes)>);
  std::memcpy(id.bytes.data(), canonical.digest, id.bytes.size());
  return id;
}

bool is_hashed_host(std::string_view host) {
  return host.starts_with(kHostPrefix) && Id::from_hex(host.substr(kHostPrefix.size())).has_value();
}

}  // namespace

Id digest(std::string_view kind, std::string_view content) {
  std::string text;
  text.reserve(kind.size() + 1 + content.size());
  text.append(kind).append(1, '\n').append(content);
  return to_id(XXH3_128bits(text.data(), text.size()));
}

std::string hash_host(const Id& database_uuid, std::string_view host) {
  if (host.empty() || is_hashed_host(host)) return std::string(host);
  std::string keyed(kHostPrefix);
  return keyed += digest("host", database_uuid.hex() + std::string(host)).hex();
}

Id random_uuid() {
  Id id;
  std::size_t have = 0;
  while (have < id.bytes.size()) {
    const ssize_t got = getrandom(id.bytes.data() + have, id.bytes.size() - have, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw StoreError("The kernel gives no random numbers for a new database's uuid");
    have += static_cast<std::size_t>(got);
  }
  id.bytes[6] = static_cast<std::uint8_t>((id.bytes[6] & 0x0f) | 0x40);
  id.bytes[8] = static_cast<std::uint8_t>((id.bytes[8] & 0x3f) | 0x80);
  return id;
}

}  // namespace crossover::db
