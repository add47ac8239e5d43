// SPDX-License-Identifier: Apache-2.0
/// A parameter: a description by its layer, and a handle set by its unit. It owns nothing, and using it does not change
/// it.
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include <dspp/autograd/finite_probe.hpp>
#include <dspp/autograd/tape.hpp>
#include <dspp/base/list.hpp>
#include <dspp/nn/gradient_ledger.hpp>
#include <dspp/nn/initial.hpp>
#include <dspp/nn/parameter_group.hpp>
#include <dspp/ops/flat_range.hpp>
#include <dspp/ops/write.hpp>
#include <dspp/placement/state.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp {

/// How a parameter is cut over Tp: dimension `dimension` in `parts` equal slices, the last ones padded if need be.
struct Cut {
  int dimension = -1;  ///< -1: not cut, every rank holds all
  int parts = 1;
};

/// A tile of a rank's slice, a matrix of `columns` columns: `rows` rows from `row`, `width` columns from `column`.
struct TileGeometry {
  Size columns = 0;  ///< 0: no tile, the whole slice
  Size row = 0, rows = 0, column = 0, width = 0;
};

/// The positions of a rank's slice, or of a tile of it, in the global tensor: [outer, cut, inner] with `cut` sliced.
struct SliceGeometry {
  Size outer = 1, global = 1, local = 1, inner = 1;
  Size parts = 1;  ///< slices; 1: not cut
  TileGeometry tile{};

  constexpr Size global_count() const { return outer * global * inner; }
  constexpr Size local_count() const { return tile.columns > 0 ? tile.rows * tile.width : outer * local * inner; }

  /// Calls f(local_begin, global_begin, count) for every contiguous run of the local elements [begin, end) of slice
  /// `part` or its tile, without padding (beyond the global extent).
  template <class F>
  constexpr void for_each_run(int part, Size begin, Size end, F f) const {
    if (tile.columns == 0) return for_each_run_of_slice(part, begin, end, f);
    const bool whole_rows = tile.width == tile.columns;
    const Size width = whole_rows ? tile.rows * tile.width : tile.width;
    for (Size i = begin / width; i * width < end; ++i) {
      const Size from = std::max(begin, i * width), to = std::min(end, (i + 1) * width);
      const Size behind = (tile.row + i) * tile.columns + tile.column - i * width;  // in the slice
      const auto run = [&](Size at, Size first, Size count) { f(at - behind, first, count); };
      for_each_run_of_slice(part, from + behind, to + behind, run);
    }
  }

 private:
  template <class F>
  constexpr void for_each_run_of_slice(int part, Size begin, Size end, F f) const {
    if (parts == 1 && local == global) {
      if (begin < end) f(begin, begin, end - begin);
      return;
    }
    const Size row = local * inner, first = parts == 1 ? 0 : part * row;  // not cut: all of it
    const Size valid = std::clamp<Size>(global * inner - first, 0, row);
    for (Size i = begin / row; i * row < end; ++i) {
      const Size from = std::max(begin, i * row), to = std::min(end, i * row + valid);
      if (from < to) f(from, i * global * inner + first + (from - i * row), to - from);
    }
  }
};

namespace detail {
/// A parameter in an error sentence.
struct ParameterName {
  const char* label;
  Extents extents;  ///< of the global shape

  std::string text() const;
};
[[noreturn]] void fail_unnamed(const ParameterName& parameter);
[[noreturn]] void fail_outside_step(const ParameterName& parameter);
[[noreturn]] void fail_outside_unit(const ParameterName& parameter);
[[noreturn]] void fail_mixed_uses(const ParameterName& parameter);
[[noreturn]] void fail_unregistered_use(const ParameterName& parameter);
}  // namespace detail

/// The part of a parameter that units, checkpoints and optimizers see: no element type, no rank.
template <Device D>
class ParameterBase;

/// The storage of parameters, implemented by a unit (zero/unit.hpp). Function pointers, not virtual functions: see
/// Tape.
template <Device D>
struct ParameterStorage {
  /// Storage of the gathered values of bucket b, empty while they are not gathered, or on their way.
  List<Storage<Memory<D>>> values;
  GradientLedger gradients;
  const CurrentMicroStep* micro_step = nullptr;
  /// Storage of the unreduced gradients of the parameter's bucket, allocated on first use.
  const Storage<Memory<D>>& (*gradient_storage)(ParameterStorage&, const ParameterBase<D>&) = nullptr;
  /// Called where the values of the parameter's bucket are empty: waits for them if they are on their way.
  void (*missing)(ParameterStorage&, const ParameterBase<D>&) = nullptr;
  /// Called when a parameter has received its last gradient of this backward.
  void (*finished)(ParameterStorage&, const ParameterBase<D>&) = nullptr;
  bool wide_gradients = false;   ///< gradients are f32 beside bf16 or f16 values
  FiniteProbe* probe = nullptr;  ///< records which parameters are read; null: none does
  Memory<D>* memory = nullptr;   ///< whose profiler hears which parameters are used; null: none does
};

template <Device D>
class ParameterBase {
 public:
  const char* label = "";  ///< its role in its layer for error sentences, e.g. "Linear weight"
  SliceGeometry geometry{};
  Initial initial{};
  bool decays = true;  ///< takes part in weight decay
  Cut cut{};
  int dimensions = 0;
  Size row = 0;               ///< elements of the last dimension of this rank's part, or of its tile
  bool groups_first = false;  ///< dimension 0 counts groups; in files it is merged with dimension 1
  int piece = 0;              ///< index among the tiles of one parameter, in visit order

  // The handle: set once, when the model is visited and its units are laid out.
  const ParameterGroup* group = nullptr;       ///< of the engine's configuration; null: none
  ParameterBase* next_piece = nullptr;         ///< the next piece of the same name
  const ParameterBase* first_piece = nullptr;  ///< the piece registered with the name; null if it is this one
  Size columns = 0;                            ///< of the matrix that is updated as a whole; 0: element by element
  ParameterStorage<D>* home = nullptr;
  int bucket = 0;
  Size offset = 0;                    ///< elements, in the bucket
  int site = -1;                      ///< position in visit order: keys the random stream
  int number = -1;                    ///< of the model's parameters, pieces counted
  GradientEntry* gradient = nullptr;  ///< in its unit's ledger

  constexpr Size count() const { return geometry.local_count(); }
  /// The first piece, which represents all pieces of the name.
  constexpr const ParameterBase& named() const { return first_piece ? *first_piece : *this; }
  /// True if its group is frozen: it has no gradient, and `gradient` is null.
  constexpr bool is_frozen() const { return group && group->frozen; }
  /// True if it has rows: more than one dimension beside its groups.
  constexpr bool is_matrix() const { return dimensions - (groups_first ? 1 : 0) > 1; }
  /// The last extent of the global tensor.
  constexpr Size global_columns() const {
    if (cut.dimension + 1 == dimensions && cut.dimension >= 0) return geometry.global;
    return geometry.tile.columns > 0 ? geometry.tile.columns : row;
  }
  constexpr bool is_whole_matrix() const { return columns > 0 && !is_frozen(); }
  constexpr RangeSettings update_settings() const {
    if (!group) return {.decays = decays};
    return {decays || group->weight_decay >= 0, group->lr_factor, group->weight_decay};
  }
  /// True if its gradients are Partial over Tp: used as Replicate beside a value that is not Invariant.
  constexpr bool partial_over_tp() const { return gradient && gradient->uses == UsesOverTp::partial; }
  /// True if it holds an unreduced gradient.
  constexpr bool has_unreduced_gradient() const { return gradient && gradient->is_written(); }
  /// Pending gradients of the running micro-step.
  constexpr int& pending_uses() const { return home->micro_step->uses[number]; }

 protected:  // for Parameter, which passes its name and extents
  /// Sets the geometry of a global shape with this cut.
  constexpr void lay_out(Extents extents);
  constexpr void record_use(const detail::ParameterName& name, Tape<D>& tape, bool partial) const;
  constexpr void expect(const detail::ParameterName& name, Tape<D>& tape) const;
  /// What is launched next is of this parameter's layer.
  constexpr void tell_profiler() const {
    if (home->memory) home->memory->use_parameter(&named());
  }
  constexpr Write how() const { return has_unreduced_gradient() ? Write::accumulate : Write::overwrite; }
  constexpr void end_use(const detail::ParameterName& name) const;
  /// Call after end_use() of all parameters written together: it may start the reduction of the bucket.
  constexpr void report() const {
    if (has_unreduced_gradient() && pending_uses() == 0) home->finished(*home, *this);
  }
};

/// True if a parameter used beside an X is Replicate, so that its gradient is Partial over Tp.
template <class X>
inline constexpr bool is_partial_beside = X::Placement::tp_degree > 1 && !std::is_same_v<typename X::State, Invariant>;

/// A parameter of element type T. The global shape and the cut give the local shape.
///
/// Throws   Error(state) when used without being named by visit(), or outside the unit that gathers it;
///          Error(placement) when used both beside an Invariant value and beside one that is not
template <class T, int Rank, Device D>
class Parameter : public ParameterBase<D> {
 public:
  using Element = T;
  static constexpr int rank = Rank;

  constexpr Parameter(const char* label_, const Shape<Rank>& global, const Initial& initial_, Cut cut_ = {});

  /// A tile of this rank's part as a parameter with the same name, global shape and initial values. It is a matrix of
  /// one group.
  constexpr Parameter tile_of(int tile, Size row, Size rows, Size column, Size width) const;

  constexpr const Shape<Rank>& shape() const { return local_; }
  constexpr const Shape<Rank>& global_shape() const { return global_; }

  /// The values, valid while the unit has them gathered, or until the next step.
  constexpr Tensor<T, Rank, D> value() const {
    if (this->home == nullptr) detail::fail_unnamed(name());
    const Storage<Memory<D>>& gathered = this->home->values[static_cast<std::size_t>(this->bucket)];
    if (!gathered) this->home->missing(*this->home, *this);
    if (!gathered) detail::fail_outside_unit(name());
    if (this->home->probe) this->home->probe->use(&this->named());
    this->tell_profiler();
    return Tensor<T, Rank, D>::view(gathered, this->offset, local_);
  }

  /// Records a use in forward, beside the Variable x, by the operation recorded next, whose backward must call
  /// accumulate(). Beside a value that is not Invariant the parameter is Replicate, and its gradient is Partial over
  /// Tp; the engine sums it. (A cut parameter's gradient is a slice, never Partial.)
  template <class X>
  constexpr void register_use(const X& x) const {
    used(x.tape(), is_partial_beside<X>);
  }
  /// The same with `partial` given by the caller: for parallel wrappers, and operations.
  constexpr void used(Tape<D>& tape, bool partial) const { this->record_use(name(), tape, partial); }

  /// Around uses in parts, such as the chunks of a recomputed layer: no use before end_parts() is the last.
  constexpr void begin_parts(Tape<D>& tape) const {
    if (!this->is_frozen()) this->expect(name(), tape);
  }
  constexpr void end_parts() const {
    if (this->is_frozen()) return;
    --this->pending_uses();
    this->report();
  }

  /// Calls `write(into, how)` with the gradient and whether to overwrite it or add to it, which ends this use; `into`
  /// has elements of T or, with wide gradients, of Compute<T>. If the parameter is frozen, `into` is discarded: a layer
  /// that computes nothing else in `write` can ask is_frozen() first.
  ///
  /// Memory   if frozen, a workspace of the gradient's size while `write` runs
  template <class Writer>
  constexpr void accumulate(Writer write) const;
  /// The same for two parameters of one unit at once: `write(into, how, other_into, other_how)`.
  template <int OtherRank, class Writer>
  constexpr void accumulate_with(const Parameter<T, OtherRank, D>& other, Writer write) const;

 private:
  template <class, int, Device>
  friend class Parameter;

  template <class G>
  constexpr Tensor<G, Rank, D> gradient_place() const;
  /// Calls f<G>() with the element type of the gradients.
  template <class F>
  constexpr void in_gradient_type(F f) const;
  constexpr detail::ParameterName name() const { return {this->label, {global_.extents, Rank}}; }

  Shape<Rank> global_, local_;
};

template <class X>
inline constexpr bool is_parameter = false;
template <class T, int Rank, Device D>
inline constexpr bool is_parameter<Parameter<T, Rank, D>> = true;

// ---------------------------------------------------------------------------------------------------------------------

template <class T, int Rank, Device D>
constexpr Parameter<T, Rank, D>::Parameter(const char* label_, const Shape<Rank>& global, const Initial& initial_,
                                           Cut cut_)
    : global_(global), local_(global) {
  this->label = label_;
  this->initial = initial_;
  this->cut = cut_;
  this->lay_out(global_);
  local_[cut_.dimension < 0 ? 0 : cut_.dimension] = this->geometry.local;
}

template <class T, int Rank, Device D>
constexpr Parameter<T, Rank, D> Parameter<T, Rank, D>::tile_of(int tile, Size row, Size rows, Size column,
                                                               Size width) const {
  static_assert(Rank >= 2,
                "dspp: a tile needs a parameter with rows and columns, but this one is a vector. Tile a matrix.");
  Parameter result = *this;
  result.piece = tile;
  result.geometry.tile = {local_[Rank - 1], row, rows, column, width};
  for (int i = 0; i < Rank; ++i) result.local_[i] = 1;
  result.local_[Rank - 2] = rows;
  result.local_[Rank - 1] = result.row = width;
  return result;
}

template <class T, int Rank, Device D>
template <class G>
constexpr Tensor<G, Rank, D> Parameter<T, Rank, D>::gradient_place() const {
  if (this->is_frozen())
    return Tensor<G, Rank, D>::uninitialized(local_, value().memory(), Category::workspace, "discarded gradient");
  return Tensor<G, Rank, D>::view(this->home->gradient_storage(*this->home, *this), this->offset, local_);
}

template <class T, int Rank, Device D>
template <class F>
constexpr void Parameter<T, Rank, D>::in_gradient_type(F f) const {
  if constexpr (!std::is_same_v<T, Compute<T>>)
    if (this->home->wide_gradients) return f.template operator()<Compute<T>>();
  f.template operator()<T>();
}

template <class T, int Rank, Device D>
template <class Writer>
constexpr void Parameter<T, Rank, D>::accumulate(Writer write) const {
  this->tell_profiler();
  in_gradient_type([&]<class G>() { write(gradient_place<G>(), this->how()); });
  this->end_use(name());
  this->report();
}

template <class T, int Rank, Device D>
template <int OtherRank, class Writer>
constexpr void Parameter<T, Rank, D>::accumulate_with(const Parameter<T, OtherRank, D>& other, Writer write) const {
  in_gradient_type(
      [&]<class G>() { write(gradient_place<G>(), this->how(), other.template gradient_place<G>(), other.how()); });
  this->end_use(name());
  other.end_use(other.name());
  other.report();
  this->report();
}

// ---------------------------------------------------------------------------------------------------------------------

template <Device D>
constexpr void ParameterBase<D>::lay_out(Extents extents) {
  const int dimension = cut.dimension < 0 ? 0 : cut.dimension;
  Size outer = 1, inner = 1;
  for (int i = 0; i < dimension; ++i) outer *= extents.first[i];
  for (int i = dimension + 1; i < extents.rank; ++i) inner *= extents.first[i];
  const Size global = extents.first[dimension], parts = cut.dimension < 0 ? 1 : cut.parts;
  require(outer * global * inner > 0, "dspp: a parameter needs extents of at least 1, but has others. Raise them.",
          ErrorCode::shape, {{"first extent", extents.first[0]}, {"last extent", extents.first[extents.rank - 1]}});
  geometry = {outer, global, (global + parts - 1) / parts, inner, parts}, dimensions = extents.rank,
  row = cut.dimension + 1 == extents.rank ? geometry.local : extents.first[extents.rank - 1];
}

template <Device D>
constexpr void ParameterBase<D>::record_use(const detail::ParameterName& name, Tape<D>& tape, bool partial) const {
  if (home == nullptr) detail::fail_unnamed(name);
  if (is_frozen()) return;
  expect(name, tape);
  const UsesOverTp now = partial && cut.dimension < 0 ? UsesOverTp::partial : UsesOverTp::whole;
  UsesOverTp& uses = gradient->uses;
  if (uses != UsesOverTp::none && uses != now) detail::fail_mixed_uses(name);
  uses = now;
}

template <Device D>
constexpr void ParameterBase<D>::expect(const detail::ParameterName& name, Tape<D>& tape) const {
  if (!home->micro_step->uses) detail::fail_outside_step(name);
  int& pending = pending_uses();
  ++pending;
  tape.note_use(pending);
}

template <Device D>
constexpr void ParameterBase<D>::end_use(const detail::ParameterName& name) const {
  if (is_frozen()) return;
  if (!home->micro_step->uses) detail::fail_outside_step(name);
  int& pending = pending_uses();
  if (pending == 0) detail::fail_unregistered_use(name);
  gradient->write();
  --pending;
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

namespace detail {

DSPP_INLINE std::string ParameterName::text() const {
  return std::string(label) + " " + to_string(extents);
}

DSPP_INLINE void fail_unnamed(const ParameterName& parameter) {
  fail(ErrorCode::state, "dspp: a parameter needs to be named by its layer's visit(), but " + parameter.text() +
                             " was reached in forward without. Add it to visit().");
}

DSPP_INLINE void fail_outside_step(const ParameterName& parameter) {
  fail(ErrorCode::state, "dspp: a parameter needs a micro-step that counts its gradients, but " + parameter.text() +
                             " is used on a tape that records, or runs back, outside of an engine's forward and "
                             "backward. Call those, or no_grad(f).");
}

DSPP_INLINE void fail_outside_unit(const ParameterName& parameter) {
  fail(ErrorCode::state, "dspp: a parameter needs its unit to be entered, but " + parameter.text() +
                             " was reached while its values are spread over the replicas. Use it inside the block "
                             "that visits it, or let the model visit it itself.");
}

DSPP_INLINE void fail_mixed_uses(const ParameterName& parameter) {
  fail(ErrorCode::placement,
       "dspp: a parameter needs uses of one kind over Tp, but " + parameter.text() +
           " is used beside an Invariant value and beside one that is not: one gradient is whole and the other a "
           "summand. redistribute<Replicate>(x) the Invariant value first.");
}

DSPP_INLINE void fail_unregistered_use(const ParameterName& parameter) {
  fail(ErrorCode::state, "dspp: a parameter needs its use noted in forward, but " + parameter.text() +
                             " received a gradient without. Call register_use(x) before on_backward(...).");
}

}  // namespace detail

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
