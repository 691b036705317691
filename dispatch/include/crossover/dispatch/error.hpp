#pragma once
// Errors that end the work. What is expected (an arm that does not support a problem, a lookup that misses, a launch
// that fails) is a value: Eligibility, Origin, Status.

#include <cstdint>
#include <stdexcept>
#include <string>

namespace crossover {

enum class ErrorCode : std::uint8_t {
  invalid_argument,       // what was asked for cannot be: unknown name, bad shape, contradiction
  no_verdict,             // nothing is known and the caller asked for an error in that case
  out_of_memory,          // host or device memory
  config_not_restorable,  // an arm cannot be brought back to the configuration that was measured
  store,                  // the database cannot be used: unreadable, foreign, newer, locked, full
  device,                 // the device or its driver failed
  failed,                 // anything else that went wrong on the way
};

// Where an error was raised. std::source_location needs a newer clang than Debian 12 has.
struct SourceLocation {
  const char* file = "";
  int line = 0;
  static constexpr SourceLocation current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// what() is one clear sentence for people; advice() says what to do about it and may be empty.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::string advice = {},
        SourceLocation where = SourceLocation::current())
      : std::runtime_error(message), code_(code), advice_(std::move(advice)), where_(where) {}
  ErrorCode code() const noexcept { return code_; }
  const std::string& advice() const noexcept { return advice_; }
  SourceLocation where() const noexcept { return where_; }

 private:
  ErrorCode code_;
  std::string advice_;
  SourceLocation where_;
};

template <ErrorCode kCode>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& message, std::string advice = {},
                   SourceLocation where = SourceLocation::current())
      : Error(kCode, message, std::move(advice), where) {}
};

using InvalidArgument = ErrorOf<ErrorCode::invalid_argument>;
using NoVerdict = ErrorOf<ErrorCode::no_verdict>;
using OutOfMemory = ErrorOf<ErrorCode::out_of_memory>;
using ConfigNotRestorable = ErrorOf<ErrorCode::config_not_restorable>;
using StoreError = ErrorOf<ErrorCode::store>;
using DeviceError = ErrorOf<ErrorCode::device>;
using Failure = ErrorOf<ErrorCode::failed>;

}  // namespace crossover
