// SPDX-License-Identifier: Apache-2.0
/// The laws of strategies: a whole model trained under any policy follows the one-rank curve, and has the cost of its
/// plan and the traffic of the formulas of ZeRO.
#pragma once

#include <laws/contributions.hpp>
#include <laws/difference.hpp>
#include <laws/training_run.hpp>
#include <support/far_device.hpp>

namespace dspp::laws {

/// The largest |a - b| / |b|.
inline double relative_gap(const std::vector<double>& a, const std::vector<double>& b) {
  return worst_difference(a, b, [](double expected) { return std::abs(expected); });
}

/// The largest |a - b| over the largest |b|, over all parameters.
inline double gap_of(const ParameterValues& a, const ParameterValues& b) {
  Worst gap, largest;
  REQUIRE(!b.empty());
  REQUIRE(a.size() == b.size());
  for (const auto& [name, values] : b) {
    gap.add(worst_difference(a.at(name), values));
    largest.add(largest_of(values));
  }
  return difference(gap.value(), 0, largest.value());
}
inline double parameter_gap(const Trained& a, const Trained& b) {
  return gap_of(a.parameters, b.parameters);
}

/// The last loss is below `part` of the first; of the few steps under sanitizers, it is below it.
inline void check_learns(const Trained& trained, double part) {
  CHECK(trained.losses.back() < (sanitizer == Sanitizer::none ? part : 1.0) * trained.losses.front());
}

/// Losses, norms, infinite or NaN in skipped steps, parameters and averages are the same bits.
inline void check_same_bits(const Trained& a, const Trained& b) {
  CHECK(same_bits(a.losses, b.losses));
  CHECK(same_bits(a.norms, b.norms));
  CHECK(a.parameters == b.parameters);
  CHECK(a.averages == b.averages);
}

/// Invariants of every run: clipping was active, all ranks agree on the norm and, along Data, on resident values; every
/// step has the same traffic and the same peak; nothing leaks.
inline void check_run(const Trained& trained);

/// Planned equals measured on rank `r`: state, peak and its categories, each category's peak, and each collective.
inline void check_plan(const Plan& paper, const RankRecord& measured, int r);

/// The replicas, along Data and Cp, move (N - 1) / N x {2, 2, A + 1, 3 A} psi under stages 0 to 3, all by one kind of
/// collective each, but for stage 0 where the transport adds in its own order: a reduce-scatter and an all-gather.
inline void check_replica_traffic(const Trained& trained);

/// Trains on the Cpu, and on a far device with the same bits, traffic and peak.
template <class Model>
Trained train_near_and_far(const Cell& cell);

/// Trains under P with Gpt<Policy<More...>>, which is given P's stage and members as values, so that the engine is
/// compiled once for all of them; compares it with its plans.
template <class O, class P, class... More>
Trained train_as_values(const Cell& cell) {
  Trained trained = detail::train_as<P, Gpt<Policy<More...>>, O>(cell);
  check_run(trained);
  for (int r = 0; r < cell.ranks; ++r)
    check_plan(plan_of<rebind<Gpt<P>, Cpu>, O>(cell, r), trained.ranks[static_cast<std::size_t>(r)], r);
  return trained;
}

/// Trains and compares the run with the one-rank curve, its plans and the formulas; also on a far device.
template <class Model>
Trained check_cell(const Cell& cell, const Trained& one_rank, double tolerance);

// ---------------------------------------------------------------------------------------------------------------------

inline void check_run(const Trained& trained) {
  const Cell& cell = trained.cell;
  for (double norm : trained.norms) CHECK(norm > cell.clip_norm);
  for (std::size_t r = 0; r < trained.ranks.size(); ++r) {
    CAPTURE(r);
    const RankRecord& record = trained.ranks[r];
    const std::size_t tp = static_cast<std::size_t>(trained.facts.tp);
    CHECK(record.norms == trained.norms);
    CHECK(record.same_traffic);
    CHECK(record.skipped == 0);
    CHECK((cell.steps == 1 || record.later_peak == record.peak));
    CHECK(record.left == 0);
    CHECK(record.values_follow_masters);
    // along Tp every rank has the same loss; along Data and Cp it has tokens of its own
    CHECK(record.losses == trained.ranks[r - r % tp].losses);
    if (trained.facts.stage < 3) CHECK(record.values_print == trained.ranks[r % tp].values_print);
  }
}

inline void check_plan(const Plan& paper, const RankRecord& measured, int r) {
  CAPTURE(r);
  CHECK(paper.resident == measured.resident);
  CHECK(paper.host == measured.host);
  CHECK(paper.disk == measured.disk);
  CHECK(paper.peak == measured.peak);
  for (int c = 0; c < category_count; ++c) {
    const auto category = static_cast<Category>(c);
    CAPTURE(std::string(name_of(category)));
    CHECK(paper.state[category] == measured.state[category]);
    CHECK(paper.at_peak[category] == measured.at_peak[category]);
    CHECK(paper.by_category[category] == measured.by_category[category]);
  }
  for (int c = 0; c < collective_count; ++c)
    for (int p = 0; p < purpose_count; ++p) {
      const auto collective = static_cast<Collective>(c);
      const auto purpose = static_cast<Purpose>(p);
      CAPTURE(std::string(name_of(collective)));
      CAPTURE(std::string(name_of(purpose)));
      CHECK(paper.replica_traffic.bytes(collective, purpose) == measured.replicas.bytes(collective, purpose));
      CHECK(paper.node_traffic.bytes(collective, purpose) == measured.node.bytes(collective, purpose));
      CHECK(paper.across_traffic.bytes(collective, purpose) == measured.across.bytes(collective, purpose));
      CHECK(paper.traffic_along.cp.bytes(collective, purpose) == measured.cp.bytes(collective, purpose));
      CHECK(paper.traffic_along.tp.bytes(collective, purpose) == measured.tp.bytes(collective, purpose));
    }
  CHECK(paper.replica_traffic == measured.replicas);  // calls too
  CHECK(paper.node_traffic == measured.node);
  CHECK(paper.across_traffic == measured.across);
  CHECK(paper.traffic_along.cp == measured.cp);
  CHECK(paper.traffic_along.tp == measured.tp);
  CHECK(paper.world_traffic == measured.world);
  CHECK(paper.links == measured.links);
  const Traffic all = paper.traffic();
  CHECK(paper.links.inner + paper.links.outer == all.total());
  CHECK(paper.start_traffic == measured.start);
  CHECK(paper.check_traffic == measured.check);
}

/// The bytes that replica `rank` of N reads in an all-reduce of `numbers` of f64: its share from all, the rest once.
inline Size all_reduced(Size numbers, Size N, Size rank) {
  const Size own = numbers * (rank + 1) / N - numbers * rank / N;
  return 8 * (own * (N - 1) + (numbers - own));
}

inline void check_replica_traffic(const Trained& trained) {
  const Facts& facts = trained.facts;
  const Size N = trained.cell.ranks / facts.tp, A = trained.cell.accumulate;
  for (std::size_t r = 0; r < trained.ranks.size(); ++r) {
    const RankRecord& record = trained.ranks[r];
    const Size elements = record.psi / facts.element;
    REQUIRE(elements % N == 0);
    const Size values_once = elements / N * (N - 1) * facts.element;
    const Size gradients_once = elements / N * (N - 1) * facts.gradient;
    const auto moved = [&](Collective c, Purpose p) { return record.replicas.bytes(c, p); };
    const bool in_two = facts.stage == 0 && trained.cell.sum_order == SumOrder::transport && N > 1;
    const bool at_once = facts.stage == 0 && !in_two;
    CHECK(moved(Collective::all_reduce, Purpose::gradient) == (at_once ? 2 * gradients_once : 0));
    CHECK(moved(Collective::reduce_scatter, Purpose::gradient) == (at_once            ? 0
                                                                   : facts.stage <= 1 ? gradients_once
                                                                                      : A * gradients_once));
    CHECK(moved(Collective::all_gather, Purpose::gradient) == (in_two ? gradients_once : 0));
    CHECK(moved(Collective::all_gather, Purpose::parameter) == (facts.stage == 0   ? 0
                                                                : facts.stage == 3 ? 2 * A * values_once
                                                                                   : values_once));
    // the norm: 16 bytes per bucket and slice, summed over split optimizers; counted targets and losses: four numbers
    // before the first backward and, with several micro-steps, two at the step
    const Size norm = facts.stage == 0 ? 0 : 2 * (N - 1) * 16 * record.buckets;
    const Size replica = static_cast<Size>(r) / facts.tp;
    const Size at_first = all_reduced(4, N, replica), at_step = A == 1 ? 0 : all_reduced(2, N, replica);
    CHECK(record.replicas.bytes(Purpose::scalar) == norm + at_first + at_step);
    CHECK(record.replicas.total() == record.replicas.bytes(Purpose::gradient) +
                                         record.replicas.bytes(Purpose::parameter) +
                                         record.replicas.bytes(Purpose::scalar));
    CHECK(record.world.total() == 0);
  }
}

namespace detail {
inline void check_outcome(const Trained& trained, const std::vector<Plan>& plans, const Trained& one_rank,
                          double tolerance) {
  CAPTURE(trained.cell.ranks);
  CAPTURE(trained.facts.tp);
  CAPTURE(trained.facts.cp);
  CAPTURE(trained.facts.sequence_parallel);
  CAPTURE(trained.facts.stage);
  CAPTURE(trained.cell.accumulate);
  CAPTURE(trained.cell.dropout);
  CHECK(relative_gap(trained.losses, one_rank.losses) <= tolerance);
  CHECK(relative_gap(trained.norms, one_rank.norms) <= 10 * tolerance);
  check_run(trained);
  for (std::size_t r = 0; r < plans.size(); ++r) check_plan(plans[r], trained.ranks[r], static_cast<int>(r));
  check_replica_traffic(trained);
}

inline void check_far(const Trained& far, const Trained& near) {
  check_same_bits(far, near);
  for (std::size_t r = 0; r < near.ranks.size(); ++r) {
    CAPTURE(r);
    CHECK(far.ranks[r].losses == near.ranks[r].losses);
    CHECK(far.ranks[r].values_print == near.ranks[r].values_print);
    CHECK(far.ranks[r].skipped == near.ranks[r].skipped);
    CHECK(far.ranks[r].loss_scale == near.ranks[r].loss_scale);
    CHECK(far.ranks[r].peak == near.ranks[r].peak);
    CHECK(far.ranks[r].later_peak == near.ranks[r].later_peak);
    CHECK(far.ranks[r].left == 0);
    CHECK(far.ranks[r].replicas == near.ranks[r].replicas);
    CHECK(far.ranks[r].node == near.ranks[r].node);
    CHECK(far.ranks[r].across == near.ranks[r].across);
    CHECK(far.ranks[r].cp == near.ranks[r].cp);
    CHECK(far.ranks[r].tp == near.ranks[r].tp);
    CHECK(far.ranks[r].check == near.ranks[r].check);
  }
}
}  // namespace detail

template <class Model>
Trained train_near_and_far(const Cell& cell) {
  Trained near = train<Model>(cell);
  detail::check_far(train_on<Far, Model>(cell), near);
  return near;
}

template <class Model>
Trained check_cell(const Cell& cell, const Trained& one_rank, double tolerance) {
  Trained trained = train_near_and_far<Model>(cell);
  std::vector<Plan> plans;
  for (int r = 0; r < cell.ranks; ++r) plans.push_back(plan_of<Model>(cell, r));
  detail::check_outcome(trained, plans, one_rank, tolerance);
  return trained;
}

}  // namespace dspp::laws
