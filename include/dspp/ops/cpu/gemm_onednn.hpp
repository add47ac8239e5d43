// SPDX-License-Identifier: Apache-2.0
/// Matrix products by oneDNN through its C interface: f32, and bf16 where the processor multiplies it.
#pragma once

#include <type_traits>

#include <dspp/base/bf16.hpp>
#include <dspp/ops/cpu/onednn.hpp>
#include <dspp/ops/write.hpp>

namespace dspp::cpu {

/// c = op(a) op(b), or c += op(a) op(b), in f32. Call under OneThread.
void gemm_onednn(const Product& p, const float* a, const float* b, float* c, Write write);

/// Whether the processor has bf16 products. Elsewhere oneDNN has none (2.6, 3.2).
bool onednn_has_bf16();

/// The same for operands of type T (bf16; float, with which tests reach this path on every machine), into f32.
///
/// Cost     2 m n k operations, and 3 us to describe the product to oneDNN, which keeps prepared ones itself
template <class T>
void gemm_onednn_primitive(const Product& p, const T* a, const T* b, float* c, Write write);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline void multiply_onednn(const Product& p, dnnl_data_type_t type, const void* a, const void* b, float* c,
                            Write write) {
  const OneDnnLayout layouts[] = {
      {p.m, p.k, p.lda, p.ta, type}, {p.k, p.n, p.ldb, p.tb, type}, {p.m, p.n, p.ldc, Transpose::no, dnnl_f32}};
  OneDnnEngine engine;
  OneDnnStream stream;
  OneDnnDescription description;
  OneDnnPrimitive primitive;
  OneDnnMemory memory[3];
  onednn_check(dnnl_engine_create(&engine.handle, dnnl_cpu, 0), "engine");
  onednn_check(dnnl_stream_create(&stream.handle, engine.handle, dnnl_stream_default_flags), "stream");
  describe_matmul(description, engine.handle, layouts[0], layouts[1], layouts[2], write == Write::accumulate);
  onednn_check(dnnl_primitive_create(&primitive.handle, description.handle), "primitive");
  void* data[] = {const_cast<void*>(a), const_cast<void*>(b), c};  // oneDNN does not write to its inputs
  for (int i = 0; i < 3; ++i)
    onednn_check(dnnl_memory_create(&memory[i].handle, layouts[i].get(), engine.handle, data[i]), "memory");
  const dnnl_exec_arg_t arguments[] = {
      {DNNL_ARG_SRC, memory[0].handle}, {DNNL_ARG_WEIGHTS, memory[1].handle}, {DNNL_ARG_DST, memory[2].handle}};
  onednn_check(dnnl_primitive_execute(primitive.handle, stream.handle, 3, arguments), "execution");
  onednn_check(dnnl_stream_wait(stream.handle), "stream");
}

}  // namespace detail

inline void gemm_onednn(const Product& p, const float* a, const float* b, float* c, Write write) {
  const char ta = p.ta == Transpose::yes ? 'T' : 'N', tb = p.tb == Transpose::yes ? 'T' : 'N';
  const float beta = write == Write::accumulate ? 1.0f : 0.0f;
  onednn_check(dnnl_sgemm(ta, tb, p.m, p.n, p.k, 1.0f, a, p.lda, b, p.ldb, beta, c, p.ldc), "sgemm");
}

inline bool onednn_has_bf16() {
  // An instruction set's number has the bits of those that it contains.
  constexpr int wanted = dnnl_cpu_isa_avx512_core_bf16;
  return (static_cast<int>(dnnl_get_effective_cpu_isa()) & wanted) == wanted;
}

template <class T>
void gemm_onednn_primitive(const Product& p, const T* a, const T* b, float* c, Write write) {
  detail::multiply_onednn(p, std::is_same_v<T, bf16> ? dnnl_bf16 : dnnl_f32, a, b, c, write);
}

}  // namespace dspp::cpu
