// SPDX-License-Identifier: Apache-2.0
/// Matrix products by oneDNN through its C interface: f32, and bf16 where the processor multiplies it.
#pragma once

#include <dnnl.h>

#include <array>
#include <type_traits>
#include <vector>

#include <dspp/base/bf16.hpp>
#include <dspp/base/error.hpp>
#include <dspp/ops/cpu/product.hpp>
#include <dspp/ops/write.hpp>

namespace dspp::cpu {

/// c = op(a) op(b), or c += op(a) op(b), in f32. Call under OneThread.
void gemm_onednn(const Product& p, const float* a, const float* b, float* c, Write write);

/// Whether the processor has bf16 products. Elsewhere oneDNN 2.6 offers none, and other releases a slow reference.
bool onednn_has_bf16();

/// The same for operands of type T (bf16; float, with which tests reach this path on every machine), into f32.
///
/// Cost     the first call of a shape on a thread builds a primitive (up to a millisecond); later ones find it
template <class T>
void gemm_onednn_primitive(const Product& p, const T* a, const T* b, float* c, Write write);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline void onednn_check(dnnl_status_t status, const char* call) {
  if (status != dnnl_success)
    fail(ErrorCode::state, std::string("dspp: a matrix product needs oneDNN's ") + call + ", but it returned status " +
                               std::to_string(static_cast<int>(status)) +
                               ". Build without DSPP_WITH_ONEDNN, and report the shape.");
}

/// One prepared product and what identifies it.
struct OneDnnProduct {
  std::array<Size, 9> key{};
  dnnl_primitive_t primitive = nullptr;
  dnnl_memory_t memory[3] = {};  // a, b, c; pointed to the operands at each execution
};

/// The products that one thread has prepared, with the engine and stream they run on.
class OneDnnProducts {
 public:
  OneDnnProducts() {
    onednn_check(dnnl_engine_create(&engine_, dnnl_cpu, 0), "engine");
    onednn_check(dnnl_stream_create(&stream_, engine_, dnnl_stream_default_flags), "stream");
  }
  OneDnnProducts(const OneDnnProducts&) = delete;
  OneDnnProducts& operator=(const OneDnnProducts&) = delete;
  ~OneDnnProducts() {
    for (OneDnnProduct& product : products_) destroy(product);
    dnnl_stream_destroy(stream_);
    dnnl_engine_destroy(engine_);
  }

  void run(const Product& p, dnnl_data_type_t type, const void* a, const void* b, float* c, Write write) {
    const OneDnnProduct& product = find(p, type, write);
    onednn_check(dnnl_memory_set_data_handle(product.memory[0], const_cast<void*>(a)), "data handle");
    onednn_check(dnnl_memory_set_data_handle(product.memory[1], const_cast<void*>(b)), "data handle");
    onednn_check(dnnl_memory_set_data_handle(product.memory[2], c), "data handle");
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_SRC, product.memory[0]}, {DNNL_ARG_WEIGHTS, product.memory[1]}, {DNNL_ARG_DST, product.memory[2]}};
    onednn_check(dnnl_primitive_execute(product.primitive, stream_, 3, arguments), "execution");
    onednn_check(dnnl_stream_wait(stream_), "stream wait");
  }

 private:
  static constexpr std::size_t most = 256;  // shapes kept per thread; a model has some tens

  const OneDnnProduct& find(const Product& p, dnnl_data_type_t type, Write write) {
    const std::array<Size, 9> key = {p.m,
                                     p.n,
                                     p.k,
                                     p.lda,
                                     p.ldb,
                                     p.ldc,
                                     p.ta == Transpose::yes,
                                     p.tb == Transpose::yes,
                                     2 * static_cast<Size>(type) + (write == Write::accumulate)};
    for (const OneDnnProduct& product : products_)
      if (product.key == key) return product;
    if (products_.size() == most) {
      destroy(products_.front());
      products_.erase(products_.begin());
    }
    products_.push_back(make(p, type, write));
    products_.back().key = key;
    return products_.back();
  }

  OneDnnProduct make(const Product& p, dnnl_data_type_t type, Write write) const {
    const dnnl_memory_desc_t descriptors[] = {describe(p.m, p.k, p.lda, p.ta, type),
                                              describe(p.k, p.n, p.ldb, p.tb, type),
                                              describe(p.m, p.n, p.ldc, Transpose::no, dnnl_f32)};
    dnnl_matmul_desc_t description;
    onednn_check(dnnl_matmul_desc_init(&description, &descriptors[0], &descriptors[1], nullptr, &descriptors[2]),
                 "matmul description");
    dnnl_primitive_attr_t attributes = nullptr;
    dnnl_post_ops_t sum = nullptr;
    if (write == Write::accumulate) {
      onednn_check(dnnl_primitive_attr_create(&attributes), "attributes");
      onednn_check(dnnl_post_ops_create(&sum), "post-operations");
      onednn_check(dnnl_post_ops_append_sum(sum, 1.0f), "sum");
      onednn_check(dnnl_primitive_attr_set_post_ops(attributes, sum), "post-operations");
    }
    dnnl_primitive_desc_t prepared = nullptr;
    onednn_check(dnnl_primitive_desc_create(&prepared, &description, attributes, engine_, nullptr), "matmul");
    OneDnnProduct product;
    onednn_check(dnnl_primitive_create(&product.primitive, prepared), "matmul primitive");
    dnnl_primitive_desc_destroy(prepared);
    if (sum) dnnl_post_ops_destroy(sum);
    if (attributes) dnnl_primitive_attr_destroy(attributes);
    for (int i = 0; i < 3; ++i)
      onednn_check(dnnl_memory_create(&product.memory[i], &descriptors[i], engine_, DNNL_MEMORY_NONE), "memory");
    return product;
  }

  static dnnl_memory_desc_t describe(Size rows, Size columns, Size stride, Transpose transposed,
                                     dnnl_data_type_t type) {
    const dnnl_dims_t extents = {rows, columns};
    const dnnl_dims_t as_it_is = {stride, 1}, swapped = {1, stride};
    dnnl_memory_desc_t descriptor;
    onednn_check(dnnl_memory_desc_init_by_strides(&descriptor, 2, extents, type,
                                                  transposed == Transpose::yes ? swapped : as_it_is),
                 "memory description");
    return descriptor;
  }

  static void destroy(OneDnnProduct& product) {
    for (dnnl_memory_t memory : product.memory) dnnl_memory_destroy(memory);
    dnnl_primitive_destroy(product.primitive);
  }

  dnnl_engine_t engine_ = nullptr;
  dnnl_stream_t stream_ = nullptr;
  std::vector<OneDnnProduct> products_;
};

}  // namespace detail

inline void gemm_onednn(const Product& p, const float* a, const float* b, float* c, Write write) {
  const char ta = p.ta == Transpose::yes ? 'T' : 'N', tb = p.tb == Transpose::yes ? 'T' : 'N';
  const float beta = write == Write::accumulate ? 1.0f : 0.0f;
  detail::onednn_check(dnnl_sgemm(ta, tb, p.m, p.n, p.k, 1.0f, a, p.lda, b, p.ldb, beta, c, p.ldc), "sgemm");
}

inline bool onednn_has_bf16() {
  static const bool answer = [] {
    const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    return isa == dnnl_cpu_isa_avx512_core_bf16 || isa == dnnl_cpu_isa_avx512_core_amx;
  }();
  return answer;
}

template <class T>
void gemm_onednn_primitive(const Product& p, const T* a, const T* b, float* c, Write write) {
  thread_local detail::OneDnnProducts products;
  products.run(p, std::is_same_v<T, bf16> ? dnnl_bf16 : dnnl_f32, a, b, c, write);
}

}  // namespace dspp::cpu
