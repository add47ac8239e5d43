// SPDX-License-Identifier: Apache-2.0
/// Matrix products by cuBLASLt, and by its twin on the GPU in software.
///
///   c[i, j] (+)= sum over p of op(a)[i, p] op(b)[p, j], plus bias[j]      rows of c, a and b follow one another
///
/// cuBLASLt's matrices have columns that follow one another: c is its [n, m] matrix, b its first operand and a its
/// second. Sums are in f32. Descriptors and the algorithm are looked up once for each shape, layout and alignment.
///
/// A large product is measured when it first runs (kernels/measured.cuh): of the algorithms that cuBLASLt names, the
/// fastest of those with the bits of the first is taken from then on.
///
/// Bytes     of a, b and c once at best
/// Memory    the workspace that it is given; what cuBLASLt takes itself; a ProductProbe while it measures
#pragma once

#include <compare>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <dspp/ops/kernels.hpp>
#include <kernels/element.cuh>
#include <kernels/event_timer.cuh>
#include <kernels/measured.cuh>
#include <kernels/product_probe.cuh>

#if DSPP_HAS_NVCC()
#include <cublasLt.h>
#else
#include <software_gpu/blas.hpp>
#endif

namespace dspp::gpu {

/// What a product is to cuBLASLt: result[rows, columns] = op(first) op(second), columns after one another.
struct BlasProduct {
  Size rows = 0, columns = 0, depth = 0;
  bool transposes_first = false, transposes_second = false;
  Size ld_first = 0, ld_second = 0, ld_result = 0;  ///< elements from one column to the next
  Size batch = 1, stride_first = 0, stride_second = 0, stride_result = 0;
  ElementType operands = ElementType::f32, result = ElementType::f32;
  bool accumulates = false, has_bias = false;  ///< a bias is added to every column
  bool has_gelu = false;                       ///< beside a bias, in 16 bits: see BlasOperands
  bool has_gelu_vjp = false;                   ///< with neither a bias nor a sum, in 16 bits
  int alignment = 16;                          ///< bytes that every operand's address is a multiple of
  Size workspace_bytes = 0;

  bool has_before() const { return has_gelu || has_gelu_vjp; }
  auto operator<=>(const BlasProduct&) const = default;
};

/// Addresses. With has_gelu the result is gelu(x), by tanh, and x is written to `before`, as the result lies. With
/// has_gelu_vjp the result is the product times gelu's derivative at `before`.
struct BlasOperands {
  const void *first = nullptr, *second = nullptr, *bias = nullptr;
  void *result = nullptr, *before = nullptr, *workspace = nullptr;
};

/// A product of dspp's as one of cuBLASLt's: b is the first operand.
constexpr BlasProduct blas_product(const kernels::Product& p, Size batch, ElementType operands, ElementType result) {
  return {.rows = p.n,
          .columns = p.m,
          .depth = p.k,
          .transposes_first = p.tb == Transpose::yes,
          .transposes_second = p.ta == Transpose::yes,
          .ld_first = p.ldb,
          .ld_second = p.lda,
          .ld_result = p.ldc,
          .batch = batch,
          .stride_first = (p.tb == Transpose::yes ? p.n : p.k) * p.ldb,
          .stride_second = (p.ta == Transpose::yes ? p.k : p.m) * p.lda,
          .stride_result = p.m * p.ldc,
          .operands = operands,
          .result = result};
}

/// Products below it are not measured. An H100 computes it in 6 us, in bf16: of less there is nothing to be had that a
/// launch does not cost.
inline constexpr double least_measured_flops = 0x1p32;

constexpr bool is_worth_measuring(const BlasProduct& p) {
  return 2.0 * static_cast<double>(p.batch) * static_cast<double>(p.rows) * static_cast<double>(p.columns) *
             static_cast<double>(p.depth) >=
         least_measured_flops;
}

#if DSPP_HAS_NVCC()

inline void check_blas(const Work& work, cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(ErrorCode::state, "dspp: " + name_of(work) + " needs cuBLASLt to compute it, but it says '" +
                             cublasLtGetStatusString(status) +
                             "'. If it is the first failure, look at these extents; else at what ran before, which "
                             "DSPP_CUDA_SYNCHRONOUS=1 names.");
}

/// cuBLASLt's handle, and what is known of each product.
class Blas {
 public:
  /// wait: waits for the stream, before the host waits for what it measures; where a stream may wait for other ranks,
  /// it sees them fail. None: CUDA's wait.
  explicit Blas(std::function<void()> wait = {}, MeasuredProducts measured = measured_products())
      : wait_(std::move(wait)), measured_(measured) {
    check_blas({"open cuBLASLt"}, cublasLtCreate(&handle_));
  }
  ~Blas() {
    known_.clear();
    cublasLtDestroy(handle_);
  }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  /// False if cuBLASLt has no algorithm for a product with gelu or its derivative.
  bool multiply(const Work& work, cudaStream_t stream, const BlasProduct& p, const BlasOperands& at) {
    const auto found = known_.try_emplace(p).first;
    if (!found->second)
      found->second =
          std::make_unique<Known>(work, handle_, p, measured_ != MeasuredProducts::no && is_worth_measuring(p));
    Known& known = *found->second;
    if (!known.is_supported) return false;
    if (!known.candidates.empty() && !is_capturing(work, stream)) measure(work, stream, known, p, at);
    note_launch(work.operation, p, at);
    check_blas(work, issue(work, stream, known, known.algorithm, p, at));
    check_issued(work, stream, cudaSuccess);
    return true;
  }

 private:
  struct Known;
  struct Candidate {  // nvcc 13.0 stops at a vector of the unnamed struct that is cublasLtMatmulAlgo_t
    cublasLtMatmulAlgo_t algorithm{};
  };

  cublasStatus_t issue(const Work& work, cudaStream_t stream, Known& known, const cublasLtMatmulAlgo_t& algorithm,
                       const BlasProduct& p, const BlasOperands& at) {
    if (p.has_bias) known.set(work, CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.bias);
    if (p.has_before()) known.set(work, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, at.before);
    const float one = 1, beta = p.accumulates ? 1 : 0;
    return cublasLtMatmul(handle_, known.product, &one, at.first, known.first, at.second, known.second, &beta,
                          at.result, known.result, at.result, known.result, &algorithm, at.workspace,
                          static_cast<std::size_t>(p.workspace_bytes), stream);
  }

  static bool is_capturing(const Work& work, cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(work, cudaStreamIsCapturing(stream, &status));
    return status != cudaStreamCaptureStatusNone;
  }

  /// Sets known.algorithm to the fastest of the candidates, by operands of its own in the workspace of the real ones.
  void measure(const Work& work, cudaStream_t stream, Known& known, const BlasProduct& p, const BlasOperands& at) {
    if (wait_)
      wait_();
    else
      check(work, cudaStreamSynchronize(stream));
    const auto candidates = std::exchange(known.candidates, {});
    ProductProbe probe(work, stream, p, at);
    if (!probe && measured_ == MeasuredProducts::print) print(p, "no memory to measure it");
    if (!probe) return;
    const auto runs = [&](int i) {
      const auto& algorithm = candidates[static_cast<std::size_t>(i)].algorithm;
      if (issue(work, stream, known, algorithm, p, probe.operands()) == CUBLAS_STATUS_SUCCESS) return true;
      cudaGetLastError();  // else a later call would give it again
      return false;
    };
    EventTimer timer(work);
    const auto found = measure_algorithms(
        static_cast<int>(candidates.size()), [&](int i) { return probe.bits_of([&] { return runs(i); }); },
        [&](int i) { return timer.time_of(stream, [&] { return runs(i); }); }, measured_);
    const int taken = fastest_of(found);
    known.algorithm = candidates[static_cast<std::size_t>(taken)].algorithm;
    if (measured_ == MeasuredProducts::print) print(p, text_of(found, taken));
  }
  /// "dspp: product 2304 x 32768 x 768, bf16 to bf16, bias: 172.3 us, 165.0 us (taken), other bits"
  static void print(const BlasProduct& p, const std::string& found) {
    const auto extents = std::to_string(p.rows) + " x " + std::to_string(p.columns) + " x " + std::to_string(p.depth) +
                         (p.batch > 1 ? ", batch of " + std::to_string(p.batch) : "") +
                         (p.transposes_first ? ", first transposed" : "") +
                         (p.transposes_second ? ", second transposed" : "");
    std::fprintf(stderr, "dspp: product %s, %s to %s%s%s%s: %s\n", extents.c_str(), name_of(p.operands),
                 name_of(p.result), p.accumulates ? ", accumulates" : "", p.has_bias ? ", bias" : "",
                 p.has_gelu       ? ", gelu"
                 : p.has_gelu_vjp ? ", gelu's derivative"
                                  : "",
                 found.c_str());
  }

  struct Known {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
    std::vector<Candidate> candidates;  ///< to be measured: `algorithm`, and others if there are
    bool is_supported = false;

    Known(const Work& work, cublasLtHandle_t handle, const BlasProduct& p, bool has_candidates) {
      try {
        describe(work, p);
        choose(work, handle, p, has_candidates);
      } catch (...) {
        release();
        throw;
      }
    }
    ~Known() { release(); }
    Known(const Known&) = delete;
    Known& operator=(const Known&) = delete;

    template <class V>
    void set(const Work& work, cublasLtMatmulDescAttributes_t name, const V& value) {
      check_blas(work, cublasLtMatmulDescSetAttribute(product, name, &value, sizeof value));
    }

   private:
    void describe(const Work& work, const BlasProduct& p) {
      check_blas(work, cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
      set(work, CUBLASLT_MATMUL_DESC_TRANSA, p.transposes_first ? CUBLAS_OP_T : CUBLAS_OP_N);
      set(work, CUBLASLT_MATMUL_DESC_TRANSB, p.transposes_second ? CUBLAS_OP_T : CUBLAS_OP_N);
      if (p.has_before()) {
        set(work, CUBLASLT_MATMUL_DESC_EPILOGUE,
            p.has_gelu ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_DGELU);
        set(work, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{p.ld_result});
      } else if (p.has_bias) {
        set(work, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      }
      layout(work, first, p.operands, p.transposes_first ? p.depth : p.rows, p.transposes_first ? p.rows : p.depth,
             p.ld_first, p.batch, p.stride_first);
      layout(work, second, p.operands, p.transposes_second ? p.columns : p.depth,
             p.transposes_second ? p.depth : p.columns, p.ld_second, p.batch, p.stride_second);
      layout(work, result, p.result, p.rows, p.columns, p.ld_result, p.batch, p.stride_result);
    }
    static void layout(const Work& work, cublasLtMatrixLayout_t& to, ElementType type, Size rows, Size columns, Size ld,
                       Size batch, Size stride) {
      const auto element = type == ElementType::bf16 ? CUDA_R_16BF : type == ElementType::f16 ? CUDA_R_16F : CUDA_R_32F;
      check_blas(work, cublasLtMatrixLayoutCreate(&to, element, static_cast<std::uint64_t>(rows),
                                                  static_cast<std::uint64_t>(columns), ld));
      if (batch == 1) return;
      const auto count = static_cast<std::int32_t>(batch);
      const std::int64_t offset = stride;
      check_blas(work, cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
      check_blas(work, cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset,
                                                        sizeof offset));
    }
    void choose(const Work& work, cublasLtHandle_t handle, const BlasProduct& p, bool has_candidates) {
      cublasLtMatmulPreference_t preference = nullptr;
      check_blas(work, cublasLtMatmulPreferenceCreate(&preference));
      const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                            cublasStatus_t (*)(cublasLtMatmulPreference_t)>
          owned(preference, &cublasLtMatmulPreferenceDestroy);
      const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
        check_blas(work, cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof value));
      };
      const auto alignment = static_cast<std::uint32_t>(p.alignment);
      const std::uint32_t in_f32 = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;  // partial sums are not rounded to bf16
      set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, in_f32);
      set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(p.workspace_bytes));
      set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
      set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
      set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
      set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
      cublasLtMatmulHeuristicResult_t found{};
      int count = 0;
      const cublasStatus_t status =
          cublasLtMatmulAlgoGetHeuristic(handle, product, first, second, result, result, preference, 1, &found, &count);
      is_supported = status == CUBLAS_STATUS_SUCCESS && count > 0;
      const bool is_refusal = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_SUCCESS;
      if (!is_supported && !(p.has_before() && is_refusal))
        check_blas(work, is_refusal ? CUBLAS_STATUS_NOT_SUPPORTED : status);
      algorithm = found.algo;
      if (is_supported && has_candidates) list_candidates(handle, preference);
    }
    /// The first stays the one that cuBLASLt names when it is asked for one, whatever it names first of several.
    void list_candidates(cublasLtHandle_t handle, cublasLtMatmulPreference_t preference) {
      constexpr int most = 8;
      cublasLtMatmulHeuristicResult_t found[most]{};
      int count = 0;
      if (cublasLtMatmulAlgoGetHeuristic(handle, product, first, second, result, result, preference, most, found,
                                         &count) != CUBLAS_STATUS_SUCCESS)
        return;
      candidates.push_back({algorithm});
      for (int i = 0; i < count; ++i)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && std::memcmp(&found[i].algo, &algorithm, sizeof algorithm) != 0)
          candidates.push_back({found[i].algo});
      if (candidates.size() == 1) candidates.clear();
    }
    void release() noexcept {
      if (result != nullptr) cublasLtMatrixLayoutDestroy(result);
      if (second != nullptr) cublasLtMatrixLayoutDestroy(second);
      if (first != nullptr) cublasLtMatrixLayoutDestroy(first);
      if (product != nullptr) cublasLtMatmulDescDestroy(product);
    }
  };

  cublasLtHandle_t handle_ = nullptr;
  std::function<void()> wait_;
  MeasuredProducts measured_ = MeasuredProducts::yes;
  std::map<BlasProduct, std::unique_ptr<Known>> known_;
};

#else

/// The twin: it checks what cuBLASLt demands, and multiplies in the order of the stream. It has one algorithm.
class Blas {
 public:
  explicit Blas(const std::function<void()>& = {}, MeasuredProducts = MeasuredProducts::no) {}

  bool multiply(const Work& work, cudaStream_t stream, const BlasProduct& p, const BlasOperands& at) {
    note_launch(work.operation, p, at);
    check_issued(work, stream, software_gpu::blas_multiply(stream, p, at));
    return true;
  }
};

#endif

namespace detail {
/// The largest power of two of at most 16 bytes that all addresses are multiples of.
template <class... X>
int alignment_of(int smallest, const X*... addresses) {
  int bytes = 16;
  const auto fits = [&](const void* x) {
    return reinterpret_cast<std::uintptr_t>(x) % static_cast<unsigned>(bytes) == 0;
  };
  while (bytes > smallest && !(fits(addresses) && ...)) bytes /= 2;
  return bytes;
}
}  // namespace detail

/// `batch` products, operands one after another. Without elements it does nothing; without a sum, c is 0 plus the bias.
template <class T, class R>
void blas_matmul(Blas& blas, cudaStream_t stream, Size batch, const kernels::Product& p, const T* a, const T* b, R* c,
                 Write write, const R* bias, kernels::Workspace workspace = {}) {
  if (batch * p.m * p.n == 0) return;
  BlasProduct of = blas_product(p, batch, element_type<T>, element_type<R>);
  of.accumulates = write == Write::accumulate;
  of.has_bias = bias != nullptr;
  of.workspace_bytes = workspace.bytes;
  of.alignment = detail::alignment_of(static_cast<int>(sizeof(T)), a, b, c, bias);
  BlasOperands at;
  at.first = b, at.second = a, at.bias = bias, at.result = c, at.workspace = workspace.data;
  blas.multiply(Work{"matmul", batch * p.m, p.n}, stream, of, at);
}

/// before = op(a) op(b) + bias, c = gelu(before) by tanh, in one pass. False if cuBLASLt does not: where rows are no
/// multiple of 16 bytes, or addresses are not.
template <class T>
bool blas_matmul_gelu(Blas& blas, cudaStream_t stream, const kernels::Product& p, const T* a, const T* b, T* before,
                      T* c, const T* bias, kernels::Workspace workspace) {
  static_assert(sizeof(T) == 2);
  if (p.m * p.n == 0 || p.ldc % 8 != 0 || detail::alignment_of(1, a, b, before, c, bias) < 16) return false;
  BlasProduct of = blas_product(p, 1, element_type<T>, element_type<T>);
  of.has_bias = of.has_gelu = true;
  of.workspace_bytes = workspace.bytes;
  BlasOperands at;
  at.first = b, at.second = a, at.bias = bias, at.result = c, at.before = before, at.workspace = workspace.data;
  return blas.multiply(Work{"matmul_bias_gelu", p.m, p.n}, stream, of, at);
}

/// c = (op(a) op(b)) gelu'(before), by tanh, in one pass; cuBLASLt's result is as near to the exact one as if the
/// product were rounded before. False as blas_matmul_gelu.
template <class T>
bool blas_matmul_gelu_vjp(Blas& blas, cudaStream_t stream, const kernels::Product& p, const T* a, const T* b,
                          const T* before, T* c, kernels::Workspace workspace) {
  static_assert(sizeof(T) == 2);
  if (p.m * p.n == 0 || p.ldc % 8 != 0 || detail::alignment_of(1, a, b, before, c) < 16) return false;
  BlasProduct of = blas_product(p, 1, element_type<T>, element_type<T>);
  of.has_gelu_vjp = true;
  of.workspace_bytes = workspace.bytes;
  BlasOperands at;
  at.first = b, at.second = a, at.result = c, at.before = const_cast<T*>(before), at.workspace = workspace.data;
  return blas.multiply(Work{"matmul_gelu_vjp", p.m, p.n}, stream, of, at);
}

}  // namespace dspp::gpu
