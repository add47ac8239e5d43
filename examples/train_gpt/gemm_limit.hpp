// SPDX-License-Identifier: Apache-2.0
/// The GEMM limit: the speed of a step's matrix products alone, measured briefly on all ranks at once.
#pragma once

#include <algorithm>
#include <chrono>
#include <limits>
#include <type_traits>
#include <vector>

#include <dspp/launch/world.hpp>
#include <dspp/ops/matmul.hpp>

#include "job.hpp"

namespace train_gpt {

/// The products of one rank's micro-step on fixed operands, on device D.
template <class T, class D>
class StepProducts {
 public:
  StepProducts(const dspp::GptConfig& model, Size micro_batch, int cp, int tp, dspp::Memory<D>& pool) : pool_(pool) {
    const Size rows = micro_batch * model.sequence / cp, w = model.width, ffn = model.effective_ffn_width();
    add_linear(rows, w, 3 * w / tp, model.layers);
    add_linear(rows, w / tp, w, model.layers);
    add_linear(rows, w, ffn / tp, model.layers);
    add_linear(rows, ffn / tp, w, model.layers);
    add_linear(rows, w, (model.vocabulary + tp - 1) / tp, 1);
    const Size s = model.sequence, d = w / model.heads, heads = micro_batch * model.heads / tp / cp;
    using enum dspp::Transpose;
    attention_.push_back({zeros(heads, s, d), zeros(heads, s, d), no, yes, 2 * model.layers});  // q k^T, dy v^T
    attention_.push_back({zeros(heads, s, s), zeros(heads, s, d), no, no, 2 * model.layers});   // p v, ds k
    attention_.push_back({zeros(heads, s, s), zeros(heads, s, d), yes, no, 2 * model.layers});  // p^T dy, ds^T q
  }

  /// Seconds of the whole list, the minimum of the repetitions within `budget_seconds`.
  double measure(double budget_seconds) const {
    using Clock = std::chrono::steady_clock;
    const auto since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
    const Clock::time_point begin = Clock::now();
    double best = std::numeric_limits<double>::infinity();
    run();  // plans the products
    do {
      const Clock::time_point start = Clock::now();
      run();
      best = std::min(best, since(start));
    } while (since(begin) < budget_seconds);
    return best;
  }

 private:
  template <int Rank>
  struct Product {
    dspp::Tensor<T, Rank, D> a, b;
    dspp::Transpose ta, tb;
    Size times;
  };

  dspp::Tensor<T, 2, D> zeros(Size rows, Size columns) {
    return dspp::Tensor<T, 2, D>::zeros(dspp::shape(rows, columns), pool_, dspp::Category::workspace, "gemm limit");
  }
  dspp::Tensor<T, 3, D> zeros(Size batch, Size rows, Size columns) {
    return dspp::Tensor<T, 3, D>::zeros(dspp::shape(batch, rows, columns), pool_, dspp::Category::workspace,
                                        "gemm limit");
  }
  /// x W^T, dy W and dy^T x.
  void add_linear(Size rows, Size in, Size out, Size times) {
    using enum dspp::Transpose;
    const auto x = zeros(rows, in), weight = zeros(out, in), dy = zeros(rows, out);
    products_.push_back({x, weight, no, yes, times});
    products_.push_back({dy, weight, no, no, times});
    products_.push_back({dy, x, yes, no, times});
  }
  void run() const {
    for (const auto& p : products_)
      for (Size i = 0; i < p.times; ++i) dspp::ops::matmul(p.a, p.ta, p.b, p.tb);
    for (const auto& p : attention_)
      for (Size i = 0; i < p.times; ++i) dspp::ops::batched_matmul(p.a, p.ta, p.b, p.tb);
    last_.read([](const T*) {});  // waits
  }

  dspp::Memory<D>& pool_;
  dspp::Tensor<T, 2, D> last_ = zeros(1, 1);
  std::vector<Product<2>> products_;
  std::vector<Product<3>> attention_;
};

/// Tokens per second of the whole world for its products alone.
template <class P>
double gemm_limit(dspp::World<P>& world, const Job& job) {
  using D = dspp::DeviceOf<P>;
  dspp::Pool of_host;
  dspp::Memory<D>& pool = std::is_same_v<D, dspp::Cpu> ? of_host : world.memory();
  const StepProducts<typename P::Element, D> products(job.model, job.micro_batch, P::cp, P::tp, pool);
  world.host().barrier();
  double seconds = products.measure(0.3);
  dspp::all_reduce(world.host(), dspp::buffer(&seconds, 1), dspp::Purpose::scalar);
  const double tokens = static_cast<double>(job.micro_batch * job.model.sequence * world.data_size());
  return tokens / (seconds / world.size());
}

}  // namespace train_gpt
