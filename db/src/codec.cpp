#include "codec.hpp"

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace crossover {
namespace codec {
namespace {

using nlohmann::json;

// Bytes of the well-formed UTF-8 sequence at `at`, 0 if there is none (Unicode 15, table 3-7).
std::size_t sequence_length(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto tail = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xbf) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned lead = byte(at);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return tail(at + 1) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const unsigned low = lead == 0xe0 ? 0xa0 : 0x80, high = lead == 0xed ? 0x9f : 0xbf;
    return tail(at + 1, low, high) && tail(at + 2) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const unsigned low = lead == 0xf0 ? 0x90 : 0x80, high = lead == 0xf4 ? 0x8f : 0xbf;
    return tail(at + 1, low, high) && tail(at + 2) && tail(at + 3) ? 4 : 0;
  }
  return 0;
}

void put(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef", kEscaped = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  if (!is_utf8(text)) throw Malformed("text that is not UTF-8: \"" + scrub_utf8(text.substr(0, 80)) + '"');
  out += '"';
  std::size_t copied = 0;  // bytes of `text` that are in `out` already
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out.append(text, copied, at - copied);
    copied = at + 1;
    out += '\\';
    if (const std::size_t letter = kEscaped.find(text[at]); letter != std::string_view::npos) {
      out += kLetters[letter];
    } else {
      out += "u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  out.append(text, copied);
  out += '"';
}

template <class Number>
void put_number(std::string& out, Number value) {
  std::array<char, 40> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

void put(std::string& out, double value) {
  if (!std::isfinite(value)) throw Malformed("a number that is not finite");
  const std::size_t start = out.size();
  put_number(out, value);
  if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
}

// "[" element, element … "]"
template <class Range, class Put>
std::string array(const Range& range, Put put_element) {
  std::string out = "[";
  for (const auto& element : range) {
    if (out.size() > 1) out += ',';
    put_element(out, element);
  }
  return out += ']';
}

std::string encode(const std::vector<std::string>& texts) {
  return array(texts, [](std::string& out, const std::string& text) { put(out, text); });
}

// Builds a document, and refuses what the parser alone would let pass: depth and duplicate keys.
class Builder final : public json::json_sax_t {
 public:
  json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override {
    if (!std::isfinite(value)) throw Malformed("a number that is not finite");
    return add(value);
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { throw Malformed("binary data in JSON"); }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    const auto [place, is_new] = stack_.back()->get_ref<json::object_t&>().emplace(name, nullptr);
    if (!is_new) throw Malformed("duplicate key \"" + name.substr(0, 80) + '"');
    slot_ = &place->second;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    throw Malformed("no JSON at byte " + std::to_string(position));
  }

 private:
  json* place(json value) {
    json* const target = stack_.empty() ? &root_ : slot_ != nullptr ? slot_ : nullptr;
    slot_ = nullptr;
    if (target != nullptr) {
      *target = std::move(value);
      return target;
    }
    return &stack_.back()->get_ref<json::array_t&>().emplace_back(std::move(value));
  }
  template <class Value>
  bool add(Value&& value) {
    place(json(std::forward<Value>(value)));
    return true;
  }
  bool open(json value) {
    if (stack_.size() >= kMaxDepth) throw Malformed("JSON nested too deeply");
    stack_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  json root_;
  std::vector<json*> stack_;  // open containers; an array grows only while it is the innermost, so these stay valid
  json* slot_ = nullptr;      // where the value of the key just read goes
};

json parse(std::string_view text) {
  if (text.size() > kMaxBytes) throw Malformed("JSON of " + std::to_string(text.size()) + " bytes");
  Builder builder;
  json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

template <class Value>
void get(const json& from, Value& to);

template <>
void get(const json& from, std::string& to) {
  if (!from.is_string()) throw Malformed("text expected");
  to = from.get_ref<const std::string&>();
}
template <>
void get(const json& from, bool& to) {
  if (!from.is_boolean()) throw Malformed("true or false expected");
  to = from.get<bool>();
}
template <>
void get(const json& from, double& to) {
  if (!from.is_number_float()) throw Malformed("a number with a fraction or exponent expected");
  to = from.get<double>();
}
template <>
void get(const json& from, std::uint64_t& to) {
  if (!from.is_number_unsigned()) throw Malformed("an integer that is not negative expected");
  to = from.get<std::uint64_t>();
}
template <>
void get(const json& from, std::int64_t& to) {
  if (!from.is_number_integer() ||
      (from.is_number_unsigned() &&
       from.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()}))
    throw Malformed("an integer of 64 bits expected");
  to = from.get<std::int64_t>();
}
template <>
void get(const json& from, int& to) {
  std::int64_t wide = 0;
  get(from, wide);
  if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max())
    throw Malformed("an integer of 32 bits expected");
  to = static_cast<int>(wide);
}
template <>
void get(const json& from, Id& to) {
  const auto id = from.is_string() ? Id::from_hex(from.get_ref<const std::string&>()) : std::nullopt;
  if (!id || id->hex() != from.get_ref<const std::string&>()) throw Malformed("an id expected");
  to = *id;
}

template <class Value>
void get(const json& from, std::optional<Value>& to) {
  if (from.is_null()) {
    to.reset();
  } else {
    get(from, to.emplace());
  }
}

template <class Element>
void get(const json& from, std::vector<Element>& to);
template <class Value>
void get(const json& from, std::map<std::string, Value>& to) {
  if (!from.is_object()) throw Malformed("an object expected");
  for (const auto& [name, value] : from.get_ref<const json::object_t&>()) get(value, to[name]);
}

// The fields of an object: each asked for exactly once, and nothing left over, because a field that is not understood
// may change what the others mean.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object) {
    if (!object.is_object()) throw Malformed("an object expected");
  }
  template <class Value>
  Fields& read(const char* key, Value& to) {
    const auto place = object_.find(key);
    if (place == object_.end()) throw Malformed(std::string("no field \"") + key + '"');
    get(*place, to);
    ++used_;
    return *this;
  }
  void done() const {
    if (used_ != object_.size()) throw Malformed("a field that is not known");
  }

 private:
  const json& object_;
  std::size_t used_ = 0;
};

template <>
void get(const json& from, ArmRecord& to) {
  Fields(from)
      .read("batch_invariant", to.batch_invariant)
      .read("eligible", to.eligible)
      .read("fingerprint", to.id.fingerprint)
      .read("library", to.library)
      .read("name", to.id.name)
      .read("numerics", to.numerics)
      .read("reason", to.reason)
      .done();
}
template <>
void get(const json& from, DefaultArm& to) {
  Fields(from).read("arm", to.arm).read("up_to", to.up_to).done();
}
template <>
void get(const json& from, NumericsClass& to) {
  Fields(from).read("allowed_by_default", to.allowed_by_default).read("name", to.name).done();
}
template <>
void get(const json& from, Segment& to) {
  Fields(from).read("arm", to.arm).read("config", to.config).read("from", to.from).read("to", to.to).done();
}
template <>
void get(const json& from, Crossover& to) {
  Fields(from)
      .read("from_arm", to.from_arm)
      .read("m", to.m)
      .read("m_high", to.m_high)
      .read("m_low", to.m_low)
      .read("to_arm", to.to_arm)
      .done();
}

template <>
void get(const json& from, Device& to) {
  Fields(from)
      .read("compute_capability", to.compute_capability)
      .read("kind", to.kind)
      .read("l2_bytes", to.l2_bytes)
      .read("memory_gib", to.memory_gib)
      .read("model", to.model)
      .read("sm_count", to.sm_count)
      .done();
}
template <>
void get(const json& from, ArmSet& to) {
  Fields(from).read("arms", to.arms).read("defaults", to.defaults).read("numerics", to.numerics).done();
}
template <>
void get(const json& from, Policy& to) {
  Fields(from)
      .read("allow", to.allow)
      .read("arms", to.arms)
      .read("batch_invariant", to.batch_invariant)
      .read("cached_bytes", to.cached_bytes)
      .read("disabled", to.disabled)
      .read("extrapolate", to.extrapolate)
      .read("max_error", to.max_error)
      .read("workspace_bytes", to.workspace_bytes)
      .done();
}
template <>
void get(const json& from, HeldOut& to) {
  Fields(from).read("max_regret", to.max_regret).read("mean_regret", to.mean_regret).read("points", to.points).done();
}

template <class Element>
void get(const json& from, std::vector<Element>& to) {
  if (!from.is_array()) throw Malformed("an array expected");
  to.reserve(from.size());
  for (const json& element : from) get(element, to.emplace_back());
}

}  // namespace

bool is_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const std::size_t length = sequence_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::string scrub_utf8(std::string_view text) {
  std::string clean;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = sequence_length(text, at);
    clean.append(length == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(at, length));
    at += length == 0 ? 1 : length;
  }
  return clean;
}

void Object::key(std::string_view key) {
  if (text_.size() > 1) text_ += ',';
  put(text_, key);
  text_ += ':';
}
Object& Object::field(std::string_view name, std::string_view value) {
  key(name);
  put(text_, value);
  return *this;
}
Object& Object::field(std::string_view name, bool value) { return json(name, value ? "true" : "false"); }
Object& Object::field(std::string_view name, double value) {
  key(name);
  put(text_, value);
  return *this;
}
Object& Object::field(std::string_view name, std::int64_t value) {
  key(name);
  put_number(text_, value);
  return *this;
}
Object& Object::field(std::string_view name, std::uint64_t value) {
  key(name);
  put_number(text_, value);
  return *this;
}
Object& Object::json(std::string_view name, std::string_view canonical) {
  key(name);
  text_ += canonical;
  return *this;
}

std::string encode(const Device& device) {
  return Object()
      .field("compute_capability", device.compute_capability)
      .field("kind", device.kind)
      .field("l2_bytes", device.l2_bytes)
      .field("memory_gib", device.memory_gib)
      .field("model", device.model)
      .field("sm_count", device.sm_count)
      .str();
}

std::string encode(const std::map<std::string, std::string>& fields) {
  Object object;
  for (const auto& [name, value] : fields) object.field(name, value);
  return object.str();
}

std::string encode(const std::map<std::string, Conditions>& conditions) {
  Object object;
  for (const auto& [when, fields] : conditions) object.json(when, encode(fields));
  return object.str();
}

std::string encode(const Problem& problem) {
  return Object().json("attributes", encode(problem.attributes)).field("operation", problem.operation).str();
}

std::string encode(const Regime& regime) {
  return Object()
      .field("fill", regime.fill)
      .field("l2", to_string(regime.l2))
      .field("launch_mode", to_string(regime.launch_mode))
      .str();
}

std::string encode(const ArmSet& set) {
  return Object()
      .json("arms", array(set.arms,
                          [](std::string& out, const ArmRecord& arm) {
                            out += Object()
                                       .field("batch_invariant", arm.batch_invariant)
                                       .field("eligible", arm.eligible)
                                       .field("fingerprint", arm.id.fingerprint)
                                       .field("library", arm.library)
                                       .field("name", arm.id.name)
                                       .field("numerics", arm.numerics)
                                       .field("reason", arm.reason)
                                       .str();
                          }))
      .json("defaults", array(set.defaults,
                              [](std::string& out, const DefaultArm& entry) {
                                out += Object().field("arm", entry.arm).field("up_to", entry.up_to).str();
                              }))
      .json("numerics",
            array(set.numerics,
                  [](std::string& out, const NumericsClass& entry) {
                    out +=
                        Object().field("allowed_by_default", entry.allowed_by_default).field("name", entry.name).str();
                  }))
      .str();
}

std::string encode(const Policy& policy) {
  Object object;
  object.json("allow", encode(policy.allow))
      .json("arms", encode(policy.arms))
      .field("batch_invariant", policy.batch_invariant)
      .field("cached_bytes", policy.cached_bytes)
      .json("disabled", encode(policy.disabled))
      .field("extrapolate", policy.extrapolate);
  policy.max_error ? object.field("max_error", *policy.max_error) : object.null("max_error");
  object.field("workspace_bytes", policy.workspace_bytes);
  return object.str();
}

std::string encode(const std::vector<Segment>& segments) {
  return array(segments, [](std::string& out, const Segment& segment) {
    out += Object()
               .field("arm", segment.arm)
               .field("config", segment.config)
               .field("from", segment.from)
               .field("to", segment.to)
               .str();
  });
}

std::string encode(const std::vector<Crossover>& crossovers) {
  return array(crossovers, [](std::string& out, const Crossover& crossover) {
    out += Object()
               .field("from_arm", crossover.from_arm)
               .field("m", crossover.m)
               .field("m_high", crossover.m_high)
               .field("m_low", crossover.m_low)
               .field("to_arm", crossover.to_arm)
               .str();
  });
}

std::string encode(const HeldOut& held_out) {
  return Object()
      .field("max_regret", held_out.max_regret)
      .field("mean_regret", held_out.mean_regret)
      .field("points", held_out.points)
      .str();
}

std::string encode(const std::vector<Id>& ids) {
  return array(ids, [](std::string& out, const Id& id) { out += '"' + id.hex() + '"'; });
}

template <class Value>
Value decode(std::string_view text) {
  Value value;
  get(parse(text), value);
  return value;
}
template Device decode(std::string_view);
template std::map<std::string, std::string> decode(std::string_view);
template std::map<std::string, Conditions> decode(std::string_view);
template ArmSet decode(std::string_view);
template Policy decode(std::string_view);
template std::vector<Segment> decode(std::string_view);
template std::vector<Crossover> decode(std::string_view);
template HeldOut decode(std::string_view);
template std::vector<Id> decode(std::string_view);

}  // namespace codec

std::string canonical_json(const Verdict& verdict) {
  using codec::encode;
  codec::Object object;
  object.json("crossovers", encode(verdict.crossovers)).json("device", encode(verdict.key.device));
  verdict.first_win ? object.field("first_win", *verdict.first_win) : object.null("first_win");
  verdict.held_out ? object.json("held_out", encode(*verdict.held_out)) : object.null("held_out");
  object.json("incumbent", encode(verdict.incumbent))
      .field("library_arm", verdict.library_arm)
      .json("policy", encode(verdict.policy))
      .json("problem", encode(verdict.key.problem))
      .json("regime", encode(verdict.key.regime))
      .field("rule", verdict.rule)
      .json("run_ids", encode(verdict.run_ids))
      .json("segments", encode(verdict.segments))
      .field("status", to_string(verdict.status));
  verdict.threshold ? object.field("threshold", *verdict.threshold) : object.null("threshold");
  object.field("why", verdict.why);
  return object.str();
}

}  // namespace crossover
