// SPDX-License-Identifier: Apache-2.0
/// Materializes a model: units, sites, shards, initial values. No rank ever holds more than its shard.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <dspp/base/at_run_time.hpp>
#include <dspp/base/list.hpp>
#include <dspp/base/philox.hpp>
#include <dspp/nn/walk.hpp>
#include <dspp/ops/normals.hpp>
#include <dspp/zero/unit.hpp>

namespace dspp {

/// A parameter's name and extents in files: blocks.0.mlp.up.weight, [out, in].
struct GlobalName {
  std::string text;
  std::vector<Size> extents;

  friend bool operator<(const GlobalName& a, const GlobalName& b) { return a.text < b.text; }
};

/// A parameter of the inventory: one per name, the first piece if there are several. In constant expressions it has no
/// name.
template <class T, Device D>
struct NamedParameter {
  ParameterBase<D>* parameter = nullptr;
  Unit<T, D>* unit = nullptr;
  const GlobalName* name = nullptr;  ///< owned by the inventory
};

/// Calls f(piece, bucket) for every piece of a named parameter: one, unless it is tiled.
template <class T, Device D, class F>
constexpr void for_each_piece(const NamedParameter<T, D>& named, F f) {
  for (ParameterBase<D>* p = named.parameter; p; p = p->next_piece)
    f(*p, static_cast<Unit<T, D>*>(p->home)->buckets()[static_cast<std::size_t>(p->bucket)]);
}

namespace detail {
[[noreturn]] void fail_of_second_name(const char* label, const std::string& shape);
[[noreturn]] void fail_of_name(const std::string& name);
}  // namespace detail

/// What an engine chooses for its parameters.
struct ParameterChoices {
  const ParameterGroups* groups = nullptr;  ///< kept by the caller; null: none
  bool whole_matrices = false;              ///< the optimizer asks for them
};

/// Assigns units and sites in visit order.
template <class T, Device D>
class Inventory {
 public:
  List<Unit<T, D>*> units;  ///< in order of use; the first is the root
  List<NamedParameter<T, D>> parameters;

  [[gnu::noinline]] constexpr void begin_unit(const Path& path, Unit<T, D>& unit) {
    if constexpr (HasTimeline<D>) unit.set_name(path.characters());
    unit.set_number(units.size());
    units.push_back(&unit);
    open_.push_back(&unit);
  }
  [[gnu::noinline]] constexpr void end_unit(Unit<T, D>& unit) {
    open_.pop_back();
    left_.push_back(&unit);
  }
  /// Links every unit with its neighbours: forward enters units in the order of `units`; backward opens them in the
  /// reverse order of leaving, which differs for units around inner ones.
  [[gnu::noinline]] constexpr void link_units() {
    for (std::size_t i = 0; i + 1 < units.size(); ++i) units[i]->link_next(units[i + 1]);
    for (std::size_t i = 1; i < left_.size(); ++i) left_[i]->link_previous(left_[i - 1]);
  }
  /// When buckets are laid out. Backward opens units in the reverse order of leaving: beginning with the last ones,
  /// whose values are needed again first, those stay gathered that fit into so many bytes.
  [[gnu::noinline]] constexpr void keep_units_live(Size live_bytes) {
    for (std::size_t i = left_.size(); live_bytes > 0 && i-- > 0;) {
      const Size bytes = left_[i]->gathered_bytes();
      if (!left_[i]->is_bounded() || bytes > live_bytes) continue;
      left_[i]->set_stays();
      live_bytes -= bytes;
    }
  }
  constexpr void site(const Path&, RandomSite& site) { site.number = sites_++; }
  /// Before the visit.
  constexpr void set_choices(const ParameterChoices& choices) { choices_ = choices; }
  /// After it.
  ///
  /// Throws   Error(usage) if all parameters are frozen; if the optimizer asks for matrices and there are none; with
  ///          the group that contains no parameter
  constexpr void check_groups() const;
  /// Number of parameters, pieces counted.
  constexpr int count() const { return numbers_; }
  /// What a micro-step counts: of each parameter, and of each unit if gradients stay until the step.
  constexpr int counters(const StageRule& rule) const {
    return numbers_ + (rule.gradients == Lifetime::until_step ? static_cast<int>(units.size()) : 0);
  }
  /// After a backward: checks that every use that a gradient reached produced the parameter's gradient, and forgets
  /// visits of units.
  ///
  /// Throws   Error(state) with the name of a parameter with pending uses, after `before()`, which completes operations
  ///          in flight
  template <class Before>
  constexpr void check_uses(List<int>& counters, Before before) const {
    bool waits = false;
    for (auto i = static_cast<std::size_t>(numbers_); i < counters.size(); ++i) counters[i] = 0;
    for (const int pending : counters) waits |= pending > 0;
    if (!waits) return;
    before();
    for (const auto& named : parameters)
      for (const ParameterBase<D>* p = named.parameter; p; p = p->next_piece)
        if (counters[static_cast<std::size_t>(p->number)] > 0) fail_of_use(named);
  }

  template <int Rank>
  constexpr void parameter(const Path& path, Parameter<T, Rank, D>& p) {
    add(path, p, p.global_shape());
  }

 private:
  [[gnu::noinline]] constexpr void add(const Path& path, ParameterBase<D>& p, Extents extents) {
    if (p.site >= 0) detail::fail_of_second_name(p.label, to_string(extents));
    open_.back()->add(p);
    p.number = numbers_++;
    if (choices_.groups && choices_.groups->size() > 0) join_group(path, p);
    if (choices_.whole_matrices) p.columns = columns_of(p, extents);
    if (p.piece > 0) return add_piece(p);
    p.site = sites_++;
    last_piece_ = &p;
    parameters.push_back({&p, open_.back()});
    if (!__builtin_is_constant_evaluated()) parameters.back().name = &new_name(path, p, extents);
  }
  constexpr void join_group(const Path& path, ParameterBase<D>& p) {
    const List<char> name = path.characters();
    p.group = choices_.groups->find({name.begin(), name.size()});
    if (p.group) ++members_[p.group - choices_.groups->begin()];
  }
  /// The columns of a matrix that is updated as a whole, else 0.
  constexpr Size columns_of(const ParameterBase<D>& p, Extents extents) const {
    const MatrixUpdate choice = p.group ? p.group->matrices : MatrixUpdate::in_blocks;
    const bool inside = choice == MatrixUpdate::always || (choice == MatrixUpdate::in_blocks && open_.size() > 1);
    if (extents.rank - (p.groups_first ? 1 : 0) != 2 || !inside || p.is_frozen()) return 0;
    // clang-format off
    require(p.geometry.tile.columns == 0, "dspp: an optimizer of matrices needs parameters that are not tiled, but one in a block is. Set MatrixUpdate::never for its group.");
    require(p.geometry.local * p.geometry.parts == p.geometry.global, "dspp: an optimizer of matrices needs equal slices over Tp, but one in a block has padding. Set MatrixUpdate::never for it.");
    // clang-format on
    return extents[extents.rank - 1];
  }
  const GlobalName& new_name(const Path& path, const ParameterBase<D>& p, Extents extents) {
    GlobalName name{path.text(), {extents.begin() + (p.groups_first ? 1 : 0), extents.end()}};
    if (p.groups_first) name.extents[0] *= extents[0];
    const auto [place, is_new] = names_.get_or_make().insert(std::move(name));
    if (!is_new) detail::fail_of_name(place->text);
    return *place;
  }
  constexpr void add_piece(ParameterBase<D>& p) {
    p.first_piece = parameters.back().parameter;
    p.site = p.first_piece->site;
    last_piece_ = last_piece_->next_piece = &p;
  }

  [[noreturn]] static void fail_of_use(const NamedParameter<T, D>& named) {
    std::string name = named.parameter->label;
    if (named.name) name = "'" + named.name->text + "' (" + name + ")";
    fail(ErrorCode::state, "dspp: a parameter needs a gradient for each use that forward notes, but " + name +
                               " received too few: it would be trained on zeros. Call accumulate(...) once for each "
                               "register_use(x), in the backward of the operation that is recorded after it.");
  }

  AtRunTime<std::set<GlobalName>> names_;
  List<Unit<T, D>*> open_, left_;
  ParameterBase<D>* last_piece_ = nullptr;
  int sites_ = 0, numbers_ = 0;
  ParameterChoices choices_{};
  int members_[ParameterGroups::most] = {};  ///< parameters of each group, pieces counted
};

template <class T, Device D>
constexpr void Inventory<T, D>::check_groups() const {
  const ParameterGroups* const groups = choices_.groups;
  bool matrices = false, trained = false;
  for (const auto& named : parameters)
    matrices |= named.parameter->is_whole_matrix(), trained |= !named.parameter->is_frozen();
  if (!trained)
    fail(ErrorCode::usage,
         "dspp: Engine needs a parameter to train, but all are frozen. Freeze fewer, or take Weights for evaluation.");
  if (choices_.whole_matrices && !matrices)
    fail(ErrorCode::usage,
         "dspp: an optimizer of whole matrices needs at least one, but no matrix of this model is inside of a block. "
         "Put "
         "its layers in a Stack or InUnit, or set MatrixUpdate::always for their group.");
  for (int i = 0; groups && i < groups->size(); ++i) {
    if (members_[i] > 0) continue;
    fail(ErrorCode::usage, "dspp: a parameter group needs at least one parameter, but group " + std::to_string(i + 1) +
                               ", '" + (groups->begin() + i)->name +
                               "', has none: its predicate accepts no name, or earlier groups have all that it "
                               "accepts. Look at the predicate; a name of this model is '" +
                               parameters[0].name->text + "'.");
  }
}

/// Writes the elements `range` of a bucket to `out`, which is [range.begin, range.end), from a source by global
/// position: `source(parameter, first, count, values)` gives elements [first, first + count) of the whole parameter,
/// the first piece of its name, in Compute<Out>. Padding becomes 0.
template <class T, class Out, Device D, class Source>
constexpr void write_values(const Bucket<T, D>& bucket, Range range, int tp_rank, const Source& source,
                            Memory<D>& memory, Out* out) {
  D::write(memory, out, range.count(), [&](auto* host) {
    std::fill_n(host, range.count(), Out{});
    bucket.for_each_part(range, [&](const ParameterBase<D>& p, Size begin, Size end) {
      const auto write = [&](Size local, Size global, Size count) {
        constexpr Size chunk = 4096;
        Compute<Out> values[chunk];
        for (Size i = 0; i < count; i += chunk) {
          const Size n = std::min(chunk, count - i);
          source(p.named(), global + i, n, values);
          Out* const to = host + (p.offset + local + i - range.begin);
          for (Size j = 0; j < n; ++j) to[j] = static_cast<Out>(values[j]);
        }
      };
      p.geometry.for_each_run(tp_rank, begin - p.offset, end - p.offset, write);
    });
  });
}

/// The initial values: element i of parameter p is a function of (seed, p's site, global position of i). The device
/// draws them.
struct InitialSource {
  std::uint64_t seed;
};
constexpr InitialSource initial_source(std::uint64_t seed) {
  return {seed};
}

template <class T, class Out, Device D>
constexpr void write_values(const Bucket<T, D>& bucket, Range range, int tp_rank, const InitialSource& source,
                            Memory<D>& memory, Out* out) {
  if (out == nullptr) return;  // on paper
  D::fill(memory, out, range.count(), Out{});
  bucket.for_each_part(range, [&](const ParameterBase<D>& p, Size begin, Size end) {
    const Initial initial = p.named().initial;
    if (initial.kind == Initial::Kind::zeros) return;
    const PhiloxStream stream{
        .key = {source.seed}, .step = -1, .sample = 0, .site = static_cast<std::uint32_t>(p.named().site)};
    p.geometry.for_each_run(tp_rank, begin - p.offset, end - p.offset, [&](Size local, Size global, Size count) {
      Out* const to = out + (p.offset + local - range.begin);
      if (initial.kind == Initial::Kind::ones)
        D::fill(memory, to, count, static_cast<Out>(Compute<Out>(1)));
      else
        ops::draw_normals<D>(memory, stream, global, count, initial.stddev, to);
    });
  });
}

/// Fills the values that this rank holds in elements `range` of the bucket from `source`.
template <class T, Device D, class Source>
[[gnu::noinline]] constexpr void fill_bucket(Bucket<T, D>& b, Replicas<T, D>& replicas, int tp_rank, Range range,
                                             const Source& source) {
  const Range held = replicas.held(b), part = common(held, range);
  if (part.count() <= 0) return;
  replicas.change_values(b);
  write_values(b, part, tp_rank, source, replicas.memory(), replicas.held_values(b).data_from(part.begin - held.begin));
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::fail_of_second_name(const char* label, const std::string& shape) {
  fail(ErrorCode::usage, std::string("dspp: visit() needs to name each parameter once, but ") + label + " " + shape +
                             " is named again. Name another part, or leave it out.");
}

DSPP_INLINE void detail::fail_of_name(const std::string& name) {
  fail(ErrorCode::usage, "dspp: visit() needs a name for each parameter that no other has, but two are called '" +
                             name + "': files could not distinguish them. Rename the part of one of them.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
