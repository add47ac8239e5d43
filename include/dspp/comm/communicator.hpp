// SPDX-License-Identifier: Apache-2.0
/// The concept of a communicator, its laws, and the collectives that start and wait in one call.
#pragma once

#include <concepts>
#include <span>
#include <type_traits>

#include <dspp/comm/buffer.hpp>
#include <dspp/comm/call_site.hpp>
#include <dspp/comm/pending.hpp>
#include <dspp/comm/sum_order.hpp>
#include <dspp/comm/traffic.hpp>

namespace dspp {

/// One rank's end of a group of ranks that call the same operations in the same order.
///
///   start_all_reduce(x)          x becomes the sum of all ranks' x
///   start_reduce_scatter(a, y)   a.count == size() * y.count: y becomes slice rank() of the sum
///   start_all_gather(a, y)       y.count == size() * a.count: y becomes all ranks' a, in rank order
///   start_all_to_all(a, y, parts) part r of a goes to rank r: y becomes what the ranks sent here, in rank order
///   start_broadcast(x, root)     x becomes the root's x
///   start_send(a, to)            a goes to rank `to`, which receives it
///   start_receive(y, from)       y becomes what rank `from` sends
///   barrier()                    returns when every rank has called it
///
/// Each also takes its purpose as a PurposeAt, which has the line of the call; barrier(site) takes the line. It may ask
/// a reduce-scatter for a digest of its sum (SumDigest), which need not be made.
///
/// The laws (tests/laws/communicator.hpp runs them on every model):
/// - Order: operations other than sends and receives complete in the order of issue; waiting for one completes all
///   issued before it. So the order in which Pendings are waited for cannot deadlock, and an operation may read what an
///   earlier one of the same group writes.
/// - Send and receive concern two ranks only: from one rank to another they match in the order of issue, whatever else
///   the ranks call. A send completes when its memory is free again, possibly not before it is received: start both
///   directions of an exchange before waiting.
/// - Bits: bf16 and f16 are summed in f32 and rounded once (but under SumOrder::rounding), f32 in f32, f64 in f64,
///   integers exactly (modulo 2^bits). Every rank gets the same bits. Further guarantees are a tier, which sum_order()
///   returns (comm/sum_order.hpp): the transport's own order; rank order, in which reduce_scatter has the bits of a
///   slice of all_reduce; the exact sum, independent of the world size. A group of one satisfies every tier.
/// - Aliasing: in all_gather `a` may be slice rank() of `y`, in reduce_scatter `y` may be slice rank() of `a`; other
///   overlap is an error, and so is any in all_to_all. u8 is moved but not summed.
/// - Coalesced: a list of pairs has the results of its pairs one by one, with one synchronisation. The list itself is
///   copied at issue; the memory it points to must live until wait() returns.
/// - Memory: when wait() returns or throws, no other rank accesses this rank's memory.
/// - Failures: ranks that disagree, fail, leave or do not call give an Error with a sentence on every rank, never a
///   hang; afterwards every call on the group throws that first error.
/// - Traffic: traffic() counts the bytes that this rank got from the others; complete once every operation is waited
///   for. With a progress thread what it returns stays as it was at the call, until the next.
///
/// It may have a member async_progress(bytes): true if operations to which each rank gives so many bytes go on between
/// issue and wait(), whatever this rank does.
template <class C>
concept Communicator = requires(std::remove_cvref_t<C>& c, const std::remove_cvref_t<C>& k, Buffer x, ConstBuffer a,
                                const PartCounts& parts, int root, Purpose purpose,
                                std::span<const ScatterPair> scatter, std::span<const GatherPair> gather) {
  { k.rank() } -> std::same_as<int>;
  { k.size() } -> std::same_as<int>;
  { k.sum_order() } -> std::same_as<SumOrder>;
  { c.start_all_reduce(x, purpose) } -> std::same_as<Pending<>>;
  { c.start_reduce_scatter(a, x, purpose) } -> std::same_as<Pending<>>;
  { c.start_all_gather(a, x, purpose) } -> std::same_as<Pending<>>;
  { c.start_all_to_all(a, x, parts, purpose) } -> std::same_as<Pending<>>;
  { c.start_broadcast(x, root, purpose) } -> std::same_as<Pending<>>;
  { c.start_send(a, root, purpose) } -> std::same_as<Pending<>>;
  { c.start_receive(x, root, purpose) } -> std::same_as<Pending<>>;
  { c.start_reduce_scatter(scatter, purpose) } -> std::same_as<Pending<>>;
  { c.start_all_gather(gather, purpose) } -> std::same_as<Pending<>>;
  { c.barrier() } -> std::same_as<void>;
  { k.traffic() } -> std::same_as<const Traffic&>;
};

namespace detail {

/// The call of a communicator that takes no call site.
template <Communicator C>
constexpr void barrier_at(C& c, CallSite site) {
  if constexpr (requires { c.barrier(site); })
    c.barrier(site);
  else
    c.barrier();
}

/// False of a communicator that does not say.
template <Communicator C>
constexpr bool has_async_progress([[maybe_unused]] const C& c, [[maybe_unused]] Size bytes) {
  if constexpr (requires { c.async_progress(bytes); })
    return c.async_progress(bytes);
  else
    return false;
}

}  // namespace detail

/// x becomes the sum over the ranks. Cost: this rank reads (N-1)/N x.bytes() to sum its slice and as much to gather.
template <Communicator C>
constexpr void all_reduce(C&& c, Buffer x, PurposeAt purpose) {
  c.start_all_reduce(x, purpose).wait();
}

/// out becomes slice rank() of the sum of in. Cost: this rank reads (N-1) out.bytes().
template <Communicator C>
constexpr void reduce_scatter(C&& c, ConstBuffer in, Buffer out, PurposeAt purpose) {
  c.start_reduce_scatter(in, out, purpose).wait();
}

template <Communicator C>
constexpr void reduce_scatter(C&& c, std::span<const ScatterPair> pairs, PurposeAt purpose) {
  c.start_reduce_scatter(pairs, purpose).wait();
}

/// out becomes the concatenation of the ranks' in. Cost: this rank reads (N-1) in.bytes().
template <Communicator C>
constexpr void all_gather(C&& c, ConstBuffer in, Buffer out, PurposeAt purpose) {
  c.start_all_gather(in, out, purpose).wait();
}

template <Communicator C>
constexpr void all_gather(C&& c, std::span<const GatherPair> pairs, PurposeAt purpose) {
  c.start_all_gather(pairs, purpose).wait();
}

/// Part r of `in` goes to rank r; `out` becomes what the ranks sent here, in rank order. Parts are equal unless given;
/// given parts must match between sender and receiver. Cost: this rank reads the others' parts.
template <Communicator C>
constexpr void all_to_all(C&& c, ConstBuffer in, Buffer out, PurposeAt purpose) {
  c.start_all_to_all(in, out, PartCounts{}, purpose).wait();
}

template <Communicator C>
constexpr void all_to_all(C&& c, ConstBuffer in, Buffer out, const PartCounts& parts, PurposeAt purpose) {
  c.start_all_to_all(in, out, parts, purpose).wait();
}

/// x becomes the root's x. Cost: every rank but the root reads x.bytes().
template <Communicator C>
constexpr void broadcast(C&& c, Buffer x, int root, PurposeAt purpose) {
  c.start_broadcast(x, root, purpose).wait();
}

/// `in` goes to rank `to`. Returns when `in` is free again, at the latest when that rank has received it. Cost: the
/// other rank reads in.bytes().
template <Communicator C>
constexpr void send(C&& c, ConstBuffer in, int to, PurposeAt purpose) {
  c.start_send(in, to, purpose).wait();
}

/// `out` becomes what rank `from` sends. Cost: this rank reads out.bytes().
template <Communicator C>
constexpr void receive(C&& c, Buffer out, int from, PurposeAt purpose) {
  c.start_receive(out, from, purpose).wait();
}

}  // namespace dspp
