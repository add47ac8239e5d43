// SPDX-License-Identifier: Apache-2.0
/// Matrix products by oneDNN through its C interface: f32, and bf16 if the processor supports it.
#pragma once

#include <cstddef>
#include <type_traits>

#include <dspp/base/bf16.hpp>
#include <dspp/ops/cpu/gemm/onednn_interface.hpp>
#include <dspp/ops/write.hpp>

#if DSPP_HAS_CPUID()
#include <cpuid.h>
#endif

namespace dspp::cpu {

/// c = op(a) op(b), or c += op(a) op(b), in f32. Call under OneThread.
void gemm_onednn(const Product& p, const float* a, const float* b, float* c, Write write);

/// Whether the processor has bf16 products. Elsewhere oneDNN has none (2.6, 3.2).
bool onednn_has_bf16();

/// Whether they are faster than those of operands widened to f32: wherever they are, but for Intel's processors after
/// Cooper Lake without AMX. Those start VDPBF16PS every second cycle, which then does half of the operations of two FMA
/// in f32 (Emerald Rapids whose AMX a virtual machine hides: 93 and 187 GFLOP/s a core, products 83 and 161).
bool onednn_prefers_bf16();

/// c = op(a) op(b) (+ bias [n] on every row), or c += op(a) op(b), summed in f32 and rounded once to R. T and R are
/// bf16 or float; float is for tests of this path on every machine. Call under OneThread.
///
/// Cost     2 m n k operations, and some microseconds to describe the product to oneDNN, which caches primitives
template <class T, class R>
void gemm_onednn_primitive(const Product& p, const T* a, const T* b, R* c, Write write, const R* bias = nullptr);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

template <class T>
inline constexpr dnnl_data_type_t onednn_type = std::is_same_v<T, bf16> ? dnnl_bf16 : dnnl_f32;

/// An operand of an execution: its role in the primitive, its layout and its address.
struct OneDnnArgument {
  int what;
  const OneDnnLayout* layout;
  const void* data;  // oneDNN takes inputs as non-const, and does not write to them
};

template <std::size_t Count>
void execute_onednn(dnnl_engine_t engine, dnnl_primitive_desc_t description, const OneDnnArgument (&operands)[Count],
                    int count) {
  OneDnnStream stream;
  OneDnnPrimitive primitive;
  OneDnnMemory memory[Count];
  dnnl_exec_arg_t arguments[Count];
  onednn_check(dnnl_stream_create(&stream.handle, engine, dnnl_stream_default_flags), "stream");
  onednn_check(dnnl_primitive_create(&primitive.handle, description), "primitive");
  for (int i = 0; i < count; ++i) {
    onednn_check(
        dnnl_memory_create(&memory[i].handle, operands[i].layout->get(), engine, const_cast<void*>(operands[i].data)),
        "memory");
    arguments[i] = {operands[i].what, memory[i].handle};
  }
  onednn_check(dnnl_primitive_execute(primitive.handle, stream.handle, count, arguments), "execution");
  onednn_check(dnnl_stream_wait(stream.handle), "stream");
}

/// Of processors with bf16 instructions: Cooper Lake is model 0x55.
inline bool is_intel_after_cooper_lake() {
#if DSPP_HAS_CPUID()
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0 || b != signature_INTEL_ebx || c != signature_INTEL_ecx) return false;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && ((a >> 4 & 0xfu) | (a >> 12 & 0xf0u)) != 0x55u;
#else
  return false;
#endif
}

}  // namespace detail

inline void gemm_onednn(const Product& p, const float* a, const float* b, float* c, Write write) {
  const char ta = p.ta == Transpose::yes ? 'T' : 'N', tb = p.tb == Transpose::yes ? 'T' : 'N';
  const float beta = write == Write::accumulate ? 1.0f : 0.0f;
  onednn_check(dnnl_sgemm(ta, tb, p.m, p.n, p.k, 1.0f, a, p.lda, b, p.ldb, beta, c, p.ldc), "sgemm");
}

inline bool onednn_has_bf16() {
  // The number of an instruction set includes the bits of those that it contains.
  constexpr int wanted = dnnl_cpu_isa_avx512_core_bf16;
  return (static_cast<int>(dnnl_get_effective_cpu_isa()) & wanted) == wanted;
}

inline bool onednn_prefers_bf16() {
  static const bool preferred = [] {
    constexpr int amx = dnnl_cpu_isa_avx512_core_amx;
    return onednn_has_bf16() &&
           ((static_cast<int>(dnnl_get_effective_cpu_isa()) & amx) == amx || !detail::is_intel_after_cooper_lake());
  }();
  return preferred;
}

template <class T, class R>
void gemm_onednn_primitive(const Product& p, const T* a, const T* b, R* c, Write write, const R* bias) {
  const OneDnnLayout row(1, p.n, p.n, Transpose::no, detail::onednn_type<R>);
  const OneDnnOperands layouts{{p.m, p.k, p.lda, p.ta, detail::onednn_type<T>},
                               {p.k, p.n, p.ldb, p.tb, detail::onednn_type<T>},
                               {p.m, p.n, p.ldc, Transpose::no, detail::onednn_type<R>},
                               bias ? &row : nullptr};
  OneDnnEngine engine;
  OneDnnDescription description;
  onednn_check(dnnl_engine_create(&engine.handle, dnnl_cpu, 0), "engine");
  describe_matmul(description, engine.handle, layouts, write == Write::accumulate);
  const detail::OneDnnArgument operands[] = {{DNNL_ARG_SRC, &layouts.a, a},
                                             {DNNL_ARG_WEIGHTS, &layouts.b, b},
                                             {DNNL_ARG_DST, &layouts.c, c},
                                             {DNNL_ARG_BIAS, &row, bias}};
  detail::execute_onednn(engine.handle, description.handle, operands, bias ? 4 : 3);
}

}  // namespace dspp::cpu
