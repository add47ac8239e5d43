// SPDX-License-Identifier: Apache-2.0
/// The tape: a list of {saved inputs, backward}, run once in reverse order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <dspp/autograd/context.hpp>
#include <dspp/autograd/slot.hpp>
#include <dspp/autograd/value_kind.hpp>
#include <dspp/base/list.hpp>
#include <dspp/base/stack_memory.hpp>
#include <dspp/ops/arithmetic.hpp>
#include <dspp/tensor/operation.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp {

namespace operations {
template <class T, int Rank, Device D>
struct Backward;
}

namespace detail {
/// A backward that can compute its operation's output once more.
template <class Backward, class Tape, class Shape>
inline constexpr bool recomputes = requires(const Backward& backward, Tape& tape, const Shape& shape) {
  backward.again(tape, shape);
};
}  // namespace detail

/// Records operations and runs their backwards. Several may exist at once (pipelines, recompute).
///
/// A pass is the time between two calls of clear(). A gradient for a variable of another tape or of an earlier pass is
/// an error, and so is one given after the variable's own backward.
///
/// Memory   one node per operation, freed with what it saved right after its backward, in blocks that later passes use
///          again: a steady step takes nothing from the heap. Gradients are passed by move: an operation with the only
///          handle may write into it.
/// Throws   Error(state) for a slot of another tape or pass, Error(shape) for a gradient unlike its variable
///
/// Nodes are type-erased by function pointers: nvcc stops on virtual functions of class templates in constant
/// expressions. They point to static members: a lambda would be two functions more for each operation of a model.
template <Device D>
class Tape {
  enum class Mode : std::uint8_t { record, constants, rehearse };

 public:
  constexpr explicit Tape(Context<D>& context) : context_(&context), pass_(context.memory->new_number()) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  constexpr ~Tape() { destroy_nodes(); }

  constexpr Context<D>& context() const { return *context_; }
  constexpr Memory<D>& memory() const { return *context_->memory; }

  constexpr bool recording() const { return mode_ == Mode::record; }
  /// What runs now runs again in backward.
  constexpr bool rehearsing() const { return mode_ == Mode::rehearse; }
  /// Turns recording on or off until the end of the scope, also by an exception.
  class [[nodiscard]] Recording {
   public:
    constexpr Recording(Tape& tape, bool recording) : Recording(tape, recording ? Mode::record : Mode::constants) {}
    constexpr ~Recording() { tape_.mode_ = before_; }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

   private:
    friend class Tape;
    constexpr Recording(Tape& tape, Mode mode) : tape_(tape), before_(std::exchange(tape.mode_, mode)) {}

    Tape& tape_;
    Mode before_;
  };
  /// Records nothing until the end of the scope, since what runs in it runs again in backward. Using a value computed
  /// in the scope outside of it is an error in backward.
  constexpr Recording rehearse() { return Recording(*this, Mode::rehearse); }
  constexpr Size node_count() const { return count_; }

  /// A new slot while recording; else Slot::none or Slot::rehearsed. The operation that gets it has computed its value.
  template <class T, int Rank>
  constexpr Slot new_slot(const Shape<Rank>& shape);

  /// Adds `gradient` to the slot's, in place if one of the two has no other handle.
  template <class T, int Rank>
  constexpr void give(Slot slot, Tensor<T, Rank, D> gradient);

  /// True if the slot has a gradient that was not taken.
  constexpr bool has_gradient(Slot slot) const {
    if (slot.number < 0) return false;
    check_pass(slot);
    const auto i = static_cast<std::size_t>(slot.number);
    return i < gradients_.size() && static_cast<bool>(gradients_[i].storage);
  }

  /// Moves the slot's gradient out; empty if there is none.
  template <class T, int Rank>
  constexpr Tensor<T, Rank, D> take(Slot slot, const Shape<Rank>& shape);

  /// Closes the slot when its variable's backward runs: a later gradient would be lost, and is an error.
  constexpr void close(Slot slot) {
    if (slot.number >= 0) gradient_of(slot).closed = true;
  }

  /// Records `backward(tape, dy)`, called with the gradient of `output` unless there is none.
  ///
  /// If it is a GeluArgument, of y = gelu(x), a product that computes a gradient of y may give x's in its place. If it
  /// has `again(tape, shape)`, which returns the output once more, and is_recomputable(), those who need the output in
  /// their backward need not keep it; home(): the unit of the parameters that again() reads, or null.
  template <class T, int Rank, class Backward>
  constexpr void record(Slot output, const Shape<Rank>& shape, Backward&& backward);

  /// Whether, and for whom, recomputed(slot) will have the slot's value in backward.
  constexpr Recomputation recomputation_of(Slot slot) {
    const Recomputable* const found = recomputable(slot);
    return found ? Recomputation{true, found->home} : Recomputation{};
  }
  /// The value of such a slot, whose own backward has not run; computed once for all who ask. Else Error(state).
  template <class T, int Rank>
  constexpr Tensor<T, Rank, D> recomputed(Slot slot, const Shape<Rank>& shape);

  /// Of the result of a gelu that is waiting for gradients; else null.
  constexpr const GeluArgument<D>* gelu_of(Slot slot) const {
    if (slot.number < 0) return nullptr;
    check_pass(slot);
    const auto number = static_cast<std::size_t>(slot.number);
    if (number < gradients_.size() && gradients_[number].closed) return nullptr;
    for (std::size_t i = gelus_.size(); i-- > 0 && gelus_[i].output >= slot.number;)
      if (gelus_[i].output == slot.number) return gelus_[i].argument;
    return nullptr;
  }

  /// Records `backward(tape)`, always called: a boundary.
  template <class Backward>
  constexpr void record_boundary(Backward&& backward);

  /// Notes that the operation recorded next has incremented `pending`, which is decremented if no gradient reaches it.
  constexpr void note_use(int& pending) { uses_.push_back(&pending); }

  /// Seeds the gradient of `output` and runs every backward in reverse; then only the gradients of inputs are left
  /// (take them before clear()).
  template <class T, int Rank>
  constexpr void backward(Slot output, Tensor<T, Rank, D> seed);

  /// For recomputation: records `forward()`, which returns the slot of its output, and runs that part backward with the
  /// output's gradient. Other variables of this pass that forward uses receive their gradients.
  template <class Forward, class T, int Rank>
  constexpr void backward_of(Forward forward, Tensor<T, Rank, D> dy);

  /// Discards all nodes and gradients, and ends the pass.
  constexpr void clear();

 private:
  struct Node {
    bool (*run)(Node*, Tape&);  // true if a gradient reached it
    void (*destroy)(Node*, Tape&);
    Node* before = nullptr;
    std::size_t first_use = 0;  // index of its first noted use
  };
  template <class Backward>
  struct BoundaryNode;
  template <class T, int Rank, class Backward>
  struct OutputNode;
  struct Gradient {
    Storage<Memory<D>> storage;
    Size offset = 0;
    bool closed = false;
  };
  struct Gelu {
    int output = Slot::none;
    const GeluArgument<D>* argument = nullptr;  // in the node, which lives until the output is closed
  };
  struct Recomputable {
    int output = Slot::none;
    const Node* node = nullptr;
    Gradient (*again)(const Node*, Tape&) = nullptr;
    const void* home = nullptr;
    Gradient value{};  // once it was computed again
  };
  constexpr Recomputable* recomputable(const Slot& slot) {
    if (slot.number < 0) return nullptr;
    check_pass(slot);
    for (std::size_t i = recomputables_.size(); i-- > 0 && recomputables_[i].output >= slot.number;)
      if (recomputables_[i].output == slot.number) return &recomputables_[i];
    return nullptr;
  }

  /// Those who compute with the output of such a backward ask for it.
  template <class Backward, int Rank>
  static constexpr bool is_listed =
      std::is_base_of_v<GeluArgument<D>, Backward> || detail::recomputes<Backward, Tape, Shape<Rank>>;
  constexpr void push(Node* node) {  // few statements, which constant expressions count
    node->before = last_, node->first_use = noted_;
    noted_ = uses_.size(), last_ = node, ++count_;
  }
  /// Pushes a node that those who compute with its output ask for.
  template <class T, int Rank, class Backward>
  requires is_listed<Backward, Rank>
  constexpr void push(OutputNode<T, Rank, Backward>* node) {
    push(static_cast<Node*>(node));
    const int output = node->output.number;
    if constexpr (std::is_base_of_v<GeluArgument<D>, Backward>) gelus_.push_back({output, &node->backward});
    if constexpr (detail::recomputes<Backward, Tape, Shape<Rank>>)
      if (node->backward.is_recomputable())
        recomputables_.push_back({output, node, &OutputNode<T, Rank, Backward>::again, node->backward.home(), {}});
  }
  template <int Rank, class Backward>
  constexpr void unlist(const Backward& backward) {
    if constexpr (std::is_base_of_v<GeluArgument<D>, Backward>) gelus_.pop_back();
    if constexpr (detail::recomputes<Backward, Tape, Shape<Rank>>)
      if (backward.is_recomputable()) recomputables_.pop_back();
  }
  constexpr void check_pass(const Slot& slot) const {
    if (slot.pass != pass_ || slot.tape != this) detail::fail_of_pass(slot.tape == this);
  }
  template <class T, int Rank>
  constexpr void check_kind(const Slot& slot, const Shape<Rank>& shape) const {
    if (__builtin_is_constant_evaluated()) {
      const int kind = detail::digest_of_kind<T>(shape, std::make_integer_sequence<int, Rank>{});
      // clang-format off
      require(slot.kind == kind, "dspp: a gradient needs the shape and element type of its variable, but it has others. reshape or cast it before tape.give(slot, dx).",
              ErrorCode::shape);
      // clang-format on
      return;
    }
    detail::require_kind(kinds_[static_cast<std::size_t>(slot.kind)], ValueKind::of<T>(shape));
  }
  template <class T, int Rank>
  constexpr int kind_of(const Shape<Rank>& shape);
  constexpr Gradient& gradient_of(const Slot& slot) {
    check_pass(slot);
    if (gradients_.size() < static_cast<std::size_t>(slots_)) gradients_.resize(static_cast<std::size_t>(slots_));
    return gradients_[static_cast<std::size_t>(slot.number)];
  }
  template <class T>
  constexpr void add_to(Gradient& sum, Size count, Size offset, Storage<Memory<D>>&& gradient);
  /// Destroys a node that ran, also if it threw.
  struct Destroy {
    Node* node;
    Tape& tape;
    constexpr ~Destroy() { node->destroy(node, tape); }
  };
  /// Whether a node lies in the tape's blocks. Those of constant expressions and of unusual alignment are on the heap.
  template <class N>
  static constexpr bool is_in_blocks() {
    return !__builtin_is_constant_evaluated() && alignof(N) <= alignof(std::max_align_t);
  }
  template <class N, class... Of>
  constexpr N* new_node(Of&&... of) {
    if (!is_in_blocks<N>()) return new N(std::forward<Of>(of)...);
    return std::construct_at(static_cast<N*>(blocks_.push(sizeof(N))), std::forward<Of>(of)...);
  }
  template <class N>
  constexpr void delete_node(Node* node) {
    auto* const whole = static_cast<N*>(node);
    if (!is_in_blocks<N>()) return delete whole;
    std::destroy_at(whole);
    blocks_.pop(whole, sizeof(N));
  }
  constexpr Node* pop() {
    Node* node = last_;
    last_ = node->before, --count_;
    return node;
  }
  template <class, int, Device>
  friend struct operations::Backward;
  constexpr void run_back_to(const Node* end);
  constexpr void drop_uses(std::size_t first, bool ran) {
    for (std::size_t i = first; !ran && i < uses_.size(); ++i) --*uses_[i];
    uses_.resize(first);
    noted_ = first;
  }
  constexpr void destroy_nodes() {
    while (last_) {
      Node* node = pop();
      node->destroy(node, *this);
    }
  }

  Context<D>* context_;
  std::uint64_t pass_;
  Node* last_ = nullptr;  // a list: constant expressions count every move of a growing vector
  Size count_ = 0;
  int slots_ = 0;
  List<Gradient> gradients_;
  List<Gelu> gelus_;                  // whose nodes have not run, in the order of their slots
  List<Recomputable> recomputables_;  // as these
  std::vector<ValueKind> kinds_;      // of the slots
  List<int*> uses_;                   // in the order of the nodes
  std::size_t noted_ = 0;             // those that belong to nodes
  Mode mode_ = Mode::record;
  StackMemory blocks_;  // of nodes
};

// ---------------------------------------------------------------------------------------------------------------------

template <Device D>
template <class Backward>
struct Tape<D>::BoundaryNode : Node {
  Backward backward;
  constexpr explicit BoundaryNode(Backward&& f) : Node{&BoundaryNode::go, &BoundaryNode::end}, backward(std::move(f)) {}
  static constexpr bool go(Node* node, Tape& tape) {
    static_cast<BoundaryNode*>(node)->backward(tape);
    return true;
  }
  static constexpr void end(Node* node, Tape& tape) { tape.template delete_node<BoundaryNode>(node); }
};

template <Device D>
template <class T, int Rank, class Backward>
struct Tape<D>::OutputNode : Node {
  Slot output;
  Shape<Rank> shape;
  Backward backward;
  constexpr OutputNode(const Slot& slot, const Shape<Rank>& extents, Backward&& f)
      : Node{&OutputNode::go, &OutputNode::end}, output(slot), shape(extents), backward(std::move(f)) {}
  static constexpr bool go(Node* node, Tape& tape) {
    auto* const self = static_cast<OutputNode*>(node);
    if constexpr (is_listed<Backward, Rank>) tape.unlist<Rank>(self->backward);
    Gradient& sum = tape.gradient_of(self->output);
    sum.closed = true;
    if (!sum.storage) return false;
    self->backward(tape, Tensor<T, Rank, D>::view(std::move(sum.storage), sum.offset, self->shape));
    return true;
  }
  static constexpr void end(Node* node, Tape& tape) { tape.template delete_node<OutputNode>(node); }
  static constexpr Gradient again(const Node* node, Tape& tape) {
    const auto* const self = static_cast<const OutputNode*>(node);
    Tensor<T, Rank, D> value = self->backward.again(tape, self->shape);
    const Size offset = value.offset();
    return {std::move(value).take_storage(), offset};
  }
};

template <Device D>
template <class T, int Rank>
constexpr int Tape<D>::kind_of(const Shape<Rank>& shape) {
  if (__builtin_is_constant_evaluated())  // fewer steps than a list
    return detail::digest_of_kind<T>(shape, std::make_integer_sequence<int, Rank>{});
  return detail::index_of_kind(kinds_, ValueKind::of<T>(shape));
}

template <Device D>
template <class T, int Rank>
constexpr Slot Tape<D>::new_slot(const Shape<Rank>& shape) {
  memory().end_operation();
  if (mode_ == Mode::record) return Slot{slots_++, kind_of<T>(shape), pass_, this};
  return mode_ == Mode::constants ? Slot{} : Slot{.number = Slot::rehearsed};
}

template <Device D>
template <class T, int Rank>
constexpr void Tape<D>::give(Slot slot, Tensor<T, Rank, D> gradient) {
  if (slot.number < 0) {
    if (slot.number == Slot::rehearsed) detail::fail_of_rehearsed();
    return;
  }
  Gradient& sum = gradient_of(slot);
  check_kind<T>(slot, gradient.shape());
  if (sum.closed) detail::fail_of_late_gradient();
  if (sum.storage) return add_to<T>(sum, gradient.count(), gradient.offset(), std::move(gradient).take_storage());
  sum.offset = gradient.offset();
  sum.storage = std::move(gradient).take_storage();
}

template <Device D>
template <class T>
constexpr void Tape<D>::add_to(Gradient& sum, Size count, Size offset, Storage<Memory<D>>&& gradient) {
  const Shape<1> flat{{count}};
  auto old = Tensor<T, 1, D>::view(std::move(sum.storage), sum.offset, flat);
  auto fresh = Tensor<T, 1, D>::view(std::move(gradient), offset, flat);
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
}

template <Device D>
template <class T, int Rank>
constexpr Tensor<T, Rank, D> Tape<D>::take(Slot slot, const Shape<Rank>& shape) {
  if (slot.number < 0) return {};
  Gradient& sum = gradient_of(slot);
  check_kind<T>(slot, shape);
  if (!sum.storage) return {};
  return Tensor<T, Rank, D>::view(std::move(sum.storage), sum.offset, shape);
}

template <Device D>
template <class T, int Rank, class Backward>
constexpr void Tape<D>::record(Slot output, const Shape<Rank>& shape, Backward&& backward) {
  if (output.number >= 0 && recording())
    push(new_node<OutputNode<T, Rank, std::remove_cvref_t<Backward>>>(output, shape, std::move(backward)));
}

template <Device D>
template <class T, int Rank>
constexpr Tensor<T, Rank, D> Tape<D>::recomputed(Slot slot, const Shape<Rank>& shape) {
  Recomputable* const found = recomputable(slot);
  if (found == nullptr) detail::fail_of_kept();
  check_kind<T>(slot, shape);
  if (!found->value.storage) found->value = found->again(found->node, *this);
  return Tensor<T, Rank, D>::view(found->value.storage, found->value.offset, shape);
}

template <Device D>
template <class Backward>
constexpr void Tape<D>::record_boundary(Backward&& backward) {
  if (recording()) push(new_node<BoundaryNode<std::remove_cvref_t<Backward>>>(std::move(backward)));
}

template <Device D>
template <class T, int Rank>
constexpr void Tape<D>::backward(Slot output, Tensor<T, Rank, D> seed) {
  perform<operations::Backward<T, Rank, D>>(*this, output, std::move(seed));
}

namespace operations {
/// Tape::backward.
template <class T, int Rank, Device D>
struct Backward {
  using DeviceType = D;
  static constexpr void run(Tape<D>& tape, const Slot& output, Tensor<T, Rank, D>&& seed) {
    if (output.number < 0)
      fail(ErrorCode::state,
           "dspp: backward needs an output that was recorded, but the tape was not recording. Call forward while "
           "training.");
    tape.give(output, std::move(seed));
    const Phase phase(tape.context());
    tape.run_back_to(nullptr);
  }

 private:
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
  };
};
}  // namespace operations

#define DSPP_BACKWARD_OPERATIONS(TEMPLATE, T) TEMPLATE struct CompiledOperation<operations::Backward<T, 0, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_BACKWARD_OPERATIONS)

template <Device D>
template <class Forward, class T, int Rank>
constexpr void Tape<D>::backward_of(Forward forward, Tensor<T, Rank, D> dy) {
  const Node* const before = last_;
  {
    const Recording on(*this, true);
    give(forward(), std::move(dy));
  }
  run_back_to(before);
}

template <Device D>
constexpr void Tape<D>::run_back_to(const Node* end) {
  while (last_ != end) {
    Node* node = pop();
    const Destroy destroy{node, *this};
    memory().end_operation();
    const bool ran = node->run(node, *this);
    if (node->first_use != uses_.size()) drop_uses(node->first_use, ran);
  }
}

template <Device D>
constexpr void Tape<D>::clear() {
  destroy_nodes();
  if (__builtin_is_constant_evaluated()) {
    gradients_.free(), gelus_.free(), recomputables_.free();  // fewer steps
  } else {
    blocks_.clear();
    gradients_.clear(), gelus_.clear(), recomputables_.clear();
  }
  kinds_.clear();
  uses_.clear();
  noted_ = 0;
  slots_ = 0;
  pass_ = memory().new_number();
}

}  // namespace dspp
