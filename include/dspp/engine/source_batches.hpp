// SPDX-License-Identifier: Apache-2.0
/// Batches of any type from a source of a user's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <dspp/base/element.hpp>
#include <dspp/data/sample_range.hpp>
#include <dspp/engine/batches.hpp>

namespace dspp {

/// A source of numbered samples, which says how one sample is written; batches() does the rest: order, share of each
/// rank, micro-steps, slices over Cp, the device, and resumption.
///
///   struct Photos {
///     template <class P>
///     using Batch = Images<P>;                                                     // the batch: any struct of fields
///     Size size() const { return 60000; }                                          // samples
///     auto shapes() const { return std::tuple(shape(1, 28, 28), shape()); }        // of a sample's fields, in order
///     void fill(Size sample, std::span<float> pixels, std::span<int> label) const; // writes one
///   };
///
/// The spans are whole samples, zeros before, whatever Cp cuts. size and shapes may take the BatchSizes. fill is called
/// by threads: of ranks that share the source through a shared_ptr, and of BatchConfig::prefetch. Three members are
/// optional. `std::uint64_t fingerprint() const` is a digest of all data, to compare ranks; without it three samples
/// are compared. `Size sample_at(std::uint64_t seed, Size position) const` is the sample at a position of the endless
/// stream, of which data_digest reads the first 64; without it samples come in epochs, each shuffled
/// (data/sample_order.hpp). `auto padding() const`, a tuple of a number for each span, is what the spans hold before
/// instead of zeros.
template <class S>
concept SampleSource = requires {
  typename S::template Batch<Policy<>>;
};

/// Batches of samples: those of a step are the next micro_batch x accumulate x data ranks of the stream, the same for
/// every number of ranks. A run that resumes at next_sample(steps) takes exactly the next ones, with any number of
/// ranks and any global batch.
///
/// Call on every rank: sizes, seed and source are compared.
///
/// Memory   that of RankBatches
/// Throws   Error(usage) for a source without samples, or with spans that its batch's fields do not match;
///          Error(placement) if Cp does not divide an extent that it cuts
/// Example  for (auto batch : batches(world, Photos{}, {.micro_batch = 8}, {.steps = 500, .prefetch = 2}))
template <class P, class Source>
requires SampleSource<std::remove_const_t<Source>>
auto batches(World<P>& world, std::shared_ptr<Source> source, const BatchSizes& sizes,
             const data::BatchConfig& config = {});

template <class P, SampleSource Source>
auto batches(World<P>& world, Source source, const BatchSizes& sizes, const data::BatchConfig& config = {}) {
  return batches(world, std::make_shared<const Source>(std::move(source)), sizes, config);
}

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The element types of the spans that a source's fill takes.
template <class Fill>
struct SpansOf {
  static constexpr bool known = false;
};
template <class R, class S, class... T>
struct SpansOf<R (S::*)(Size, std::span<T>...) const> {
  static constexpr bool known = true;
  using types = std::tuple<T...>;
};
template <class R, class S, class... T>
struct SpansOf<R (S::*)(Size, std::span<T>...) const noexcept> : SpansOf<R (S::*)(Size, std::span<T>...) const> {};

template <class S>
constexpr bool check_source() {
  constexpr bool sized = requires(const S& s, BatchSizes sizes) {
    s.size();
  }
  || requires(const S& s, BatchSizes sizes) {
    s.size(sizes);
  };
  static_assert(sized,
                "dspp: a source needs a const member size(), its number of samples, but this one has none. Write `Size "
                "size() const`.");
  constexpr bool shaped = requires(const S& s, BatchSizes sizes) {
    s.shapes();
  }
  || requires(const S& s, BatchSizes sizes) {
    s.shapes(sizes);
  };
  static_assert(shaped,
                "dspp: a source needs a const member shapes(), those of the fields of one sample, but this one has "
                "none. Write `auto shapes() const { return std::tuple(shape(28, 28), shape()); }`.");
  constexpr bool fills = [] {
    if constexpr (requires { &S::fill; })
      return SpansOf<decltype(&S::fill)>::known;
    else
      return false;
  }();
  static_assert(fills,
                "dspp: a source needs one const member fill(Size sample, std::span<T>...), which writes a sample to a "
                "span for each field, but this one has none, several or a template. Write one.");
  return sized && shaped && fills;
}

template <class S>
Size size_of_source(const S& source, const BatchSizes& sizes) {
  if constexpr (requires { source.size(sizes); })
    return static_cast<Size>(source.size(sizes));
  else
    return static_cast<Size>(source.size());
}
template <class S>
auto shapes_of_source(const S& source, const BatchSizes& sizes) {
  if constexpr (requires { source.shapes(sizes); })
    return source.shapes(sizes);
  else
    return source.shapes();
}

/// The dimension of a batch's field that Cp cuts, or -1. Those of a Batch are sequences.
template <class B, class T, int Rank, class D>
constexpr int cut_dimension(const Tensor<T, Rank, D>&) {
  return is_token_batch<B> ? 1 : -1;
}
template <class B, class T, int Rank, Device D, class Where>
constexpr int cut_dimension(const Variable<T, Rank, D, Where>&) {
  return Where::cp_dimension;
}

/// A shape and the element type of a span, to be compared with a field.
struct SpanShape {
  std::vector<Size> extents;
  ElementType element;
  std::vector<std::byte> padding{};  // an element of it; empty: zeros
};

[[noreturn]] void refuse_span(const char* field, int rank, ElementType element, const SpanShape& span);
[[noreturn]] void refuse_extent(const char* field, Size extent);
[[noreturn]] void refuse_more_spans(std::size_t spans, std::size_t fields);

/// The fields that a source fills, and the extents of all.
template <class B>
data::SampleRows layout_of(const std::vector<SpanShape>& spans, Size rows, SequenceSlice slice) {
  data::SampleRows layout;
  layout.rows = rows;
  std::size_t number = 0;
  for_each_field(B{}, [&](const char* name, const auto& field) {
    using Field = std::remove_cvref_t<decltype(tensor_of(field))>;
    if (number++ >= spans.size()) {  // left out, as target_weights may be
      for (int d = 0; d < Field::rank; ++d) layout.extents.push_back(0);
      return;
    }
    const SpanShape& span = spans[number - 1];
    constexpr ElementType element = element_type<typename Field::Element>;
    if (std::ssize(span.extents) != Field::rank - 1 || span.element != element)
      refuse_span(name, Field::rank, element, span);
    const int cut = slice.parts > 1 ? cut_dimension<B>(field) : -1;
    data::HostField host{.name = name, .inner_bytes = bytes_of(element), .padding = span.padding};
    layout.extents.push_back(rows);
    for (int d = 1; d < Field::rank; ++d) {
      const Size extent = span.extents[static_cast<std::size_t>(d) - 1];
      if (extent < 1) refuse_extent(name, extent);
      layout.extents.push_back(d == cut ? extent / slice.parts : extent);
      (d == cut ? host.extent : d < cut ? host.outer : host.inner_bytes) *= extent;
    }
    if (cut > 0) host.part = slice.number, host.parts = slice.parts;
    layout.fields.push_back(std::move(host));
  });
  if (spans.size() > number) refuse_more_spans(spans.size(), number);
  return layout;
}

/// Writes samples by the source's fill, to rows of these fields.
template <class S, class... T>
data::SampleRows::Fill fill_of(std::shared_ptr<const S> source, const std::vector<data::HostField>& fields,
                               std::type_identity<std::tuple<T...>>) {
  std::vector<std::size_t> bytes;
  for (const auto& field : fields) bytes.push_back(static_cast<std::size_t>(field.whole_bytes()));
  return [source = std::move(source), bytes](Size sample, std::byte* const* row) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      source->fill(sample, std::span<T>(reinterpret_cast<T*>(row[I]), bytes[I] / sizeof(T))...);
    }
    (std::index_sequence_for<T...>());
  };
}

template <int Rank>
SpanShape span_shape(const Shape<Rank>& shape, ElementType element) {
  return {{shape.extents, shape.extents + Rank}, element};
}

/// The source's padding, one element of each span's type.
template <class... T, class Padding>
void add_padding(const Padding& padding, std::vector<SpanShape>& spans) {
  constexpr bool one_each = std::tuple_size_v<Padding> == sizeof...(T);
  static_assert(one_each,
                "dspp: a source needs padding for each span of its fill, but padding() gives another number. Give one "
                "number for each field.");
  if constexpr (one_each) [&]<std::size_t... I>(std::index_sequence<I...>) {
      const auto bytes = [](const auto& element) {
        const auto* const begin = reinterpret_cast<const std::byte*>(&element);
        return std::vector<std::byte>(begin, begin + sizeof element);
      };
      ((spans[I].padding = bytes(static_cast<T>(std::get<I>(padding)))), ...);
    }
  (std::index_sequence_for<T...>());
}

template <class S, class... T>
std::vector<SpanShape> spans_of(const S& source, const BatchSizes& sizes, std::type_identity<std::tuple<T...>>) {
  const auto shapes = shapes_of_source(source, sizes);
  constexpr bool one_each = std::tuple_size_v<std::remove_const_t<decltype(shapes)>> == sizeof...(T);
  static_assert(one_each,
                "dspp: a source needs a shape for each span of its fill, but shapes() gives another number. Give both "
                "one for each field.");
  std::vector<SpanShape> spans;
  if constexpr (one_each) [&]<std::size_t... I>(std::index_sequence<I...>) {
      (spans.push_back(span_shape(std::get<I>(shapes), element_type<T>)), ...);
    }
  (std::index_sequence_for<T...>());
  if constexpr (one_each && requires { source.padding(); }) add_padding<T...>(source.padding(), spans);
  return spans;
}

/// Batches of a source, of these sizes.
template <class B, class S>
data::SampleRows rows_of_source(const std::shared_ptr<const S>& source, const BatchSizes& sizes, SequenceSlice slice) {
  constexpr std::type_identity<typename SpansOf<decltype(&S::fill)>::types> types;
  data::SampleRows rows = layout_of<B>(spans_of(*source, sizes, types), sizes.micro_batch, slice);
  rows.fill = fill_of<S>(source, rows.fields, types);
  return rows;
}

/// The sample at a position of a source's own stream, or else of shuffled epochs.
template <class S>
Size chosen_sample(const S& source, std::uint64_t seed, Size position, Size samples) {
  if constexpr (requires { source.sample_at(seed, position); })
    return data::detail::check_chosen(static_cast<Size>(source.sample_at(seed, position)), samples, position);
  else
    return data::sample_at(seed, position, samples);
}

template <class S>
data::SampleRange::Source samples_of(const std::shared_ptr<const S>& source, const BatchSizes& sizes,
                                     [[maybe_unused]] std::uint64_t seed) {
  data::SampleRange::Source samples{.samples = size_of_source(*source, sizes)};
  if constexpr (requires { source->sample_at(seed, Size{}); }) {
    samples.order = [source, seed](Size position) { return static_cast<Size>(source->sample_at(seed, position)); };
  }
  if constexpr (requires { source->fingerprint(); })
    samples.fingerprint = static_cast<std::uint64_t>(source->fingerprint());
  return samples;
}

}  // namespace detail

template <class P, class Source>
requires SampleSource<std::remove_const_t<Source>>
auto batches(World<P>& world, std::shared_ptr<Source> source, const BatchSizes& sizes,
             const data::BatchConfig& config) {
  using S = std::remove_const_t<Source>;
  using B = typename S::template Batch<P>;
  static_assert(detail::check_source<S>());
  const std::shared_ptr<const S> owned = std::move(source);
  const data::BatchStream stream{sizes, config, {world.data_rank(), world.data_size()}};
  auto rows = detail::rows_of_source<B>(owned, sizes, sequence_slice(world));
  const data::SampleRange range(std::move(rows), detail::samples_of(owned, sizes, config.seed), stream);
  require_same_on_all_ranks(world.host(), "batches()", range.facts());
  data::detail::check_resumed(config, range);
  return detail::rank_batches<B, DeviceOf<P>>(
      range, world.memory(), [range](Size number, data::HostBatch& batch) { range.fill(number, batch); });
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::refuse_span(const char* field, int rank, ElementType element, const SpanShape& span) {
  fail(ErrorCode::usage, std::string("dspp: a source needs spans and shapes as the fields of its batch are, but '") +
                             field + "' has " + std::to_string(rank - 1) + " extents a sample and elements of " +
                             name_of(element) + ", and its span " + std::to_string(span.extents.size()) + " and " +
                             name_of(span.element) + ". Give both in the order of visit.");
}
DSPP_INLINE void detail::refuse_extent(const char* field, Size extent) {
  fail(ErrorCode::shape, std::string("dspp: a source needs extents of at least 1, but a sample of '") + field +
                             "' has one of " + std::to_string(extent) +
                             ". Leave the field out of visit, or change shapes().");
}
DSPP_INLINE void detail::refuse_more_spans(std::size_t spans, std::size_t fields) {
  fail(ErrorCode::usage, "dspp: a source needs a field of its batch for each span, but fill takes " +
                             std::to_string(spans) + " spans and the batch has " + std::to_string(fields) +
                             " fields. Leave out those without a field.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
