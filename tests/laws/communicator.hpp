// SPDX-License-Identifier: Apache-2.0
/// The laws of Communicator, for every model: the results of the collectives, their bits and their order.
///
/// A World is a way to make communicators: World::run(ranks, f) calls f(communicator) once per rank and returns when
/// all have ended. check_communicator_laws<World>(ranks) runs every law.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <dspp/base/digest.hpp>
#include <dspp/base/error.hpp>
#include <dspp/comm/communicator.hpp>

#include <support/sanitizer.hpp>
#include "contributions.hpp"

namespace dspp::laws {

// --- one law each; every function runs on one rank

/// True if x are sums of contributions as the communicator's tier guarantees them.
template <class C, class T>
bool sums_of(const C& c, const std::vector<T>& x, int salt = 0, Size first = 0) {
  return are_sums(c.sum_order(), x, c.size(), salt, first);
}

template <class T, class C>
void all_reduce_sums(C& c, Size count) {
  std::vector<T> x = contributions<T>(c.rank(), count), again = x;
  all_reduce(c, all_of(x), Purpose::gradient);
  CHECK(sums_of(c, x));
  all_reduce(c, all_of(again), Purpose::gradient);
  CHECK(same_bits(x, again));
}

/// On every tier.
template <class T, class C>
void every_rank_gets_the_bits_of_the_first(C& c, Size count) {
  std::vector<T> x = contributions<T>(c.rank(), count), of_the_first;
  all_reduce(c, all_of(x), Purpose::gradient);
  of_the_first = x;
  broadcast(c, all_of(of_the_first), 0, Purpose::parameter);
  CHECK(same_bits(x, of_the_first));
}

/// From rank order on: the bits of a sum depend on the summands alone, not on the rank or the position.
template <class T, class C>
void sums_depend_on_their_summands_alone(C& c, Size count) {
  if (c.sum_order() < SumOrder::rank && !std::is_integral_v<T>) return;
  const std::vector<T> part = contributions<T>(c.rank(), count);
  std::vector<T> repeated, slice(part.size()), sum = part;
  for (int r = 0; r < c.size(); ++r) repeated.insert(repeated.end(), part.begin(), part.end());
  std::vector<T> whole = repeated;
  all_reduce(c, all_of(sum), Purpose::gradient);
  all_reduce(c, all_of(whole), Purpose::gradient);
  reduce_scatter(c, all_of(std::as_const(repeated)), all_of(slice), Purpose::gradient);
  CHECK(same_bits(slice, sum));
  for (int r = 0; r < c.size(); ++r)
    CHECK(same_bits(std::vector<T>(whole.begin() + count * r, whole.begin() + count * (r + 1)), sum));
}

/// Under the exact tier: permuting contributions over ranks changes nothing.
template <class T, class C>
void exact_sums_do_not_depend_on_the_order_of_the_ranks(C& c, Size count) {
  if (c.sum_order() < SumOrder::exact && !std::is_integral_v<T>) return;
  std::vector<T> x = contributions<T>(c.rank(), count), turned = contributions<T>((c.rank() + 1) % c.size(), count);
  all_reduce(c, all_of(x), Purpose::gradient);
  all_reduce(c, all_of(turned), Purpose::gradient);
  CHECK(same_bits(x, turned));
}

template <class T, class C>
void reduce_scatter_gives_the_slice_of_the_sum(C& c, Size count) {
  const std::vector<T> in = contributions<T>(c.rank(), count * c.size());
  std::vector<T> out(static_cast<std::size_t>(count));
  reduce_scatter(c, all_of(in), all_of(out), Purpose::gradient);
  CHECK(sums_of(c, out, 0, count * c.rank()));
  CHECK(same_bits(in, contributions<T>(c.rank(), count * c.size())));

  std::vector<T> both = in;
  T* own = both.data() + count * c.rank();
  reduce_scatter(c, all_of(both), buffer(own, count), Purpose::gradient);
  CHECK(same_bits(std::vector<T>(own, own + count), out));
}

/// A communicator that makes a digest makes that of the result, also where the result replaces a summand.
template <class T, class C>
void digest_is_of_the_sum(C& c, Size count) {
  std::vector<T> in = contributions<T>(c.rank(), count * c.size()), out(static_cast<std::size_t>(count));
  T* own = in.data() + count * c.rank();
  for (const Buffer sum : {all_of(out), buffer(own, count)}) {
    SumDigest digest;
    reduce_scatter(c, all_of(std::as_const(in)), sum, PurposeAt(Purpose::gradient).with_digest(&digest));
    CHECK(!digest.nonfinite);
    if (digest) CHECK(digest.value == PlacedDigest().add(sum.data, sum.bytes(), 0).value());
  }
}

template <class T, class C>
void all_gather_gives_every_contribution(C& c, Size count) {
  const std::vector<T> in = contributions<T>(c.rank(), count);
  std::vector<T> out(static_cast<std::size_t>(count * c.size()));
  all_gather(c, all_of(in), all_of(out), Purpose::parameter);
  CHECK(same_bits(out, concatenation<T>(c.size(), count)));

  std::vector<T> both(out.size());
  T* own = both.data() + count * c.rank();
  std::copy(in.begin(), in.end(), own);
  const ConstBuffer slice = buffer(own, count);
  all_gather(c, slice, all_of(both), Purpose::parameter);
  CHECK(same_bits(both, out));
  CHECK(same_bits(std::vector<T>(own, own + count), in));
}

template <class T, class C>
void reduce_scatter_then_all_gather_is_all_reduce(C& c, Size count) {
  if (c.sum_order() < SumOrder::rank && !std::is_integral_v<T>) return;
  std::vector<T> x = contributions<T>(c.rank(), count * c.size());
  std::vector<T> slice(static_cast<std::size_t>(count));
  std::vector<T> whole(x.size());
  reduce_scatter(c, all_of(std::as_const(x)), all_of(slice), Purpose::gradient);
  all_gather(c, all_of(std::as_const(slice)), all_of(whole), Purpose::gradient);
  all_reduce(c, all_of(x), Purpose::gradient);
  CHECK(same_bits(x, whole));
}

/// ZeRO stage 0 on a transport with its own sum order: in place, with one wait.
template <class T, class C>
void an_operation_reads_what_one_before_it_writes(C& c, Size count) {
  const std::vector<T> in = contributions<T>(c.rank(), count * c.size());
  std::vector<T> both = in, slice(static_cast<std::size_t>(count)), whole(in.size());
  const Buffer own = buffer(both.data() + count * c.rank(), count);
  Pending<> reduced = c.start_reduce_scatter(all_of(std::as_const(both)), own, Purpose::gradient);
  Pending<> gathered = c.start_all_gather(own, all_of(both), Purpose::gradient);
  gathered.wait();
  reduced.wait();
  CHECK(sums_of(c, both));
  reduce_scatter(c, all_of(in), all_of(slice), Purpose::gradient);
  all_gather(c, all_of(std::as_const(slice)), all_of(whole), Purpose::gradient);
  CHECK(same_bits(both, whole));
}

/// Also where a rank can complete the first before others have done their share of it.
template <class T, class C>
void an_operation_reads_what_a_broadcast_before_it_writes(C& c, Size count) {
  for (int root = 0; root < c.size(); ++root) {
    std::vector<T> x = contributions<T>(c.rank(), count, root), all(x.size() * static_cast<std::size_t>(c.size()));
    Pending<> sent = c.start_broadcast(all_of(x), root, Purpose::parameter);
    Pending<> gathered = c.start_all_gather(all_of(std::as_const(x)), all_of(all), Purpose::parameter);
    gathered.wait();
    sent.wait();
    const std::vector<T> expected = contributions<T>(root, count, root);
    for (int r = 0; r < c.size(); ++r) CHECK(std::equal(expected.begin(), expected.end(), all.begin() + r * count));
  }
}

template <class T, class C>
void broadcast_gives_the_roots_values(C& c, Size count) {
  for (int root = 0; root < c.size(); ++root) {
    std::vector<T> x = contributions<T>(c.rank(), count, root);
    broadcast(c, all_of(x), root, Purpose::parameter);
    CHECK(same_bits(x, contributions<T>(root, count, root)));
  }
}

template <class T, class C>
void all_to_all_gives_each_rank_its_part(C& c, Size count) {
  const int n = c.size();
  const std::vector<T> in = contributions<T>(c.rank(), count * n);
  std::vector<T> out(in.size()), expected;
  for (int r = 0; r < n; ++r)
    for (const T x : contributions<T>(r, count, 0, count * c.rank())) expected.push_back(x);
  all_to_all(c, all_of(in), all_of(out), Purpose::activation);
  CHECK(same_bits(out, expected));
  CHECK(same_bits(in, contributions<T>(c.rank(), count * n)));
}

template <class T, class C>
void all_to_all_takes_parts_of_any_size(C& c, Size count) {
  const int n = c.size(), own = c.rank();
  const auto part = [&](int from, int to) { return (3 * from + 5 * to) % 4 * count; };  // some of nothing
  std::vector<Size> sent, received;
  std::vector<T> in, expected;
  for (int r = 0; r < n; ++r) {
    sent.push_back(part(own, r));
    received.push_back(part(r, own));
    for (const T x : contributions<T>(own, sent.back(), r)) in.push_back(x);
    for (const T x : contributions<T>(r, received.back(), own)) expected.push_back(x);
  }
  std::vector<T> out(expected.size());
  all_to_all(c, all_of(std::as_const(in)), all_of(out), PartCounts{sent, received}, Purpose::activation);
  CHECK(same_bits(out, expected));
}

/// Every rank sends to every other, more the farther it is, and waits in its own order.
template <class T, class C>
void what_is_sent_is_received(C& c, Size count) {
  const int n = c.size(), own = c.rank();
  std::vector<std::vector<T>> out, in;
  std::vector<int> from;
  for (int step = 1; step < n; ++step) {
    out.push_back(contributions<T>(own, step * count, (own + step) % n));
    from.push_back((own + n - step) % n);
    in.emplace_back(static_cast<std::size_t>(step * count));
  }
  std::vector<Pending<>> pendings;
  for (int step = 1; step < n; ++step) {
    const auto i = static_cast<std::size_t>(step - 1);
    pendings.push_back(c.start_receive(all_of(in[i]), from[i], Purpose::activation));
    pendings.push_back(c.start_send(all_of(std::as_const(out[i])), (own + step) % n, Purpose::activation));
  }
  if (own % 2 == 1) std::reverse(pendings.begin(), pendings.end());
  for (Pending<>& p : pendings) p.wait();
  for (std::size_t i = 0; i < in.size(); ++i) CHECK(same_bits(in[i], contributions<T>(from[i], count_of(in[i]), own)));
}

/// A chain of ranks that forward what they receive, while the first and the last call nothing else.
template <class C>
void messages_keep_their_order(C& c) {
  const int n = c.size(), own = c.rank();
  for (int round = 0; round < 20; ++round) {
    std::vector<float> x = contributions<float>(0, 10 + round, round);
    if (own > 0) {
      std::fill(x.begin(), x.end(), 0.0f);
      receive(c, all_of(x), own - 1, Purpose::activation);
    }
    if (own + 1 < n) send(c, all_of(std::as_const(x)), own + 1, Purpose::activation);
    CHECK(same_bits(x, contributions<float>(0, 10 + round, round)));
  }
}

template <class C>
void coalesced_is_the_same_as_separate(C& c) {
  const int n = c.size();
  const auto a = contributions<float>(c.rank(), 5 * n), b = contributions<float>(c.rank(), 70'001 * n, 1);
  const auto d = contributions<bf16>(c.rank(), 33 * n, 2);
  std::vector<float> ya(5), yb(70'001);
  std::vector<bf16> yd(33);
  const ScatterPair scatter[] = {{all_of(a), all_of(ya)},
                                 {{nullptr, 0, ElementType::f64}, {nullptr, 0, ElementType::f64}},
                                 {all_of(b), all_of(yb)},
                                 {all_of(d), all_of(yd)}};
  reduce_scatter(c, scatter, Purpose::gradient);
  CHECK(sums_of(c, ya, 0, 5 * c.rank()));
  CHECK(sums_of(c, yb, 1, 70'001 * c.rank()));
  CHECK(sums_of(c, yd, 2, 33 * c.rank()));
  std::vector<float> alone(yb.size());
  reduce_scatter(c, all_of(b), all_of(alone), Purpose::gradient);
  CHECK(same_bits(yb, alone));

  const auto e = contributions<float>(c.rank(), 7), f = contributions<float>(c.rank(), 1001, 1);
  const auto g = contributions<std::uint8_t>(c.rank(), 13, 2);
  std::vector<float> ye(static_cast<std::size_t>(7 * n)), yf(static_cast<std::size_t>(1001 * n));
  std::vector<std::uint8_t> yg(static_cast<std::size_t>(13 * n));
  const GatherPair gather[] = {{all_of(e), all_of(ye)}, {all_of(f), all_of(yf)}, {all_of(g), all_of(yg)}};
  all_gather(c, gather, Purpose::parameter);
  CHECK(same_bits(ye, concatenation<float>(n, 7)));
  CHECK(same_bits(yf, concatenation<float>(n, 1001, 1)));
  CHECK(same_bits(yg, concatenation<std::uint8_t>(n, 13, 2)));

  reduce_scatter(c, std::span<const ScatterPair>{}, Purpose::gradient);
  all_gather(c, std::span<const GatherPair>{}, Purpose::parameter);
}

template <class C>
void the_list_of_pairs_may_go_after_issue(C& c) {
  const auto a = contributions<float>(c.rank(), 7);
  std::vector<float> y(static_cast<std::size_t>(7 * c.size()));
  Pending<> pending;
  {
    std::vector<GatherPair> pairs = {{all_of(a), all_of(y)}};
    pending = c.start_all_gather(pairs, Purpose::parameter);
    pairs[0] = GatherPair{};
  }
  pending.wait();
  CHECK(same_bits(y, concatenation<float>(c.size(), 7)));
}

template <class C>
void pendings_may_be_waited_for_in_any_order(C& c, int in_flight) {
  std::vector<std::vector<float>> x;
  std::vector<Pending<>> pendings;
  for (int k = 0; k < in_flight; ++k) x.push_back(contributions<float>(c.rank(), 100 + k, k));
  for (auto& v : x) pendings.push_back(c.start_all_reduce(all_of(v), Purpose::gradient));
  while (!pendings.empty()) {
    pendings.back().wait();
    pendings.pop_back();
  }
  for (int k = 0; k < in_flight; ++k) CHECK(sums_of(c, x[static_cast<std::size_t>(k)], k));
}

template <class C>
void an_operation_nobody_waited_for_is_completed(C& c) {
  std::vector<double> x = contributions<double>(c.rank(), 1000);
  { const Pending<> forgotten = c.start_all_reduce(all_of(x), Purpose::gradient); }
  CHECK(sums_of(c, x));
}

template <class C>
void a_pending_owns_its_memory(C& c) {
  std::vector<float> x = contributions<float>(c.rank(), 1000);
  auto operation = c.start_all_reduce(all_of(x), Purpose::gradient);
  auto pending = std::move(operation).keep(std::move(x));
  auto elsewhere = std::move(pending);
  const std::vector<float> sum = std::move(elsewhere).wait();
  CHECK(sums_of(c, sum));
}

template <class C>
void traffic_is_exact(C& c, Size count) {
  const int n = c.size(), r = c.rank();
  const Traffic before = c.traffic();
  std::vector<float> x(static_cast<std::size_t>(count)), wide(static_cast<std::size_t>(count * n));
  all_reduce(c, all_of(x), Purpose::replicated_gradient);
  reduce_scatter(c, all_of(std::as_const(wide)), all_of(x), Purpose::gradient);
  all_gather(c, all_of(std::as_const(x)), all_of(wide), Purpose::parameter);
  std::vector<float> other(wide.size());
  all_to_all(c, all_of(std::as_const(wide)), all_of(other), Purpose::activation);
  broadcast(c, all_of(x), n - 1, Purpose::checkpoint);
  if (n > 1 && r == 0) send(c, all_of(std::as_const(x)), n - 1, Purpose::checkpoint);
  if (n > 1 && r == n - 1) receive(c, all_of(x), 0, Purpose::checkpoint);
  c.barrier();
  const Traffic moved = c.traffic() - before;
  const Size own = count * (r + 1) / n - count * r / n;
  CHECK(moved.bytes(Collective::all_reduce, Purpose::replicated_gradient) == 4 * ((n - 1) * own + count - own));
  CHECK(moved.bytes(Collective::reduce_scatter, Purpose::gradient) == 4 * (n - 1) * count);
  CHECK(moved.bytes(Collective::all_gather, Purpose::parameter) == 4 * (n - 1) * count);
  CHECK(moved.bytes(Collective::all_to_all, Purpose::activation) == 4 * (n - 1) * count);
  CHECK(moved.bytes(Collective::broadcast, Purpose::checkpoint) == (r == n - 1 ? 0 : 4 * count));
  CHECK(moved.bytes(Collective::barrier) == 0);
  CHECK(moved.bytes(Collective::send, Purpose::checkpoint) == (n > 1 && r == n - 1 ? 4 * count : 0));
  for (int k = 0; k < collective_count; ++k) {
    const bool none = static_cast<Collective>(k) == Collective::send && (n == 1 || (r > 0 && r < n - 1));
    CHECK(moved.calls(static_cast<Collective>(k)) == (none ? 0 : 1));
  }
}

template <class C>
void wrong_arguments_are_errors_and_change_nothing(C& c) {
  std::vector<float> x(8), y(static_cast<std::size_t>(8 * c.size()));
  std::vector<std::uint8_t> bytes(8);
  std::vector<double> d(8);
  const auto code_of = [](auto&& f) {
    try {
      f();
    } catch (const Error& e) {
      CHECK(std::strncmp(e.what(), "dspp: ", 6) == 0);
      return e.code();
    }
    return ErrorCode::state;
  };
  const Purpose p = Purpose::gradient;
  CHECK(code_of([&] { all_reduce(c, all_of(bytes), p); }) == ErrorCode::usage);
  CHECK(code_of([&] { reduce_scatter(c, buffer(y.data(), 8 * c.size() + 1), all_of(x), p); }) == ErrorCode::shape);
  CHECK(code_of([&] { all_gather(c, all_of(x), buffer(y.data(), 8 * c.size() - 1), p); }) == ErrorCode::shape);
  CHECK(code_of([&] { all_gather(c, all_of(d), all_of(y), p); }) == ErrorCode::usage);
  CHECK(code_of([&] { all_to_all(c, all_of(x), all_of(y), PartCounts{}, p); }) ==
        (c.size() == 1 ? ErrorCode::state : ErrorCode::shape));
  CHECK(code_of([&] { all_to_all(c, all_of(x), all_of(x), p); }) != ErrorCode::state);
  const std::vector<Size> one_too_many(static_cast<std::size_t>(c.size() + 1), 0);
  const std::vector<Size> all_to_the_first = [&] {
    std::vector<Size> parts(static_cast<std::size_t>(c.size()), 0);
    parts[0] = 8;
    return parts;
  }();
  std::vector<float> z(8);
  CHECK(code_of([&] {
          all_to_all(c, all_of(x), all_of(z), PartCounts{one_too_many, all_to_the_first}, p);
        }) == ErrorCode::shape);
  CHECK(code_of([&] {
          all_to_all(c, all_of(x), buffer(z.data(), 7), PartCounts{all_to_the_first, all_to_the_first}, p);
        }) == ErrorCode::shape);
  for (const int peer : {-1, c.rank(), c.size()}) {
    CHECK(code_of([&] { send(c, all_of(std::as_const(x)), peer, p); }) == ErrorCode::usage);
    CHECK(code_of([&] { receive(c, all_of(x), peer, p); }) == ErrorCode::usage);
  }
  CHECK(code_of([&] { broadcast(c, all_of(x), c.size(), p); }) == ErrorCode::usage);
  CHECK(code_of([&] { broadcast(c, all_of(x), -1, p); }) == ErrorCode::usage);
  CHECK(code_of([&] { all_reduce(c, buffer(x.data(), -1), p); }) == ErrorCode::shape);
  CHECK(code_of([&] { all_reduce(c, buffer(static_cast<float*>(nullptr), 8), p); }) == ErrorCode::usage);
  CHECK(code_of([&] { all_gather(c, buffer(y.data() + 7 * c.rank() + 1, 7), buffer(y.data(), 7 * c.size()), p); }) ==
        ErrorCode::usage);
  all_reduce_sums<float>(c, 10);
}

// --- all laws

/// Elements of the longest sums: enough for several tiles, unless a World names another number.
template <class World>
constexpr Size most_elements() {
  if constexpr (requires { World::most_elements; })
    return World::most_elements;
  else
    return 300'007;
}

template <class T, class World>
void check_sums_of(int ranks) {
  World::run(ranks, [](auto& c) {
    for (Size count : {0, 1, 2, 3, 5, 127, 512, 1000}) {
      all_reduce_sums<T>(c, count);
      every_rank_gets_the_bits_of_the_first<T>(c, count);
      reduce_scatter_gives_the_slice_of_the_sum<T>(c, count);
      digest_is_of_the_sum<T>(c, count);
      reduce_scatter_then_all_gather_is_all_reduce<T>(c, count);
      an_operation_reads_what_one_before_it_writes<T>(c, count);
      sums_depend_on_their_summands_alone<T>(c, count);
      exact_sums_do_not_depend_on_the_order_of_the_ranks<T>(c, count);
    }
    constexpr Size most = most_elements<World>(), third = most / 3 | 1;
    all_reduce_sums<T>(c, most);
    every_rank_gets_the_bits_of_the_first<T>(c, most);
    an_operation_reads_what_one_before_it_writes<T>(c, third);
    reduce_scatter_gives_the_slice_of_the_sum<T>(c, third);
    digest_is_of_the_sum<T>(c, third);
  });
}

template <class T, class World>
void check_copies_of(int ranks) {
  World::run(ranks, [](auto& c) {
    for (Size count : {Size{0}, Size{1}, Size{3}, Size{128}, Size{1000}, most_elements<World>() / 3 | 1}) {
      all_gather_gives_every_contribution<T>(c, count);
      all_to_all_gives_each_rank_its_part<T>(c, count);
      all_to_all_takes_parts_of_any_size<T>(c, count);
      what_is_sent_is_received<T>(c, count);
      broadcast_gives_the_roots_values<T>(c, count);
      an_operation_reads_what_a_broadcast_before_it_writes<T>(c, count);
    }
  });
}

template <class World>
void check_communicator_laws(int ranks) {
  CAPTURE(ranks);
  // Under sanitizers, for time, not every type: what they look at, memory and races, hardly depends on it.
  check_sums_of<float, World>(ranks);
  check_sums_of<bf16, World>(ranks);
  check_copies_of<double, World>(ranks);
  check_copies_of<std::uint8_t, World>(ranks);
  if constexpr (sanitizer != Sanitizer::thread) {
    check_sums_of<double, World>(ranks);
    check_sums_of<f16, World>(ranks);
  }
  if constexpr (sanitizer == Sanitizer::none) {
    check_sums_of<std::int32_t, World>(ranks);
    check_sums_of<std::int64_t, World>(ranks);
    check_copies_of<float, World>(ranks);
    check_copies_of<bf16, World>(ranks);
    check_copies_of<f16, World>(ranks);
    check_copies_of<std::int32_t, World>(ranks);
    check_copies_of<std::int64_t, World>(ranks);
  }
  World::run(ranks, [](auto& c) {
    coalesced_is_the_same_as_separate(c);
    the_list_of_pairs_may_go_after_issue(c);
    pendings_may_be_waited_for_in_any_order(c, 8);
    pendings_may_be_waited_for_in_any_order(c, 40);
    an_operation_nobody_waited_for_is_completed(c);
    a_pending_owns_its_memory(c);
    messages_keep_their_order(c);
    for (Size count : {0, 1, 7, 1000}) traffic_is_exact(c, count);
    wrong_arguments_are_errors_and_change_nothing(c);
  });
}

}  // namespace dspp::laws
