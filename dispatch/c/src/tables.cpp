#include "tables.hpp"

namespace crossover::c {
namespace {

std::string_view without_blanks(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string_view> parts(std::string_view text) {
  std::vector<std::string_view> result;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    result.push_back(without_blanks(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return result;
}

}  // namespace

std::string required_text(const char* text, const char* name) {
  if (text == nullptr) throw InvalidArgument(std::string(name) + " is NULL");
  return text;
}

std::map<std::string, std::string> parse_attributes(std::string_view text) {
  std::map<std::string, std::string> attributes;
  if (without_blanks(text).empty()) return attributes;
  for (const std::string_view part : parts(text)) {
    const std::size_t equals = part.find('=');
    const std::string key(without_blanks(part.substr(0, equals)));
    if (equals == std::string_view::npos || key.empty())
      throw InvalidArgument("attributes are written as k=v,k=v, not '" + std::string(text) + "'");
    if (!attributes.emplace(key, without_blanks(part.substr(equals + 1))).second)
      throw InvalidArgument("the attribute '" + key + "' is given twice");
  }
  return attributes;
}

std::vector<std::string> parse_list(const char* text, const char* name) {
  std::vector<std::string> result;
  if (text == nullptr || *text == '\0') return result;
  for (const std::string_view part : parts(text)) {
    if (part.empty()) throw InvalidArgument(std::string(name) + " takes names separated by commas, not '" + text + "'");
    result.emplace_back(part);
  }
  return result;
}

const char* status_text(crossover_status status) noexcept {
  switch (status) {
    case CROSSOVER_OK:
      return "ok";
    case CROSSOVER_INVALID_ARGUMENT:
      return "invalid argument";
    case CROSSOVER_NO_VERDICT:
      return "no verdict";
    case CROSSOVER_OUT_OF_MEMORY:
      return "out of memory";
    case CROSSOVER_CONFIG_NOT_RESTORABLE:
      return "configuration not restorable";
    case CROSSOVER_STORE:
      return "the database cannot be used";
    case CROSSOVER_DEVICE:
      return "the device failed";
    case CROSSOVER_FAILED:
      return "failed";
    case CROSSOVER_UNSUPPORTED:
      return "unsupported";
    case CROSSOVER_WORKSPACE_TOO_SMALL:
      return "workspace too small";
    case CROSSOVER_PLUGIN:
      return "no plug-in";
    default:
      return "unknown status";
  }
}

void raise(crossover_status status, const std::string& what, const std::string& message) {
  const std::string text = what + ": " + (message.empty() ? std::string(status_text(status)) : message);
  switch (status) {
    case CROSSOVER_INVALID_ARGUMENT:
    case CROSSOVER_UNSUPPORTED:
      throw InvalidArgument(text);
    case CROSSOVER_OUT_OF_MEMORY:
      throw OutOfMemory(text);
    case CROSSOVER_CONFIG_NOT_RESTORABLE:
      throw ConfigNotRestorable(text);
    case CROSSOVER_DEVICE:
      throw DeviceError(text);
    default:
      throw Failure(text);
  }
}

}  // namespace crossover::c
