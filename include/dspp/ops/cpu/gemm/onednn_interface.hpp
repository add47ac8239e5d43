// SPDX-License-Identifier: Apache-2.0
/// oneDNN's C interface, versions 2 and 3, as far as dspp uses it, with error sentences and scoped objects.
#pragma once

#include <dnnl.h>

#include <string>

#include <dspp/base/error.hpp>
#include <dspp/ops/cpu/gemm/product.hpp>

namespace dspp::cpu {

/// Throws Error(state) unless `status` is success. `call` names the call for the error sentence.
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

/// The layout of a rows x columns operand, as it lies or transposed. `get()` returns a const_dnnl_memory_desc_t of
/// either version.
class OneDnnLayout {
 public:
  OneDnnLayout(Size rows, Size columns, Size stride, Transpose t, dnnl_data_type_t type) {
    const dnnl_dims_t extents = {rows, columns}, as_it_is = {stride, 1}, swapped = {1, stride};
    const auto& strides = t == Transpose::yes ? swapped : as_it_is;
#if DNNL_VERSION_MAJOR >= 3
    onednn_check(dnnl_memory_desc_create_with_strides(&layout_.handle, 2, extents, type, strides), "layout");
#else
    onednn_check(dnnl_memory_desc_init_by_strides(&layout_, 2, extents, type, strides), "layout");
#endif
  }
#if DNNL_VERSION_MAJOR >= 3
  const_dnnl_memory_desc_t get() const {
    return layout_.handle;
  }

 private:
  OneDnnObject<dnnl_memory_desc_t, &dnnl_memory_desc_destroy> layout_;
#else
  const dnnl_memory_desc_t* get() const {
    return &layout_;
  }

 private:
  dnnl_memory_desc_t layout_;
#endif
};

/// The layouts of a product's operands: bias is [1, n], or absent.
struct OneDnnOperands {
  OneDnnLayout a, b, c;
  const OneDnnLayout* bias = nullptr;
};

/// c = a b (+ bias), or c += a b.
inline void describe_matmul(OneDnnDescription& description, dnnl_engine_t engine, const OneDnnOperands& layouts,
                            bool accumulate) {
  OneDnnAttributes attributes;
  OneDnnPostOperations sum;
  if (accumulate) {
    onednn_check(dnnl_primitive_attr_create(&attributes.handle), "attributes");
    onednn_check(dnnl_post_ops_create(&sum.handle), "post-operations");
#if DNNL_VERSION_MAJOR >= 3
    onednn_check(dnnl_post_ops_append_sum(sum.handle, 1.0f, 0, dnnl_data_type_undef), "sum");
#else
    onednn_check(dnnl_post_ops_append_sum(sum.handle, 1.0f), "sum");
#endif
    onednn_check(dnnl_primitive_attr_set_post_ops(attributes.handle, sum.handle), "post-operations");
  }
  const auto* bias = layouts.bias ? layouts.bias->get() : nullptr;
#if DNNL_VERSION_MAJOR >= 3
  onednn_check(dnnl_matmul_primitive_desc_create(&description.handle, engine, layouts.a.get(), layouts.b.get(), bias,
                                                 layouts.c.get(), attributes.handle),
               "matmul of this type");
#else
  dnnl_matmul_desc_t matmul;
  onednn_check(dnnl_matmul_desc_init(&matmul, layouts.a.get(), layouts.b.get(), bias, layouts.c.get()), "matmul");
  onednn_check(dnnl_primitive_desc_create(&description.handle, &matmul, attributes.handle, engine, nullptr),
               "matmul of this type");
#endif
}

}  // namespace dspp::cpu
