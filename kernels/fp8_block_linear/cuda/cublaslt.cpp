#include "cublaslt.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>

#include "crossover/kernels/formats.hpp"

namespace crossover::fp8_block_linear_detail {
namespace {

using Handle = cuda::Owned<cublasLtHandle_t, &cublasLtDestroy>;

void check(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string text =
      std::string(doing) + " failed: " + cublasLtGetStatusString(status) + " (" + cublasLtGetStatusName(status) + ")";
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw OutOfMemory(text);
  throw DeviceError(text);
}

// Descriptions of one product; plain memory, nothing to destroy.
struct Description {
  cublasLtMatmulDescOpaque_t product{};
  cublasLtMatrixLayoutOpaque_t w{}, x{}, y{};

  // cuBLASLt's matrices are column-major: W is K x N and transposed, X is K x M, Y is N x M.
  cublasStatus_t fill(const LtProblem& p, std::int64_t rows, const LtOperands& operands) noexcept {
    const cudaDataType type = p.bf16 ? CUDA_R_16BF : CUDA_R_16F, input = p.fp8 ? CUDA_R_8F_E4M3 : type;
    const auto n = static_cast<std::uint64_t>(p.n), k = static_cast<std::uint64_t>(p.k),
               m = static_cast<std::uint64_t>(rows);
    cublasStatus_t status = cublasLtMatmulDescInit(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      if (status == CUBLAS_STATUS_SUCCESS) {
        status = cublasLtMatmulDescSetAttribute(&product, attribute, &value, sizeof(value));
      }
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    if (p.fp8) {
#if CUBLAS_VERSION >= 120900
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.w_scales);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.x_scales);
#else
      status = CUBLAS_STATUS_NOT_SUPPORTED;
#endif
    }
    if (p.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
    }
    const auto layout = [&](cublasLtMatrixLayoutOpaque_t& to, cudaDataType of, std::uint64_t height,
                            std::uint64_t width, std::int64_t stride) {
      if (status == CUBLAS_STATUS_SUCCESS) status = cublasLtMatrixLayoutInit(&to, of, height, width, stride);
    };
    layout(w, input, k, n, p.w_stride);
    layout(x, input, k, m, p.x_stride);
    layout(y, type, n, m, p.y_stride);
    return status;
  }
};

// Any pointers: the heuristic and the check look at whether there are some, not at what they point to.
LtOperands stand_ins() {
  static std::uint64_t something[32];
  LtOperands operands;
  operands.w = operands.x = operands.bias = something;
  operands.y = something;
  operands.w_scales = operands.x_scales = reinterpret_cast<const float*>(something);
  return operands;
}

Status lt_status(cublasStatus_t status) noexcept {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  const Status::Code code = status == CUBLAS_STATUS_NOT_SUPPORTED   ? Status::Code::unsupported
                            : status == CUBLAS_STATUS_INVALID_VALUE ? Status::Code::invalid
                            : status == CUBLAS_STATUS_ALLOC_FAILED  ? Status::Code::out_of_memory
                                                                    : Status::Code::device_failed;
  return {code, static_cast<std::int32_t>(status), cublasLtGetStatusString(status)};
}

double median(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return static_cast<double>(values[values.size() / 2]);
}

}  // namespace

cublasLtHandle_t lt_handle() {
  static std::mutex mutex;
  static std::map<int, Handle> handles;
  int device = 0;
  cuda::check(cudaGetDevice(&device), "asking for the current device");
  const std::lock_guard lock(mutex);
  Handle& handle = handles[device];
  if (handle.get() == nullptr) {
    cublasLtHandle_t made = nullptr;
    check(cublasLtCreate(&made), "making a cuBLASLt handle");
    handle = Handle(made);
  }
  return handle.get();
}

Status lt_multiply(cublasLtHandle_t handle, const LtProblem& problem, std::int64_t rows, const LtOperands& operands,
                   const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) noexcept {
  Description d;
  if (const cublasStatus_t status = d.fill(problem, rows, operands); status != CUBLAS_STATUS_SUCCESS) {
    return lt_status(status);
  }
  const float one = 1, zero = 0;
  return lt_status(cublasLtMatmul(handle, &d.product, &one, operands.w, &d.w, operands.x, &d.x, &zero, operands.y, &d.y,
                                  operands.y, &d.y, &algorithm, operands.workspace, kLtWorkspaceBytes, stream));
}

std::vector<cublasLtMatmulAlgo_t> lt_candidates(cublasLtHandle_t handle, const LtProblem& problem, std::int64_t rows,
                                                int most) {
  Description d;
  const cublasStatus_t filled = d.fill(problem, rows, stand_ins());
  if (filled == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check(filled, "describing a product to cuBLASLt");
  cublasLtMatmulPreferenceOpaque_t preference{};
  check(cublasLtMatmulPreferenceInit(&preference), "making cuBLASLt preferences");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
          "setting cuBLASLt preferences");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kLtWorkspaceBytes));
  // Parts of a split K are added in f32, never in the type of Y.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem.w_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem.x_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, problem.y_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem.y_alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, &d.product, &d.w, &d.x, &d.y, &d.y, &preference,
                                                               most, results.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  check(status, "asking cuBLASLt for algorithms");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  return algorithms;
}

bool lt_accepts(cublasLtHandle_t handle, const LtProblem& problem, std::int64_t rows,
                const cublasLtMatmulAlgo_t& algorithm) {
  Description d;
  if (d.fill(problem, rows, stand_ins()) != CUBLAS_STATUS_SUCCESS) return false;
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle, &d.product, &d.w, &d.x, &d.y, &d.y, &algorithm, &result) ==
             CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= kLtWorkspaceBytes;
}

const LtChoice& lt_choice(const LtPlan& plan, Rows rows) noexcept {
  for (const LtChoice& choice : plan) {
    if (rows <= choice.up_to) return choice;
  }
  return plan.back();
}

std::string to_text(const LtPlan& plan) {
  std::string text = "lt=" + std::to_string(cublasLtGetVersion());
  for (const LtChoice& choice : plan) {
    text += " " + std::to_string(choice.up_to) + ":" + std::to_string(choice.tile_n);
    for (const std::uint64_t word : choice.algorithm.data) {
      std::array<char, 17> digits{};
      const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), word, 16).ptr;
      text += ":" + std::string(digits.data(), end);
    }
  }
  return text;
}

LtPlan lt_plan_from(std::string_view text, std::string_view arm, cublasLtHandle_t handle, const LtProblem& problem) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigNotRestorable(std::string(arm) + " cannot restore its configuration: " + why);
  };
  const std::string version = "lt=" + std::to_string(cublasLtGetVersion());
  const std::size_t first_space = text.find(' ');
  if (text.substr(0, first_space) != version) {
    refuse("it is of \"" + std::string(text.substr(0, std::min<std::size_t>(first_space, 32))) + "\", not of " +
           version);
  }
  LtPlan plan;
  std::size_t position = first_space;
  while (position != std::string_view::npos) {
    const std::size_t begin = position + 1;
    position = text.find(' ', begin);
    const std::string_view item = text.substr(begin, position == std::string_view::npos ? position : position - begin);
    LtChoice choice;
    const char* at = item.data();
    const char* const end = item.data() + item.size();
    bool good = true;
    const auto number = [&](auto& value, int base) {
      const auto result = std::from_chars(at, end, value, base);
      good = good && result.ec == std::errc{};
      at = result.ptr;
    };
    const auto colon = [&] { good = good && at != end && *at++ == ':'; };
    number(choice.up_to, 10);
    colon();
    number(choice.tile_n, 10);
    for (std::uint64_t& word : choice.algorithm.data) {
      colon();
      number(word, 16);
    }
    const Rows before = plan.empty() ? 0 : plan.back().up_to;
    if (!good || at != end || choice.up_to <= before || choice.tile_n < 1 || choice.tile_n > problem.n) {
      refuse("\"" + std::string(item) + "\" is malformed");
    }
    LtProblem tile = problem;
    tile.n = choice.tile_n;
    if (!lt_accepts(handle, tile, choice.up_to, choice.algorithm)) refuse("cuBLASLt refuses the algorithm now");
    plan.push_back(choice);
  }
  if (plan.empty()) refuse("it names no algorithm");
  return plan;
}

std::vector<Rows> lt_ladder(Rows max_rows) {
  std::vector<Rows> ladder{16};
  while (ladder.back() < max_rows && ladder.back() < (Rows{1} << 40)) ladder.push_back(ladder.back() * 2);
  return ladder;
}

LtPlan lt_find(cublasLtHandle_t handle, const LtProblem& problem, Rows max_rows, const std::vector<std::int64_t>& tiles,
               const LtLaunch& launch) {
  constexpr int kCandidates = 8;          // of the heuristic, for one tile
  constexpr double kClearlySlower = 1.2;  // than the best of the first launches: not timed again
  constexpr int kRepeats = 5, kLongRepeats = 2;
  constexpr float kLongMs = 0.5f;  // from here a launch repeats itself well, and the tuning's budget pays for each
  constexpr std::size_t kFlushBytes = std::size_t{128} << 20;  // more than any L2 holds
  const cuda::OwnedStream stream = cuda::make_stream();
  const cuda::OwnedEvent begin = cuda::make_event(), end = cuda::make_event();
  const cuda::Buffer flush(kFlushBytes);
  const auto time = [&](const LtChoice& choice, Rows rows, float& milliseconds) {
    cuda::check(cudaMemsetAsync(flush.data(), 0x5A, kFlushBytes, stream.get()), "flushing L2");
    cuda::check(cudaEventRecord(begin.get(), stream.get()), "recording an event");
    const Status status = launch(choice, rows, stream.get());
    cuda::check(cudaEventRecord(end.get(), stream.get()), "recording an event");
    cuda::check(cudaStreamSynchronize(stream.get()), "timing a cuBLASLt algorithm");
    cuda::check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "reading the time between two events");
    return status.ok();
  };

  LtPlan plan;
  const auto whole = [&](Rows rows) {
    return (rows + problem.row_multiple - 1) / problem.row_multiple * problem.row_multiple;
  };
  for (const Rows rung : lt_ladder(max_rows)) {
    const Rows rows = std::min(rung, max_rows);
    struct Candidate {
      LtChoice choice;
      std::vector<float> times;
    };
    std::vector<Candidate> candidates;
    for (const std::int64_t tile : tiles) {
      LtProblem part = problem;
      part.n = tile;
      const std::int64_t rest = problem.n % tile;
      for (const cublasLtMatmulAlgo_t& algorithm : lt_candidates(handle, part, whole(rows), kCandidates)) {
        LtProblem last = problem;
        last.n = rest;
        // It has to do every row count of the rung, and the last tile.
        const bool usable = lt_accepts(handle, part, rung, algorithm) &&
                            lt_accepts(handle, part, whole(1), algorithm) &&
                            lt_accepts(handle, part, whole(rung / 2 + 1), algorithm) &&
                            (rest == 0 || lt_accepts(handle, last, rung, algorithm));
        if (usable) candidates.push_back({{rung, tile, algorithm}, {}});
      }
    }
    float best = 0;
    std::vector<Candidate> alive;
    for (Candidate& candidate : candidates) {
      float first = 0, second = 0;
      if (!time(candidate.choice, rows, first) || !time(candidate.choice, rows, second)) continue;
      candidate.times = {second};
      best = best == 0 ? second : std::min(best, second);
      alive.push_back(std::move(candidate));
    }
    std::erase_if(alive, [&](const Candidate& candidate) {
      return candidate.times.front() > static_cast<float>(kClearlySlower) * best;
    });
    for (int i = 0; i < (best < kLongMs ? kRepeats : kLongRepeats); ++i) {
      for (Candidate& candidate : alive) {
        float again = 0;
        if (time(candidate.choice, rows, again)) candidate.times.push_back(again);
      }
    }
    const auto fastest = std::min_element(alive.begin(), alive.end(), [](const Candidate& a, const Candidate& b) {
      return median(a.times) < median(b.times);
    });
    if (fastest == alive.end()) return {};
    plan.push_back(fastest->choice);
  }
  return plan;
}

cuda::Buffer lt_activations(std::size_t elements, bool bf16) {
  constexpr std::size_t kPattern = std::size_t{1} << 16;
  std::vector<std::uint16_t> pattern(kPattern);
  std::uint64_t state = 0x9E3779B97F4A7C15u;
  for (std::uint16_t& value : pattern) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const float number = static_cast<float>(static_cast<std::int32_t>(state >> 32)) * 0x1p-31f;
    value = bf16 ? float_to_bf16(number) : float_to_f16(number);
  }
  cuda::Buffer buffer(elements * 2);
  auto* const to = buffer.as<std::uint16_t>();
  for (std::size_t done = 0; done < elements; done += kPattern) {
    cuda::check(cudaMemcpy(to + done, pattern.data(), std::min(kPattern, elements - done) * 2, cudaMemcpyHostToDevice),
                "filling device memory");
  }
  cuda::check(cudaStreamSynchronize(cudaStreamLegacy), "filling device memory");
  return buffer;
}

}  // namespace crossover::fp8_block_linear_detail
