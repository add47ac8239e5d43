// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include <dspp/base/overlap_sweep.hpp>
#include <dspp/observe/overlap.hpp>

using namespace dspp;
using dspp::detail::OverlapSweep;

namespace {

struct Span {
  OverlapSweep::Kind kind;
  std::int64_t begin, end;
};

std::vector<Interval> of_kind(const std::vector<Span>& spans, OverlapSweep::Kind kind) {
  std::vector<Interval> all;
  for (const Span& span : spans)
    if (span.kind == kind) all.push_back({static_cast<double>(span.begin), static_cast<double>(span.end)});
  return all;
}

}  // namespace

TEST_CASE("a sweep in steps has the sums of the intervals' sets, for any spans") {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  for (int trial = 0; trial < 300; ++trial) {
    CAPTURE(trial);
    std::vector<Span> spans;
    const std::int64_t count = below(40);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t begin = below(200);
      spans.push_back({static_cast<OverlapSweep::Kind>(below(3)), begin, begin + below(30)});
    }
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    OverlapSweep sweep;
    std::int64_t until = 0;
    for (std::size_t next = 0; next < spans.size();) {
      for (const std::int64_t more = 1 + below(5); next < spans.size() && spans[next].begin <= until + more; ++next)
        sweep.add(spans[next].kind, spans[next].begin, spans[next].end);
      if (next < spans.size()) sweep.advance(until = std::max(until, spans[next].begin - below(3)));
    }
    sweep.advance(1000);
    const auto moving = union_of(of_kind(spans, OverlapSweep::transfer)),
               kernels = union_of(of_kind(spans, OverlapSweep::kernel)),
               waits = union_of(of_kind(spans, OverlapSweep::wait));
    const auto length = [](const std::vector<Interval>& of) { return length_within(of, {0, 1000}); };
    const auto hidden = intersection_of(moving, kernels);
    const double waited = length(intersection_of(moving, waits)) - length(intersection_of(hidden, waits));
    CHECK(static_cast<double>(sweep.moving()) == length(moving));
    CHECK(static_cast<double>(sweep.hidden()) == length(hidden));
    CHECK(static_cast<double>(sweep.exposed()) == waited);
  }
}
