// SPDX-License-Identifier: Apache-2.0
/// When to stop, and the learning rate: decisions that are the same on all ranks.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include <dspp/app/interrupt.hpp>
#include <dspp/comm/communicator.hpp>
#include <dspp/comm/recorder.hpp>
#include <dspp/optim/schedule.hpp>

#include "job.hpp"

namespace train_gpt {

/// Values that the ranks exchange after a step.
struct Agreement {
  double seconds = 0;  ///< since the start, by rank 0's clock
  double stop = 0;     ///< the number of ranks with a stop request

  /// Sums over the ranks. Cost: one all-reduce of two numbers.
  template <dspp::Communicator C>
  constexpr void reach(C&& all) {
    std::array<double, 2> sums{all.rank() == 0 ? seconds : 0, stop};
    dspp::all_reduce(all, dspp::buffer(sums.data(), 2), dspp::Purpose::scalar);
    *this = {sums[0], sums[1]};
  }

  /// The traffic of one exchange for rank 0 of `ranks`.
  static constexpr dspp::Traffic planned_traffic(int ranks) {
    dspp::Recorder<> paper(0, ranks);
    Agreement().reach(paper);
    return paper.traffic();
  }
};

/// Counts time from its construction, and steps from those taken and skipped before.
class Pace {
 public:
  template <dspp::Communicator C>
  Pace(const Job& job, const dspp::Interrupt& interrupt, C& all, Size taken = 0, Size skipped = 0)
      : job_(job), interrupt_(interrupt), first_(taken), step_(taken), skipped_(skipped) {
    all.barrier();
    start_ = Clock::now();
  }

  bool over() const {
    const bool no_time = job_.by_time && now_.seconds + last_step_seconds_ / 2 > job_.seconds;
    return now_.stop > 0 || no_time || (job_.steps > 0 || !job_.by_time ? step_ >= job_.steps : false);
  }

  /// Linear warm-up over at most 60 steps, then linear decay to zero at the end. A skipped step does not change the
  /// rate; a job with n skipped steps ends n steps before zero.
  double learning_rate() const {
    const Size total = expected_steps();
    const dspp::WarmupDecayLR schedule{.total_steps = total + 1,
                                       .max_lr = job_.lr,
                                       .warmup_steps = std::clamp<Size>(total / 10, 2, 60),
                                       .type = dspp::Warmup::linear};
    return schedule(step_ - skipped_ + 1);
  }

  /// Ends a step with its loss and whether it was skipped; all ranks then agree on both.
  template <dspp::Communicator C>
  void end_step(double loss, bool skipped, C& all) {
    const double before = now_.seconds;
    now_ = {std::chrono::duration<double>(Clock::now() - start_).count(), interrupt_.requested() ? 1.0 : 0.0};
    now_.reach(all);
    loss_ = loss;
    last_step_seconds_ = now_.seconds - before;
    ++step_;
    skipped_ += skipped ? 1 : 0;
  }

  Size step() const { return step_; }
  double loss() const { return loss_; }
  double seconds() const { return now_.seconds; }
  double last_step_seconds() const { return last_step_seconds_; }
  bool interrupted() const { return now_.stop > 0; }
  double seconds_left() const {
    const double share = done(first_);
    return share > 0 ? now_.seconds * (1 - share) / share : 0;
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// The completed share of the job from step `first` on, in [0, 1].
  double done(Size first = 0) const {
    const double by_steps =
        job_.steps > first ? static_cast<double>(step_ - first) / static_cast<double>(job_.steps - first) : 0;
    return std::min(1.0, std::max(by_steps, job_.by_time ? now_.seconds / job_.seconds : 0));
  }
  Size expected_steps() const {
    const double share = done();
    if (share > 0) return std::llround(static_cast<double>(step_) / share);
    return job_.steps > 0 ? job_.steps : 1'000'000'000;
  }

  const Job& job_;
  const dspp::Interrupt& interrupt_;
  Clock::time_point start_;
  Agreement now_;
  double loss_ = 0;  ///< of the step
  Size first_, step_, skipped_;
  double last_step_seconds_ = 0;
};

}  // namespace train_gpt
