// SPDX-License-Identifier: Apache-2.0
/// A drawn task under a policy: what it gives, what one dense rank gives, and the smallest task on which they differ.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/optim/sgd.hpp>
#include <dspp/plan/plan.hpp>
#include <dspp/zero/full_tensors.hpp>
#include <laws/difference.hpp>
#include <laws/folder.hpp>
#include <laws/random_models.hpp>

namespace dspp::laws {

/// What a run shows.
struct RandomOutcome {
  std::vector<double> losses, norms, evals;                 ///< of each step, over the global batch
  std::map<std::string, std::vector<double>> parameters{};  ///< whole ones, after the last step
  std::string fault;  ///< measured beside planned; memory kept beyond its bound; ranks that disagree
};

/// The steps of a task that one run takes: it begins with the state in `folder`, unless with the first step, and leaves
/// its own there, unless with the last.
struct Stretch {
  int begin = 0, end = 1 << 20;
  std::string folder{};
};

/// Trains the task under policy P. `split.data` times Cp times Tp ranks.
template <class P>
struct RandomRunner {
  static RandomOutcome run(const DrawnTask& task, const DrawnSplit& split, const Stretch& stretch = {});
};

/// The first difference of two outcomes beyond the tolerance, or "".
std::string difference(const RandomOutcome& found, const RandomOutcome& dense, double tolerance);

/// Draws models for policy P on several data degrees, and fails with the smallest task that differs from one rank.
///
/// DSPP_RANDOM_MODELS in the environment says how many (default: `models`), DSPP_RANDOM_SEED from which seed on.
template <class P>
void check_random_models(int models);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// A number that follows from the task, a global sample and a position.
inline std::uint64_t random_bits(const DrawnTask& task, Size sample, Size j) {
  std::uint64_t h = task.seed * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(sample * 1009 + j + 1);
  h ^= h >> 31, h *= 0xBF58476D1CE4E5B9u, h ^= h >> 29, h *= 0x94D049BB133111EBu;
  return h ^ (h >> 32);
}

/// Token j of a global sample.
inline std::int32_t random_token(const DrawnTask& task, Size sample, Size j) {
  return static_cast<std::int32_t>(random_bits(task, sample, j) % static_cast<std::uint64_t>(task.model.vocabulary));
}

/// Rows [first, first + rows) of a step, positions [start, start + own) of each. Some targets do not count, and some
/// weigh more than others, but the step's first counts.
inline Batch<Cpu> random_batch(Pool& pool, const DrawnTask& task, Size before, Size first, Size rows, Size own,
                               Size start) {
  const auto extents = shape(rows, own);
  Batch<Cpu> batch{Tensor<std::int32_t, 2>::uninitialized(extents, pool, Category::data, "tokens"),
                   Tensor<std::int32_t, 2>::uninitialized(extents, pool, Category::data, "targets"), first};
  if (task.weighed) batch.target_weights = Tensor<float, 2>::uninitialized(extents, pool, Category::data, "weights");
  for (Size i = 0; i < rows; ++i)
    for (Size j = 0; j < own; ++j) {
      const Size sample = before + first + i, at = start + j;
      const bool counts = (first + i == 0 && at == 0) ||
                          static_cast<double>(random_bits(task, sample + 5000, at) % 100) >= 100 * task.ignored;
      batch.tokens.data()[i * own + j] = random_token(task, sample, at);
      batch.targets.data()[i * own + j] = counts ? random_token(task, sample, at + 1) : ignored_target;
      if (task.weighed)  // sums of quarters are exact
        batch.target_weights.data()[i * own + j] =
            0.25f * static_cast<float>(random_bits(task, sample + 9000, at) % 9 + (first + i == 0 && at == 0));
    }
  return batch;
}

/// Every rank dawdles where it likes.
inline void dawdle(const DrawnTask& task, int rank, Size step, Size a) {
  const std::uint64_t bits = random_bits(task, 7000 + rank, 100 * step + a);
  if (bits % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(bits / 8 % 300));
}

/// The micro-batches of a step, each made when it is asked for.
template <class BatchOf>
struct DrawnBatches {
  const BatchOf& batch_of;
  int step;
  Size count;
  struct Iterator {
    const DrawnBatches* batches;
    Size number;
    auto operator*() const { return batches->batch_of(batches->step, number); }
    Iterator& operator++() { return ++number, *this; }
    bool operator==(const Iterator& other) const { return number == other.number; }
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, count}; }
};
template <class P>
std::string compare_with_plan(World<P>& world, const DrawnTask& task, const DrawnSplit& split, Size peak) {
  const Coordinates at = world.place();
  const Plan paper = plan<RandomModel<P>>(
      task.model, {.micro_batch = split.rows[0], .sequence = task.sequence, .accumulate = split.accumulate},
      {.data = split.data,
       .bucket_bytes = split.bucket_elements * static_cast<Size>(sizeof(typename P::Element)),
       .target_weights = task.weighed,
       .data_rank = at.data,
       .cp_rank = at.cp,
       .tp_rank = at.tp},
      Sgd{});
  const auto differ = [&](const char* what, auto planned, auto measured) {
    return planned == measured ? std::string()
                               : std::string(what) + " on rank " + std::to_string(world.rank()) + ": planned " +
                                     std::to_string(planned) + ", measured " + std::to_string(measured) + "; ";
  };
  const auto measured = [](auto& group) { return group.traffic().without(Purpose::check).total(); };
  const Size checks = (world.traffic() - paper.start_traffic).only(Purpose::check).total();
  return differ("check traffic", paper.check_traffic.total(), checks) + differ("peak bytes", paper.peak, peak) +
         differ("replica traffic", paper.replica_traffic.total(), measured(world.replicas())) +
         differ("Cp traffic", paper.cp_traffic.total(), measured(world.cp())) +
         differ("Tp traffic", paper.tp_traffic.total(), measured(world.tp())) +
         differ("world traffic", paper.world_traffic.total(), measured(world.all()));
}

}  // namespace detail

template <class P>
RandomOutcome RandomRunner<P>::run(const DrawnTask& task, const DrawnSplit& split, const Stretch& stretch) {
  using Model = RandomModel<P>;
  const int ranks = split.data * P::cp * P::tp;
  RandomOutcome outcome;
  std::vector<std::string> faults(static_cast<std::size_t>(ranks));
  std::vector<std::vector<double>> reported(static_cast<std::size_t>(ranks));  // and the parameters
  run_ranks_of<P>(
      RunOptions{.ranks = ranks, .threads_per_rank = 1, .seed = task.seed, .timeout_seconds = 120},
      [&](World<P>& world) {
        world.memory().poison(task.seed % 2 == 0);
        Engine<Model, Sgd> engine(
            world, Model(task.model), Sgd{.lr = task.lr, .weight_decay = task.weight_decay},
            BatchSizes{.accumulate = split.accumulate},
            EngineConfig{.clip_norm = task.clip_norm,
                         .bucket_bytes = split.bucket_elements * static_cast<Size>(sizeof(typename P::Element)),
                         .zero_gradients = true,
                         .check_ranks = task.check_ranks});
        const Size samples = split.samples();
        const auto batch_of = [&](int step, Size a) {
          detail::dawdle(task, world.rank(), step, a);
          const Size own = task.sequence_of(step) / world.cp().size();
          const std::size_t mine = static_cast<std::size_t>(a * split.data + world.data_rank());
          const Size first = std::accumulate(split.rows.begin(), split.rows.begin() + static_cast<long>(mine), Size{0});
          return detail::random_batch(world.memory(), task, step * samples, first, split.rows[mine], own,
                                      own * world.cp().rank());
        };
        const bool first = world.rank() == 0;
        std::string& fault = faults[static_cast<std::size_t>(world.rank())];
        auto& mine = reported[static_cast<std::size_t>(world.rank())];
        if (stretch.begin > 0) load_checkpoint(engine, stretch.folder);
        for (int step = stretch.begin; step < std::min(task.steps, stretch.end); ++step) {
          const StepReport report =
              engine.train_batch(detail::DrawnBatches<decltype(batch_of)>{batch_of, step, split.accumulate});
          if (step == 0 && split.even())
            fault += detail::compare_with_plan<P>(world, task, split, world.memory().peak());
          const double loss = report.loss;
          if (first) outcome.losses.push_back(loss), outcome.norms.push_back(report.gradient_norm);
          mine.push_back(loss), mine.push_back(report.gradient_norm);
          for (int e = 0; e < task.evals; ++e) {
            MeanLoss sum;
            for (Size a = 0; a < split.accumulate; ++a) {
              const MeanLoss part = engine.eval_batch(batch_of(step, a));
              sum.mean += part.mean * part.counted, sum.counted += part.counted;
            }
            if (sum.counted > 0) sum.mean /= sum.counted;
            const double eval = engine.all_reduce_mean(sum);
            if (first) outcome.evals.push_back(eval);
          }
        }
        const Pool& memory = world.memory();
        if (memory.peak_reserved() > Pool::reserved_at_most(memory.peak()))
          fault += "reserved " + std::to_string(memory.peak_reserved()) + " bytes for a peak of " +
                   std::to_string(memory.peak()) + "; ";
        for (const auto& named : engine.inventory().parameters) {
          const auto whole = engine.gather_parameter(named.name->text);
          if (first) outcome.parameters[named.name->text].assign(whole.data(), whole.data() + whole.count());
          mine.insert(mine.end(), whole.data(), whole.data() + whole.count());
        }
        if (stretch.end < task.steps) save_checkpoint(engine, stretch.folder);
      });
  for (const std::string& fault : faults) outcome.fault += fault;
  for (int rank = 1; rank < ranks; ++rank)
    if (reported[static_cast<std::size_t>(rank)] != reported[0])
      outcome.fault += "rank " + std::to_string(rank) + " has other losses, norms or parameters than rank 0; ";
  return outcome;
}

inline std::string difference(const RandomOutcome& found, const RandomOutcome& dense, double tolerance) {
  if (!found.fault.empty()) return found.fault;
  const auto compare = [&](const std::string& what, const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() != b.size()) return what + " has another size";
    double largest = 1e-3;
    for (double value : b) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < a.size(); ++i)
      if (difference(a[i], b[i], largest) > tolerance)
        return what + "[" + std::to_string(i) + "] is " + std::to_string(a[i]) + " and on one dense rank " +
               std::to_string(b[i]);
    return std::string();
  };
  if (auto text = compare("loss", found.losses, dense.losses); !text.empty()) return text;
  if (auto text = compare("norm", found.norms, dense.norms); !text.empty()) return text;
  if (auto text = compare("eval", found.evals, dense.evals); !text.empty()) return text;
  if (found.parameters.size() != dense.parameters.size()) return "other parameters";
  for (const auto& [name, values] : dense.parameters)
    if (auto text = compare(name, found.parameters.at(name), values); !text.empty()) return text;
  return {};
}

namespace detail {

inline DrawnSplit dense_split(const DrawnSplit& split) {
  return {.rows = {split.samples()}};
}

/// That the gradient is the loss's: a small step against it lowers the loss by its squared norm. Of one dense rank, so
/// that a factor which all policies have in common shows, too.
inline std::string gradient_fault(const Drawn& drawn) {
  DrawnTask task = drawn.task;
  for (const DrawnPart& part : task.model.parts)
    if (part.kind == PartKind::dropout) return {};
  task.steps = task.evals = 1, task.lr = 1e-7, task.clip_norm = task.weight_decay = 0;
  const RandomOutcome dense = RandomRunner<Policy<F64>>::run(task, dense_split(drawn.split));
  const double slope = (dense.losses[0] - dense.evals[0]) / task.lr, squared = dense.norms[0] * dense.norms[0];
  if (std::abs(slope - squared) <= 1e-2 * squared + 1e-8) return {};
  return "against the gradient the loss falls by " + std::to_string(slope) + " a unit, but the norm squared is " +
         std::to_string(squared);
}

/// Half of the steps under P and half on one dense rank, with a state in between, under either first.
template <class P>
RandomOutcome handed_over(const Drawn& drawn) {
  const Folder folder;
  const int half = (drawn.task.steps + 1) / 2;
  const Stretch halves[] = {{0, half, folder.file("states")}, {half, 1 << 20, folder.file("states")}};
  RandomOutcome whole;
  for (const bool second : {false, true}) {
    const bool dense = second == (drawn.task.seed % 2 == 0);
    RandomOutcome part = dense ? RandomRunner<Policy<F64>>::run(drawn.task, dense_split(drawn.split), halves[second])
                               : RandomRunner<P>::run(drawn.task, drawn.split, halves[second]);
    for (const auto of : {&RandomOutcome::losses, &RandomOutcome::norms, &RandomOutcome::evals})
      (whole.*of).insert((whole.*of).end(), (part.*of).begin(), (part.*of).end());
    whole.fault += part.fault;
    whole.parameters = std::move(part.parameters);
  }
  return whole;
}

/// Takes away from the task what it can while it still fails.
inline Drawn shrink(Drawn drawn, const std::function<bool(const Drawn&)>& fails) {
  const auto keep_if_it_fails = [&](auto change) {
    Drawn smaller = drawn;
    change(smaller);
    if (!fails(smaller)) return false;
    drawn = smaller;
    return true;
  };
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (std::size_t i = drawn.task.model.order.size(); i-- > 0;)
      smaller |= keep_if_it_fails(
          [&](Drawn& d) { d.task.model.order.erase(d.task.model.order.begin() + static_cast<long>(i)); });
    if (drawn.split.accumulate > 1)
      smaller |= keep_if_it_fails([&](Drawn& d) {
        d.split.accumulate = 1;
        d.split.rows.resize(static_cast<std::size_t>(d.split.data));
      });
    if (drawn.task.steps > 1) smaller |= keep_if_it_fails([](Drawn& d) { d.task.steps = 1; });
    if (drawn.task.evals > 0) smaller |= keep_if_it_fails([](Drawn& d) { d.task.evals = 0; });
    if (drawn.task.clip_norm > 0) smaller |= keep_if_it_fails([](Drawn& d) { d.task.clip_norm = 0; });
    if (drawn.task.ignored > 0) smaller |= keep_if_it_fails([](Drawn& d) { d.task.ignored = 0; });
    if (drawn.task.weighed) smaller |= keep_if_it_fails([](Drawn& d) { d.task.weighed = false; });
    if (drawn.task.model.longest > 0) smaller |= keep_if_it_fails([](Drawn& d) { d.task.model.longest = 0; });
    if (drawn.task.grows) smaller |= keep_if_it_fails([](Drawn& d) { d.task.grows = false; });
    if (drawn.task.model.stacked > 0) smaller |= keep_if_it_fails([](Drawn& d) { d.task.model.stacked = 0; });
    if (drawn.task.model.auxiliary != Auxiliary::none)
      smaller |= keep_if_it_fails([](Drawn& d) { d.task.model.auxiliary = Auxiliary::none; });
    if (drawn.task.model.loss_chunk_tokens > 0)
      smaller |= keep_if_it_fails([](Drawn& d) { d.task.model.loss_chunk_tokens = 0; });
    for (std::size_t i = 0; i < drawn.task.model.parts.size(); ++i)
      if (drawn.task.model.parts[i].home != PartHome::root)
        smaller |= keep_if_it_fails([&](Drawn& d) { d.task.model.parts[i].home = PartHome::root; });
  }
  return drawn;
}

inline std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace detail

extern template struct RandomRunner<Policy<F64>>;

template <class P>
void check_random_models(int models) {
  const auto compared = [](const Drawn& drawn) {
    const RandomOutcome dense = RandomRunner<Policy<F64>>::run(drawn.task, detail::dense_split(drawn.split));
    if (!dense.fault.empty()) return "on the dense rank: " + dense.fault;
    if (std::string fault = drawn.task.seed % 4 == 0 ? detail::gradient_fault(drawn) : ""; !fault.empty()) return fault;
    if (drawn.task.seed % 5 == 2 && drawn.task.steps > 1) return difference(detail::handed_over<P>(drawn), dense, 1e-9);
    return difference(RandomRunner<P>::run(drawn.task, drawn.split), dense, 1e-9);
  };
  const std::uint64_t from = detail::number_from("DSPP_RANDOM_SEED", 1);
  const std::uint64_t count = detail::number_from("DSPP_RANDOM_MODELS", static_cast<std::uint64_t>(models));
  for (std::uint64_t seed = from; seed < from + count; ++seed) {
    Drawn drawn = draw(seed, P::tp, P::cp, P::sequence_parallel);
    detail::Dice dice(seed + 77);
    drawn.split.data = static_cast<int>(dice.from(1, 4 / (P::tp * P::cp) > 1 ? 4 / (P::tp * P::cp) : 1));
    drawn.split.rows.assign(static_cast<std::size_t>(drawn.split.data * drawn.split.accumulate), dice.from(1, 3));
    if (dice.one_in(3))
      for (Size& rows : drawn.split.rows) rows = dice.from(1, 4);
    // A mean over elements has another weight than one over the targets that count.
    if (drawn.task.ignored > 0 || drawn.task.weighed) drawn.task.model.auxiliary = Auxiliary::none;
    const std::string fault = compared(drawn);
    if (fault.empty()) continue;
    const Drawn small = detail::shrink(drawn, [&](const Drawn& d) { return !compared(d).empty(); });
    FAIL("DSPP_RANDOM_SEED=" << seed << " differs: " << fault << "\n  drawn:  " << text_of(drawn.task, drawn.split)
                             << "\n  shrunk: " << text_of(small.task, small.split)
                             << "\n  where:  " << compared(small));
  }
}

}  // namespace dspp::laws
