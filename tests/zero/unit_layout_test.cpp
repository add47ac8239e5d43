// SPDX-License-Identifier: Apache-2.0
// The flat layout: bucket-major, in reverse order of use, aligned, cut evenly; the same on the Cpu and on paper.
#include <vector>

#include <doctest/doctest.h>

#include <dspp/nn/parameter.hpp>
#include <dspp/zero/unit.hpp>

using namespace dspp;

namespace {

constexpr Size extents[] = {5, 100, 1, 3000, 16, 17, 640};

template <Device D>
struct Laid {
  Memory<D> memory;
  Recorder<> paper;
  CommunicatorOf<D> group;
  std::vector<Parameter<float, 1, D>> parameters;
  Replicas<float, D> replicas;
  Unit<float, D> unit;

  Laid(int rank, int ranks, const StageRule& rule, Size bucket_bytes)
      : paper(rank, ranks), group(paper), replicas(memory, group, ReplicaConfig{rule, false, bucket_bytes}) {
    for (Size extent : extents) parameters.emplace_back("test", shape(extent), Initial::zeros());
    for (auto& p : parameters) unit.add(p);
    unit.set_up(replicas);
  }
};

}  // namespace

TEST_CASE(
    "parameters lie in buckets in reverse order of use, each at a multiple of 64 bytes, none across two buckets") {
  for (Size bucket_bytes : {1, 1000, 4000, 1 << 20})
    for (int ranks : {1, 2, 3, 4}) {
      CAPTURE(bucket_bytes);
      CAPTURE(ranks);
      Laid<Cpu> laid(0, ranks, stage_rule<1>, bucket_bytes);
      auto next = laid.parameters.rbegin();
      int number = 0;
      for (const auto& b : laid.unit.buckets()) {
        REQUIRE(!b.parameters.empty());
        Size end = 0, used = 0;
        for (const auto* p : b.parameters) {
          CHECK(p == &*next++);
          CHECK(p->bucket == number);
          CHECK(p->offset * 4 % 64 == 0);
          CHECK(p->offset >= end);
          CHECK(p->offset - end < 16);
          end = p->offset + p->count();
          used += round_up(p->count(), 16);
        }
        CHECK((b.parameters.size() == 1 || used * 4 <= bucket_bytes));
        CHECK(b.count >= end);
        CHECK(b.count - used < 16 * ranks);  // padding to equal aligned slices
        ++number;
      }
      CHECK(next == laid.parameters.rend());
    }
}

TEST_CASE("the replicas' slices tile every bucket, equal and aligned; a stage that splits nothing owns all") {
  for (int ranks : {1, 2, 3, 4}) {
    std::vector<Size> covered;
    for (int rank = 0; rank < ranks; ++rank) {
      Laid<Cpu> split(rank, ranks, stage_rule<2>, 4000), whole(rank, ranks, stage_rule<0>, 4000);
      std::size_t i = 0;
      for (const auto& b : split.unit.buckets()) {
        const Range own = split.replicas.owned(b);
        CHECK(own.begin * 4 % 64 == 0);
        CHECK(own.count() == b.count / ranks);
        if (covered.size() == i) covered.push_back(0);
        CHECK(own.begin == covered[i]);
        covered[i++] = own.end;
        if (rank + 1 == ranks) CHECK(own.end == b.count);
      }
      for (const auto& b : whole.unit.buckets()) {
        CHECK(whole.replicas.owned(b).begin == 0);
        CHECK(whole.replicas.owned(b).count() == b.count);
      }
    }
  }
}

TEST_CASE("for_each_part gives every element of every parameter once, over all slices") {
  Laid<Cpu> laid(0, 3, stage_rule<1>, 4000);
  for (const auto& b : laid.unit.buckets()) {
    std::vector<int> seen(static_cast<std::size_t>(b.count), 0);
    for (int r = 0; r < 3; ++r)
      b.for_each_part(b.slice(r, 3), [&](const ParameterBase<Cpu>& p, Size begin, Size end) {
        CHECK(begin < end);
        CHECK(begin >= p.offset);
        CHECK(end <= p.offset + p.count());
        for (Size i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
      });
    Size total = 0;
    for (const auto* p : b.parameters)
      for (Size i = 0; i < p->count(); ++i, ++total) CHECK(seen[static_cast<std::size_t>(p->offset + i)] == 1);
    for (int count : seen) total -= count;
    CHECK(total == 0);  // padding belongs to nobody
  }
}

TEST_CASE("resident values are whole under stages 0 to 2 and a slice under stage 3, on the Cpu as on paper") {
  const auto check = [](const StageRule& rule, bool split) {
    for (int ranks : {1, 2, 3, 4}) {
      Laid<Cpu> real(ranks - 1, ranks, rule, 4000);
      Laid<Meta> paper(ranks - 1, ranks, rule, 4000);
      Size bytes = 0;
      REQUIRE(real.unit.buckets().size() == paper.unit.buckets().size());
      for (std::size_t i = 0; i < real.unit.buckets().size(); ++i) {
        const auto& b = real.unit.buckets()[i];
        CHECK(b.count == paper.unit.buckets()[i].count);
        CHECK(b.values.count() == (split ? b.count / ranks : b.count));
        CHECK(static_cast<bool>(real.unit.values[i]) == !split);
        bytes += b.values.bytes();
      }
      CHECK(real.memory.live() == bytes);
      CHECK(paper.memory.live() == bytes);
      CHECK(real.memory.live_by_category() == paper.memory.live_by_category());
    }
  };
  check(stage_rule<0>, false);
  check(stage_rule<1>, false);
  check(stage_rule<2>, false);
  check(stage_rule<3>, true);
}

TEST_CASE("a stage is an arrow and two lifetimes") {
  static_assert(StageArrow<0>::fetch == Move::none && stage_rule<0>.reduce == Move::all_reduce);
  static_assert(StageArrow<1>::fetch == Move::all_gather && stage_rule<1>.reduce == Move::reduce_scatter);
  static_assert(stage_rule<1>.values == Lifetime::until_step && stage_rule<1>.gradients == Lifetime::until_step);
  static_assert(stage_rule<2>.values == Lifetime::until_step && stage_rule<2>.gradients == Lifetime::until_bucket);
  static_assert(stage_rule<3>.values == Lifetime::one_use && stage_rule<3>.gradients == Lifetime::until_bucket);
  CHECK(!stage_rule<0>.optimizer_is_split());
  CHECK(stage_rule<1>.optimizer_is_split());
  CHECK(!stage_rule<2>.values_are_split());
  CHECK(stage_rule<3>.values_are_split());
}
