// SPDX-License-Identifier: Apache-2.0
/// Groups of parameters, by their global names: a learning rate and a weight decay of their own, or frozen.
#pragma once

#include <initializer_list>
#include <string_view>

#include <dspp/base/error.hpp>

namespace dspp {

/// How an optimizer that asks for whole matrices, such as Muon, updates the matrices of a group.
enum class MatrixUpdate {
  in_blocks,  ///< as a whole inside of blocks, which are units of their own; element by element outside
  never,      ///< element by element
  always,     ///< as a whole
};

/// The parameters whose global name `contains` accepts, such as "blocks.0.mlp.up.weight", and that no earlier group
/// has. A parameter of no group has the optimizer's settings.
///
///   EngineConfig{.groups = {{.name = "table", .contains = [](std::string_view p) { return p.starts_with("tokens"); },
///                            .frozen = true}}}
///
/// A frozen parameter keeps its value: it has no gradient, master or moments, and none is reduced or exchanged. (Under
/// Zero<3> its values are gathered for use, as all are.) Gradients of what comes before it still pass through.
struct ParameterGroup {
  const char* name = "";                         ///< for error sentences and checkpoints
  bool (*contains)(std::string_view) = nullptr;  ///< a function without state: plans call it in constant expressions
  double lr_factor = 1;                          ///< of the engine's learning rate, also of a schedule's
  double weight_decay =
      -1;  ///< in place of the optimizer's, also where a layer's parameter does not decay; -1: neither
  MatrixUpdate matrices = MatrixUpdate::in_blocks;
  bool frozen = false;
};

/// Up to 8 groups, in order.
class ParameterGroups {
 public:
  static constexpr int most = 8;

  constexpr ParameterGroups() = default;
  /// Throws   Error(usage) for more than 8 groups, for one without a predicate, and for numbers out of range
  constexpr ParameterGroups(std::initializer_list<ParameterGroup> groups);

  constexpr int size() const { return size_; }
  constexpr const ParameterGroup* begin() const { return groups_; }
  constexpr const ParameterGroup* end() const { return groups_ + size_; }
  /// The group of a parameter; null if none contains it.
  constexpr const ParameterGroup* find(std::string_view parameter) const {
    for (const ParameterGroup& group : *this)
      if (group.contains(parameter)) return &group;
    return nullptr;
  }

 private:
  ParameterGroup groups_[most];
  int size_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------------

constexpr ParameterGroups::ParameterGroups(std::initializer_list<ParameterGroup> groups) {
  // clang-format off
  require(static_cast<int>(groups.size()) <= most, "dspp: Engine needs at most 8 parameter groups, but got more. Let one predicate accept the parameters of several.");
  for (const ParameterGroup& group : groups) {
    require(group.contains != nullptr, "dspp: a parameter group needs a predicate on names, but has none. Set contains, a function of a std::string_view.");
    require(group.lr_factor >= 0 && group.lr_factor - group.lr_factor == 0, "dspp: a parameter group needs an lr_factor of at least 0, but got another. Change it.");
    const bool decays = group.weight_decay >= 0 && group.weight_decay - group.weight_decay == 0;
    require(decays || group.weight_decay == -1, "dspp: a parameter group needs a weight_decay of at least 0, or -1 for the optimizer's, but got another. Change it.");
    groups_[size_++] = group;
  }
  // clang-format on
}

}  // namespace dspp
