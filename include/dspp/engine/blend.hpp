// SPDX-License-Identifier: Apache-2.0
/// Several sources as one, in proportion to weights.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <dspp/base/digest.hpp>
#include <dspp/base/error.hpp>
#include <dspp/data/blend_order.hpp>
#include <dspp/engine/source_batches.hpp>

namespace dspp {

namespace detail {
template <class S, class Spans>
class BlendOf;
}

/// A SampleSource of several of type S, whose samples have the same shapes: any prefix of its stream has each source's
/// part of the weights to within one sample (data/blend_order.hpp). Each source goes through its own epochs in its own
/// order, whatever the others do. The sizes are those of batches(), for sources that ask for them. Copies share the
/// sources, so the threads of all ranks call their members.
///
/// size() is the samples of all sources together. The stream takes epoch() samples until it has read each source once,
/// and its first unrepeated() are all different: unless the weights are those of the sizes, some begin again before.
///
/// Throws   Error(usage) for no source, one without samples, a weight that is not positive, another padding or
///          vocabulary(); Error(shape) for samples of other shapes, and in batches() for other sizes
/// Example  batches(world, Blend<TokenSamples>({{TokenSamples(web), 0.7}, {TokenSamples(books), 0.3}}, sizes), sizes)
template <SampleSource S>
using Blend = detail::BlendOf<S, typename detail::SpansOf<decltype(&S::fill)>::types>;

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

[[noreturn]] void refuse_blend(std::size_t source, Size samples);
[[noreturn]] void refuse_blended_shapes(std::size_t source);
[[noreturn]] void refuse_blended(std::size_t source, const char* what, const char* advice);
[[noreturn]] void refuse_blend_sizes();

/// Sample n of source k is sample begins_[k] + n.
template <class S, class... T>
class BlendOf<S, std::tuple<T...>> {
 public:
  struct Part {
    S source;
    double weight;
  };
  template <class P>
  using Batch = typename S::template Batch<P>;

  explicit BlendOf(std::vector<Part> parts, const BatchSizes& sizes = {});

  Size size() const { return begins_.back(); }
  /// Samples of the stream until each source was read once as a whole.
  ///
  /// Cost     a few nanoseconds per source for each of them, the first time
  /// Throws   Error(usage) from 2^36 on
  Size epoch() const { return order_.positions_until(data::BlendOrder::Until::all, samples_of_each(0)); }
  /// Samples of the stream before the first that it has had already. Cost and Throws as epoch().
  Size unrepeated() const { return order_.positions_until(data::BlendOrder::Until::any, samples_of_each(1)) - 1; }
  auto shapes(const BatchSizes& sizes) const {
    const auto own = shapes_of_source(*sources_[0], sizes_);
    if (shapes_of_source(*sources_[0], sizes) != own) refuse_blend_sizes();
    return own;
  }
  auto padding() const requires requires(const S& source) { source.padding(); }
  { return sources_[0]->padding(); }
  std::uint64_t fingerprint() const { return print_; }

  Size sample_at(std::uint64_t seed, Size position) const {
    const auto [k, number] = order_.at(position);
    const Size samples = begins_[k + 1] - begins_[k];
    return begins_[k] + chosen_sample(*sources_[k], data::seed_of_stream(seed, k), number, samples);
  }
  void fill(Size sample, std::span<T>... spans) const {
    const auto after = std::upper_bound(begins_.begin(), begins_.end(), sample);
    const auto k = static_cast<std::size_t>(after - begins_.begin()) - 1;
    sources_[k]->fill(sample - begins_[k], spans...);
  }

 private:
  static std::vector<double> weights_of(const std::vector<Part>& parts) {
    std::vector<double> weights;
    for (const Part& part : parts) weights.push_back(part.weight);
    return weights;
  }
  std::vector<Size> samples_of_each(Size more) const {
    std::vector<Size> samples;
    for (std::size_t k = 0; k < sources_.size(); ++k) samples.push_back(begins_[k + 1] - begins_[k] + more);
    return samples;
  }

  std::vector<std::shared_ptr<const S>> sources_;
  std::vector<Size> begins_{0};
  data::BlendOrder order_;
  BatchSizes sizes_;
  std::uint64_t print_ = 0;
};

template <class S, class... T>
BlendOf<S, std::tuple<T...>>::BlendOf(std::vector<Part> parts, const BatchSizes& sizes)
    : order_(weights_of(parts)), sizes_(sizes) {
  constexpr bool padded = requires(const S& source) {
    source.padding();
  };
  constexpr bool tokenized = requires(const S& source) {
    source.vocabulary();
  };
  Digest print;
  for (Part& part : parts) {
    sources_.push_back(std::make_shared<const S>(std::move(part.source)));
    const std::size_t k = sources_.size() - 1;
    const auto samples = samples_of(sources_[k], sizes, 0);
    if (samples.samples < 1) refuse_blend(k, samples.samples);
    if (shapes_of_source(*sources_[k], sizes) != shapes(sizes)) refuse_blended_shapes(k);
    if constexpr (padded)
      if (sources_[k]->padding() != sources_[0]->padding())
        refuse_blended(k, "padding", "Give all the same padding().");
    if constexpr (tokenized)
      if (sources_[k]->vocabulary() != sources_[0]->vocabulary())
        refuse_blended(k, "tokenizer", "Write the tokens again with one.");
    begins_.push_back(begins_.back() + samples.samples);
    const auto rows = rows_of_source<Batch<Policy<>>>(sources_[k], sizes, {});
    print.add(std::bit_cast<std::uint64_t>(part.weight)).add(samples.fingerprint_or_digest(rows));
  }
  print_ = print.value();
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void refuse_blend(std::size_t source, Size samples) {
  fail(ErrorCode::usage, "dspp: a blend needs sources with at least one sample, but source " + std::to_string(source) +
                             " has " + std::to_string(samples) + ". Leave it out.");
}
DSPP_INLINE void refuse_blended(std::size_t source, const char* what, const char* advice) {
  fail(ErrorCode::usage, std::string("dspp: a blend needs sources of the same ") + what + ", but that of source " +
                             std::to_string(source) + " differs from that of source 0. " + advice);
}
DSPP_INLINE void refuse_blend_sizes() {
  fail(ErrorCode::shape,
       "dspp: a blend needs the sizes of its batches, but was made for others, whose samples have other shapes. Give "
       "both the same BatchSizes.");
}
DSPP_INLINE void refuse_blended_shapes(std::size_t source) {
  fail(ErrorCode::shape, "dspp: a blend needs sources whose samples have the same shapes, but those of source " +
                             std::to_string(source) + " differ from those of source 0. Cut or pad them.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

}  // namespace dspp
