#pragma once
// What a subcommand has to say: one JSON value for programs, and blocks for people, drawn as text or as Markdown.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace crossover::program {

enum class Format { text, json, markdown };

struct Heading {
  std::string text;
};
struct Paragraph {
  std::string text;
};
// One "name  value" a line.
struct Fields {
  std::vector<std::pair<std::string, std::string>> entries;
};
struct Table {
  struct Column {
    std::string header;
    bool right = false;  // numbers
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // as many cells as columns
};
using Block = std::variant<Heading, Paragraph, Fields, Table>;

struct Document {
  nlohmann::ordered_json json;
  std::vector<Block> blocks;
};

// Text of a database or a file never reaches a terminal or a page as control characters, nor as markup.
std::string render(const Document& document, Format format);

// Control characters (and bytes that are not UTF-8) as \xNN.
std::string printable(std::string_view text);
std::string escape_markdown(std::string_view text);

// The only way anything gets to standard output. Throws Failure if it cannot be written in full.
void write_output(std::string_view text);
// To standard error; what cannot be written is dropped.
void write_error(std::string_view text) noexcept;

}  // namespace crossover::program
