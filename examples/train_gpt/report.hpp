// SPDX-License-Identifier: Apache-2.0
/// The output of rank 0: the progress line, metrics.jsonl, the final tables, the JSON for programs.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include <dspp/app/progress.hpp>
#include <dspp/observe/comparison.hpp>
#include <dspp/observe/metrics.hpp>
#include <dspp/observe/resident.hpp>
#include <dspp/plan/plan.hpp>

#include "pace.hpp"

namespace train_gpt {

/// The results of a job.
struct Outcome {
  double validation_loss = 0;
  Size validation_tokens = 0;
  double train_seconds = 0;
  Size before = 0;  ///< steps taken before a resume
  Size steps = 0;
  Size skipped = 0;
  Size tokens = 0;  ///< trained on, over all ranks
  bool interrupted = false;
  dspp::CategoryBytes peak_by_category{};  ///< of rank 0, over the training steps
  Size peak = 0;
  Size peak_reserved = 0;   ///< from the system, with cached blocks
  Size resident = 0;        ///< the most that this process had, code and all of its ranks included
  Size host = 0, disk = 0;  ///< bytes of what is offloaded
  dspp::Traffic traffic{};  ///< of rank 0, over the training steps
  Size checks = 0;          ///< consistency checks of the ranks, in these steps
  std::string sample{};
  std::string profile{};  ///< of rank 0, over the training steps

  double tokens_per_second() const { return train_seconds > 0 ? static_cast<double>(tokens) / train_seconds : 0; }
};

class Report {
 public:
  /// `plan` is rank 0's for one step; `limit` is in tokens per second.
  Report(const Job& job, std::string policy, const dspp::Plan& plan, double limit)
      : job_(job),
        policy_(std::move(policy)),
        plan_(plan),
        limit_(limit),
        folder_(dspp::create_run_folder("runs", std::time(nullptr))),
        metrics_(folder_ + "/metrics.jsonl"),
        progress_(stdout) {}

  void step(const Pace& pace, const dspp::StepReport& done, double learning_rate, Size tokens) {
    const double rate = static_cast<double>(tokens) / std::max(1e-9, pace.last_step_seconds());
    dspp::JsonObject line;
    line.add("step", pace.step())
        .add("loss", pace.loss())
        .add("lr", learning_rate)
        .add("gradient_norm", done.gradient_norm)
        .add("tokens_per_second", rate)
        .add("seconds", pace.seconds())
        .add("loss_scale", done.loss_scale)
        .add("skipped", done.skipped);
    if (done.skipped) line.add("nonfinite", std::string(done.nonfinite.name));
    metrics_.write(with_source(line));
    smooth_rate_ = smooth_rate_ > 0 ? smooth_rate_ + 0.05 * (rate - smooth_rate_) : rate;
    progress_.show({.step = pace.step(),
                    .loss = pace.loss(),
                    .loss_scale = done.loss_scale,
                    .tokens_per_second = smooth_rate_,
                    .limit_tokens_per_second = limit_,
                    .seconds_left = pace.seconds_left(),
                    .last = pace.over()});
  }

  /// The summary on stdout, and the JSON if requested.
  void finish(const Outcome& outcome) {
    progress_.finish();
    print_summary(outcome);
    if (!job_.json.empty()) dspp::write_text_file(job_.json, json(outcome).text() + "\n");
  }

 private:
  std::vector<dspp::Comparison> bytes(const Outcome& o) const {
    return dspp::compare(plan_.by_category, o.peak_by_category);
  }
  dspp::Comparison peak(const Outcome& o) const {
    return {"peak of all", static_cast<double>(plan_.peak), static_cast<double>(o.peak)};
  }
  /// The tiers that the policy uses.
  std::vector<dspp::Comparison> tiers(const Outcome& o) const {
    std::vector<dspp::Comparison> rows;
    const auto add = [&](const char* name, Size planned, Size measured) {
      if (planned + measured > 0) rows.push_back({name, static_cast<double>(planned), static_cast<double>(measured)});
    };
    add("host memory", plan_.host, o.host);
    add("file", plan_.disk, o.disk);
    return rows;
  }
  std::vector<dspp::Comparison> traffic(const Outcome& o) const {
    const auto planned = plan_.traffic() + Agreement::planned_traffic(static_cast<int>(job_.ranks));
    auto rows = dspp::compare(planned, o.traffic, o.steps);
    if (o.checks > 0) rows.push_back(dspp::compare_checks(plan_.check_traffic, o.traffic, o.checks));
    return rows;
  }

  void print_summary(const Outcome& o) const {
    if (o.before > 0) std::printf("\nresumed after %lld steps", static_cast<long long>(o.before));
    if (o.before > 0 && o.steps == 0 && !o.interrupted)
      std::printf(", which --steps %lld counts too: none was left", static_cast<long long>(job_.steps));
    std::printf("\n%s after %lld steps (%lld skipped): %.3f M tokens in %.1f s, %.0f tokens/s",
                o.interrupted ? "stopped" : "done", static_cast<long long>(o.steps), static_cast<long long>(o.skipped),
                static_cast<double>(o.tokens) / 1e6, o.train_seconds, o.tokens_per_second());
    std::printf(", %.0f %% of the GEMM limit (%.0f)\n", 100 * o.tokens_per_second() / limit_, limit_);
    const char* unit = job_.tokens.empty() ? "byte" : "token";
    std::printf("validation loss %.4f nats per %s over %lld held-out %ss\n", o.validation_loss, unit,
                static_cast<long long>(o.validation_tokens), unit);
    if (!o.sample.empty()) std::printf("\n--- sample ---\n%s\n--------------\n", o.sample.c_str());
    if (o.steps > 0) {
      auto rows = bytes(o);
      rows.push_back(peak(o));
      for (const auto& tier : tiers(o)) rows.push_back(tier);
      std::printf("\n%s", dspp::table_of("largest bytes on rank 0", rows).c_str());
      std::printf("  reserved for it %s, planned at most %s; resident in this process at most %s\n",
                  dspp::readable_bytes(o.peak_reserved).c_str(), dspp::readable_bytes(plan_.reserved_at_most()).c_str(),
                  dspp::readable_bytes(o.resident).c_str());
      std::printf("\n%s", dspp::table_of("bytes read per step by rank 0", traffic(o)).c_str());
    }
    if (!o.profile.empty()) std::printf("\n%s", o.profile.c_str());
    std::printf("\nevery step is in %s\n", metrics_.path().c_str());
    std::fflush(stdout);
  }

  dspp::JsonObject json(const Outcome& o) const {
    dspp::JsonObject result;
    result.add("policy", policy_)
        .add("world", job_.ranks)
        .add("val_loss", o.validation_loss)
        .add("train_seconds", o.train_seconds)
        .add("tokens_per_second", o.tokens_per_second())
        .add("steps", o.steps)
        .add("params", plan_.parameters)
        .add("bytes", dspp::json_of(bytes(o)))
        .add("peak_bytes", dspp::json_of(peak(o)));
    if (const auto offloaded = tiers(o); !offloaded.empty()) result.add("offloaded_bytes", dspp::json_of(offloaded));
    result
        .add("reserved_bytes",
             dspp::JsonObject().add("at_most", plan_.reserved_at_most()).add("measured", o.peak_reserved))
        .add("resident_bytes", o.resident)
        .add("traffic", dspp::json_of(traffic(o)));
    return with_source(result);
  }

  /// Losses are per token of these files; without files, per byte.
  dspp::JsonObject& with_source(dspp::JsonObject& object) const {
    return job_.tokens.empty() ? object : object.add("tokens", job_.tokens);
  }

  const Job& job_;
  std::string policy_;
  dspp::Plan plan_;
  double limit_;
  std::string folder_;
  dspp::MetricsFile metrics_;
  dspp::Progress progress_;
  double smooth_rate_ = 0;
};

/// Generated bytes as terminal-safe text: bytes that are not printable ASCII become dots.
inline std::string as_ascii(std::string bytes) {
  for (char& b : bytes) {
    const bool shown = (b >= 0x20 && b < 0x7f) || b == '\n' || b == '\t';
    if (!shown) b = '.';
  }
  return bytes;
}

}  // namespace train_gpt
