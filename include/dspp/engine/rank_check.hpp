// SPDX-License-Identifier: Apache-2.0
/// Checks that ranks hold the same state: every check_ranks steps their digests are compared, bit for bit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <dspp/comm/same_facts.hpp>
#include <dspp/engine/batch_print.hpp>
#include <dspp/engine/engine_config.hpp>
#include <dspp/launch/world.hpp>
#include <dspp/zero/gradients.hpp>
#include <dspp/zero/sharded_state.hpp>

namespace dspp {

/// When a training checks its ranks, and the batches of a step that checks.
template <Device D>
class RankCheck {
 public:
  /// The first of every `every` steps checks; 0, or one rank: no step does.
  constexpr RankCheck(Size every, int ranks) : every_(ranks > 1 ? every : 0) {
    require(every >= 0, "dspp: Engine needs check_ranks of at least 0, but got less. 0 means no check.");
  }

  /// True if the current step checks.
  constexpr bool due() const { return every_ > 0 && steps_ % every_ == 0; }
  /// How the reductions of the current step are checked.
  constexpr ReductionCheck of_reductions() const {
    return every_ == 0 ? ReductionCheck::none : due() ? ReductionCheck::repeat : ReductionCheck::digest;
  }
  /// Checks passed so far.
  constexpr Size count() const { return every_ > 0 ? (made_ + (steps_ + every_ - 1) / every_) : 0; }

  [[gnu::noinline]] constexpr void note(Size micro_step, BatchPrint input, const List<Reported<D>>& reports,
                                        bool over_samples) {
    if (input.rows == 0) return;
    if (over_samples) input.reports.push_back("mean_over_samples");
    for (const Reported<D>& report : reports) input.reports.push_back(report.name);
    inputs_.resize(std::max(inputs_.size(), static_cast<std::size_t>(micro_step) + 1));
    inputs_[static_cast<std::size_t>(micro_step)] = std::move(input);
  }
  const std::vector<BatchPrint>& inputs() const { return inputs_; }

  constexpr void end_step() { ++steps_, forget(); }
  /// Discards the inputs of the current step.
  constexpr void forget() { inputs_.clear(); }
  /// Makes the next step check, since all tensors may have been replaced.
  constexpr void reset() {
    made_ = count();
    steps_ = 0;
    forget();
  }

 private:
  Size every_, steps_ = 0, made_ = 0;
  std::vector<BatchPrint> inputs_;
};

/// Compares, before an update, what must be the same on several ranks, bit for bit. All ranks: steps, learning rate and
/// loss scale. Ranks of Tp: batches, and parameters that are not cut with their state and gradients. Ranks of Cp: what
/// the slices of a sequence share, and that they are slices. Replicas: values, optimizer state and reduced gradients,
/// unless split; split gradients are compared with a second sum by another replica (zero/reduction_check.hpp), and what
/// several nodes have by Shards<Within<Node>> or SecondaryShards<Node> between them. Under ReduceAs nothing is summed
/// again.
/// scalars: StepScalars, of which the gradient norm is read.
///
/// Cost     one pass over this rank's state, one all-gather of 104 bytes over the world
/// Throws   Error(usage) or Error(state), one sentence on every rank with the odd rank, the difference and the step
template <class Engine, class Scalars>
constexpr void check_ranks(Engine& engine, RankCheck<typename Engine::D>& check, const Scalars& scalars);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The words that a rank sends in a check.
enum class CheckWord {
  settings,
  tp_inputs,
  cp_inputs,
  slice,           ///< digest of the tokens and targets
  ends_otherwise,  ///< the slice cannot follow itself
  changed,         ///< a reduced gradient changed after its reduction
  replica_state,
  replica_gradients,
  tp_state,
  tp_gradients,
  first,  ///< the last three as in ReductionPrint, of all buckets
  neighbour,
  again,
};
inline constexpr Size check_words = 13;

/// What a check reads of an engine, without its model, optimizer and policy types: a check is compiled once for all.
template <class T, Device D>
struct CheckedEngine {
  CommunicatorOf<D>& world;
  const Mesh& mesh;
  int tp_size;
  Replicas<T, D>& replicas;
  const Inventory<T, D>& inventory;
  const List<Unit<T, D>*>& units;
  ShardedState<T, D>& state;
  TrainingProgress progress;
  double loss_scale;
};

/// One rank's part in a check.
template <class T, Device D>
class CheckedRank {
 public:
  using Words = std::vector<std::uint64_t>;

  CheckedRank(const CheckedEngine<T, D>& engine, const RankCheck<D>& check, double norm)
      : engine_(engine), check_(check), finite_(norm - norm == 0) {}

  void write_words(std::int64_t* words);
  /// Throws if the words of all ranks disagree.
  void compare(const std::int64_t* words);
  void require_unchanged(const std::int64_t* words);

 private:
  /// Throws unless all ranks of each group have the same word.
  void require_same(const std::int64_t* words, CheckWord which, const std::function<AxisGroup(int)>& group_of,
                    const std::function<Facts()>& facts_of, ErrorCode code, const char* who, const char* advice);
  void require_slices(const std::int64_t* words);
  void require_sums(const std::int64_t* words);

  /// Calls f(what, cut, name, data, bytes) for this rank's pieces of each parameter's state, or of its "gradient";
  /// `cut`: the parameter is cut over Tp.
  template <class F>
  void for_each_piece_of_state(bool gradients, F f);
  Facts settings() const;
  Facts inputs(bool shared_over_tp) const;
  Facts state(bool gradients, bool over_tp);
  bool compared(const char* what, bool cut, bool over_tp) const {
    if (over_tp) return !cut && what != secondary;
    const StageRule& rule = engine_.replicas.rule();
    return engine_.replicas.copies() > 1 || what == secondary || !rule.optimizer_is_split() ||
           (!rule.values_are_split() && what == values);
  }
  /// The replicas over which a rank's state is cut, and those that have the same state: all, or by node its copies or
  /// the ranks with its secondary shards.
  AxisGroup shards_of(int rank) const {
    const AxisGroup all = engine_.mesh.replicas(rank);
    return NodeGroups(all, all.position(rank), engine_.replicas.shards().size()).within;
  }
  AxisGroup same_by_node(int rank) const {
    const AxisGroup all = engine_.mesh.replicas(rank);
    const int nodes = engine_.replicas.nodes_with_the_same_state();
    return nodes > 1 ? NodeGroups(all, all.position(rank), all.size / nodes).across : all;
  }
  std::uint64_t digest_of(const void* data, Size bytes) const {
    return ops::digest<D>(engine_.replicas.memory(), static_cast<const std::byte*>(data), bytes);
  }
  std::uint64_t word(const std::int64_t* words, int rank, CheckWord which) const {
    return static_cast<std::uint64_t>(words[check_words * rank + static_cast<int>(which)]);
  }
  /// One number of every bucket's ReductionPrint, as facts to send.
  Facts of_buckets(Size which) const;
  /// Names of the parameters in slice `replica` of bucket `number`, counted over all units.
  std::string names_in(std::size_t number, int replica) const;
  std::string in_step() const { return ", in step " + std::to_string(engine_.progress.steps + 1) + ". "; }

  static constexpr const char* values = "values";
  static constexpr const char* secondary = "secondary shards";
  const std::string padding = "padding";

  const CheckedEngine<T, D>& engine_;
  const RankCheck<D>& check_;
  bool finite_;
};

inline constexpr const char* faulty_rank =
    "Nothing was updated: load the last checkpoint. If no rank was given other values, look for a fault in "
    "that rank's memory, processor or network.";

template <class T, Device D>
template <class F>
void CheckedRank<T, D>::for_each_piece_of_state(bool gradients, F f) {
  auto& replicas = engine_.replicas;
  const Size state = sizeof(Compute<T>), width = replicas.gradient_bytes(1);
  for (const auto& named : engine_.inventory.parameters)
    for_each_piece(named, [&](const auto& p, auto& b) {
      const Range own = replicas.owned(b);
      const Range part{std::max(own.begin, p.offset), std::min(own.end, p.offset + p.count())};
      const bool cut = p.cut.dimension >= 0, resident = !replicas.rule().values_are_split();
      const auto give = [&](const char* what, const auto* data, Size bytes) {
        f(what, cut, named.name->text, static_cast<const void*>(data), bytes);
      };
      if (!gradients && resident)
        give(values, replicas.held_values(b).data() + p.offset, p.count() * static_cast<Size>(sizeof(T)));
      if (part.begin >= part.end) return;
      const Size at = part.begin - own.begin, count = part.count();
      if (p.is_frozen() && (gradients || resident)) return;
      if (gradients) return give("gradient", b.reduced.data() + at * width, count * width);
      if (!resident) give(values, replicas.held_values(b).data() + at, count * static_cast<Size>(sizeof(T)));
      auto& own_state = engine_.state.of(b);
      if (p.is_frozen()) return;
      if (own_state.master) give("masters", own_state.master.data() + at, count * state);
      for (int i = 0; i < engine_.state.moments(b); ++i)
        give("moments", own_state.moments[i].data() + at, count * state);
    });
  if (!gradients)
    for (auto* unit : engine_.units)
      for (auto& b : unit->buckets())
        if (b.secondary)
          f(secondary, true, "bucket " + std::to_string(b.number), static_cast<const void*>(b.secondary.data()),
            b.secondary.bytes());
  if (gradients && !replicas.rule().optimizer_is_split())
    for (auto* unit : engine_.units)
      for (auto& b : unit->trained_buckets()) {
        Size written = 0;  // padding is reduced too
        const auto give = [&](Size end) {
          if (written < end)
            f("gradient", true, padding, static_cast<const void*>(b.reduced.data() + written * width),
              (end - written) * width);
        };
        for (const auto* p : b.parameters) give(p->offset), written = p->offset + p->count();
        give(b.count);
      }
}

template <class T, Device D>
Facts CheckedRank<T, D>::settings() const {
  const TrainingProgress& now = engine_.progress;
  Facts facts;
  facts.add("learning rate", now.learning_rate)
      .add("steps", now.steps)
      .add("skipped steps", now.skipped_steps)
      .add("steps of the moments", now.moment_steps)
      .add("seed", now.seed)
      .add("loss scale", engine_.loss_scale)
      .add("last overflow", now.loss_scale.last_overflow)
      .add("hysteresis", now.loss_scale.hysteresis);
  std::string reports;
  for (const auto& input : check_.inputs())
    for (const char* name : input.reports) reports += (reports.empty() ? "" : ", ") + std::string(name);
  return facts.add("reports", reports.empty() ? "none" : reports);
}

template <class T, Device D>
Facts CheckedRank<T, D>::inputs(bool shared_over_tp) const {
  Facts facts;
  for (std::size_t i = 0; i < check_.inputs().size(); ++i) {
    const auto& input = check_.inputs()[i];
    const std::string of = " of micro-step " + std::to_string(i);
    facts.add("first_sample" + of, input.first_sample);
    facts.add("rows" + of, input.rows);
    facts.add("sequence" + of, input.length);
    for (const BatchPrint::Field& field : input.fields) {
      const bool same = shared_over_tp || !field.cut;
      facts.add(field.name + of, !field.given ? "left out" : same ? digest_text(field.digest) : "given");
    }
  }
  return facts;
}

template <class T, Device D>
Facts CheckedRank<T, D>::state(bool gradients, bool over_tp) {
  Facts facts;
  for_each_piece_of_state(gradients,
                          [&](const char* what, bool cut, const std::string& name, const void* data, Size bytes) {
                            if (compared(what, cut, over_tp))
                              facts.add(std::string(what) + " of " + name, digest_text(digest_of(data, bytes)));
                          });
  return facts;
}

template <class T, Device D>
void CheckedRank<T, D>::write_words(std::int64_t* words) {
  Digest slice, sums[3], state[2][2];  // gradients, over Tp
  bool ends_otherwise = false, changed = false;
  auto& prints = engine_.replicas.prints();
  for (const auto& input : check_.inputs()) {
    slice.add(input.slice);
    ends_otherwise |= input.ends_otherwise;
  }
  for (const Size which : {ReductionPrint::first, ReductionPrint::neighbour, ReductionPrint::again})
    for (const std::uint64_t print : prints.of_buckets(which)) sums[which].add(print);
  for (const std::uint64_t print : prints.of_buckets(ReductionPrint::changed)) changed |= print != 0;
  for (const bool gradients : {false, true}) {
    if (gradients && !finite_) continue;  // the bits of a NaN may differ
    for_each_piece_of_state(
        gradients, [&](const char* what, bool cut, const std::string&, const void* data, Size bytes) {
          const bool shared[] = {compared(what, cut, false), compared(what, cut, true) && engine_.tp_size > 1};
          if (!shared[0] && !shared[1]) return;
          const std::uint64_t digest = digest_of(data, bytes);
          for (const int over_tp : {0, 1})
            if (shared[over_tp]) state[gradients][over_tp].add(digest);
        });
  }
  const std::uint64_t all[] = {settings().digest(), inputs(true).digest(), inputs(false).digest(),
                               slice.value(),       ends_otherwise,        changed,
                               state[0][0].value(), state[1][0].value(),   state[0][1].value(),
                               state[1][1].value(), sums[0].value(),       sums[1].value(),
                               sums[2].value()};
  static_assert(std::size(all) == check_words);
  std::copy(std::begin(all), std::end(all), words);
}

template <class T, Device D>
void CheckedRank<T, D>::require_same(const std::int64_t* words, CheckWord which,
                                     const std::function<AxisGroup(int)>& group_of,
                                     const std::function<Facts()>& facts_of, ErrorCode code, const char* who,
                                     const char* advice) {
  auto& world = engine_.world;
  for (int r = 0; r < world.size(); ++r) {
    const AxisGroup group = group_of(r);
    if (group[0] != r) continue;
    std::vector<int> members;
    Words of_members;
    for (int i = 0; i < group.size; ++i) {
      members.push_back(group[i]);
      of_members.push_back(word(words, group[i], which));
    }
    const OddRanks found = odd_ranks(of_members);
    if (found.odd.empty()) continue;
    fail(code, std::string("dspp: ") + who + ", but " + describe_difference(world, members, found, facts_of()) +
                   in_step() + advice);
  }
}

template <class T, Device D>
void CheckedRank<T, D>::require_slices(const std::int64_t* words) {
  const Mesh& mesh = engine_.mesh;
  for (int r = 0; r < mesh.world_size(); ++r) {
    const AxisGroup group = mesh.members(Axis::Cp, r);
    const int i = group.position(r);
    if (i == 0) continue;
    const bool same = word(words, r, CheckWord::slice) == word(words, group[i - 1], CheckWord::slice);
    if (!same || word(words, r, CheckWord::ends_otherwise) == 0) continue;
    fail(ErrorCode::usage, "dspp: the ranks of Cp need different slices of a sequence, but rank " + std::to_string(r) +
                               " has the tokens of rank " + std::to_string(group[i - 1]) + " too" + in_step() +
                               "Give each rank its slice of the whole sequences, sequence_slice(world), as batches() "
                               "does.");
  }
}

template <class T, Device D>
Facts CheckedRank<T, D>::of_buckets(Size which) const {
  Facts facts;
  for (const std::uint64_t print : engine_.replicas.prints().of_buckets(which)) facts.add("", digest_text(print));
  return facts;
}

template <class T, Device D>
std::string CheckedRank<T, D>::names_in(std::size_t number, int replica) const {
  std::vector<std::string> names;
  for (const auto* unit : engine_.units)
    for (const auto& b : unit->buckets()) {
      if (number-- != 0) continue;
      b.for_each_part(b.slice(replica, engine_.replicas.shards().size()), [&](const auto& p, Size, Size) {
        for (const auto& named : engine_.inventory.parameters)
          if (named.parameter == &p.named()) names.push_back(named.name->text);
      });
    }
  if (names.empty()) return "padding";
  const std::string first = "'" + shown(names.front()) + "'";
  return names.front() == names.back() ? first : first + " to '" + shown(names.back()) + "'";
}

template <class T, Device D>
void CheckedRank<T, D>::require_unchanged(const std::int64_t* words) {
  auto& world = engine_.world;
  for (int r = 0; r < world.size(); ++r) {
    if (word(words, r, CheckWord::changed) == 0) continue;
    const Facts all = Facts::received(text_of(world, of_buckets(ReductionPrint::changed).sent(), r));
    std::size_t bucket = 0;
    while (all.all()[bucket].value == digest_text(0)) ++bucket;
    fail(ErrorCode::state, "dspp: a reduced gradient needs to stay unchanged until the update, but on rank " +
                               std::to_string(r) + " that of " + names_in(bucket, shards_of(r).position(r)) +
                               " changed" + in_step() + faulty_rank);
  }
}

/// Member i of a group of replicas holds sum i, and member i + 1 computes it once more.
template <class T, Device D>
void CheckedRank<T, D>::require_sums(const std::int64_t* words) {
  auto& world = engine_.world;
  for (int r = 0; r < world.size(); ++r) {
    const AxisGroup group = shards_of(r);
    const int i = group.position(r), other = group[(i + 1) % group.size];
    const std::uint64_t first = word(words, r, CheckWord::first), again = word(words, r, CheckWord::again);
    const std::uint64_t neighbour = word(words, other, CheckWord::neighbour);
    if (first == again && first == neighbour) continue;
    const auto send = [&](Size which, int from) {
      return Facts::received(text_of(world, of_buckets(which).sent(), from)).all();
    };
    const auto firsts = send(ReductionPrint::first, r), agains = send(ReductionPrint::again, r);
    const auto neighbours = send(ReductionPrint::neighbour, other);
    std::size_t bucket = 0;
    while (firsts[bucket] == agains[bucket] && firsts[bucket] == neighbours[bucket]) ++bucket;
    const bool of_other = firsts[bucket] == agains[bucket];
    const bool unclear = !of_other && firsts[bucket] != neighbours[bucket] && agains[bucket] != neighbours[bucket];
    const std::string odd = unclear ? name_ranks({r, other}) : "rank " + std::to_string(of_other ? other : r);
    fail(ErrorCode::state, "dspp: a reduced gradient needs to be the sum over the replicas, but that of " +
                               names_in(bucket, i) + " on " + odd + " differs when it is summed once more" + in_step() +
                               faulty_rank);
  }
}

template <class T, Device D>
void CheckedRank<T, D>::compare(const std::int64_t* words) {
  const Mesh& mesh = engine_.mesh;
  const auto whole_world = [&](int) { return AxisGroup{0, 1, mesh.world_size()}; };
  const auto over_tp = [&](int r) { return mesh.members(Axis::Tp, r); };
  const auto over_cp = [&](int r) { return mesh.members(Axis::Cp, r); };
  const auto replicas = [&](int r) { return same_by_node(r); };
  require_same(
      words, CheckWord::settings, whole_world, [&] { return settings(); }, ErrorCode::usage,
      "training needs the same on every rank", "Set it alike on every rank.");
  require_same(
      words, CheckWord::tp_inputs, over_tp, [&] { return inputs(true); }, ErrorCode::usage,
      "the ranks of Tp need the same batch", "Give all ranks of Tp the batch of their world.data_rank().");
  require_same(
      words, CheckWord::cp_inputs, over_cp, [&] { return inputs(false); }, ErrorCode::usage,
      "the ranks of Cp need slices of the same sequences",
      "Give all ranks of Cp slices of the batch of their world.data_rank().");
  require_slices(words);
  require_unchanged(words);
  require_sums(words);
  const auto require_same_bits = [&](CheckWord which, bool gradients, bool of_tp, auto group_of, const char* who) {
    require_same(
        words, which, group_of, [&] { return state(gradients, of_tp); }, ErrorCode::state, who, faulty_rank);
  };
  require_same_bits(CheckWord::replica_state, false, false, replicas, "replicas need the same bits of a parameter");
  require_same_bits(CheckWord::tp_state, false, true, over_tp, "ranks of Tp need the same bits of what they share");
  require_same_bits(CheckWord::replica_gradients, true, false, replicas, "replicas need the same reduced gradient");
  require_same_bits(CheckWord::tp_gradients, true, true, over_tp,
                    "ranks of Tp need the same gradient of what they share");
}

/// What CheckedRank::write_words fetches of values and state, on paper and in its order: windows, where those are on a
/// disk.
template <class Engine>
constexpr void fetch_on_paper(Engine& engine) {
  auto& replicas = engine.replicas();
  if (engine.state().store().tier() != Tier::disk) return;
  for (const auto& named : engine.inventory().parameters)
    for_each_piece(named, [&](const auto& p, auto& b) {
      const Range own = replicas.owned(b);
      if (common(own, {p.offset, p.offset + p.count()}).count() <= 0) return;
      if (p.is_frozen() && !replicas.rule().values_are_split()) return;
      replicas.held_values(b);
      engine.state().of(b);
    });
}

/// Calls f(rank) with this rank's part in a check.
template <class Engine, class F>
void with_checked_rank(Engine& engine, RankCheck<typename Engine::D>& check, double norm, F f) {
  auto& world = engine.world();
  const CheckedEngine<typename Engine::T, typename Engine::D> checked{.world = world.host(),
                                                                      .mesh = world.mesh(),
                                                                      .tp_size = world.tp().size(),
                                                                      .replicas = engine.replicas(),
                                                                      .inventory = engine.inventory(),
                                                                      .units = engine.units(),
                                                                      .state = engine.state(),
                                                                      .progress = engine.progress(),
                                                                      .loss_scale = engine.loss_scale()};
  f(CheckedRank<typename Engine::T, typename Engine::D>(checked, check, norm));
}

}  // namespace detail

template <class Engine, class Scalars>
constexpr void check_ranks(Engine& engine, RankCheck<typename Engine::D>& check, const Scalars& scalars) {
  using D = typename Engine::D;
  auto& world = engine.world();
  auto words = Tensor<std::int64_t, 1, D>::uninitialized(shape(detail::check_words * world.size()), world.memory(),
                                                         Category::communication, "check of ranks");
  std::int64_t* const own = words.data_from(detail::check_words * world.rank());
  double norm = 0;
  scalars.read([&](const auto* host) { norm = host[StepScalars::gradient_norm]; });
  const auto with_rank = [&](auto f) { detail::with_checked_rank(engine, check, norm, f); };
  if (own == nullptr) detail::fetch_on_paper(engine);
  D::write(world.memory(), own, detail::check_words,
           [&](auto* host) { with_rank([&](auto rank) { rank.write_words(host); }); });
  all_gather(world.all(), buffer(static_cast<const std::int64_t*>(own), detail::check_words),
             buffer(words.data(), words.count()), Purpose::check);
  words.read([&](const auto* host) { with_rank([&](auto rank) { rank.compare(host); }); });
}

}  // namespace dspp
