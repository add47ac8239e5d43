// SPDX-License-Identifier: Apache-2.0
/// Ranks along Tp for tests, and placed tensors: from one global value to the part of each rank, and back.
#pragma once

#include <cmath>
#include <numeric>
#include <vector>

#include <dspp/base/config.hpp>

#if DSPP_HAS_OPENMP()
#include <omp.h>
#endif

#include <doctest/doctest.h>

#include <dspp/autograd/context.hpp>
#include <dspp/autograd/tape.hpp>
#include <dspp/base/philox.hpp>
#include <dspp/comm/threads/run_ranks.hpp>
#include <dspp/placement/placed.hpp>

#include "difference.hpp"

namespace dspp::laws {

/// One rank of a test.
struct TestRank {
  int rank = 0, size = 1;
  Pool pool;
  AnyCommunicator tp;
  Context<Cpu> context;
  Tape<Cpu> tape{context};

  TestRank() : context{.memory = &pool, .along = {.tp = &tp}} {}
  TestRank(int rank_, int size_, AnyCommunicator group)
      : rank(rank_), size(size_), tp(std::move(group)), context{.memory = &pool, .along = {.tp = &tp}} {}
};

/// Calls f(TestRank&) on `ranks` threads.
template <class F>
void on_tp_ranks(int ranks, F f) {
  if (ranks == 1) {
    TestRank alone;
    return f(alone);
  }
  ThreadGroup group(ranks, {.timeout_seconds = 60});
  run_ranks(group, [&](int rank) {
#if DSPP_HAS_OPENMP()
    omp_set_num_threads(1);  // a new thread starts with all cores
#endif
    TestRank here(rank, ranks, group.communicator(rank));
    f(here);
  });
}

/// A global value over all ranks. f64 holds every other element type exactly.
template <int Rank>
struct Global {
  Shape<Rank> shape{};
  std::vector<double> at;

  explicit Global(const Shape<Rank>& extents) : shape(extents), at(static_cast<std::size_t>(extents.count())) {}
  double* data() { return at.data(); }
  const double* data() const { return at.data(); }
};

/// Standard normals; another stream, other numbers.
template <int Rank>
Global<Rank> global_normal(const Shape<Rank>& shape, std::uint32_t stream) {
  Global<Rank> x(shape);
  const PhiloxStream numbers{{77}, 0, 0, stream};
  for (Size i = 0; i < shape.count(); ++i) x.data()[i] = static_cast<double>(philox_normal(numbers, i));
  return x;
}

/// Rank r's summand of element `value` at i: noise that sums to `value`.
inline double summand(double value, Size i, int rank, int ranks) {
  const auto noise = [&](int r) { return static_cast<double>(philox_normal(PhiloxStream{{78}, r, 0, 5}, i)); };
  if (rank > 0) return noise(rank);
  for (int r = 1; r < ranks; ++r) value -= noise(r);
  return value;
}

/// The part of x in `State` on rank `rank` of `ranks`: all of it, its slice, or a summand.
template <class State, class T, int Rank>
Tensor<T, Rank, Cpu> part_of(const Global<Rank>& x, int rank, int ranks, Pool& pool) {
  constexpr int cut = shard_dimension<State>;
  Shape<Rank> shape = x.shape;
  Size outer = 1, chunk = shape.count();
  if constexpr (cut >= 0) {
    REQUIRE(shape[cut] % (ranks * shard_groups<State>) == 0);
    shape[cut] /= ranks;
    outer = pieces_of<State>(shape);
    chunk = shape.count() / outer;
  }
  auto y = Tensor<T, Rank, Cpu>::uninitialized(shape, pool);
  const Size step = cut >= 0 ? ranks * chunk : chunk, first = cut >= 0 ? rank * chunk : 0;
  for (Size o = 0; o < outer; ++o)
    for (Size i = 0; i < chunk; ++i) {
      const double value = x.data()[o * step + first + i];
      y.data()[o * chunk + i] = static_cast<T>(std::is_same_v<State, Partial> ? summand(value, i, rank, ranks) : value);
    }
  return y;
}

/// The parts of the ranks, given by each and assembled when all have ended.
template <class State, int Rank>
class Parts {
 public:
  Parts(const Shape<Rank>& whole, int ranks) : whole_(whole), parts_(static_cast<std::size_t>(ranks)) {}

  template <class T>
  void put(int rank, const Tensor<T, Rank, Cpu>& x) {
    auto& part = parts_[static_cast<std::size_t>(rank)];
    part.assign(x.data(), x.data() + x.count());
    Shape<Rank> expected = whole_;
    if constexpr (is_shard<State>) expected[shard_dimension<State>] /= static_cast<Size>(parts_.size());
    CHECK(x.shape() == expected);
  }

  /// Requires that what should be the same on every rank is, bit for bit.
  Global<Rank> all_or_none() const {
    constexpr int cut = shard_dimension<State>;
    Global<Rank> x(whole_);
    const Size ranks = static_cast<Size>(parts_.size());
    for (Size r = 0; r < ranks; ++r) {
      const auto& part = parts_[static_cast<std::size_t>(r)];
      if constexpr (cut >= 0) {
        const Size outer = pieces_of<State>(whole_), chunk = whole_.count() / outer / ranks;
        REQUIRE(static_cast<Size>(part.size()) == outer * chunk);
        for (Size o = 0; o < outer; ++o)
          for (Size i = 0; i < chunk; ++i)
            x.data()[(o * ranks + r) * chunk + i] = part[static_cast<std::size_t>(o * chunk + i)];
      } else if constexpr (std::is_same_v<State, Partial>) {
        REQUIRE(static_cast<Size>(part.size()) == whole_.count());
        for (std::size_t i = 0; i < part.size(); ++i) x.at[i] += part[i];
      } else {
        if (r == 0) x.at = part;
        CHECK(x.at == part);
      }
    }
    return x;
  }

  const std::vector<double>& of(int rank) const { return parts_[static_cast<std::size_t>(rank)]; }

 private:
  Shape<Rank> whole_;
  std::vector<std::vector<double>> parts_;
};

/// The largest |a - b| over max(1, |b|).
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  return worst_difference(a, b, [](double expected) { return std::max(1.0, std::abs(expected)); });
}

}  // namespace dspp::laws
