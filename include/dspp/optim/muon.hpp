// SPDX-License-Identifier: Apache-2.0
/// Muon: momentum made orthogonal, for the matrices inside of blocks; AdamW for all else.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include <dspp/ops/matmul.hpp>
#include <dspp/ops/transpose.hpp>
#include <dspp/ops/update_matrices.hpp>
#include <dspp/optim/adamw.hpp>

namespace dspp {

/// The factor of Muon's rate for a matrix [rows, columns].
enum class MuonRate {
  original,         ///< sqrt(max(1, rows / columns))
  match_rms_adamw,  ///< 0.2 sqrt(max(rows, columns)): as long as AdamW's steps, for its rates
  unclamped,        ///< sqrt(rows / columns)
};

/// For a matrix in a block:
///   g = scale * gradient;  m = momentum m + (1 - momentum) g;  u = g + momentum (m - g) with nesterov, else m;
///   X = u / max(|u|, epsilon);  `iterations` times  A = X X^T, X = a X + (b A + c A A) X;
///   p = (1 - lr decay) p - lr factor X, the factor of MuonRate.
/// Other parameters (vectors, and matrices outside of blocks, such as tables and heads) are updated by `others`, whose
/// rate is lr times others.lr / this lr at the start, so that a schedule moves both. ParameterGroup::matrices chooses
/// otherwise. As torch.optim.Muon, which rounds u to bf16; here X has the precision of the moments.
///
/// Placement   a matrix is whole for the products: gathered over Tp and, under split optimizers, over the replicas
/// Cost     for [n, k], n <= k, `iterations` (4 n n k + 2 n n n) operations, on each rank that updates a part of it;
///          per step, in the precision of the moments, one all-gather of the updates of each bucket over the replicas,
///          and one of each cut matrix over Tp
/// Memory   one moment of a matrix, two of all else; in the step a bucket of updates and a matrix's products
/// Source   Jordan 2024, kellerjordan.github.io/posts/muon; Liu et al. 2025, arXiv:2502.16982 (match_rms_adamw)
struct Muon {
  static constexpr const char* name = "Muon";
  static constexpr int moment_count = AdamW::moment_count;
  static constexpr int matrix_moment_count = 1;

  double lr = 1e-3;
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0.1;
  int iterations = 5;
  double a = 3.4445, b = -4.7750, c = 2.0315;
  double epsilon = 1e-7;
  MuonRate rate = MuonRate::original;
  AdamW others{};

  constexpr void describe(auto&& f) const {
    f("lr", lr), f("momentum", momentum), f("nesterov", nesterov), f("weight_decay", weight_decay);
    f("iterations", iterations), f("a", a), f("b", b), f("c", c), f("epsilon", epsilon);
    f("rate", static_cast<int>(rate));
    f("others lr", others.lr), f("others beta1", others.beta1), f("others beta2", others.beta2);
    f("others epsilon", others.epsilon), f("others weight_decay", others.weight_decay);
  }
  constexpr void check() const {
    // clang-format off
    require(detail::is_decay_rate(momentum), "dspp: Muon needs a momentum from 0 to below 1, but got another. Change it.");
    require(detail::is_at_least_zero(weight_decay), "dspp: Muon needs a weight_decay of at least 0, but got another. Change it.");
    require(detail::is_at_least_zero(epsilon), "dspp: Muon needs an epsilon of at least 0, but got another. Change it.");
    require(iterations >= 0 && iterations < 100, "dspp: Muon needs from 0 to 99 iterations, but got another number. Change it.");
    require(lr > 0 || !(others.lr > 0), "dspp: Muon needs an lr above 0 for others.lr, which is a multiple of it, but it is 0. Change one of them.");
    // clang-format on
    check_learning_rate(others.lr);
    others.check();
  }
  constexpr void set_weight_decay(double decay) { weight_decay = others.weight_decay = decay; }

  template <class S>
  auto rule(UpdateScalars scalars) const {
    scalars.lr *= lr > 0 ? others.lr / lr : 1;
    return others.rule<S>(scalars);
  }

  template <class S>
  struct Direction {
    S add, through;

    template <std::size_t N>
    DSPP_HOST_DEVICE void operator()(UpdateBlock<S, N>& block) const {
      for (std::size_t k = 0; k < N; ++k) {
        const S g = block.gradient[k], m = block.moments[0][k] + add * (g - block.moments[0][k]);
        block.new_moments[0][k] = m;
        block.new_value[k] = g + through * (m - g);
      }
    }
  };
  template <class S>
  Direction<S> matrix_direction(const UpdateScalars&) const {
    return {static_cast<S>(1 - momentum), static_cast<S>(nesterov ? momentum : 1)};
  }
  template <class S, class D>
  constexpr Tensor<S, 2, D> matrix_update(const Tensor<S, 2, D>& u) const;
  template <class S>
  struct MatrixRule {
    S shrink, step;

    template <std::size_t N>
    DSPP_HOST_DEVICE void operator()(UpdateBlock<S, N>& block) const {
      for (std::size_t k = 0; k < N; ++k) block.new_value[k] = shrink * block.value[k] - step * block.gradient[k];
    }
  };
  template <class S>
  MatrixRule<S> matrix_rule(const UpdateScalars& scalars, const MatrixShape& shape) const {
    return {static_cast<S>(scalars.decay ? 1 - scalars.lr * weight_decay : 1),
            static_cast<S>(scalars.lr * factor(shape))};
  }

 private:
  double factor(const MatrixShape& shape) const {
    const double rows = static_cast<double>(shape.rows), columns = static_cast<double>(shape.columns);
    if (rate == MuonRate::match_rms_adamw) return 0.2 * std::sqrt(std::max(rows, columns));
    return std::sqrt(rate == MuonRate::original ? std::max(1.0, rows / columns) : rows / columns);
  }
};

/// The smaller of the two products X X^T and X^T X.
template <class S, class D>
constexpr Tensor<S, 2, D> Muon::matrix_update(const Tensor<S, 2, D>& u) const {
  const bool tall = u[0] > u[1];
  auto x = u;  // no conditional expression: g++ 12 frees its temporary twice in constant expressions
  if (tall) x = ops::transpose(u, {1, 0});
  x = ops::normalize(std::move(x), epsilon);
  for (int i = 0; i < iterations; ++i) {
    const auto gram = ops::matmul(x, Transpose::no, x, Transpose::yes);
    const auto polynomial = ops::matmul(gram, Transpose::no, gram, Transpose::no);
    ops::combine_into(polynomial, c, gram, b);
    const auto next = ops::matmul(polynomial, Transpose::no, x, Transpose::no);
    ops::combine_into(next, 1, x, a);
    x = next;
  }
  if (!tall) return x;
  return ops::transpose(x, {1, 0});
}

static_assert(IsOptimizer<Muon> && detail::asks_for_matrices<Muon>);

#if !DSPP_HAS_KERNELS()
DSPP_UPDATE_KERNELS(extern template, Muon)
#endif

}  // namespace dspp
