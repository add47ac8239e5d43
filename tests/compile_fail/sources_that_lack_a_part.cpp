// SPDX-License-Identifier: Apache-2.0
/// Sources without the members that batches, and buckets of lengths, ask for.
// expected-error {{dspp: a source needs a const member size(), its number of samples, but this one has none.}}
// expected-error {{dspp: a source needs a const member shapes(), those of the fields of one sample, but this one}}
// expected-error {{dspp: a source needs one const member fill(Size sample, std::span<T>...)}}
// expected-error {{dspp: a source needs a shape for each span of its fill, but shapes() gives another number.}}
// expected-error {{dspp: a source needs padding for each span of its fill, but padding() gives another number.}}
// expected-error {{dspp: buckets need a source with a const member length(Size sample)}}
// expected-error {{dspp: buckets need a source with a const member padding()}}
// expected-error {{dspp: buckets need a source whose member shapes takes the sizes, of which the sequence}}
// expected-error {{dspp: buckets choose the order of samples, but this source has an own one. Leave out sample_at.}}
#include <dspp/engine/bucket_batches.hpp>

using namespace dspp;

#ifdef DSPP_TWIN
constexpr bool lacks = false;
#else
constexpr bool lacks = true;
#endif

/// A source of numbers without the part `Lacks` says; 0: it has all.
template <int Lacks>
struct Numbers {
  template <class P>
  struct Batch {
    Input<P, float, 2> numbers;
    constexpr void visit(auto&& f) { f("numbers", numbers); }
  };
  Size size() const requires(Lacks != 1) { return 3; }
  auto shapes() const requires(Lacks != 2 && Lacks != 4) { return std::tuple(shape(2)); }
  auto shapes() const requires(Lacks == 4) { return std::tuple(shape(2), shape(2)); }
  auto shapes(const BatchSizes&) const requires(Lacks == 0 || (Lacks > 5 && Lacks != 9)) {
    return std::tuple(shape(2));
  }
  auto padding() const requires(Lacks != 5 && Lacks != 7) { return std::tuple(0); }
  auto padding() const requires(Lacks == 5) { return std::tuple(0, 1); }
  Size length(Size) const requires(Lacks != 6) { return 2; }
  Size sample_at(std::uint64_t, Size) const requires(Lacks == 8) { return 0; }
  void fill(Size sample, std::span<float> numbers) const { numbers[0] = static_cast<float>(sample); }
};
struct Unfilled {
  template <class P>
  using Batch = Numbers<0>::Batch<P>;
  Size size() const { return 3; }
  auto shapes() const { return std::tuple(shape(2)); }
};

template <int Lacks>
using Lacking = Numbers<lacks ? Lacks : 0>;

using P = Policy<>;
auto without_size(World<P>& world) { return batches(world, Lacking<1>(), BatchSizes{}); }
auto without_shapes(World<P>& world) { return batches(world, Lacking<2>(), BatchSizes{}); }
auto without_fill(World<P>& world) {
  return batches(world, std::conditional_t<lacks, Unfilled, Numbers<0>>(), BatchSizes{});
}
auto another_number_of_shapes(World<P>& world) { return batches(world, Lacking<4>(), BatchSizes{}); }
auto another_number_of_paddings(World<P>& world) { return batches(world, Lacking<5>(), BatchSizes{}); }
auto buckets_without_length() { return bucket_plan(Lacking<6>(), {}); }
auto buckets_without_padding() { return bucket_plan(Lacking<7>(), {}); }
auto buckets_without_sizes() { return bucket_plan(Lacking<9>(), {}); }
auto buckets_with_an_own_order() { return bucket_plan(Lacking<8>(), {}); }
