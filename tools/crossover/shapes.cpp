#include "shapes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "crossover/dispatch/error.hpp"
#include "document.hpp"
#include "options.hpp"
#include "text.hpp"

namespace crossover::program {
namespace {

constexpr std::size_t kLongestLine = 4096;

// Comma-separated, with "…" around a field that holds commas, and "" for a quote inside one. Empty: quotes do not
// match.
std::optional<std::vector<std::string>> csv_fields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += '"';
      ++i;
    } else if (c == '"' && (quoted || trimmed(fields.back()).empty())) {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (quoted) return std::nullopt;
  for (std::string& field : fields) field = std::string(trimmed(field));
  return fields;
}

struct Columns {
  std::size_t n = 0, k = 1, count = 2;
  std::vector<std::size_t> labels;
};

// Empty if the fields are no header. Throws what `bad` makes of a sentence.
template <typename Bad>
std::optional<Columns> header(const std::vector<std::string>& fields, Bad bad) {
  const auto find = [&](char upper, char lower) {
    const auto named = [&](const std::string& field) {
      return field.size() == 1 && (field[0] == upper || field[0] == lower);
    };
    const auto found = std::find_if(fields.begin(), fields.end(), named);
    if (std::count_if(fields.begin(), fields.end(), named) > 1) throw bad(fmt::format("two columns {}", upper));
    return found;
  };
  const auto n = find('N', 'n'), k = find('K', 'k');
  if (n == fields.end() || k == fields.end()) return std::nullopt;
  Columns columns{
      static_cast<std::size_t>(n - fields.begin()), static_cast<std::size_t>(k - fields.begin()), fields.size(), {}};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i] == "model" || fields[i] == "layer") columns.labels.push_back(i);
  }
  return columns;
}

}  // namespace

std::vector<Shape> read_shapes(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::error_code error;
  if (!file || std::filesystem::is_directory(path, error)) {
    throw InvalidArgument(
        fmt::format("{} cannot be read: {}", path.string(), file ? "it is a folder" : std::strerror(errno)));
  }
  std::vector<Shape> shapes;
  Columns columns;
  bool first = true;
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    const auto bad = [&](std::string_view why) {
      return InvalidArgument(fmt::format("{}, line {}: {}", path.string(), number, why));
    };
    if (line.size() > kLongestLine) throw bad("longer than any shape");
    if (line.find('\0') != std::string::npos) throw bad(fmt::format("a zero byte: '{}'", printable(line)));
    std::string_view content = line;
    if (number == 1 && content.starts_with("\xEF\xBB\xBF")) content.remove_prefix(3);
    content = trimmed(content);
    if (content.empty() || content.front() == '#') continue;
    const auto fields = csv_fields(content);
    if (!fields) throw bad("a quoted field does not end");
    if (std::exchange(first, false)) {
      if (const auto found = header(*fields, bad)) {
        columns = *found;
        continue;
      }
    }
    if (fields->size() != columns.count) {
      throw bad(fmt::format("{} fields where {} are expected: '{}'", fields->size(), columns.count, content));
    }
    Shape shape;
    shape.line = number;
    for (const std::size_t i : columns.labels) {
      if (!(*fields)[i].empty()) shape.label += (shape.label.empty() ? "" : " ") + (*fields)[i];
    }
    try {
      shape.problem = shape_problem("a line", (*fields)[columns.n] + "," + (*fields)[columns.k]);
    } catch (const InvalidArgument& wrong) {
      throw bad(wrong.what());
    }
    shapes.push_back(std::move(shape));
  }
  if (file.bad()) throw InvalidArgument(fmt::format("{} cannot be read to its end", path.string()));
  if (shapes.empty()) throw InvalidArgument(fmt::format("{} has no shapes in it", path.string()));
  return shapes;
}

}  // namespace crossover::program
