#include "workload.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <new>
#include <numbers>
#include <optional>
#include <string>

#include "crossover/dispatch/error.hpp"
#include "crossover/kernels/formats.hpp"
#include "problem.hpp"

namespace crossover::fp8_block_linear_detail {
namespace {

// What no arm writes: a signalling NaN of the output type. Arithmetic and conversions give quiet ones.
constexpr std::uint16_t poison_pattern(Element dtype) { return dtype == Element::bf16 ? 0x7FA5 : 0x7DA5; }
// Poisoned and watched elements after the last row of an output.
constexpr std::int64_t kGuard = 64;
// Up to this many multiply-adds every element of the output is compared with the reference, above it a sample. An
// element counts as 64 at least: what it takes to keep its reference.
constexpr double kFullMultiplyAdds = 1 << 24;
constexpr std::int64_t kMinPerElement = 64;

// SplitMix64: the same numbers on every platform.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(count));
  }

 private:
  std::uint64_t state_;
};

constexpr std::size_t kQuantiles = 65536;

// The normal distribution's quantiles at (i + 1/2) / 65536. A draw is a random index: fast, and within ±4.3.
const std::array<float, kQuantiles>& normal_quantiles() {
  static const std::array<float, kQuantiles> table = [] {
    std::array<float, kQuantiles> t{};
    double x = -4.5;
    for (std::size_t i = 0; i < kQuantiles / 2; ++i) {
      const double p = (static_cast<double>(i) + 0.5) / kQuantiles;
      for (int step = 0; step < 20; ++step) {
        const double density = std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
        const double delta = (std::erfc(-x / std::numbers::sqrt2) / 2 - p) / density;
        x -= delta;
        if (std::fabs(delta) < 1e-9) break;
      }
      t[i] = static_cast<float>(x);
      t[kQuantiles - 1 - i] = static_cast<float>(-x);
    }
    return t;
  }();
  return table;
}

std::uint16_t to_bits(Element dtype, float value) {
  return dtype == Element::bf16 ? float_to_bf16(value) : float_to_f16(value);
}
double to_double(Element dtype, std::uint16_t bits) {
  return static_cast<double>(dtype == Element::bf16 ? bf16_to_float(bits) : f16_to_float(bits));
}

// Block scales are log-uniform in [low, high]. The root mean square of a random e4m3 code is about 106; f16 must hold
// every sum of K products (six deviations and a bias of one, twice over), and every scaled weight as a normal number,
// so that an arm that rounds weights to f16 can take part.
struct ScaleRange {
  double low, high;
};
ScaleRange scale_range(const Fp8BlockLinear& p) {
  if (p.dtype == Element::bf16) return {0x1p-12, 0x1p-2};
  const double high = std::min(0x1p-2, 65504.0 / (16 * 106 * std::sqrt(static_cast<double>(p.k))));
  return {std::min(0x1p-5, high / 8), high};
}

// Extents of one copy's operands in bytes. Each operand starts `alignment` bytes into its allocation, which is aligned
// to 256 bytes, so it is aligned to exactly what the problem promises and no more. Under the largest promise it starts
// where the allocation does, as every engine's weights do: 16 bytes further on a GPU would read half as much again from
// its L2.
struct Extents {
  std::size_t w, scales, bias, x, y;  // data
  std::size_t alignment, bias_offset;
  std::size_t total() const { return w + x + y + 3 * alignment + scales + 4 + (bias != 0 ? bias + bias_offset : 0); }
};

Extents extents(const Fp8BlockLinear& p, Rows max_rows) {
  if (max_rows < 1)
    throw InvalidArgument("fp8_block_linear: a workload needs at least 1 row, not " + std::to_string(max_rows));
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 60;
  if (max_rows > (kMaxElements - kGuard) / std::max(p.x_row_stride, p.y_row_stride)) {
    throw InvalidArgument("fp8_block_linear: " + std::to_string(max_rows) + " rows are too many for these row strides");
  }
  const auto bytes = [](std::int64_t elements, std::int64_t size) { return static_cast<std::size_t>(elements * size); };
  return {.w = bytes(p.n * p.k, 1),
          .scales = bytes(p.n_blocks() * p.k_blocks(), 4),
          .bias = bytes(p.n, element_bytes(p.bias)),
          .x = bytes((max_rows - 1) * p.x_row_stride + p.k, 2),
          .y = bytes(max_rows * p.y_row_stride + kGuard, 2),
          .alignment = p.alignment < 16 ? static_cast<std::size_t>(p.alignment) : 0,
          .bias_offset = static_cast<std::size_t>(element_bytes(p.bias))};
}

// What the system can give without swapping; infinite where it does not say.
double host_available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  double kib = 0;
  while (file >> name >> kib) {
    if (name == "MemAvailable:") return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::numeric_limits<double>::infinity();
}

// Device memory with an operand in it.
class Block {
 public:
  Block() = default;
  Block(Memory& memory, std::size_t offset, std::size_t bytes)
      : memory_(&memory), base_(memory.allocate(offset + bytes)), data_(static_cast<std::byte*>(base_) + offset) {}
  Block(Block&& other) noexcept : memory_(other.memory_), base_(other.base_), data_(other.data_) {
    other.base_ = nullptr;
  }
  Block& operator=(Block&&) = delete;
  ~Block() {
    if (base_ != nullptr) memory_->release(base_);
  }
  void* data() const { return base_ == nullptr ? nullptr : data_; }

 private:
  Memory* memory_ = nullptr;
  void* base_ = nullptr;
  std::byte* data_ = nullptr;
};

struct Copy {
  Block w, scales, bias, x, y;
  Weights weights;
  std::array<ConstOperand, 1> inputs;
  std::array<Operand, 1> outputs;
};

// How far an output of a numerics class may be from the reference. relative_l2 and typical_l2 (what it usually is) are
// for bf16 outputs; `weight` is the error that rounding operands leaves in a sum of products, relative to the root sum
// of squares of the products, at six deviations.
struct Bounds {
  double relative_l2, typical_l2, weight;
};
Bounds bounds(std::string_view numerics, Element dtype) {
  const bool bf16 = dtype == Element::bf16;
  if (numerics == "a16") return {2.5e-3, 1.6e-3, 0};
  if (numerics == "w16") return {4e-3, 2.8e-3, bf16 ? 0x1p-7 : 0x1p-10};
  if (numerics == "a8") return {5e-2, 3e-2, 0x1p-2};
  throw InvalidArgument("fp8_block_linear has no numerics class \"" + std::string(numerics) +
                        "\"; valid: a16, w16, a8");
}

// The reference for one element: the sum, and the root of the sum of its squared products.
struct Reference {
  double value = 0, size = 0;
};
struct Point {
  std::int64_t row = 0, column = 0;
  Reference reference;
};

class LinearWorkload final : public Workload {
 public:
  LinearWorkload(const Fp8BlockLinear& problem, const Regime& regime, Memory& memory, Rows max_rows, int copies,
                 std::uint64_t seed)
      : problem_(problem), memory_(memory), max_rows_(max_rows), seed_(seed), extents_(extents(problem, max_rows)) {
    if (copies < 1)
      throw InvalidArgument("fp8_block_linear: a workload needs at least 1 copy, not " + std::to_string(copies));
    generate(regime);
    copies_.reserve(static_cast<std::size_t>(copies));
    for (int i = 0; i < copies; ++i) place();
  }

  const Weights& weights(int copy) const override { return at(copy).weights; }

  Arguments arguments(Rows rows, int copy) const override {
    check_rows(rows);
    const Copy& c = at(copy);
    return {c.inputs, c.outputs};
  }

  void poison(Rows rows) override {
    check_rows(rows);
    const std::size_t bytes = span_elements(rows) * 2;
    std::byte* const y = static_cast<std::byte*>(copies_.front().y.data());
    const std::size_t first = std::min<std::size_t>(bytes, 8192);
    const std::vector<std::uint16_t> pattern(first / 2, poison_pattern(problem_.dtype));
    memory_.upload(y, pattern.data(), first);
    for (std::size_t done = first; done < bytes; done *= 2) memory_.copy(y + done, y, std::min(done, bytes - done));
  }

  Check check(Rows rows, std::string_view numerics) override {
    check_rows(rows);
    const Bounds bound = bounds(numerics, problem_.dtype);
    const std::span<const Point> points = this->points(rows);
    if (is_sampled(rows) && problem_.y_row_stride == problem_.n) {
      if (const std::optional<std::size_t> bad = find_unfinished(rows)) {
        Check check = compare(points, bound, sampled_output(points));
        if (check.ok) look_in_place(rows, *bad, check);
        return check;
      }
    }
    output_.resize(span_elements(rows));
    memory_.download(output_.data(), copies_.front().y.data(), output_.size() * 2);
    std::vector<std::uint16_t> values;
    values.reserve(points.size());
    for (const Point& point : points)
      values.push_back(output_[static_cast<std::size_t>(point.row * problem_.y_row_stride + point.column)]);
    Check check = compare(points, bound, values);
    if (check.ok) look_at_all(rows, check);
    return check;
  }

  std::size_t bytes_per_copy() const noexcept override { return extents_.total(); }

 private:
  const Copy& at(int copy) const {
    if (copy < 0 || static_cast<std::size_t>(copy) >= copies_.size()) {
      throw InvalidArgument("fp8_block_linear: the workload has " + std::to_string(copies_.size()) +
                            " copies, no number " + std::to_string(copy));
    }
    return copies_[static_cast<std::size_t>(copy)];
  }
  void check_rows(Rows rows) const {
    if (rows < 1 || rows > max_rows_) {
      throw InvalidArgument("fp8_block_linear: the workload has 1 to " + std::to_string(max_rows_) + " rows, not " +
                            std::to_string(rows));
    }
  }
  std::size_t span_elements(Rows rows) const { return static_cast<std::size_t>(rows * problem_.y_row_stride + kGuard); }

  void generate(const Regime& regime) {
    const bool normal = regime.fill == "normal";
    if (!normal && regime.fill != "uniform") {
      throw InvalidArgument("fp8_block_linear has no data fill \"" + regime.fill + "\"; valid: normal, uniform");
    }
    const Fp8BlockLinear& p = problem_;
    Random random(seed_);

    // Every finite code alike; a NaN becomes the code with one exponent bit less.
    w_.resize(extents_.w);
    for (std::size_t i = 0; i < w_.size(); i += 8) {
      const std::uint64_t bits = random.next();
      for (std::size_t j = 0; j < std::min<std::size_t>(8, w_.size() - i); ++j) {
        const std::uint8_t code = static_cast<std::uint8_t>(bits >> (8 * j));
        w_[i + j] = (code & 0x7Fu) == 0x7Fu ? static_cast<std::uint8_t>(code & 0xBFu) : code;
      }
    }
    const ScaleRange range = scale_range(p);
    scales_.resize(extents_.scales / 4);
    for (float& scale : scales_)
      scale = static_cast<float>(range.low * std::pow(range.high / range.low, random.uniform()));

    if (p.bias != Element::none) {
      // As large as the sums that it is added to.
      const double size = 106 * std::sqrt(static_cast<double>(p.k) * range.low * range.high);
      bias_.resize(static_cast<std::size_t>(p.n));
      std::vector<std::uint16_t> bits(bias_.size());
      for (std::size_t i = 0; i < bias_.size(); ++i) {
        const float value =
            static_cast<float>(size * static_cast<double>(normal_quantiles()[random.next() % kQuantiles]));
        bits[i] = to_bits(p.dtype, value);
        bias_[i] = p.bias == Element::f32 ? value : static_cast<float>(to_double(p.dtype, bits[i]));
      }
      const auto* const raw = p.bias == Element::f32 ? reinterpret_cast<const std::byte*>(bias_.data())
                                                     : reinterpret_cast<const std::byte*>(bits.data());
      bias_raw_.assign(raw, raw + extents_.bias);
    }

    // Between the rows of X lie NaNs: an arm that reads there shows.
    std::vector<std::uint16_t> table(kQuantiles);
    for (std::size_t i = 0; i < kQuantiles; ++i) {
      const float value = normal ? normal_quantiles()[i] : (static_cast<float>(i) + 0.5f) * 0x1p-15f - 1.0f;
      table[i] = to_bits(p.dtype, value);
    }
    x_.resize(extents_.x / 2);
    for (Rows r = 0; r < max_rows_; ++r) {
      std::uint16_t* const row = x_.data() + r * p.x_row_stride;
      for (std::int64_t i = 0; i < p.k; i += 4) {
        std::uint64_t bits = random.next();
        for (std::int64_t j = i; j < std::min(i + 4, p.k); ++j, bits >>= 16) row[j] = table[bits & 0xFFFFu];
      }
      if (r + 1 < max_rows_) std::fill(row + p.k, row + p.x_row_stride, poison_pattern(p.dtype));
    }
  }

  void place() {
    const Fp8BlockLinear& p = problem_;
    copies_.push_back(
        Copy{.w = Block(memory_, extents_.alignment, extents_.w),
             .scales = Block(memory_, 4, extents_.scales),
             .bias = p.bias == Element::none ? Block() : Block(memory_, extents_.bias_offset, extents_.bias),
             .x = Block(memory_, extents_.alignment, extents_.x),
             .y = Block(memory_, extents_.alignment, extents_.y),
             .weights = {},
             .inputs = {},
             .outputs = {}});
    Copy& c = copies_.back();
    const Copy& first = copies_.front();
    const auto put = [&](const Block& to, const Block& from, const void* host, std::size_t bytes) {
      if (&to == &from) {
        memory_.upload(to.data(), host, bytes);
      } else {
        memory_.copy(to.data(), from.data(), bytes);
      }
    };
    put(c.w, first.w, w_.data(), extents_.w);
    put(c.scales, first.scales, scales_.data(), extents_.scales);
    put(c.x, first.x, x_.data(), extents_.x);
    if (p.bias != Element::none) put(c.bias, first.bias, bias_raw_.data(), extents_.bias);
    memory_.fill(c.y.data(), 0xFF, extents_.y);
    c.weights = fp8_block_linear_weights(c.w.data(), static_cast<const float*>(c.scales.data()), c.bias.data());
    c.inputs[0] = {c.x.data(), p.x_row_stride};
    c.outputs[0] = {c.y.data(), p.y_row_stride};
  }

  // Reference for columns of one row; `row` holds X of that row in f64.
  Reference reference(const std::vector<double>& row, std::int64_t n) const {
    static const std::array<double, 256> kValues = [] {
      std::array<double, 256> values{};
      for (unsigned code = 0; code < 256; ++code) {
        values[code] = static_cast<double>(e4m3_to_float(static_cast<std::uint8_t>(code)));
      }
      return values;
    }();
    const Fp8BlockLinear& p = problem_;
    const std::uint8_t* const w = w_.data() + n * p.k;
    double sum = 0, squares = 0;
    for (std::int64_t block = 0; block < p.k_blocks(); ++block) {
      double block_sum = 0, block_squares = 0;
      for (std::int64_t k = block * kScaleBlock; k < std::min((block + 1) * kScaleBlock, p.k); ++k) {
        const double product = row[static_cast<std::size_t>(k)] * kValues[w[k]];
        block_sum += product;
        block_squares += product * product;
      }
      const double scale =
          static_cast<double>(scales_[static_cast<std::size_t>(n / kScaleBlock * p.k_blocks() + block)]);
      sum += scale * block_sum;
      squares += scale * scale * block_squares;
    }
    if (!bias_.empty()) {
      const double bias = static_cast<double>(bias_[static_cast<std::size_t>(n)]);
      sum += bias;
      squares += bias * bias;
    }
    return {sum, std::sqrt(squares)};
  }
  std::vector<double> x_row(Rows r) const {
    std::vector<double> row(static_cast<std::size_t>(problem_.k));
    for (std::size_t k = 0; k < row.size(); ++k) {
      row[k] = to_double(problem_.dtype, x_[static_cast<std::size_t>(r * problem_.x_row_stride) + k]);
    }
    return row;
  }

  bool is_sampled(Rows rows) const {
    const double per_row = static_cast<double>(problem_.n) * static_cast<double>(std::max(problem_.k, kMinPerElement));
    return static_cast<double>(rows) * per_row > kFullMultiplyAdds;
  }

  // The elements that are compared at this row count. Computed once.
  std::span<const Point> points(Rows rows) {
    const Fp8BlockLinear& p = problem_;
    if (!is_sampled(rows)) {
      for (; full_rows_ < rows; ++full_rows_) {
        const std::vector<double> row = x_row(full_rows_);
        for (std::int64_t n = 0; n < p.n; ++n) full_.push_back({full_rows_, n, reference(row, n)});
      }
      return std::span(full_).first(static_cast<std::size_t>(rows * p.n));
    }
    auto [place, is_new] = samples_.try_emplace(rows);
    if (!is_new) return place->second;
    // Corners, the last columns of the first and the last row, 64 elements anywhere.
    constexpr std::int64_t kLastColumns = 64, kRandom = 64;
    std::vector<Point>& sample = place->second;
    for (const Rows r : {Rows{0}, rows - 1}) {
      sample.push_back({r, 0, {}});
      for (std::int64_t n = std::max<std::int64_t>(p.n - kLastColumns, 1); n < p.n; ++n) sample.push_back({r, n, {}});
    }
    Random random(seed_ ^ static_cast<std::uint64_t>(rows));
    for (int i = 0; i < kRandom; ++i) sample.push_back({random.below(rows), random.below(p.n), {}});
    std::sort(sample.begin(), sample.end(),
              [](const Point& a, const Point& b) { return a.row != b.row ? a.row < b.row : a.column < b.column; });
    std::vector<double> row;
    Rows row_of = -1;
    for (Point& point : sample) {
      if (point.row != row_of) row = x_row(row_of = point.row);
      point.reference = reference(row, point.column);
    }
    return sample;
  }

  std::string at_text(std::int64_t row, std::int64_t column) const {
    return "Y[" + std::to_string(row) + "][" + std::to_string(column) + "]";
  }

  // Never `if (difference > bound)`: a NaN must fail.
  // `values`: what was computed, point by point.
  Check compare(std::span<const Point> points, const Bounds& bound, std::span<const std::uint16_t> values) const {
    const Fp8BlockLinear& p = problem_;
    const bool bf16 = p.dtype == Element::bf16;
    const double rounding = bf16 ? 0x1p-8 : 0x1p-11;    // half a unit in the last place, relative
    const double smallest = bf16 ? 0x1p-134 : 0x1p-25;  // and near zero
    // f32 sums of K products round about √K · 2^-24 of their size; 16 covers every order of summation.
    const double summing = 16 * std::sqrt(static_cast<double>(p.k)) * 0x1p-24;
    double difference2 = 0, reference2 = 0, reference4 = 0, allowed2 = 0;
    std::string first_bad;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const Point& point = points[i];
      const std::uint16_t bits = values[i];
      const double value = to_double(p.dtype, bits), expected = point.reference.value;
      const double operands = (summing + bound.weight) * point.reference.size;
      const double allowed = operands + rounding * (std::fabs(expected) + operands) + smallest;
      const double difference = value - expected;
      if (!(std::fabs(difference) <= allowed) && first_bad.empty()) {
        first_bad = bits == poison_pattern(p.dtype)
                        ? at_text(point.row, point.column) + " was never written"
                        : at_text(point.row, point.column) + " = " + std::to_string(value) + ", expected " +
                              std::to_string(expected) + " ± " + std::to_string(allowed);
      }
      difference2 += difference * difference;
      reference2 += expected * expected;
      reference4 += expected * expected * expected * expected;
      allowed2 += operands * operands;
    }
    Check check;
    check.error = reference2 > 0 ? std::sqrt(difference2 / reference2) : std::sqrt(difference2);
    // Few elements, or few large ones, may be unlucky together: the bound is then what the typical error can come to.
    const double count = reference4 > 0 ? reference2 * reference2 / reference4 : 0;
    const double luck = bound.typical_l2 * (1 + 4 / std::sqrt(std::max(count, 1.0)));
    const double limit = luck <= bound.relative_l2 ? bound.relative_l2 * std::sqrt(reference2)
                                                   : luck * std::sqrt(reference2) + std::sqrt(allowed2) +
                                                         smallest * std::sqrt(static_cast<double>(points.size()));
    check.ok = first_bad.empty() && std::sqrt(difference2) <= limit;
    check.detail = check.ok             ? "relative L2 " + std::to_string(check.error)
                   : !first_bad.empty() ? first_bad
                                        : "relative L2 " + std::to_string(check.error) + " is above " +
                                              std::to_string(limit / std::sqrt(reference2));
    return check;
  }

  std::uint16_t infinity() const { return problem_.dtype == Element::bf16 ? 0x7F80 : 0x7C00; }
  const std::byte* element(std::int64_t index) const {
    return static_cast<const std::byte*>(copies_.front().y.data()) + 2 * index;
  }

  // What was computed at these points, which are in order: neighbours in one transfer.
  std::vector<std::uint16_t> sampled_output(std::span<const Point> points) const {
    std::vector<std::uint16_t> values(points.size());
    const auto index = [&](std::size_t i) { return points[i].row * problem_.y_row_stride + points[i].column; };
    for (std::size_t begin = 0, end = 0; begin < points.size(); begin = end) {
      for (end = begin + 1; end < points.size() && index(end) == index(end - 1) + 1;) ++end;
      memory_.download(&values[begin], element(index(begin)), 2 * (end - begin));
    }
    return values;
  }

  // Of outputs without gaps: the index of the first element that is not finite, or their number. Nothing: the memory
  // cannot be looked at where it is.
  std::optional<std::size_t> find_unfinished(Rows rows) const {
    return memory_.find16(element(0), static_cast<std::size_t>(rows * problem_.n), 0x7FFF, infinity());
  }

  // As look_at_all(), for outputs without gaps that were looked at where they are.
  void look_in_place(Rows rows, std::size_t bad, Check& check) const {
    const std::uint16_t pattern = poison_pattern(problem_.dtype);
    const auto elements = static_cast<std::size_t>(rows * problem_.n);
    if (bad < elements) {
      std::uint16_t value = 0;
      memory_.download(&value, element(static_cast<std::int64_t>(bad)), 2);
      const auto row = static_cast<std::int64_t>(bad) / problem_.n,
                 column = static_cast<std::int64_t>(bad) % problem_.n;
      check.ok = false;
      check.detail = at_text(row, column) + (value == pattern ? " was never written" : " is not finite");
      return;
    }
    std::array<std::uint16_t, kGuard> guard{};
    memory_.download(guard.data(), element(static_cast<std::int64_t>(elements)), 2 * guard.size());
    const auto touched = std::find_if(guard.begin(), guard.end(), [&](std::uint16_t v) { return v != pattern; });
    if (touched != guard.end()) outside_written(rows - 1, touched - guard.begin(), check);
  }

  static void outside_written(Rows row, std::int64_t elements, Check& check) {
    check.ok = false;
    check.detail = "memory outside Y was written, " + std::to_string(elements) + " elements after the end of row " +
                   std::to_string(row);
  }

  // All references are finite, so every element must be; what lies between the rows must be untouched.
  void look_at_all(Rows rows, Check& check) const {
    const Fp8BlockLinear& p = problem_;
    const std::uint16_t pattern = poison_pattern(p.dtype);
    const std::uint16_t infinity = this->infinity();
    for (Rows r = 0; r < rows; ++r) {
      const std::uint16_t* const row = output_.data() + r * p.y_row_stride;
      bool bad = false;
      for (std::int64_t n = 0; n < p.n; ++n) bad |= (row[n] & 0x7FFF) >= infinity;
      if (bad) {
        const std::int64_t n =
            std::find_if(row, row + p.n, [&](std::uint16_t v) { return (v & 0x7FFF) >= infinity; }) - row;
        check.ok = false;
        check.detail = at_text(r, n) + (row[n] == pattern ? " was never written" : " is not finite");
        return;
      }
      const std::uint16_t* const gap_end = row + p.y_row_stride + (r + 1 == rows ? kGuard : 0);
      const std::uint16_t* const touched =
          std::find_if(row + p.n, gap_end, [&](std::uint16_t v) { return v != pattern; });
      if (touched != gap_end) {
        outside_written(r, touched - (row + p.n), check);
        return;
      }
    }
  }

  const Fp8BlockLinear problem_;
  Memory& memory_;
  const Rows max_rows_;
  const std::uint64_t seed_;
  const Extents extents_;
  // The data on the host: W, S, the bias as it is added and as it is stored, X with its gaps.
  std::vector<std::uint8_t> w_;
  std::vector<float> scales_, bias_;
  std::vector<std::byte> bias_raw_;
  std::vector<std::uint16_t> x_;
  std::vector<Copy> copies_;
  std::vector<std::uint16_t> output_;
  // References: of whole rows from the first on, and of samples by row count.
  std::vector<Point> full_;
  Rows full_rows_ = 0;
  std::map<Rows, std::vector<Point>> samples_;
};

}  // namespace

std::size_t workload_bytes(const Fp8BlockLinear& problem, Rows max_rows) { return extents(problem, max_rows).total(); }

std::unique_ptr<Workload> make_workload(const Fp8BlockLinear& problem, const Regime& regime, Memory& memory,
                                        Rows max_rows, int copies, std::uint64_t seed) {
  const Extents e = extents(problem, max_rows);
  const auto short_of = [&](const char* where, double needed, double available) {
    return OutOfMemory("fp8_block_linear: test data of " + std::to_string(max_rows) + " rows in " +
                       std::to_string(copies) + " copies need " + std::to_string(std::llround(needed / 0x1p20)) +
                       " MiB of " + where + " memory, " + std::to_string(std::llround(available / 0x1p20)) +
                       " MiB are free");
  };
  // Asked first: a system that overcommits kills the process that touches what it was given.
  const double on_device = static_cast<double>(e.total()) * copies,
               on_host = static_cast<double>(e.w + e.x + e.y + e.scales);
  if (const double free = static_cast<double>(memory.available_bytes()); on_device > free)
    throw short_of("device", on_device, free);
  if (const double free = host_available_bytes(); on_host > free) throw short_of("host", on_host, free);
  try {
    return std::make_unique<LinearWorkload>(problem, regime, memory, max_rows, copies, seed);
  } catch (const std::bad_alloc&) {
    throw short_of("host", on_host, 0);
  }
}

}  // namespace crossover::fp8_block_linear_detail
