// SPDX-License-Identifier: Apache-2.0
/// A unit: parameters that enter the computation together, through one arrow over the replica axes.
#pragma once

#include <utility>

#include <dspp/autograd/tape.hpp>
#include <dspp/base/list.hpp>
#include <dspp/zero/replicas.hpp>

namespace dspp {

/// `again`: a forward that runs inside of backward, which has already been where forward would go next.
enum class Pass { forward, backward, again };

/// The parameters of a block (or, for the root unit, of everything outside the blocks) as buckets.
///
/// A unit's boundaries are nodes on the tape: entering gathers, and its backward reduces and releases; leaving
/// releases, and its backward gathers again. Under stages 0 to 2 the values are resident and only the reduction is
/// left.
///
/// Source   Zhao et al. 2023, arXiv:2304.11277 (units); Rajbhandari et al. 2020, arXiv:1910.02054 (stages)
template <class T, Device D>
class Unit : public ParameterHome<D> {
 public:
  using BucketType = Bucket<T, D>;

  constexpr Unit() = default;
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;
  /// Only a description moves: before set_up() no parameter points here.
  constexpr Unit(Unit&& other) noexcept { (void)other; }

  /// Adds a parameter, in order of use.
  constexpr void add(ParameterBase<D>& parameter) {
    if (parameters_.empty()) parameters_.reserve(16);
    parameters_.push_back(&parameter);
  }

  /// Lays the parameters out in buckets, in reverse order of use, and allocates the resident values.
  constexpr void set_up(Replicas<T, D>& replicas);
  /// The neighbours for gathering ahead: the one whose backward begins next, the one that forward enters next.
  constexpr void link_previous(Unit* unit) { previous_ = unit; }
  constexpr void link_next(Unit* unit) { next_ = unit; }

  constexpr void enter(Tape<D>& tape);
  constexpr void leave(Tape<D>& tape);

  /// Gathers the values and, ahead, those of the next unit in the direction of the pass; again, none.
  constexpr void open(Pass pass);
  constexpr void release();

  constexpr List<BucketType>& buckets() { return buckets_; }
  constexpr const List<BucketType>& buckets() const { return buckets_; }
  constexpr const List<ParameterBase<D>*>& parameters() const { return parameters_; }

  /// Starts the reduction of every bucket that holds unreduced gradients.
  constexpr void reduce_rest();
  /// The same before a step: a bucket that received no gradient at all counts as zero.
  constexpr void reduce_for_step();
  /// Drops all gradients.
  constexpr void drop_gradients();
  /// Forgets a forward whose backward will not come.
  constexpr void abandon();

 private:
  constexpr void lay_out(Size alignment, Size replicas);
  constexpr void gather();
  constexpr void gather_ahead();
  constexpr void start_reduce(BucketType& b);
  static constexpr void expect_all(BucketType& b);
  constexpr void fill_gaps(BucketType& b);
  constexpr const Storage<Memory<D>>& unreduced(BucketType& b);
  static constexpr const Storage<Memory<D>>& gradient_of(ParameterHome<D>& home, ParameterBase<D>& p);
  static constexpr void on_finished(ParameterHome<D>& home, ParameterBase<D>& p);

  Replicas<T, D>* replicas_ = nullptr;
  bool values_are_split_ = false;  // before set_up() there is nothing to gather: whoever is the home keeps the values
  Unit *previous_ = nullptr, *next_ = nullptr;
  List<ParameterBase<D>*> parameters_;
  List<BucketType> buckets_;
};

/// Holds a unit open for a scope, without nodes on a tape: what a layer does that records one node for several units
/// (models/tiled_linear.hpp). Closing starts no reduction: a bucket whose last gradient came has started its own.
template <class T, Device D>
class OpenUnit {
 public:
  constexpr OpenUnit(Unit<T, D>& unit, Pass pass) : unit_(unit) { unit_.open(pass); }
  constexpr ~OpenUnit() { unit_.release(); }
  OpenUnit(const OpenUnit&) = delete;
  OpenUnit& operator=(const OpenUnit&) = delete;

 private:
  Unit<T, D>& unit_;
};

// ---------------------------------------------------------------------------------------------------------------------

template <class T, Device D>
constexpr void Unit<T, D>::lay_out(Size alignment, Size replicas) {
  const Size limit = replicas_->config().bucket_bytes / static_cast<Size>(sizeof(T));
  BucketType* b = nullptr;
  int number = -1;
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    ParameterBase<D>* const p = parameters_[i];
    const Size size = round_up(p->count(), alignment);
    if (!b || b->count + size > limit) {
      buckets_.resize(static_cast<std::size_t>(++number + 1));
      b = &buckets_.back();
      b->parameters.reserve(parameters_.size());
    }
    p->home = this;
    p->bucket = number;
    p->offset = b->count;
    b->parameters.push_back(p);
    b->count += size;
  }
  for (BucketType& laid : buckets_) {
    laid.count = round_up(laid.count, alignment * replicas);
    laid.unfinished = static_cast<int>(laid.parameters.size());
  }
}

template <class T, Device D>
constexpr void Unit<T, D>::set_up(Replicas<T, D>& replicas) {
  replicas_ = &replicas;
  this->gradient_storage = &gradient_of;
  this->finished = &on_finished;
  this->wide_gradients = replicas.config().wide_gradients;
  values_are_split_ = replicas.rule().values_are_split();
  lay_out(block_alignment / static_cast<Size>(sizeof(T)), replicas.group().size());
  this->values.resize(buckets_.size());
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    BucketType& b = buckets_[i];
    b.number = replicas.number_of_new_bucket();
    const Size resident = values_are_split_ ? replicas.owned(b).count() : b.count;
    b.values = Tensor<T, 1, D>::zeros(Shape<1>{{resident}}, replicas.memory(), Category::parameters, "parameters");
    if (!values_are_split_) this->values[i] = b.values.storage();
  }
}

template <class T, Device D>
constexpr void Unit<T, D>::open(Pass pass) {
  gather();
  Unit* const ahead = pass == Pass::forward ? next_ : pass == Pass::backward ? previous_ : nullptr;
  if (ahead) ahead->gather_ahead();
}

template <class T, Device D>
constexpr void Unit<T, D>::enter(Tape<D>& tape) {
  open(Pass::forward);
  tape.record_boundary([this](Tape<D>&) {
    if (replicas_->rule().gradients == Lifetime::until_bucket) reduce_rest();
    release();
  });
}

template <class T, Device D>
constexpr void Unit<T, D>::leave(Tape<D>& tape) {
  release();
  tape.record_boundary([this](Tape<D>&) { open(Pass::backward); });
}

template <class T, Device D>
constexpr void Unit<T, D>::gather() {
  if (!values_are_split_) return;
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if (!this->values[i]) this->values[i] = replicas_->start_gather(buckets_[i]);
  for (BucketType& b : buckets_) replicas_->complete(b);
}

template <class T, Device D>
constexpr void Unit<T, D>::gather_ahead() {
  if (!values_are_split_) return;
  for (std::size_t i = 0; i < buckets_.size() && replicas_->has_room(); ++i)
    if (!this->values[i]) this->values[i] = replicas_->start_gather(buckets_[i]);
}

template <class T, Device D>
constexpr void Unit<T, D>::release() {
  if (!values_are_split_) return;
  for (Storage<Memory<D>>& gathered : this->values) gathered.release();
}

template <class T, Device D>
constexpr const Storage<Memory<D>>& Unit<T, D>::unreduced(BucketType& b) {
  if (!b.gradient)
    b.gradient =
        Storage<Memory<D>>(replicas_->memory(), replicas_->gradient_bytes(b.count), Category::gradients, "gradients");
  return b.gradient;
}

template <class T, Device D>
constexpr const Storage<Memory<D>>& Unit<T, D>::gradient_of(ParameterHome<D>& home, ParameterBase<D>& p) {
  auto& unit = static_cast<Unit&>(home);
  return unit.unreduced(unit.buckets_[static_cast<std::size_t>(p.bucket)]);
}

template <class T, Device D>
constexpr void Unit<T, D>::on_finished(ParameterHome<D>& home, ParameterBase<D>& p) {
  auto& unit = static_cast<Unit&>(home);
  BucketType& b = unit.buckets_[static_cast<std::size_t>(p.bucket)];
  if (std::exchange(p.reported, true)) return;  // recomputed regions that share a parameter report it once each
  if (--b.unfinished == 0 && unit.replicas_->rule().gradients == Lifetime::until_bucket) unit.start_reduce(b);
}

template <class T, Device D>
constexpr void Unit<T, D>::start_reduce(BucketType& b) {
  fill_gaps(b);
  expect_all(b);
  replicas_->start_reduce(b);
}

/// Expects a gradient of every parameter of the bucket anew.
template <class T, Device D>
constexpr void Unit<T, D>::expect_all(BucketType& b) {
  for (ParameterBase<D>* p : b.parameters) p->touched = p->reported = false;
  b.unfinished = static_cast<int>(b.parameters.size());
}

/// Zeros wherever no gradient was written: the padding, and parameters that this backward did not reach.
template <class T, Device D>
constexpr void Unit<T, D>::fill_gaps(BucketType& b) {
  const Size width = replicas_->gradient_bytes(1);
  Size written = 0;
  const auto zero_until = [&](Size end) {
    if (end > written) zero_bytes<D>(b.gradient, written * width, (end - written) * width);
  };
  for (const ParameterBase<D>* p : b.parameters) {
    zero_until(p->touched ? p->offset : p->offset + p->count());
    written = p->offset + p->count();
  }
  zero_until(b.count);
}

template <class T, Device D>
constexpr void Unit<T, D>::reduce_rest() {
  for (BucketType& b : buckets_)
    if (b.gradient) start_reduce(b);
}

template <class T, Device D>
constexpr void Unit<T, D>::reduce_for_step() {
  for (BucketType& b : buckets_)
    if (b.gradient || !b.reduced) {
      unreduced(b);
      start_reduce(b);
    }
}

template <class T, Device D>
constexpr void Unit<T, D>::drop_gradients() {
  for (BucketType& b : buckets_) {
    expect_all(b);
    b.gradient.release();
    b.reduced.release();
    b.print = {};
  }
}

template <class T, Device D>
constexpr void Unit<T, D>::abandon() {
  for (ParameterBase<D>* p : parameters_) {
    p->pending_uses = 0;
    p->reported = false;
  }
  for (BucketType& b : buckets_) b.unfinished = static_cast<int>(b.parameters.size());
  release();
}

}  // namespace dspp
