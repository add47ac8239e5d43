// SPDX-License-Identifier: Apache-2.0
/// Matrix products by oneDNN through its C interface: f32, and bf16 where the processor multiplies it.
#pragma once

#include <dnnl.h>

#include <string>
#include <type_traits>

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
/// Cost     2 m n k operations, and 3 us to describe the product to oneDNN, which keeps prepared ones itself
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

/// A oneDNN object, destroyed at the end of its scope.
template <class Handle, auto destroy>
struct OneDnnObject {
  OneDnnObject() = default;
  OneDnnObject(const OneDnnObject&) = delete;
  OneDnnObject& operator=(const OneDnnObject&) = delete;
  ~OneDnnObject() {
    if (handle) destroy(handle);
  }
  Handle handle = nullptr;
};
using OneDnnEngine = OneDnnObject<dnnl_engine_t, &dnnl_engine_destroy>;
using OneDnnStream = OneDnnObject<dnnl_stream_t, &dnnl_stream_destroy>;
using OneDnnMemory = OneDnnObject<dnnl_memory_t, &dnnl_memory_destroy>;
using OneDnnAttributes = OneDnnObject<dnnl_primitive_attr_t, &dnnl_primitive_attr_destroy>;
using OneDnnPostOperations = OneDnnObject<dnnl_post_ops_t, &dnnl_post_ops_destroy>;
using OneDnnDescription = OneDnnObject<dnnl_primitive_desc_t, &dnnl_primitive_desc_destroy>;
using OneDnnPrimitive = OneDnnObject<dnnl_primitive_t, &dnnl_primitive_destroy>;

/// A rows x columns operand, as it lies or transposed.
inline dnnl_memory_desc_t describe_onednn(Size rows, Size columns, Size stride, Transpose t, dnnl_data_type_t type) {
  const dnnl_dims_t extents = {rows, columns}, as_it_is = {stride, 1}, swapped = {1, stride};
  dnnl_memory_desc_t description;
  onednn_check(
      dnnl_memory_desc_init_by_strides(&description, 2, extents, type, t == Transpose::yes ? swapped : as_it_is),
      "memory description");
  return description;
}

/// Attributes of a product that is added to its destination.
inline void accumulate_onednn(OneDnnAttributes& attributes) {
  OneDnnPostOperations sum;
  onednn_check(dnnl_primitive_attr_create(&attributes.handle), "attributes");
  onednn_check(dnnl_post_ops_create(&sum.handle), "post-operations");
  onednn_check(dnnl_post_ops_append_sum(sum.handle, 1.0f), "sum");
  onednn_check(dnnl_primitive_attr_set_post_ops(attributes.handle, sum.handle), "post-operations");
}

inline void multiply_onednn(const Product& p, dnnl_data_type_t type, const void* a, const void* b, float* c,
                            Write write) {
  const dnnl_memory_desc_t shapes[] = {describe_onednn(p.m, p.k, p.lda, p.ta, type),
                                       describe_onednn(p.k, p.n, p.ldb, p.tb, type),
                                       describe_onednn(p.m, p.n, p.ldc, Transpose::no, dnnl_f32)};
  dnnl_matmul_desc_t matmul;
  onednn_check(dnnl_matmul_desc_init(&matmul, &shapes[0], &shapes[1], nullptr, &shapes[2]), "matmul");
  OneDnnEngine engine;
  OneDnnStream stream;
  OneDnnAttributes attributes;
  OneDnnDescription description;
  OneDnnPrimitive primitive;
  OneDnnMemory memory[3];
  onednn_check(dnnl_engine_create(&engine.handle, dnnl_cpu, 0), "engine");
  onednn_check(dnnl_stream_create(&stream.handle, engine.handle, dnnl_stream_default_flags), "stream");
  if (write == Write::accumulate) accumulate_onednn(attributes);
  onednn_check(dnnl_primitive_desc_create(&description.handle, &matmul, attributes.handle, engine.handle, nullptr),
               "matmul of this type");
  onednn_check(dnnl_primitive_create(&primitive.handle, description.handle), "primitive");
  void* data[] = {const_cast<void*>(a), const_cast<void*>(b), c};  // oneDNN does not write to its inputs
  for (int i = 0; i < 3; ++i)
    onednn_check(dnnl_memory_create(&memory[i].handle, &shapes[i], engine.handle, data[i]), "memory");
  const dnnl_exec_arg_t arguments[] = {
      {DNNL_ARG_SRC, memory[0].handle}, {DNNL_ARG_WEIGHTS, memory[1].handle}, {DNNL_ARG_DST, memory[2].handle}};
  onednn_check(dnnl_primitive_execute(primitive.handle, stream.handle, 3, arguments), "execution");
  onednn_check(dnnl_stream_wait(stream.handle), "stream");
}

}  // namespace detail

inline void gemm_onednn(const Product& p, const float* a, const float* b, float* c, Write write) {
  const char ta = p.ta == Transpose::yes ? 'T' : 'N', tb = p.tb == Transpose::yes ? 'T' : 'N';
  const float beta = write == Write::accumulate ? 1.0f : 0.0f;
  detail::onednn_check(dnnl_sgemm(ta, tb, p.m, p.n, p.k, 1.0f, a, p.lda, b, p.ldb, beta, c, p.ldc), "sgemm");
}

inline bool onednn_has_bf16() {
  const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();  // a look at a table of the library
  return isa == dnnl_cpu_isa_avx512_core_bf16 || isa == dnnl_cpu_isa_avx512_core_amx;
}

template <class T>
void gemm_onednn_primitive(const Product& p, const T* a, const T* b, float* c, Write write) {
  detail::multiply_onednn(p, std::is_same_v<T, bf16> ? dnnl_bf16 : dnnl_f32, a, b, c, write);
}

}  // namespace dspp::cpu
