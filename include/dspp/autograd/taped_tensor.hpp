// SPDX-License-Identifier: Apache-2.0
/// A differentiable value without its placement: what operations compute with.
#pragma once

#include <utility>

#include <dspp/autograd/tape.hpp>
#include <dspp/tensor/operation.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp {

namespace detail {
[[noreturn]] void refuse_without_tape();
}

/// A local tensor and its slot on a tape.
template <class T, int Rank, Device D>
class TapedTensor {
 public:
  using Element = T;
  using DeviceType = D;
  static constexpr int rank = Rank;

  constexpr TapedTensor() = default;
  /// A value computed under `tape`: gets a slot while the tape records, and is shown to the FiniteProbe, if any.
  constexpr TapedTensor(Tensor<T, Rank, D>&& value, Tape<D>& tape)
      : TapedTensor(std::move(value), tape, tape.template new_slot<T>(value.shape()), 0) {
    if (FiniteProbe* const probe = tape.context().probe) probe->see(value_);
  }

  /// A value of a slot that exists, or has none.
  constexpr TapedTensor(Tensor<T, Rank, D>&& value, Tape<D>& tape, const Slot& slot, Size whole)
      : value_(std::move(value)), tape_(&tape), slot_(slot), whole_(whole) {}

  constexpr const Tensor<T, Rank, D>& value() const { return value_; }
  /// Moves the value out.
  constexpr Tensor<T, Rank, D> take_value() && { return std::move(value_); }
  /// Throws   Error(state) for a field of a batch that no forward took
  constexpr Tape<D>& tape() const {
    if (tape_ == nullptr) detail::refuse_without_tape();
    return *tape_;
  }
  constexpr Slot slot() const { return slot_; }
  constexpr const Shape<Rank>& shape() const { return value_.shape(); }
  constexpr Size operator[](int dimension) const { return value_[dimension]; }
  /// For a PaddedShard, the extent of the whole dimension without the padding; 0 for the other states.
  constexpr Size whole() const { return whole_; }
  constexpr Memory<D>& memory() const { return tape().memory(); }
  constexpr void put_on(Tape<D>& tape) { tape_ = &tape; }
  /// How the value may be computed again in backward, so that it need not be kept for that.
  constexpr Recomputation recomputation() const {
    return has_own_value_ || !tape().recording() ? Recomputation{} : tape_->recomputation_of(slot_);
  }

  /// Records `backward(tape, dy)`, with dy of this shape and the only handle of its block if possible.
  template <class Backward>
  constexpr void on_backward(Backward&& backward) const {
    tape_->template record<T, Rank>(slot_, value_.shape(), std::move(backward));
  }

 protected:
  Tensor<T, Rank, D> value_;
  Tape<D>* tape_ = nullptr;
  Slot slot_;
  Size whole_ = 0;
  bool has_own_value_ = false;  // it may be another than the slot was made for
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::refuse_without_tape() {
  fail(ErrorCode::state,
       "dspp: an operation needs values on a tape, but got a field of a batch that is on none. Take it inside of "
       "loss(batch), or of on_tape(batch, tape).");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
