// SPDX-License-Identifier: Apache-2.0
/// A unit: parameters that are gathered together, through one arrow over the replica axes.
#pragma once

#include <utility>

#include <dspp/autograd/tape.hpp>
#include <dspp/base/list.hpp>
#include <dspp/tensor/timeline_range.hpp>
#include <dspp/zero/replicas.hpp>

namespace dspp {

/// `recompute`: a forward inside of backward, which gathers nothing ahead.
enum class Pass { forward, backward, recompute };

/// The parameters of a block (for the root unit, of all outside the blocks) as buckets.
///
/// A unit's boundaries are nodes on the tape: entering gathers, and its backward reduces and releases; leaving
/// releases, and its backward gathers again. Under stages 0 to 2 the values are resident and only the reduction is
/// left.
///
/// Source   Zhao et al. 2023, arXiv:2304.11277 (units); Rajbhandari et al. 2020, arXiv:1910.02054 (stages)
template <class T, Device D>
class Unit : public ParameterStorage<D> {
 public:
  using BucketType = Bucket<T, D>;

  constexpr Unit() = default;
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;
  /// Movable only before set_up(), when no parameter points here.
  constexpr Unit(Unit&& other) noexcept { (void)other; }

  /// Adds a parameter, in order of use.
  constexpr void add(ParameterBase<D>& parameter) {
    if (parameters_.empty()) parameters_.reserve(16);
    parameters_.push_back(&parameter);
  }

  /// Lays the parameters out in buckets, in reverse order of use, with matrices that are updated as a whole before, and
  /// frozen ones behind the others in buckets of their own, and allocates the resident values. If elements are
  /// quantized, those that ranks of Tp share have buckets of their own, too, so that they stay the same.
  constexpr void set_up(Replicas<T, D>& replicas);
  /// "blocks.3", for the timelines of profilers; the root has none.
  constexpr void set_name(List<char> name) { name_ = std::move(name); }
  /// The neighbours for prefetching: the unit whose backward is next, and the unit that forward enters next.
  constexpr void link_previous(Unit* unit) { previous_ = unit; }
  constexpr void link_next(Unit* unit) { next_ = unit, unit->before_ = this; }
  /// Its place in the order in which forward enters units.
  constexpr void set_number(std::size_t number) { number_ = number; }

  /// The bytes of its values when they are gathered.
  constexpr Size gathered_bytes() const {
    Size bytes = 0;
    for (const BucketType& b : buckets_) bytes += b.count * static_cast<Size>(sizeof(T));
    return bytes;
  }
  /// What its forward gathers stays until its backward has used it.
  constexpr void set_stays() { stays_ = true; }

  /// It has boundaries on tapes: not the unit of a tile.
  constexpr void set_bounded() { bounded_ = true; }
  constexpr bool is_bounded() const { return bounded_; }
  constexpr void enter(Tape<D>& tape);
  constexpr void leave(Tape<D>& tape);

  /// Gathers the values, and ahead those of the next unit in the pass, or units; in recompute, none.
  constexpr void open(Pass pass);
  constexpr void release();

  constexpr List<BucketType>& buckets() { return buckets_; }
  /// The buckets before those of frozen parameters.
  constexpr BucketSpan<T, D> trained_buckets() { return {buckets_.begin(), trained_}; }
  constexpr const List<BucketType>& buckets() const { return buckets_; }
  constexpr const List<ParameterBase<D>*>& parameters() const { return parameters_; }

  /// A backward begins.
  constexpr void begin_pass() {
    this->gradients.begin_pass();
    started_ = 0, is_closed_ = trained_ == 0, is_reduced_ = false;
  }
  /// Starts the reduction, in order, of every bucket not yet reduced in this pass, whether or not it received a
  /// gradient on this rank. A bucket without gradients counts as zero. (Of nested units, and of tiles, which have no
  /// boundaries, all ranks must use the same.)
  constexpr void reduce_rest();
  /// Starts the reduction of what is not reduced.
  constexpr void reduce_for_step();
  /// After an update, of values that every replica has whole: starts to gather the updated slices of large buckets, or
  /// of small ones. They are waited for where the values are next read, if operations go on meanwhile. Returns the
  /// bytes of this rank's largest slice among them.
  constexpr Size refresh(bool large);
  /// Discards all gradients, and what was gathered of values that may change.
  constexpr void drop_gradients();
  constexpr void forget_copies() {
    for (BucketType& b : buckets_) b.secondary.release();
  }
  /// Moves the resident values, of which nothing is in use, to `memory`, or if that is null to where they rest, unless
  /// they are on a disk. If it throws, a bucket's are in one place or the other.
  constexpr void move_values(Memory<D>* memory) {
    if (replicas_->values_are_on_disk()) return;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      buckets_[i].values =
          moved_to(memory ? *memory : *buckets_[i].resting, buckets_[i].values, Category::parameters, "parameters");
      if (!values_are_split_) this->values[i] = buckets_[i].values.storage();
    }
  }

 private:
  constexpr void begin_range([[maybe_unused]] const char* pass) {
    if constexpr (HasTimeline<D>)
      if (replicas_) pass_.begin(replicas_->memory(), pass, {name_.begin(), name_.size()});
  }
  constexpr void lay_out(Size alignment, Size replicas);
  constexpr void close();
  constexpr void gather();
  constexpr void gather_ahead();
  constexpr void read_ahead(Pass pass);
  /// False once the window is full.
  constexpr bool gather_ahead_in_window();
  constexpr void start_reduce(std::size_t bucket);
  constexpr void fill_gaps(BucketType& b);
  constexpr const Storage<Memory<D>>& unreduced(BucketType& b);
  static constexpr const Storage<Memory<D>>& gradient_of(ParameterStorage<D>& home, const ParameterBase<D>& p);
  static constexpr void on_finished(ParameterStorage<D>& home, const ParameterBase<D>& p);
  static constexpr void on_missing(ParameterStorage<D>& home, const ParameterBase<D>& p);

  Replicas<T, D>* replicas_ = nullptr;
  bool bounded_ = false;
  bool values_are_split_ = false;  // before set_up() there is nothing to gather
  bool overlaps_ = true;
  bool has_window_ = false;     // units are gathered ahead by bytes
  bool counts_visits_ = false;  // gradients stay until the step
  bool stays_ = false, reads_ahead_ = false;
  Size ahead_bytes_ = 0;  ///< of values that were gathered ahead, until they are used
  Unit *previous_ = nullptr, *next_ = nullptr, *before_ = nullptr;
  std::size_t number_ = 0;
  bool is_closed_ = false;   ///< the running backward writes no more gradients of it
  bool is_reduced_ = false;  ///< the same backward has started to reduce them
  List<ParameterBase<D>*> parameters_;
  List<BucketType> buckets_;
  Size trained_ = 0;         ///< buckets of parameters that are not frozen: the first ones
  std::size_t started_ = 0;  ///< buckets whose reduction was started in this pass, in order
  List<char> name_;
  TimelineRange<D> pass_;  ///< from one boundary to the other
};

/// Keeps a unit open for a scope, without nodes on a tape: for a layer that records one node for several units
/// (models/tiled_linear.hpp). Closing starts no reduction: a bucket starts its own with its last gradient.
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
  this->gradients.reserve(parameters_.size());
  BucketType* b = nullptr;
  int number = -1;
  const auto place = [&](ParameterBase<D>* p) {
    const Size size = round_up(p->count(), alignment);
    const bool new_bucket = !b || b->count + size > limit;
    if (new_bucket) {
      buckets_.resize(static_cast<std::size_t>(++number + 1));
      b = &buckets_.back();
      b->frozen = p->is_frozen(), b->matrices = p->is_whole_matrix();
      b->parameters.reserve(parameters_.size());
    }
    p->home = this;
    p->gradient = p->is_frozen() ? nullptr : this->gradients.add(new_bucket);
    p->bucket = number;
    p->offset = b->count;
    b->parameters.push_back(p);
    b->count += size;
  };
  // Matrices first: vectors such as a norm's finish late in backward, and buckets are reduced in order.
  const bool quantizes = replicas_->config().traffic.quantizes();
  const auto kind_of = [quantizes](const ParameterBase<D>& p) {
    const int order = p.is_frozen() ? 2 : p.is_whole_matrix() ? 0 : 1;
    return 2 * order + (quantizes && p.geometry.parts == 1 ? 1 : 0);  // those that ranks of Tp share
  };
  bool any[6] = {};
  for (const ParameterBase<D>* p : parameters_) any[kind_of(*p)] = true;
  const bool mixed = any[0] + any[1] + any[2] + any[3] + any[4] + any[5] > 1;
  for (int kind = 0; kind < 6; ++kind) {
    if (any[kind]) {
      b = nullptr;  // a bucket of its own
      for (std::size_t i = parameters_.size(); i-- > 0;)
        if (!mixed || kind_of(*parameters_[i]) == kind) place(parameters_[i]);
    }
    if (kind == 3) trained_ = number + 1;
  }
  for (BucketType& laid : buckets_) laid.count = round_up(laid.count, alignment * replicas);
}

template <class T, Device D>
constexpr void Unit<T, D>::set_up(Replicas<T, D>& replicas) {
  replicas_ = &replicas;
  this->memory = &replicas.memory();
  this->gradient_storage = &gradient_of;
  this->finished = &on_finished;
  this->missing = &on_missing;
  this->wide_gradients = replicas.config().wide_gradients;
  this->micro_step = &replicas.micro_step();
  values_are_split_ = replicas.rule().values_are_split();
  counts_visits_ = replicas.rule().gradients == Lifetime::until_step;
  overlaps_ = replicas.config().traffic.overlaps;
  has_window_ = replicas.config().prefetch_bytes != next_unit;
  reads_ahead_ = replicas.values_are_on_disk();
  lay_out(block_alignment / static_cast<Size>(sizeof(T)), replicas.shards().size());
  this->values.resize(buckets_.size());
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    BucketType& b = buckets_[i];
    b.number = replicas.number_of_new_bucket();
    b.is_last = i + 1 == buckets_.size();
    replicas.add_values(b);
    if (!values_are_split_) this->values[i] = b.values.storage();
  }
}

template <class T, Device D>
constexpr void Unit<T, D>::open(Pass pass) {
  gather();
  if (!values_are_split_ || pass == Pass::recompute) return;
  Unit* ahead = pass == Pass::forward ? next_ : previous_;
  if (has_window_)
    while (ahead && ahead->gather_ahead_in_window()) ahead = pass == Pass::forward ? ahead->next_ : ahead->previous_;
  else if (ahead)
    ahead->gather_ahead();
  if (reads_ahead_) read_ahead(pass);
}

/// Of values on a disk, the first that the pass has not gathered.
template <class T, Device D>
constexpr void Unit<T, D>::read_ahead(Pass pass) {
  for (const Unit* unit = this; unit; unit = pass == Pass::forward ? unit->next_ : unit->previous_)
    for (std::size_t i = 0; i < unit->buckets_.size(); ++i)
      if (!unit->values[i]) return replicas_->read_values_ahead(unit->buckets_[i]);
}

template <class T, Device D>
constexpr void Unit<T, D>::enter(Tape<D>& tape) {
  const bool again = tape.context().in_backward;
  begin_range(again ? "backward" : "forward");
  open(again ? Pass::recompute : Pass::forward);
  if (counts_visits_ && !again && (tape.recording() || tape.rehearsing()) && this->micro_step->visits)
    ++this->micro_step->visits[number_];
  tape.record_boundary([this](Tape<D>&) {
    counts_visits_ ? close() : reduce_rest();
    release();
    pass_.end();
  });
}

/// With the last visit, and behind it the units of its tiles, which have no boundaries. A unit that waits for one whose
/// gradients are reduced before is reduced with that.
template <class T, Device D>
constexpr void Unit<T, D>::close() {
  int* const visits = this->micro_step->visits;
  if (!visits || --visits[number_] > 0 || !replicas_->reduces_units()) return;
  for (const ParameterBase<D>* p : parameters_)
    if (!p->is_frozen() && p->pending_uses() > 0) return;  // it is used outside of its unit, too
  Unit* last = this;
  is_closed_ = true;
  while (last->next_ && (!last->next_->bounded_ || last->next_->is_closed_) && !last->next_->is_reduced_) {
    last = last->next_;
    last->is_closed_ = true;
  }
  for (; last && last->is_closed_ && (!last->next_ || last->next_->is_reduced_); last = last->before_)
    if (!std::exchange(last->is_reduced_, true)) last->reduce_for_step();
}

template <class T, Device D>
constexpr void Unit<T, D>::leave(Tape<D>& tape) {
  if (!stays_ || !(tape.recording() || tape.rehearsing())) release();
  pass_.end();
  tape.record_boundary([this](Tape<D>&) {
    begin_range("backward");
    open(Pass::backward);
  });
}

template <class T, Device D>
constexpr void Unit<T, D>::gather() {
  if (!values_are_split_) return;
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if (!this->values[i]) this->values[i] = replicas_->start_gather(buckets_[i]);
  for (BucketType& b : buckets_) replicas_->complete(b, false);
  if (ahead_bytes_ > 0) replicas_->use_ahead(ahead_bytes_);
}

template <class T, Device D>
constexpr void Unit<T, D>::gather_ahead() {
  for (std::size_t i = 0; i < buckets_.size() && replicas_->may_gather_next_unit(); ++i)
    if (!this->values[i]) this->values[i] = replicas_->start_gather(buckets_[i]);
}

template <class T, Device D>
constexpr bool Unit<T, D>::gather_ahead_in_window() {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (this->values[i]) continue;
    const Size bytes = buckets_[i].count * static_cast<Size>(sizeof(T));
    if (!replicas_->may_gather_ahead(bytes)) return false;
    this->values[i] = replicas_->start_gather_ahead(buckets_[i], bytes);
    ahead_bytes_ += bytes;
  }
  return true;
}

template <class T, Device D>
constexpr void Unit<T, D>::release() {
  if (!values_are_split_) return;
  for (Storage<Memory<D>>& gathered : this->values) gathered.release();
  if (ahead_bytes_ > 0) replicas_->use_ahead(ahead_bytes_);
}

template <class T, Device D>
constexpr const Storage<Memory<D>>& Unit<T, D>::unreduced(BucketType& b) {
  if (!b.gradient)
    b.gradient =
        Storage<Memory<D>>(replicas_->memory(), replicas_->gradient_bytes(b.count), Category::gradients, "gradients");
  return b.gradient;
}

template <class T, Device D>
constexpr const Storage<Memory<D>>& Unit<T, D>::gradient_of(ParameterStorage<D>& home, const ParameterBase<D>& p) {
  auto& unit = static_cast<Unit&>(home);
  return unit.unreduced(unit.buckets_[static_cast<std::size_t>(p.bucket)]);
}

template <class T, Device D>
constexpr void Unit<T, D>::on_finished(ParameterStorage<D>& home, const ParameterBase<D>& p) {
  auto& unit = static_cast<Unit&>(home);
  const bool bucket_is_complete = unit.gradients.finish(*p.gradient);
  if (!bucket_is_complete || unit.replicas_->rule().gradients != Lifetime::until_bucket) return;
  const auto bucket = static_cast<std::size_t>(p.bucket);
  if (bucket < unit.started_) return unit.start_reduce(bucket);  // again in this pass
  while (unit.started_ < static_cast<std::size_t>(unit.trained_) && unit.gradients.complete(unit.started_))
    unit.start_reduce(unit.started_++);
}

template <class T, Device D>
constexpr void Unit<T, D>::start_reduce(std::size_t bucket) {
  BucketType& b = buckets_[bucket];
  unreduced(b);
  fill_gaps(b);
  this->gradients.begin_round(bucket);
  replicas_->start_reduce(b);
  if (!overlaps_) replicas_->complete_all();
}

/// Zeroes what no gradient was written to: the padding, and parameters that this backward did not reach.
template <class T, Device D>
constexpr void Unit<T, D>::fill_gaps(BucketType& b) {
  const Size width = replicas_->gradient_bytes(1);
  Size written = 0;
  const auto zero_until = [&](Size end) {
    if (end > written) zero_bytes<D>(b.gradient, written * width, (end - written) * width);
  };
  for (const ParameterBase<D>* p : b.parameters) {
    zero_until(p->has_unreduced_gradient() ? p->offset : p->offset + p->count());
    written = p->offset + p->count();
  }
  zero_until(b.count);
}

template <class T, Device D>
constexpr void Unit<T, D>::reduce_rest() {
  for (std::size_t i = 0; i < static_cast<std::size_t>(trained_); ++i)
    if (i >= started_ || buckets_[i].gradient) start_reduce(i);  // or it has new gradients
  started_ = 0;
}

template <class T, Device D>
constexpr void Unit<T, D>::reduce_for_step() {
  for (std::size_t i = 0; i < static_cast<std::size_t>(trained_); ++i)
    if (buckets_[i].gradient || !buckets_[i].reduced) start_reduce(i);
}

template <class T, Device D>
constexpr Size Unit<T, D>::refresh(bool large) {
  Size largest = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(trained_); ++i) {
    const Size bytes = replicas_->refresh_bytes(buckets_[i]);
    if ((bytes >= worth_a_wake) != large) continue;
    replicas_->start_refresh(buckets_[i]);
    if (replicas_->refreshes_beside()) this->values[i].release();
    if (bytes > largest) largest = bytes;
  }
  return largest;
}

/// Under stage 3 they are not on their way: the unit is not open.
template <class T, Device D>
constexpr void Unit<T, D>::on_missing(ParameterStorage<D>& home, const ParameterBase<D>& p) {
  auto& unit = static_cast<Unit&>(home);
  if (unit.values_are_split_) return;
  const auto bucket = static_cast<std::size_t>(p.bucket);
  unit.replicas_->complete_refresh(unit.buckets_[bucket]);
  unit.values[bucket] = unit.buckets_[bucket].values.storage();
}

template <class T, Device D>
constexpr void Unit<T, D>::drop_gradients() {
  this->gradients.begin_step();
  forget_copies();
  if (stays_ || ahead_bytes_ > 0) release();
  for (BucketType& b : buckets_) {
    b.gradient.release();
    b.reduced.release();
  }
}

}  // namespace dspp
