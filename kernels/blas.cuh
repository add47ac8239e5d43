// SPDX-License-Identifier: Apache-2.0
/// Matrix products by cuBLASLt, and by its twin on the GPU in software.
///
///   c[i, j] (+)= sum over p of op(a)[i, p] op(b)[p, j], plus bias[j]      rows of c, a and b follow one another
///
/// cuBLASLt's matrices have columns that follow one another: c is its [n, m] matrix, b its first operand and a its
/// second. Sums are in f32. Descriptors and the algorithm are looked up once for each shape, layout and alignment.
///
/// Bytes     of a, b and c once at best; workspace_bytes of the device
#pragma once

#include <compare>
#include <map>
#include <memory>

#include <dspp/ops/kernels.hpp>
#include <kernels/element.cuh>

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
  int alignment = 16;                          ///< bytes that every operand's address is a multiple of

  auto operator<=>(const BlasProduct&) const = default;
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

#if DSPP_HAS_NVCC()

inline void check_blas(const Work& work, cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(ErrorCode::state, std::string("dspp: ") + work.operation + " [rows " + std::to_string(work.rows) + ", columns " +
                             std::to_string(work.columns) + "] needs cuBLASLt to compute it, but it says '" +
                             cublasLtGetStatusString(status) +
                             "'. If it is the first failure, look at these extents; else at what ran before.");
}

/// cuBLASLt's handle, its workspace, and what is known of each product.
class Blas {
 public:
  static constexpr std::size_t workspace_bytes = 32 * 1024 * 1024;

  Blas() {
    check_blas({"open cuBLASLt"}, cublasLtCreate(&handle_));
    const cudaError_t status = cudaMalloc(&workspace_, workspace_bytes);
    if (status != cudaSuccess) cublasLtDestroy(handle_);
    check({"open cuBLASLt"}, status);
  }
  ~Blas() {
    cudaFree(workspace_);
    known_.clear();
    cublasLtDestroy(handle_);
  }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  void multiply(const Work& work, cudaStream_t stream, const BlasProduct& p, const void* first, const void* second,
                const void* bias, void* result) {
    const auto found = known_.try_emplace(p).first;
    if (!found->second) found->second = std::make_unique<Known>(work, handle_, p);
    Known& known = *found->second;
    if (p.has_bias)
      check_blas(work,
                 cublasLtMatmulDescSetAttribute(known.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    const float one = 1, beta = p.accumulates ? 1 : 0;
    check_blas(work, cublasLtMatmul(handle_, known.product, &one, first, known.first, second, known.second, &beta,
                                    result, known.result, result, known.result, &known.algorithm, workspace_,
                                    workspace_bytes, stream));
  }

 private:
  struct Known {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
    cublasLtMatmulAlgo_t algorithm{};

    Known(const Work& work, cublasLtHandle_t handle, const BlasProduct& p) {
      try {
        describe(work, p);
        choose(work, handle, p);
      } catch (...) {
        release();
        throw;
      }
    }
    ~Known() { release(); }
    Known(const Known&) = delete;
    Known& operator=(const Known&) = delete;

   private:
    void describe(const Work& work, const BlasProduct& p) {
      const auto set = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
        check_blas(work, cublasLtMatmulDescSetAttribute(product, name, &value, sizeof value));
      };
      check_blas(work, cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
      set(CUBLASLT_MATMUL_DESC_TRANSA, p.transposes_first ? CUBLAS_OP_T : CUBLAS_OP_N);
      set(CUBLASLT_MATMUL_DESC_TRANSB, p.transposes_second ? CUBLAS_OP_T : CUBLAS_OP_N);
      if (p.has_bias) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
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
    void choose(const Work& work, cublasLtHandle_t handle, const BlasProduct& p) {
      cublasLtMatmulPreference_t preference = nullptr;
      check_blas(work, cublasLtMatmulPreferenceCreate(&preference));
      const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                            cublasStatus_t (*)(cublasLtMatmulPreference_t)>
          owned(preference, &cublasLtMatmulPreferenceDestroy);
      const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
        check_blas(work, cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof value));
      };
      const auto alignment = static_cast<std::uint32_t>(p.alignment);
      set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
      set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
      set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
      set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
      set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
      cublasLtMatmulHeuristicResult_t found{};
      int count = 0;
      check_blas(work, cublasLtMatmulAlgoGetHeuristic(handle, product, first, second, result, result, preference, 1,
                                                      &found, &count));
      check_blas(work, count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED);
      algorithm = found.algo;
    }
    void release() noexcept {
      if (result != nullptr) cublasLtMatrixLayoutDestroy(result);
      if (second != nullptr) cublasLtMatrixLayoutDestroy(second);
      if (first != nullptr) cublasLtMatrixLayoutDestroy(first);
      if (product != nullptr) cublasLtMatmulDescDestroy(product);
    }
  };

  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<BlasProduct, std::unique_ptr<Known>> known_;
};

#else

/// The twin: it checks what cuBLASLt demands, and multiplies in the order of the stream.
class Blas {
 public:
  void multiply(const Work& work, cudaStream_t stream, const BlasProduct& p, const void* first, const void* second,
                const void* bias, void* result) {
    check(work, software_gpu::blas_multiply(stream, p, first, second, bias, result));
  }
};

#endif

/// `batch` products, operands one after another. Without elements it does nothing; without a sum, c is 0 plus the bias.
template <class T, class R>
void blas_matmul(Blas& blas, cudaStream_t stream, Size batch, const kernels::Product& p, const T* a, const T* b, R* c,
                 Write write, const R* bias) {
  if (batch * p.m * p.n == 0) return;
  BlasProduct of = blas_product(p, batch, element_type<T>, element_type<R>);
  of.accumulates = write == Write::accumulate;
  of.has_bias = bias != nullptr;
  const auto aligned_to = [&](int bytes) {
    const auto fits = [&](const void* x) {
      return reinterpret_cast<std::uintptr_t>(x) % static_cast<unsigned>(bytes) == 0;
    };
    return fits(a) && fits(b) && fits(c) && (bias == nullptr || fits(bias));
  };
  while (of.alignment > static_cast<int>(sizeof(T)) && !aligned_to(of.alignment)) of.alignment /= 2;
  blas.multiply(Work{"matmul", batch * p.m, p.n}, stream, of, b, a, bias, c);
}

}  // namespace dspp::gpu
