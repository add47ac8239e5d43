// SPDX-License-Identifier: Apache-2.0
/// What a computation needs besides its operands: memory, the ranks it shares work with, and the position in random
/// streams.
#pragma once

#include <dspp/autograd/finite_probe.hpp>
#include <dspp/base/philox.hpp>
#include <dspp/comm/any_communicator.hpp>
#include <dspp/comm/recorder.hpp>
#include <dspp/tensor/device.hpp>

namespace dspp {

namespace detail {
template <Device D>
struct CommunicatorChoice {
  using type = AnyCommunicator;
};
template <>
struct CommunicatorChoice<Meta> {
  using type = Recorder<>;
};
}  // namespace detail

/// The communicator of a device: any transport behind one dispatch, or paper.
template <Device D>
using CommunicatorOf = typename detail::CommunicatorChoice<D>::type;

/// Where the step stands in the random streams: dropout draws by (step, global sample, site, element).
struct RandomPosition {
  PhiloxKey key{};
  Size step = 0;          ///< of the optimizer, counted with its micro-steps
  Size first_sample = 0;  ///< the global index of this rank's first sample in the micro-batch
  Size samples = 0;       ///< of this rank in the micro-batch; 0: not known
};

/// Over how many targets the losses of one forward are means. Zero terms: nobody said so.
struct CountedTargets {
  double least = 0, most = 0;  ///< of the terms: where they differ, no one weight is right for all
  int terms = 0;
  bool valid = true;        ///< all are numbers of at least 0
  bool unweighed = false;   ///< a term had targets without weights
  bool plain_mean = false;  ///< mean(x) was taken: over all elements, whichever targets count

  constexpr void add(double counted) {
    valid = valid && counted >= 0 && counted - counted == 0;
    if (terms == 0 || counted < least) least = counted;
    if (terms == 0 || counted > most) most = counted;
    ++terms;
  }
};

/// One per rank; tapes refer to it.
template <Device D>
struct Context {
  Memory<D>* memory = nullptr;
  CommunicatorOf<D>* tp = nullptr;  ///< the group along Tp
  CommunicatorOf<D>* cp = nullptr;  ///< the group along Cp; null: sequences are whole
  RandomPosition random{};
  bool training = false;         ///< a step that learns: dropout is active
  bool in_backward = false;      ///< what runs forward now, runs again
  CountedTargets targets{};      ///< of the forward under way
  FiniteProbe* probe = nullptr;  ///< sees every value that is computed; null: nobody does

  /// Notes that a term of the loss is a mean over `counted` targets: its weight against other ranks and micro-steps.
  /// cross_entropy says it of itself; a loss of your own says it where not every target of the batch counts 1: of a
  /// batch with target_weights, the sum of those of the targets that are not ignored.
  constexpr void loss_counts(double counted) {
    if (!in_backward) targets.add(counted);
  }
  /// Notes that targets of a term of the loss had no weights.
  constexpr void takes_unweighed() {
    if (!in_backward) targets.unweighed = true;
  }
  /// Notes a mean over elements: with a loss of ignored targets it has one weight only if all ignore the same share.
  constexpr void takes_plain_mean() {
    if (!in_backward) targets.plain_mean = true;
  }

  constexpr int cp_size() const { return cp ? cp->size() : 1; }
  constexpr int cp_rank() const { return cp ? cp->rank() : 0; }
};

}  // namespace dspp
