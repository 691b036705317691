#pragma once
// What this build is. Written by version.cmake.

namespace crossover::tuning {

extern const char* const kVersion;
extern const char* const kCommit;    // twelve digits, "-dirty" where the tree had changes; "unknown" outside git
extern const char* const kCompiler;  // "GNU 12.2.0"

}  // namespace crossover::tuning
