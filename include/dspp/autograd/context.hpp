// SPDX-License-Identifier: Apache-2.0
/// The context of a computation: memory, the groups of ranks that it communicates with, and the position in random
/// streams.
#pragma once

#include <cstdint>
#include <utility>

#include <dspp/autograd/finite_probe.hpp>
#include <dspp/base/list.hpp>
#include <dspp/base/philox.hpp>
#include <dspp/comm/any_communicator.hpp>
#include <dspp/comm/recorder.hpp>
#include <dspp/mesh/axis.hpp>
#include <dspp/ops/attention_kernels.hpp>
#include <dspp/ops/step_numbers.hpp>
#include <dspp/placement/offload.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp {

namespace detail {
template <Device D>
struct CommunicatorChoice {
  using type = AnyCommunicator;
};
template <class D>
struct CommunicatorChoice<MetaOf<D>> {
  using type = Recorder<>;
};
}  // namespace detail

/// The communicator of a device: any transport behind one dispatch, or paper.
template <Device D>
using CommunicatorOf = typename detail::CommunicatorChoice<D>::type;

/// The step's position in the random streams: dropout draws by (step, global sample, site, element).
struct RandomPosition {
  PhiloxKey key{};
  Size step = 0;          ///< of the optimizer
  Size first_sample = 0;  ///< the global index of this rank's first sample in the micro-batch
  Size samples = 0;       ///< of this rank in the micro-batch; 0: not known
};

/// The target counts that the terms of one forward's loss reported.
template <Device D>
struct CountedTargets {
  List<Scalar<double, D>> of_terms;  ///< if they differ, no one weight is right for all
  double most = 0;                   ///< of the targets of a term, ignored or not; 0: not known
  bool unweighted = false;           ///< a term had targets without weights
  bool plain_mean = false;           ///< mean(x) was taken over all elements, ignored targets or not
  int terms = 0, means = 0;          ///< of the forward; of them cross-entropies
  int means_of_loss = 0;             ///< cross-entropies that got a gradient
  bool all_count = false;            ///< mean_over_samples: what the terms count is not asked

  /// Of the next forward; the list keeps its memory.
  constexpr void clear() {
    of_terms.clear();
    List<Scalar<double, D>> kept(std::move(of_terms));
    *this = {};
    of_terms = std::move(kept);
  }
};

/// How many numbers a forward may report.
inline constexpr std::size_t max_reports = 16;

/// A number that a forward reported beside its loss.
template <Device D>
struct Reported {
  const char* name = "";
  Scalar<double, D> value{};
};

/// A file of what recomputations keep, implemented by zero/input_file.hpp. Function pointers, not virtual functions:
/// see Tape.
template <Device D>
struct InputFile {
  /// Keeps `bytes` bytes of a storage; returns their number.
  std::int64_t (*keep)(InputFile&, const Storage<Memory<D>>& from, Size offset, Size bytes) = nullptr;
  /// Copies them to the beginning of a storage of the device, and forgets them, also if it throws.
  void (*take)(InputFile&, std::int64_t number, const Storage<Memory<D>>& to) = nullptr;
  /// Forgets them.
  void (*drop)(InputFile&, std::int64_t number) noexcept = nullptr;
};

/// How recomputations keep their inputs until backward (autograd/kept_input.hpp).
template <Device D>
struct KeptInputs {
  InputFile<D>* file = nullptr;             ///< in this file; null: in memory
  Memory<D>* host = nullptr;                ///< in this memory; null: where they are
  bool partitioned = false;                 ///< a part on each rank of Tp, where all have the same
  OffloadDivision division{OffloadPart{}};  ///< of this forward's: which are in `host`

  /// Where the next one is kept; null: where it is.
  constexpr Memory<D>* place_of(Size bytes) { return host && division.moves(bytes) ? host : nullptr; }
};

/// One per rank; referenced by tapes.
template <Device D>
struct Context {
  Memory<D>* memory = nullptr;
  PerAxis<CommunicatorOf<D>*> along{};  ///< the group along each axis; null for cp: sequences are whole; for pp: none
  RandomPosition random{};
  const StepNumbers* numbers = nullptr;  ///< in the device's memory, where the launches of a step may be repeated
  bool training = false;                 ///< a training step: dropout is active
  bool in_backward = false;              ///< a forward that runs now is a recomputation
  double expected_seed = 0;      ///< the gradient that backward gives the loss if all targets count 1; 0: not known
  CountedTargets<D> targets{};   ///< of the current forward
  List<Reported<D>> reports{};   ///< of the current forward
  FiniteProbe* probe = nullptr;  ///< checks every computed value; null: no checks
  AttentionKernels attention_by = AttentionKernels::fastest;
  KeptInputs<D> kept_inputs{};
  bool recomputes_functions = false;  ///< results of activation functions, for backward

  /// Reports that a term of the loss is a mean over `counted` targets: its weight against other ranks and micro-steps.
  /// cross_entropy calls it; a loss of your own must if not every target counts 1: with target_weights, `counted` is
  /// the sum of the weights of the targets that are not ignored.
  ///
  /// Throws   Error(usage) for a number below 0 or not finite
  constexpr void loss_counts(double counted) {
    // clang-format off
    require(counted >= 0 && counted - counted == 0, "dspp: Engine needs a loss that counts 0 targets or more, but got another number. Change loss_counts().");
    // clang-format on
    if (in_backward) return;
    ++targets.terms;
    auto number = Scalar<double, D>::uninitialized(shape(), *memory, Category::activations, "counted targets");
    number.fill(counted);
    targets.of_terms.push_back(std::move(number));
  }
  /// The same for a number in the device's memory, of `all` targets, ignored or not (0: not known); the error is thrown
  /// now, or when the host next synchronizes.
  constexpr void loss_counts(const Scalar<double, D>& counted, double all = 0) {
    // clang-format off
    require(static_cast<bool>(counted), "dspp: loss_counts needs a number, but its Scalar was never set. Count the targets, or leave the call out.");
    // clang-format on
    if (in_backward) return;
    ++targets.terms;
    targets.of_terms.push_back(counted);
    if (all > targets.most) targets.most = all;
  }
  /// Reports that the last term is a cross-entropy's, which calls has_gradient() in its backward.
  constexpr void takes_mean() {
    if (!in_backward) ++targets.means;
  }
  constexpr void has_gradient() { ++targets.means_of_loss; }
  /// Reports a term of the loss without target weights.
  constexpr void takes_unweighted() {
    if (!in_backward) targets.unweighted = true;
  }
  /// Reports a mean over elements: beside ignored targets it has one weight only if all micro-batches ignore the same
  /// share.
  constexpr void takes_plain_mean() {
    if (!in_backward) targets.plain_mean = true;
  }

  constexpr int cp_size() const { return along.cp ? along.cp->size() : 1; }
  constexpr int cp_rank() const { return along.cp ? along.cp->rank() : 0; }
};

}  // namespace dspp
