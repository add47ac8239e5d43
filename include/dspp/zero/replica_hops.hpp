// SPDX-License-Identifier: Apache-2.0
/// Replicas' operations in two hops, inside of nodes and across them, and of quantized parts.
#pragma once

#include <utility>

#include <dspp/ops/quantize.hpp>
#include <dspp/zero/replicas.hpp>

namespace dspp {

/// By way of secondary shards, or quantized, or both, or from a disk.
template <class T, Device D>
constexpr void Replicas<T, D>::start_gather_in_hops(BucketType& b, const StorageType& whole) {
  Operation gather{.bucket = &b, .kept = whole, .has_hop = true};
  Hop hop;
  if (b.secondary) {
    hop.source = b.secondary;
    gather.pending = gather_on_node(b, b.secondary, whole);
  } else {
    auto& over = keeps_secondary_shards() ? *groups_.across_nodes : shards();
    const Tensor<T, 1, D> values = held_values(b);
    hop.source = values.storage();
    if (!b.is_last) values_.read_ahead(block_of(b) + 1);
    const Size elements = values.count() * over.size();
    if (keeps_secondary_shards())
      hop.secondary =
          StorageType(*memory_, elements * static_cast<Size>(sizeof(T)), Category::parameters, "secondary shards");
    const auto to = Tensor<T, 1, D>::view(hop.secondary ? hop.secondary : whole, 0, Shape<1>{{elements}});
    const auto purpose = PurposeAt(Purpose::parameter).of(subject(b));
    gather.pending = config_.traffic.gather_bits > 0 && over.size() > 1
                         ? gather_quantized(over, values, hop, purpose)
                         : over.start_all_gather(buffer(static_cast<const T*>(values.data()), values.count()),
                                                 buffer(to.data(), elements), purpose);
  }
  hops_.push_back(std::move(hop));
  in_flight_.push_back(std::move(gather));
  if (is_timed_) time_newest();
}

/// Every rank's part is quantized, this one's too, so that all have the same values.
template <class T, Device D>
constexpr Pending<> Replicas<T, D>::gather_quantized(CommunicatorOf<D>& over, const Tensor<T, 1, D>& values, Hop& hop,
                                                     PurposeAt purpose) {
  hop.parts = {values.count(), config_.traffic.gather_bits, static_cast<int>(sizeof(Compute<T>))};
  const Size part = hop.parts.bytes(), all = part * over.size();
  hop.received = StorageType(*memory_, all, Category::communication, "quantized values");
  const Size at = part * over.rank();
  ops::quantize<T, D>(*memory_, hop.parts, 1, 1, values.data(), detail::byte_of<D>(hop.received, at));
  const Buffer own = byte_range(hop.received, at, part);
  return over.start_all_gather(own, byte_range(hop.received, 0, all), purpose);
}

/// `secondary` has this rank's slice of each node, in order of the nodes.
template <class T, Device D>
constexpr Pending<> Replicas<T, D>::gather_on_node(BucketType& b, const StorageType& secondary,
                                                   const StorageType& whole) {
  const Size slice = slice_of(b), of_node = slice * groups_.on_node->size();
  const auto from = Tensor<T, 1, D>::view(secondary, 0, Shape<1>{{slice * groups_.across_nodes->size()}});
  const auto to = Tensor<T, 1, D>::view(whole, 0, Shape<1>{{b.count}});
  List<GatherPair> nodes;
  for (int node = 0; node < groups_.across_nodes->size(); ++node)
    nodes.push_back({buffer(static_cast<const T*>(from.data_from(node * slice)), slice),
                     buffer(to.data_from(node * of_node), of_node)});
  return groups_.on_node->start_all_gather({nodes.begin(), nodes.size()}, PurposeAt(Purpose::parameter).of(subject(b)));
}

/// What replica i of the node sums are the slices of the ranks with its place on every node, in order of the nodes.
template <class T, Device D>
constexpr void Replicas<T, D>::start_quantized_reduce(BucketType& b, PurposeAt purpose) {
  const Size elements = slice_of(b), rows = reduces_twice() ? nodes() : 1;
  Operation reduce{.bucket = &b, .scatters = true, .has_hop = true};
  Hop hop;
  hop.parts = {elements, config_.traffic.reduce_bits, static_cast<int>(sizeof(Compute<T>))};
  const Size all = hop.parts.bytes() * group().size();
  b.sum = {};
  hop.sent = StorageType(*memory_, all, Category::communication, "quantized gradients");
  with_gradient_type([&]<class G>(G) {
    ops::quantize<G, D>(*memory_, hop.parts, rows, group().size() / rows, b.gradient.template element<const G>(0),
                        hop.sent.data(), errors_of<G>(b, &Errors::own), config_.error_feedback.decay);
  });
  b.gradient.release();
  slice_for_sum(b, reduce.summand);
  hop.received = StorageType(*memory_, all, Category::communication, "quantized gradients");
  auto& over = reduces_twice() ? *groups_.on_node : group();
  reduce.pending =
      over.start_all_to_all(byte_range(hop.sent, 0, all), byte_range(hop.received, 0, all), PartCounts{}, purpose);
  hops_.push_back(std::move(hop));
  in_flight_.push_back(std::move(reduce));
  if (is_timed_) time_newest();
}

/// The sum of a node, quantized, is sent across nodes, beside what comes until it is the oldest operation.
template <class T, Device D>
constexpr void Replicas<T, D>::start_second_hop(Operation& o, Hop hop) {
  using S = Compute<T>;
  const QuantizedParts& parts = hop.parts;
  const Size senders = nodes(), bytes = parts.bytes() * senders;
  const auto take = [&] { return StorageType(*memory_, bytes, Category::communication, "quantized gradients"); };
  hop.sent.release();
  {
    auto of_node = Tensor<S, 1, D>::uninitialized(Shape<1>{{parts.count * senders}}, *memory_, Category::communication,
                                                  "gradients of the node");
    ops::sum_quantized<S, D>(*memory_, parts, group().size() / senders, senders, hop.received.data(), of_node.data());
    hop.received.release(), hop.sent = take();
    ops::quantize<S, D>(*memory_, parts, 1, senders, of_node.data(), hop.sent.data(),
                        errors_of<S>(*o.bucket, &Errors::of_node), config_.error_feedback.decay);
  }
  hop.received = take();
  o.pending = groups_.across_nodes->start_all_to_all(byte_range(hop.sent, 0, bytes), byte_range(hop.received, 0, bytes),
                                                     PartCounts{}, PurposeAt(Purpose::gradient).of(subject(*o.bucket)));
  o.is_second = true, ++second_hops_;
  hops_.push_back(std::move(hop));
  in_flight_.push_back(std::move(o));
  if (is_timed_) time_newest();
}

/// To this rank's slice of a sum.
template <class T, Device D>
constexpr void Replicas<T, D>::sum_received(const Operation& o, const Hop& hop) {
  const StorageType& sum = o.summand ? o.summand : o.bucket->reduced;
  with_gradient_type([&]<class G>(G) {
    ops::sum_quantized<G, D>(*memory_, hop.parts, o.is_second ? nodes() : group().size(), 1, hop.received.data(),
                             sum.template element<G>(0));
  });
}

/// True if that is all that there is to do, of a gather.
template <class T, Device D>
constexpr bool Replicas<T, D>::complete_hop(Operation& o, Hop hop) {
  BucketType& b = *o.bucket;
  if (hop.received) {
    if (o.scatters) {
      sum_received(o, hop);
    } else {
      const StorageType& values = hop.secondary ? hop.secondary : o.kept;
      ops::sum_quantized<T, D>(*memory_, hop.parts, 1, hop.secondary ? nodes() : shards().size(), hop.received.data(),
                               values.template element<T>(0));
    }
    hop.sent.release(), hop.received.release();
  }
  if (!hop.secondary) return !o.scatters;
  b.secondary = std::move(hop.secondary);
  gather_on_node(b, b.secondary, o.kept).wait();
  return true;
}

}  // namespace dspp
