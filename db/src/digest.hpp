#pragma once
// Ids and digests: XXH3-128 of canonical content, prefixed by the kind of thing so that two kinds never collide.
// Guards against damage and names content; not a signature.

#include <string>
#include <string_view>

#include "crossover/dispatch/problem.hpp"

namespace crossover::db {

// XXH3-128 of `kind`, a newline, and `content`; most significant byte first.
Id digest(std::string_view kind, std::string_view content);
// A host's name as it may be stored: "xxh3:" and 32 hex digits, keyed with the database's uuid. Text that already has
// that form is given back as it is, so that a run that was read can be written again. Empty stays empty.
std::string hash_host(const Id& database_uuid, std::string_view host);
// Random (version 4) UUID from the kernel.
Id random_uuid();

}  // namespace crossover::db
