// SPDX-License-Identifier: Apache-2.0
/// The members of CudnnAttention, by cuDNN and its frontend (headers of the package cudnn-frontend, which compile for
/// long: one unit of dspp::cuda has them), with -lcudnn and -lnvrtc. Nothing without DSPP_WITH_CUDNN=1.
#pragma once

#include <kernels/cudnn_attention.cuh>

#if DSPP_HAS_CUDNN()

#include <string>
#include <unordered_map>

#include <dspp/base/error.hpp>

#include <cudnn_frontend.h>

namespace dspp::gpu {

namespace detail {
inline void require_cudnn(bool good, const std::string& what, const std::string& says) {
  if (!good)
    fail(ErrorCode::state, "dspp: " + what + " needs cuDNN to compute it, but it says '" + says +
                               "'. If it is the first failure, look at these extents; else at what ran before, which "
                               "DSPP_CUDA_SYNCHRONOUS=1 names.");
}
inline std::string name_of(const CudnnCall& call) {
  return std::string(call.is_backward() ? "attention_vjp" : "attention") + " [samples " + std::to_string(call.samples) +
         ", sequence " + std::to_string(call.sequence) + ", heads " + std::to_string(call.heads) + " of " +
         std::to_string(call.head_dim) + "; " + place_of_thread() + "]";
}
}  // namespace detail

struct CudnnAttention::Handle {
  cudnnHandle_t cudnn = nullptr;

  Handle() {
    const cudnnStatus_t status = cudnnCreate(&cudnn);
    detail::require_cudnn(status == CUDNN_STATUS_SUCCESS, "attention [" + place_of_thread() + "]",
                          cudnnGetErrorString(status));
  }
  ~Handle() { cudnnDestroy(cudnn); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
};

/// A graph that was built, or why cuDNN has none.
struct CudnnAttention::Graph {
  using Tensor = std::shared_ptr<cudnn_frontend::graph::Tensor_attributes>;
  enum Place : int { q = 1, k, v, y, log_sum_exp, dy, dq, dk, dv };

  cudnn_frontend::graph::Graph graph;
  bool is_built = false;
  std::string refusal;

  Graph(cudnnHandle_t handle, const CudnnCall& call) {
    namespace fe = cudnn_frontend;
    graph.set_io_data_type(call.type == ElementType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    call.is_backward() ? describe_backward(call) : describe_forward(call);
    const auto is_taken = [&](fe::error_t error) {
      if (error.is_bad()) refusal = error.get_message();
      return error.is_good();
    };
    if (!is_taken(graph.validate()) || !is_taken(graph.build_operation_graph(handle)) ||
        !is_taken(graph.create_execution_plans({fe::HeurMode_t::A})) || !is_taken(graph.check_support(handle)))
      return;
    const auto require = [&](fe::error_t error) {
      detail::require_cudnn(error.is_good(), detail::name_of(call), error.get_message());
    };
    std::int64_t workspace = 0;
    require(graph.build_plans(handle));
    require(graph.get_workspace_size(workspace));
    is_built = workspace <= call.workspace_bytes;
    if (!is_built)
      refusal = "a workspace of " + std::to_string(workspace) + " bytes, " + std::to_string(call.workspace_bytes) +
                " are planned";
  }

 private:
  Tensor heads(Place place, const CudnnCall& call, Size count, Size stride) {
    return graph.tensor(placed(cudnn_frontend::graph::Tensor_attributes(), place, call, count, stride));
  }
  template <class A>
  static A& placed(A&& attributes, Place place, const CudnnCall& call, Size count, Size stride) {
    attributes.set_uid(place);
    attributes.set_dim({call.samples, count, call.sequence, call.head_dim});
    attributes.set_stride({call.sequence * stride, call.head_dim, stride, 1});
    return attributes;
  }
  static void place_result(const Tensor& tensor, Place place, const CudnnCall& call, Size count, Size stride) {
    placed(*tensor, place, call, count, stride).set_output(true);
  }
  template <class A>
  static A& placed_sums(A&& attributes, const CudnnCall& call) {
    attributes.set_uid(log_sum_exp);
    attributes.set_dim({call.samples, call.heads, call.sequence, 1});
    attributes.set_stride({call.all_heads * call.sequence, call.sequence, 1, 1});
    attributes.set_data_type(cudnn_frontend::DataType_t::FLOAT);
    if constexpr (requires { attributes.set_alignment(4); }) attributes.set_alignment(4);  // a slice begins anywhere
    return attributes;
  }
  template <class A>
  static A ruled(const CudnnCall& call) {
    A attributes;
    attributes.set_attn_scale(call.scale);
    if (call.is_causal)
      attributes.set_diagonal_alignment(cudnn_frontend::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
    if (call.window > 0) attributes.set_diagonal_band_left_bound(call.window);
    return attributes;
  }
  void describe_forward(const CudnnCall& call) {
    auto rule = ruled<cudnn_frontend::graph::SDPA_attributes>(call);
    rule.set_generate_stats(true);
    const auto [result, sums] =
        graph.sdpa(heads(q, call, call.heads, call.q_stride), heads(k, call, call.kv_heads, call.k_stride),
                   heads(v, call, call.kv_heads, call.v_stride), rule);
    place_result(result, y, call, call.heads, call.y_stride);
    placed_sums(*sums, call).set_output(true);
  }
  void describe_backward(const CudnnCall& call) {
    auto rule = ruled<cudnn_frontend::graph::SDPA_backward_attributes>(call);
    rule.set_deterministic_algorithm(true);
    const auto [of_q, of_k, of_v] =
        graph.sdpa_backward(heads(q, call, call.heads, call.q_stride), heads(k, call, call.kv_heads, call.k_stride),
                            heads(v, call, call.kv_heads, call.v_stride), heads(y, call, call.heads, call.y_stride),
                            heads(dy, call, call.heads, call.dy_stride),
                            graph.tensor(placed_sums(cudnn_frontend::graph::Tensor_attributes(), call)), rule);
    place_result(of_q, dq, call, call.heads, call.dq_stride);
    place_result(of_k, dk, call, call.kv_heads, call.dk_stride);
    place_result(of_v, dv, call, call.kv_heads, call.dv_stride);
  }
};

DSPP_CUDA_INLINE CudnnAttention::CudnnAttention() = default;
DSPP_CUDA_INLINE CudnnAttention::~CudnnAttention() = default;

DSPP_CUDA_INLINE CudnnAttention::Graph& CudnnAttention::graph_of(const CudnnCall& call) {
  if (!handle_) handle_ = std::make_unique<Handle>();
  std::unique_ptr<Graph>& graph = graphs_[call];
  if (!graph) graph = std::make_unique<Graph>(handle_->cudnn, call);
  return *graph;
}

DSPP_CUDA_INLINE bool CudnnAttention::takes(const CudnnCall& call) {
  const Graph& graph = graph_of(call);
  if (!graph.is_built) last_refusal_ = detail::name_of(call) + ": " + graph.refusal;
  return graph.is_built;
}

DSPP_CUDA_INLINE void CudnnAttention::run(cudaStream_t stream, const CudnnCall& call, const CudnnOperands& at,
                                          void* workspace) {
  Graph& graph = graph_of(call);
  const cudnnStatus_t status = cudnnSetStream(handle_->cudnn, stream);
  detail::require_cudnn(status == CUDNN_STATUS_SUCCESS, detail::name_of(call), cudnnGetErrorString(status));
  std::unordered_map<std::int64_t, void*> operands{{Graph::q, const_cast<void*>(at.q)},
                                                   {Graph::k, const_cast<void*>(at.k)},
                                                   {Graph::v, const_cast<void*>(at.v)},
                                                   {Graph::y, at.y},
                                                   {Graph::log_sum_exp, at.log_sum_exp}};
  if (call.is_backward()) {
    operands.insert(
        {{Graph::dy, const_cast<void*>(at.dy)}, {Graph::dq, at.dq}, {Graph::dk, at.dk}, {Graph::dv, at.dv}});
  }
  note_launch(call.is_backward() ? "attention_vjp" : "attention", call, at, workspace);
  auto error = graph.graph.execute(handle_->cudnn, operands, workspace);
  detail::require_cudnn(error.is_good(), detail::name_of(call), error.get_message());
}

}  // namespace dspp::gpu

#endif  // DSPP_HAS_CUDNN()
