// SPDX-License-Identifier: Apache-2.0
/// What a forward says of its loss, and numbers that it reports beside it.
#pragma once

#include <string_view>

#include <dspp/autograd/variable.hpp>
#include <dspp/ops/counted_targets.hpp>

namespace dspp {

/// Reports a number of this micro-batch, such as an accuracy or a term of the loss: `report("accuracy", mean(right))`.
/// A step's StepReport and eval_batch have its mean over the counted targets, as that of the loss: over the ranks along
/// Data and Cp and over micro-steps. Nothing waits for it, and no gradient flows from it. Report the same names, in one
/// order, on every rank, and in every micro-step of a step; `name` is a literal. Without an engine's forward
/// it does nothing.
///
/// Note     where ranks or micro-steps ignore unequal shares of targets, report sum(x) / (the counted targets): a step
///          with a mean(x), if only in a report, is refused there
/// Memory   8 bytes a report, and 128 in an engine
/// Throws   Error(usage) for a second report of that name in one forward, or more than max_reports; in backward, for
///          other names than in the step's first; in a step that checks the ranks, for other names on other ranks
template <class T, int Rank, Device D, class Where>
constexpr void report(const char* name, const Variable<T, Rank, D, Where>& value) {
  constexpr bool number = Rank == 0 && Finished<typename Where::tp>;
  static_assert(
      number,
      "dspp: report needs one number that every rank of Tp has, but this value has dimensions, or is a sum that "
      "is pending. Take its mean or sum, and redistribute<Invariant>(x).");
  Context<D>& context = value.tape().context();
  if (context.in_backward || !number) return;
  for (const Reported<D>& other : context.reports) {
    // clang-format off
    require(std::string_view(other.name) != name, "dspp: report needs a name once in a forward, but got it twice. Give the two numbers different names, or add them.");
    // clang-format on
  }
  // clang-format off
  require(context.reports.size() < max_reports, "dspp: a forward needs at most 16 reports, but this is one more. Report fewer numbers.");
  // clang-format on
  if constexpr (number) context.reports.push_back(Reported<D>{name, ops::widen(value.value())});
}

/// The loss as it is; but its mean over ranks and micro-steps is that over their samples, or over all targets of
/// loss(tokens, targets), whatever its terms count: for terms that are means over different targets, such as masked
/// words and pairs of sentences. `return mean_over_samples(words + pairs);`
///
/// Note     this is the mean that data parallelism takes elsewhere. Where a term's ignored targets are unevenly spread
///          it depends on how ranks, Cp and micro-steps divide the batch, unlike that over counted targets
/// Throws   Error(usage) in backward, if another micro-step of the step has none; in a step that checks the ranks, if
///          another rank has none
template <class T, Device D, class Where>
constexpr Variable<T, 0, D, Where> mean_over_samples(Variable<T, 0, D, Where> loss) {
  Context<D>& context = loss.tape().context();
  if (!context.in_backward) context.targets.all_count = true;
  return loss;
}

}  // namespace dspp
