#include "document.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "crossover/dispatch/error.hpp"

namespace crossover::program {
namespace {

// Length in bytes of the well-formed UTF-8 sequence at the start of `text`; 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  std::size_t length = 0;
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) length = 2;
  if (first >= 0xE0 && first < 0xF0) length = 3;
  if (first >= 0xF0 && first < 0xF5) length = 4;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies beyond the last code point.
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) || (first == 0xF0 && byte(1) < 0x90) ||
      (first == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return length;
}

// Columns on a terminal: code points, which is right for what is printed here.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string padded(std::string_view text, std::size_t columns, bool right) {
  const std::string fill(columns - std::min(columns, width(text)), ' ');
  return right ? fill + std::string(text) : std::string(text) + fill;
}

std::string without_trailing_spaces(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string text_of(const Table& table) {
  const std::size_t count = table.columns.size();
  std::vector<std::size_t> widths(count);
  for (std::size_t c = 0; c < count; ++c) widths[c] = width(printable(table.columns[c].header));
  for (const auto& row : table.rows) {
    for (std::size_t c = 0; c < count; ++c) widths[c] = std::max(widths[c], width(printable(row[c])));
  }
  std::string result;
  const auto line = [&](auto cell) {
    std::string text;
    for (std::size_t c = 0; c < count; ++c) text += padded(cell(c), widths[c] + 2, false);
    result += without_trailing_spaces(std::move(text)) + "\n";
  };
  const auto aligned = [&](std::string_view text, std::size_t c) {
    return padded(printable(text), widths[c], table.columns[c].right);
  };
  line([&](std::size_t c) { return aligned(table.columns[c].header, c); });
  line([&](std::size_t c) { return std::string(widths[c], '-'); });
  for (const auto& row : table.rows) line([&](std::size_t c) { return aligned(row[c], c); });
  return result;
}

std::string text_of(const Fields& fields) {
  std::size_t widest = 0;
  for (const auto& [name, value] : fields.entries) widest = std::max(widest, width(printable(name)));
  std::string result;
  for (const auto& [name, value] : fields.entries) {
    result += without_trailing_spaces("  " + padded(printable(name), widest + 2, false) + printable(value)) + "\n";
  }
  return result;
}

std::string text_of(const Heading& heading) { return printable(heading.text) + "\n"; }
std::string text_of(const Paragraph& paragraph) { return printable(paragraph.text) + "\n"; }

std::string markdown_of(const Table& table) {
  std::string header = "|", rule = "|", body;
  for (const Table::Column& column : table.columns) {
    header += " " + escape_markdown(column.header) + " |";
    rule += column.right ? " ---: |" : " --- |";
  }
  for (const auto& row : table.rows) {
    body += "|";
    for (std::size_t c = 0; c < table.columns.size(); ++c) body += " " + escape_markdown(row[c]) + " |";
    body += "\n";
  }
  return header + "\n" + rule + "\n" + body;
}

std::string markdown_of(const Fields& fields) {
  std::string result;
  for (const auto& [name, value] : fields.entries) {
    result += "- **" + escape_markdown(name) + "**: " + escape_markdown(value) + "\n";
  }
  return result;
}

std::string markdown_of(const Heading& heading) { return "### " + escape_markdown(heading.text) + "\n"; }
std::string markdown_of(const Paragraph& paragraph) { return escape_markdown(paragraph.text) + "\n"; }

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    // C1 controls (U+0080…U+009F) are terminal escapes too.
    const bool control =
        first < 0x20 || first == 0x7F || (first == 0xC2 && length == 2 && static_cast<unsigned char>(text[1]) < 0xA0);
    const std::size_t taken = std::max<std::size_t>(length, 1);
    if (length == 0 || control) {
      for (const char c : text.substr(0, taken)) result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      result += text.substr(0, taken);
    }
    text.remove_prefix(taken);
  }
  return result;
}

std::string escape_markdown(std::string_view text) {
  std::string result;
  for (const char c : printable(text)) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      if (std::strchr("\\`*_[]|~#>!", c) != nullptr && c != '\0') result += '\\';
      result += c;
    }
  }
  return result;
}

std::string render(const Document& document, Format format) {
  if (format == Format::json) {
    return document.json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }
  std::string result;
  for (const Block& block : document.blocks) {
    if (!result.empty()) result += "\n";
    result += std::visit(
        [&](const auto& each) { return format == Format::markdown ? markdown_of(each) : text_of(each); }, block);
  }
  return result;
}

void write_output(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw Failure(fmt::format("standard output cannot be written: {}", std::strerror(errno)));
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void write_error(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace crossover::program
