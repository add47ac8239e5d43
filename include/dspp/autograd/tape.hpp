// SPDX-License-Identifier: Apache-2.0
/// The tape: a list of {saved inputs, backward}, run in reverse once. Not a graph walk.
#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include <dspp/autograd/context.hpp>
#include <dspp/ops/arithmetic.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp {

/// Names the gradient of one variable on its tape. A variable that needs no gradient has none.
struct Slot {
  int number = -1;
};

/// Records operations and runs their backwards. A value; several may live (pipelines, recompute).
///
/// Memory   one node per operation, freed with what it saved as soon as its backward has run. Gradients are handed over
///          by move: an operation that receives the only handle may write into it.
///
/// Nodes are type-erased by function pointers: nvcc stops on virtual functions of class templates in constant
/// expressions.
template <Device D>
class Tape {
 public:
  constexpr explicit Tape(Context<D>& context) : context_(&context) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  constexpr ~Tape() { clear(); }

  constexpr Context<D>& context() const { return *context_; }
  constexpr Memory<D>& memory() const { return *context_->memory; }

  constexpr bool recording() const { return recording_; }
  /// Records, or does not, until the end of the scope: also when that comes by an exception.
  class [[nodiscard]] Recording {
   public:
    constexpr Recording(Tape& tape, bool recording) : tape_(tape), before_(std::exchange(tape.recording_, recording)) {}
    constexpr ~Recording() { tape_.recording_ = before_; }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

   private:
    Tape& tape_;
    bool before_;
  };
  constexpr Size node_count() const { return count_; }

  /// A new slot while recording, none otherwise.
  constexpr Slot new_slot() { return recording_ ? Slot{slots_++} : Slot{}; }

  /// Adds `gradient` to the slot's. In place when one of the two is held by nobody else.
  template <class T, int Rank>
  constexpr void give(Slot slot, Tensor<T, Rank, D> gradient);

  /// True if somebody gave the slot a gradient that nobody took.
  constexpr bool has_gradient(Slot slot) const {
    const auto i = static_cast<std::size_t>(slot.number);
    return slot.number >= 0 && i < gradients_.size() && static_cast<bool>(gradients_[i].storage);
  }

  /// Moves the slot's gradient out; empty if nobody gave one.
  template <class T, int Rank>
  constexpr Tensor<T, Rank, D> take(Slot slot, const Shape<Rank>& shape);

  /// Records `backward(tape, dy)`, to be called with the gradient of `output` unless that stays empty.
  template <class T, int Rank, class Backward>
  constexpr void record(Slot output, const Shape<Rank>& shape, Backward&& backward);

  /// Records `backward(tape)`, to be called in any case: a boundary.
  template <class Backward>
  constexpr void record_boundary(Backward&& backward);

  /// Seeds the gradient of `output` and runs every backward in reverse; leaves the tape empty but for the gradients of
  /// inputs (take them before clear()).
  template <class T, int Rank>
  constexpr void backward(Slot output, Tensor<T, Rank, D> seed);

  /// Drops all nodes and gradients.
  constexpr void clear();

 private:
  struct Node {
    void (*run)(Node*, Tape&);
    void (*destroy)(Node*);
    Node* before = nullptr;
  };
  template <class Backward>
  struct BoundaryNode;
  template <class T, int Rank, class Backward>
  struct OutputNode;
  struct Gradient {
    Storage<Memory<D>> storage;
    Size offset = 0;
  };

  constexpr Gradient& gradient_of(Slot slot) {
    if (gradients_.size() < static_cast<std::size_t>(slots_)) gradients_.resize(static_cast<std::size_t>(slots_));
    return gradients_[static_cast<std::size_t>(slot.number)];
  }
  constexpr void push(Node* node) {
    node->before = last_;
    last_ = node;
    ++count_;
  }
  constexpr Node* pop() {
    Node* node = last_;
    last_ = node->before;
    --count_;
    return node;
  }

  Context<D>* context_;
  Node* last_ = nullptr;  // a list, not a vector: constant expressions count every move of a growing one
  Size count_ = 0;
  int slots_ = 0;
  std::vector<Gradient> gradients_;
  bool recording_ = true;
};

// ---------------------------------------------------------------------------------------------------------------------

template <Device D>
template <class Backward>
struct Tape<D>::BoundaryNode : Node {
  Backward backward;
  constexpr explicit BoundaryNode(Backward&& f)
      : Node{[](Node* node, Tape& tape) { static_cast<BoundaryNode*>(node)->backward(tape); },
             [](Node* node) { delete static_cast<BoundaryNode*>(node); }},
        backward(std::move(f)) {}
};

template <Device D>
template <class T, int Rank, class Backward>
struct Tape<D>::OutputNode : Node {
  Slot output;
  Shape<Rank> shape;
  Backward backward;
  constexpr OutputNode(Slot slot, const Shape<Rank>& extents, Backward&& f)
      : Node{[](Node* node, Tape& tape) { static_cast<OutputNode*>(node)->go(tape); },
             [](Node* node) { delete static_cast<OutputNode*>(node); }},
        output(slot),
        shape(extents),
        backward(std::move(f)) {}
  constexpr void go(Tape& tape) {
    auto dy = tape.template take<T, Rank>(output, shape);  // in the condition, nvcc loses it in constant expressions
    if (dy) backward(tape, std::move(dy));
  }
};

template <Device D>
template <class T, int Rank>
constexpr void Tape<D>::give(Slot slot, Tensor<T, Rank, D> gradient) {
  if (slot.number < 0) return;
  Gradient& sum = gradient_of(slot);
  if (sum.storage) {
    const Shape<1> flat{{gradient.count()}};
    auto old = Tensor<T, 1, D>::view(std::move(sum.storage), sum.offset, flat);
    auto fresh = Tensor<T, 1, D>::view(std::move(gradient).take_storage(), gradient.offset(), flat);
    if (old.unique()) {
      ops::add_into(old, fresh);
    } else if (fresh.unique()) {
      ops::add_into(fresh, old);
      old = std::move(fresh);
    } else {
      old = ops::add(old, fresh);
    }
    sum.offset = old.offset();
    sum.storage = std::move(old).take_storage();
  } else {
    sum.offset = gradient.offset();
    sum.storage = std::move(gradient).take_storage();
  }
}

template <Device D>
template <class T, int Rank>
constexpr Tensor<T, Rank, D> Tape<D>::take(Slot slot, const Shape<Rank>& shape) {
  if (slot.number < 0) return {};
  Gradient& sum = gradient_of(slot);
  if (!sum.storage) return {};
  return Tensor<T, Rank, D>::view(std::move(sum.storage), sum.offset, shape);
}

template <Device D>
template <class T, int Rank, class Backward>
constexpr void Tape<D>::record(Slot output, const Shape<Rank>& shape, Backward&& backward) {
  if (recording_) push(new OutputNode<T, Rank, std::remove_cvref_t<Backward>>(output, shape, std::move(backward)));
}

template <Device D>
template <class Backward>
constexpr void Tape<D>::record_boundary(Backward&& backward) {
  if (recording_) push(new BoundaryNode<std::remove_cvref_t<Backward>>(std::move(backward)));
}

template <Device D>
template <class T, int Rank>
constexpr void Tape<D>::backward(Slot output, Tensor<T, Rank, D> seed) {
  if (output.number < 0)
    fail(ErrorCode::state,
         "dspp: backward needs an output that was recorded, but the tape was not recording. Call forward while "
         "training.");
  give(output, std::move(seed));
  struct Phase {
    Context<D>& context;
    bool before;  // tapes nest: recompute
    constexpr explicit Phase(Context<D>& c) : context(c), before(std::exchange(c.in_backward, true)) {
      context.memory->set_backward(true);
    }
    constexpr ~Phase() {
      context.memory->set_backward(false);
      context.in_backward = before;
    }
  } phase(*context_);
  while (last_) {
    Node* node = pop();
    struct Destroy {
      Node* node;
      constexpr ~Destroy() { node->destroy(node); }
    } destroy{node};
    node->run(node, *this);
  }
}

template <Device D>
constexpr void Tape<D>::clear() {
  while (last_) {
    Node* node = pop();
    node->destroy(node);
  }
  gradients_.clear();
  slots_ = 0;
}

}  // namespace dspp
