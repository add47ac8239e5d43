// SPDX-License-Identifier: Apache-2.0
/// The optimizers of drawn tasks, most of them in one type, so that one instantiation of Engine serves them, and their
/// parameter groups.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include <dspp/nn/parameter_group.hpp>
#include <dspp/optim/adagrad.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/optim/lamb.hpp>
#include <dspp/optim/lion.hpp>
#include <dspp/optim/muon.hpp>
#include <dspp/optim/sgd.hpp>
#include <laws/random_tasks.hpp>

namespace dspp::laws {

/// One of the library's optimizers of elements. Their epsilons are large, so that a gradient of rounding errors alone,
/// such as that of a bias of keys, moves a parameter as little as under Sgd.
struct DrawnOptimizer {
  static constexpr const char* name = "DrawnOptimizer";
  static constexpr int moment_count = 2;

  double lr = 0.05;
  double weight_decay = 0;
  OptimizerKind kind = OptimizerKind::sgd;
  double momentum = 0.7;  ///< where there is one

  constexpr void describe(auto&& f) const {
    f("lr", lr), f("weight_decay", weight_decay), f("kind", static_cast<int>(kind)), f("momentum", momentum);
  }

  template <class S>
  auto rule(const UpdateScalars& scalars) const {
    return
        [which = kind, sgd = Sgd{.weight_decay = weight_decay}.rule<S>(scalars),
         momentum = MomentumSgd{.momentum = momentum, .nesterov = true, .weight_decay = weight_decay}.rule<S>(scalars),
         adamw = AdamW{.beta1 = momentum, .beta2 = 0.9, .epsilon = 1, .weight_decay = weight_decay}.rule<S>(scalars),
         adagrad = Adagrad{.lr_decay = 0.1, .epsilon = 1, .weight_decay = weight_decay}.rule<S>(scalars),
         lion = Lion{.beta1 = momentum, .weight_decay = weight_decay}.rule<S>(scalars)]<std::size_t N>(
            UpdateBlock<S, N>& block) {
          for (int m = 0; m < moment_count; ++m)
            for (std::size_t k = 0; k < N; ++k) block.new_moments[m][k] = block.moments[m][k];
          switch (which) {
            case OptimizerKind::sgd: return sgd(block);
            case OptimizerKind::momentum: return momentum(block);
            case OptimizerKind::adagrad: return adagrad(block);
            case OptimizerKind::lion: return lion(block);
            default: return adamw(block);
          }
        };
  }
};

static_assert(IsOptimizer<DrawnOptimizer>);

/// The optimizer of a task: O, whose kind is drawn if O is DrawnOptimizer.
template <class O>
O optimizer_of(const DrawnTask& task, double momentum = 0.7) {
  if constexpr (std::is_same_v<O, Muon>)
    return {.lr = task.lr,
            .momentum = momentum,
            .weight_decay = task.weight_decay,
            .iterations = 2,
            .epsilon = 1,
            .rate = MuonRate::match_rms_adamw,
            .others = {.lr = task.lr / 2, .beta1 = momentum, .beta2 = 0.9, .epsilon = 1, .weight_decay = 0.1}};
  else if constexpr (std::is_same_v<O, Sgd>)
    return Sgd{.lr = task.lr, .weight_decay = task.weight_decay};
  else if constexpr (std::is_same_v<O, Lamb>)
    // min_ratio: a norm of 0 has the ratio 1, and so has one of rounding errors
    return {.lr = task.lr,
            .beta1 = momentum,
            .beta2 = 0.9,
            .epsilon = 1,
            .weight_decay = task.weight_decay,
            .min_ratio = 1};
  else
    return {.lr = task.lr, .weight_decay = task.weight_decay, .kind = task.optimizer, .momentum = momentum};
}

/// The drawn group. Under Muon one group has the table of the tokens, which it updates as a whole.
template <class O>
ParameterGroups groups_of(const DrawnTask& task) {
  constexpr bool muon = std::is_same_v<O, Muon>;
  if (task.group == GroupKind::none && !muon) return {};
  const bool part = task.group >= GroupKind::part;
  const bool frozen = task.group == GroupKind::frozen_part || (task.group == GroupKind::frozen_tokens && !muon);
  const auto is_token = [](std::string_view p) { return p.find("tokens") != p.npos; };
  ParameterGroup drawn{.name = "drawn", .contains = is_token, .matrices = MatrixUpdate::always, .frozen = frozen};
  if (part) drawn.contains = [](std::string_view p) { return p.starts_with("0."); };
  if (!frozen) drawn.lr_factor = 0.3, drawn.weight_decay = 0.2;
  if (muon && part) return {drawn, {.name = "tokens", .contains = is_token, .matrices = MatrixUpdate::always}};
  return {drawn};
}

}  // namespace dspp::laws
