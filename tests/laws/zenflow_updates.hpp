// SPDX-License-Identifier: Apache-2.0
/// The laws of ZenFlow, on any device.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <laws/delayed_updates.hpp>

namespace dspp::laws {

/// Of a step, so that rates change within rounds.
constexpr double zenflow_rate(int step) {
  return 1e-2 / (1 + step % 3);
}

template <class P, class Q, class O = AdamW>
Course zenflow_course(const Cell& cell) {
  return course_of<P, Q, O>(cell, [&](auto& world, auto& engine, Course& course) {
    for (int step = 0; step < cell.steps; ++step) {
      engine.set_learning_rate(zenflow_rate(step));
      take_step(world, engine, cell, step, course, [] {});
    }
    engine.end_update();
  });
}

/// ZenFlow's schedule in plain loops over whole parameters, with AdamW's rule as its header has it.
class ZenFlowByHand {
 public:
  struct Matrix {
    Size columns = 0;  ///< 0: a vector
    bool decays = false;
    std::vector<double> values, seen, first, second, sum;  ///< seen: what forwards compute with
    std::vector<bool> important;
  };

  ZenFlowByHand(const ZenFlowConfig& config, const AdamW& optimizer) : config_(config), optimizer_(optimizer) {}

  void add(const std::string& name, const std::vector<double>& values, Size columns, bool decays) {
    const std::vector<double> zeros(values.size(), 0.0);
    all_[name] = {columns, decays, values, values, zeros, zeros, zeros, {}};
  }
  ParameterValues seen() const {
    ParameterValues result;
    for (const auto& [name, of] : all_) result[name] = of.seen;
    return result;
  }

  void step(ParameterValues gradients, double factor, bool is_skipped, double rate) {
    optimizer_.lr = rate;  // of a flush, too
    if (is_skipped) return;
    for (auto& [name, values] : gradients)
      for (double& value : values) value *= factor;
    ++number_;
    if (first_ == 0) first_ = std::max(number_, config_.full_warm_up_steps);
    const Size since = number_ - first_;
    if (since <= 0) {
      for_each([&](auto&, Matrix& of, std::size_t i) { update(of, i, gradient_of(gradients, of, i), true); });
      if (since == 0) select(gradients);
      return;
    }
    for_each([&](auto& name, Matrix& of, std::size_t i) {
      const double gradient = gradients.at(name)[i];
      if (is_important(of, i))
        update(of, i, gradient, true);
      else
        of.sum[i] += gradient;
    });
    if (++in_round_ < config_.update_interval) return;
    const bool selects = since % config_.select_interval == 0;
    end_round(config_.overlap_step && !selects);
    if (selects) select(gradients);
  }
  void end() {
    end_round(false);
    first_ = 0;
  }

 private:
  template <class F>
  void for_each(F f) {
    for (auto& [name, of] : all_) {
      current_ = &name;
      for (std::size_t i = 0; i < of.values.size(); ++i) f(name, of, i);
    }
  }
  double gradient_of(const ParameterValues& gradients, const Matrix&, std::size_t i) const {
    return gradients.at(*current_)[i];
  }
  static bool is_important(const Matrix& of, std::size_t i) {
    return of.columns == 0 || of.important[i / static_cast<std::size_t>(of.columns)];
  }
  void update(Matrix& of, std::size_t i, double gradient, bool is_seen) {
    const double t = static_cast<double>(number_), b1 = optimizer_.beta1, b2 = optimizer_.beta2;
    of.first[i] = b1 * of.first[i] + (1 - b1) * gradient;
    of.second[i] = b2 * of.second[i] + (1 - b2) * gradient * gradient;
    const double shrink = of.decays ? 1 - optimizer_.lr * optimizer_.weight_decay : 1;
    const double root = std::sqrt(of.second[i]) / std::sqrt(1 - std::pow(b2, t)) + optimizer_.epsilon;
    of.values[i] = shrink * of.values[i] - optimizer_.lr / (1 - std::pow(b1, t)) * of.first[i] / root;
    if (is_seen) of.seen[i] = of.values[i];
  }
  void end_round(bool overlaps) {
    for_each([&](auto&, Matrix& of, std::size_t i) {
      if (is_waiting(of, i)) of.seen[i] = of.values[i];
    });
    if (in_round_ > 0)
      for_each([&](auto&, Matrix& of, std::size_t i) {
        if (!is_waiting(of, i)) return;
        update(of, i, of.sum[i] / static_cast<double>(in_round_), !overlaps);
        of.sum[i] = 0;
      });
    in_round_ = 0;
  }
  static bool is_waiting(const Matrix& of, std::size_t i) { return !of.important.empty() && !is_important(of, i); }
  void select(const ParameterValues& gradients) {
    for (auto& [name, of] : all_) {
      if (of.columns == 0) continue;
      const auto columns = static_cast<std::size_t>(of.columns), rows = of.values.size() / columns;
      std::vector<double> squares(rows, 0.0);
      for (std::size_t i = 0; i < of.values.size(); ++i)
        squares[i / columns] += gradients.at(name)[i] * gradients.at(name)[i];
      const double share = config_.topk_ratio * static_cast<double>(rows);
      const long wanted = std::lround(share), chosen = config_.topk_ratio > 0 ? std::max(wanted, 1L) : 0;
      std::vector<std::size_t> order(rows);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return squares[a] > squares[b]; });
      of.important.assign(rows, false);
      for (long k = 0; k < chosen; ++k) of.important[order[static_cast<std::size_t>(k)]] = true;
    }
  }

  ZenFlowConfig config_;
  AdamW optimizer_;
  std::map<std::string, Matrix> all_;
  const std::string* current_ = nullptr;
  Size number_ = 0, first_ = 0, in_round_ = 0;
};

/// The course of a policy with ZenFlow, by an engine of one without, which gives the gradients of parameters that it is
/// told.
template <class P, class Without>
Course zenflow_by_hand(const Cell& cell) {
  return course_of<P, Without, AdamW>(cell, [&](auto& world, auto& engine, Course& course) {
    ZenFlowByHand by_hand(cell.zenflow, engine.optimizer());
    for (const auto& named : engine.inventory().parameters) {
      const auto& p = *named.parameter;
      const auto whole = engine.gather_parameter(named.name->text);
      by_hand.add(named.name->text, {whole.data(), whole.data() + whole.count()},
                  p.is_matrix() ? p.global_columns() : 0, p.update_settings().decays);
    }
    for (int step = 0; step < cell.steps; ++step) {
      engine.set_learning_rate(zenflow_rate(step));
      set_parameters(engine, by_hand.seen());
      ParameterValues gradients;
      take_step(world, engine, cell, step, course, [&] {
        for (const auto& named : engine.inventory().parameters) {
          const auto whole = engine.gather_gradient(named.name->text);
          gradients[named.name->text].assign(whole.data(), whole.data() + whole.count());
        }
      });
      const double norm = course.norms.back();
      const double clipped = cell.clip_norm > 0 ? std::min(1.0, cell.clip_norm / (norm + 1e-6)) : 1;
      by_hand.step(gradients, clipped, course.skipped.back() != 0, zenflow_rate(step));
    }
    by_hand.end();
    course.parameters = by_hand.seen();
  });
}

/// The same to rounding: losses to `of_losses` of them, and parameters to `of_values` in the mean.
inline void check_close_courses(const Course& a, const Course& b, double of_losses = 1e-10, double of_values = 1e-11) {
  CHECK(a.skipped == b.skipped);
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    CHECK(a.losses[i] == doctest::Approx(b.losses[i]).epsilon(of_losses));
  double sum = 0, count = 0;
  for (const auto& [name, values] : a.parameters)
    for (std::size_t i = 0; i < values.size(); ++i) sum += std::abs(values[i] - b.parameters.at(name)[i]), ++count;
  CHECK(sum <= of_values * count);
  CHECK(count > 0);
}

/// Members of a policy that a model is compiled for are P's; it is given Q's as values, with ZenFlow and without: the
/// same bits where every row is important, and where each step updates all.
template <class P, class Q, class Without, class O = AdamW>
void check_like_without(Cell cell) {
  CAPTURE(cell.ranks);
  const Course without = zenflow_course<P, Without, O>(cell);
  for (const bool overlaps : {false, true}) {
    cell.zenflow = {.topk_ratio = 1, .update_interval = 2, .select_interval = 2, .overlap_step = overlaps};
    check_same_course(zenflow_course<P, Q, O>(cell), without);
  }
  cell.zenflow = {.topk_ratio = 0.3, .update_interval = 1, .select_interval = 2, .overlap_step = false};
  check_same_course(zenflow_course<P, Q, O>(cell), without);
  cell.zenflow = {.topk_ratio = 0.3, .update_interval = 2, .select_interval = 4};
  CHECK(zenflow_course<P, Q, O>(cell).losses != without.losses);
}

}  // namespace dspp::laws
