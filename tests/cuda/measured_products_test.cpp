// SPDX-License-Identifier: Apache-2.0
// The choice among algorithms of a product: by fakes; what the probe's operands tell, by kernels that add in several
// orders; and on a GPU, that a measured product has the bits of cuBLASLt's first algorithm.
// labels: cuda
#include <doctest/doctest.h>

#include <kernels/blas.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using gpu::MeasuredAlgorithm;
using gpu::MeasuredProducts;
using laws::DeviceArray;

namespace {

/// Algorithms that are known beforehand. bits: 0 fails.
struct Fakes {
  std::vector<std::uint64_t> bits;
  std::vector<std::vector<double>> times;  ///< of each round; none: it fails
  int runs = 0;                            ///< whose bits were asked for
  std::vector<int> order{};                ///< in which they were timed

  std::vector<MeasuredAlgorithm> measure(MeasuredProducts how = MeasuredProducts::yes) {
    std::vector<std::size_t> rounds(bits.size());
    return gpu::measure_algorithms(
        static_cast<int>(bits.size()),
        [&](int i) {
          ++runs;
          const std::uint64_t own = bits[static_cast<std::size_t>(i)];
          return own == 0 ? std::nullopt : std::optional(own);
        },
        [&](int i) -> std::optional<double> {
          order.push_back(i);
          const auto at = static_cast<std::size_t>(i);
          if (rounds[at] == times[at].size()) return std::nullopt;
          return times[at][rounds[at]++];
        },
        how);
  }
  int fastest() { return gpu::fastest_of(measure()); }
};

std::vector<double> always(double microseconds) {
  return {microseconds, microseconds, microseconds};
}

/// Sums in f32 over p in an order, which cuBLASLt's algorithms may have.
enum class Order { ascending, descending, halves, quarters, sixteens };
constexpr Order orders[] = {Order::ascending, Order::descending, Order::halves, Order::quarters, Order::sixteens};

template <class T, class R>
struct OrderedProduct {
  gpu::BlasProduct p;
  Order order;
  const T *first, *second;
  const R* bias;
  R *result, *before;

  __device__ void operator()(Size index) const {
    const Size i = index % p.rows, j = index / p.rows % p.columns, b = index / p.rows / p.columns;
    const Size parts = order == Order::halves ? 2 : order == Order::quarters ? 4 : 1;
    const Size step = order == Order::sixteens ? 16 : 1;
    float sum = 0;
    for (Size part = 0; part < parts; ++part) {
      float of_part = 0;
      for (Size at = part * p.depth / parts; at < (part + 1) * p.depth / parts; at += step) {
        float of_step = 0;
        for (Size k = at; k < at + step && k < p.depth; ++k)
          of_step += term(i, j, b, order == Order::descending ? p.depth - 1 - k : k);
        of_part += of_step;
      }
      sum += of_part;
    }
    const Size place = b * p.stride_result + j * p.ld_result + i;
    if (bias != nullptr) sum += gpu::to_float(bias[i]);
    if (p.accumulates) sum += gpu::to_float(result[place]);
    if (before != nullptr) before[place] = gpu::from_float<R>(sum);
    result[place] = gpu::from_float<R>(before != nullptr ? sum * 0.5f : sum);
  }

 private:
  __device__ float term(Size i, Size j, Size b, Size k) const {
    const Size of_first = p.transposes_first ? i * p.ld_first + k : k * p.ld_first + i,
               of_second = p.transposes_second ? k * p.ld_second + j : j * p.ld_second + k;
    return gpu::to_float(first[b * p.stride_first + of_first]) * gpu::to_float(second[b * p.stride_second + of_second]);
  }
};

/// Real operands that a probe must not touch: addresses that are no memory.
template <class R>
gpu::BlasOperands untouchable(bool has_bias, bool has_before) {
  const auto nowhere = [](std::uintptr_t at) { return reinterpret_cast<void*>(at); };
  gpu::BlasOperands at;
  at.first = nowhere(0x100), at.second = nowhere(0x200), at.result = nowhere(0x300);
  if (has_bias) at.bias = nowhere(0x400);
  if (has_before) at.before = nowhere(0x500);
  return at;
}

/// The part of the elements in even rows and even columns, which are the rounding of sums alone, that differ.
template <class R>
double differing(const gpu::BlasProduct& p, const std::vector<R>& x, const std::vector<R>& y) {
  Size count = 0, all = 0;
  for (Size column = 0; column < p.batch * p.stride_result / p.ld_result; ++column)
    for (Size row = 0; row < p.rows; row += 2) {
      if (column % p.columns % 2 == 1) continue;
      const auto place = static_cast<std::size_t>(column * p.ld_result + row);
      ++all;
      count += std::memcmp(&x[place], &y[place], sizeof(R)) != 0;
    }
  return static_cast<double>(count) / static_cast<double>(all);
}

template <class T, class R>
void check_orders(const gpu::BlasProduct& p, bool has_before) {
  const gpu::Work work{"test"};
  const laws::TestStream stream;
  gpu::ProductProbe probe(work, stream, p, untouchable<R>(p.has_bias, has_before));
  REQUIRE(static_cast<bool>(probe));
  const auto& at = probe.operands();
  const auto bits_of = [&](Order order, Size left_out = 0, void* changed = nullptr) {
    return probe.bits_of([&] {
      const OrderedProduct<T, R> product{p,
                                         order,
                                         static_cast<const T*>(at.first),
                                         static_cast<const T*>(at.second),
                                         static_cast<const R*>(at.bias),
                                         static_cast<R*>(at.result),
                                         static_cast<R*>(at.before)};
      gpu::launch_each(work, stream, p.batch * p.rows * p.columns - left_out, product);
      if (changed != nullptr) laws::check_cuda(cudaMemsetAsync(changed, 1, sizeof(R), stream));
      return true;
    });
  };
  INFO(laws::describe("depth", p.depth, "transposes", p.transposes_first, "and", p.transposes_second, "adds",
                      p.accumulates, "bias", p.has_bias, "before", has_before, "to bytes", sizeof(R)));
  std::vector<std::optional<std::uint64_t>> seen;
  std::vector<std::vector<R>> results;
  for (const Order order : orders) {
    const auto bits = bits_of(order);
    REQUIRE(bits.has_value());
    CHECK(bits == bits_of(order));
    CHECK(std::count(seen.begin(), seen.end(), bits) == 0);
    seen.push_back(bits);
    results.emplace_back(static_cast<std::size_t>(p.batch * p.stride_result));
    laws::check_cuda(cudaMemcpyAsync(results.back().data(), at.result, results.back().size() * sizeof(R),
                                     cudaMemcpyDeviceToHost, stream));
    laws::check_cuda(cudaStreamSynchronize(stream));
    for (std::size_t other = 0; other + 1 < results.size(); ++other)
      CHECK(differing(p, results[other], results.back()) > 0.5);
  }
  CHECK(bits_of(Order::ascending, p.rows) != seen[0]);  // the last column was not written, though once it had been
  CHECK(bits_of(Order::ascending, 0, at.result) != seen[0]);
  if (has_before) CHECK(bits_of(Order::ascending, 0, at.before) != seen[0]);
  CHECK(!probe.bits_of([] { return false; }).has_value());
}

template <class T, class R>
void check_orders() {
  for (int i = 0; i < 16; ++i) {
    kernels::Product p{.m = 7, .n = 6, .k = 97 + i};
    p.ta = i % 2 ? Transpose::yes : Transpose::no, p.tb = i % 4 > 1 ? Transpose::yes : Transpose::no;
    p.lda = (i % 2 ? p.m : p.k) + 1, p.ldb = (i % 4 > 1 ? p.k : p.n) + i % 3, p.ldc = p.n + 2;
    auto of = gpu::blas_product(p, 1 + i % 2, element_type<T>, element_type<R>);
    of.accumulates = i % 3 == 1, of.has_bias = i % 3 == 2;
    check_orders<T, R>(of, i >= 8 && of.has_bias);
  }
}

}  // namespace

TEST_CASE("the fastest algorithm is taken of those with the bits of the first") {
  CHECK(Fakes{{7, 7, 7}, {always(9), always(5), always(6)}}.fastest() == 1);
  CHECK(Fakes{{7, 7, 7}, {always(5), always(9), always(6)}}.fastest() == 0);
  CHECK(Fakes{{7, 8, 7}, {always(9), always(1), always(6)}}.fastest() == 2);  // other bits
  CHECK(Fakes{{7, 8, 9}, {always(9), always(1), always(1)}}.fastest() == 0);
  CHECK(Fakes{{7}, {always(9)}}.fastest() == 0);
  CHECK(Fakes{}.fastest() == 0);
}

TEST_CASE("algorithms that fail are passed over, and without the first none other is taken") {
  CHECK(Fakes{{7, 0, 7}, {always(9), always(1), always(6)}}.fastest() == 2);
  CHECK(Fakes{{7, 7, 7}, {always(9), {1, 1}, always(6)}}.fastest() == 2);  // it fails when it is timed
  CHECK(Fakes{{7, 7}, {{}, always(1)}}.fastest() == 0);
  CHECK(Fakes{{7, 7}, {{5, 5}, always(1)}}.fastest() == 0);
  Fakes first_fails{{0, 0, 7}, {always(9), always(1), always(1)}};
  CHECK(first_fails.fastest() == 0);
  CHECK(first_fails.order.empty());
  CHECK(first_fails.runs == 1);
}

TEST_CASE("the least time of an algorithm counts, and the first is taken unless another needs 1 % less") {
  Fakes noisy{{7, 7}, {{90, 100, 95}, {300, 120, 80}}};
  const auto found = noisy.measure();
  CHECK(found[0].microseconds == 90);
  CHECK(found[1].microseconds == 80);
  CHECK(gpu::fastest_of(found) == 1);
  CHECK(noisy.order == std::vector<int>{0, 1, 0, 1, 0, 1});
  CHECK(Fakes{{7, 7}, {always(100), always(99.1)}}.fastest() == 0);
  CHECK(Fakes{{7, 7}, {always(100), always(98.9)}}.fastest() == 1);
  CHECK(Fakes{{7, 7, 7, 7}, {always(100), always(90), always(90), always(89)}}.fastest() == 3);
  CHECK(Fakes{{7, 7, 7}, {always(100), always(90), always(90)}}.fastest() == 1);
}

TEST_CASE("without a choice nothing is timed") {
  Fakes other_bits{{7, 8, 0}, {always(9), always(1), always(1)}};
  CHECK(other_bits.fastest() == 0);
  CHECK(other_bits.order.empty());
}

TEST_CASE("what has other bits is timed to be printed, and not taken") {
  Fakes all{{7, 8, 0}, {always(9), always(1), always(1)}};
  const auto found = all.measure(MeasuredProducts::print);
  CHECK(gpu::fastest_of(found) == 0);
  CHECK(gpu::text_of(found, 0) == "9.0 us (taken), other bits in 1.0 us, failed");
}

TEST_CASE("the line of a measured product says what was found of each algorithm") {
  std::vector<MeasuredAlgorithm> found(4);
  found[0] = {true, true, 172.34};
  found[1] = {true, true, 164.97};
  found[2].runs = true;
  CHECK(gpu::text_of(found, 1) == "172.3 us, 165.0 us (taken), other bits, failed");
  CHECK(gpu::text_of({}, 0).empty());
}

TEST_CASE("DSPP_CUDA_MEASURED_PRODUCTS is 0, print, or anything else") {
  CHECK(gpu::measured_products_of(nullptr) == MeasuredProducts::yes);
  CHECK(gpu::measured_products_of("") == MeasuredProducts::yes);
  CHECK(gpu::measured_products_of("1") == MeasuredProducts::yes);
  CHECK(gpu::measured_products_of("0") == MeasuredProducts::no);
  CHECK(gpu::measured_products_of("print") == MeasuredProducts::print);
}

TEST_CASE("products from 2^32 floating-point operations on are measured") {
  gpu::BlasProduct p{.rows = 1 << 10, .columns = 1 << 10, .depth = 1 << 10, .batch = 2};
  CHECK(gpu::is_worth_measuring(p));
  p.batch = 1;
  CHECK(!gpu::is_worth_measuring(p));
  p.rows = p.columns = p.depth = Size{1} << 40;  // no integer counts them
  CHECK(gpu::is_worth_measuring(p));
}

TEST_CASE("the bits of a probe tell the order of the sums, in few elements of any type and layout") {
  check_orders<float, float>();
  check_orders<bf16, bf16>();
  check_orders<bf16, float>();
  check_orders<f16, f16>();
  check_orders<f16, float>();
}

TEST_CASE("an EventTimer times the second of two runs, and nothing if one fails") {
  const gpu::Work work{"test"};
  const laws::TestStream stream;
  const DeviceArray<float> x(1000);
  gpu::EventTimer timer(work);
  int runs = 0, most = 2;
  const auto run = [&] {
    laws::check_cuda(cudaMemsetAsync(x, 0, 4000, stream));
    return ++runs <= most;
  };
  const auto time = timer.time_of(stream, run);
  REQUIRE(time.has_value());
  CHECK(*time > 0);
  CHECK(*time < 1e6);
  CHECK(runs == 2);
  most = 3;  // the next run is the last that does not fail
  CHECK(!timer.time_of(stream, run).has_value());
  CHECK(runs == 4);
  CHECK(!timer.time_of(stream, run).has_value());
  CHECK(runs == 5);
}

#if DSPP_HAS_NVCC()

namespace {

template <class T, class R>
void check_measured(kernels::Product p, Write write, bool has_bias) {
  p.lda = p.ta == Transpose::yes ? p.m : p.k, p.ldb = p.tb == Transpose::yes ? p.k : p.n, p.ldc = p.n;
  std::mt19937 random(21);
  const laws::TestStream stream;
  const DeviceArray<T> a(laws::normals<T>(p.m * p.k, random)), b(laws::normals<T>(p.k * p.n, random));
  const DeviceArray<R> bias(laws::normals<R>(p.n, random));
  const auto before = laws::normals<R>(p.m * p.n, random);
  const Size bytes = gpu::product_workspace(p.m, p.n);
  const DeviceArray<std::uint8_t> workspace(bytes, laws::to_256);
  const auto product = [&](MeasuredProducts measured) {
    gpu::Blas blas({}, measured);
    const DeviceArray<R> c(before);
    for (int i = 0; i < 2; ++i)  // measured at the first, taken at both
      gpu::blas_matmul<T, R>(blas, stream, 1, p, a, b, c, write, has_bias ? bias.data() : nullptr,
                             {workspace.data(), bytes});
    return c.read(stream);
  };
  const auto is_same = [](const R& x, const R& y) { return std::memcmp(&x, &y, sizeof x) == 0; };
  const auto first = product(MeasuredProducts::no), measured = product(MeasuredProducts::print);
  CHECK(std::equal(first.begin(), first.end(), measured.begin(), is_same));
}

}  // namespace

TEST_CASE("a measured product has the bits of cuBLASLt's first algorithm") {
  const auto no = Transpose::no, yes = Transpose::yes;
  check_measured<bf16, bf16>({.m = 4096, .n = 2304, .k = 768}, Write::overwrite, true);
  check_measured<bf16, bf16>({.m = 4096, .n = 768, .k = 2304, .tb = yes}, Write::overwrite, false);
  check_measured<bf16, float>({.m = 768, .n = 2304, .k = 4096, .ta = yes}, Write::accumulate, false);
  check_measured<f16, f16>({.m = 1000, .n = 3000, .k = 1000, .ta = no, .tb = no}, Write::accumulate, false);
  check_measured<float, float>({.m = 1024, .n = 2048, .k = 1024}, Write::overwrite, true);
}

TEST_CASE("a measured product with gelu's derivative has the bits of cuBLASLt's first algorithm") {
  std::mt19937 random(23);
  const laws::TestStream stream;
  const kernels::Product p{.m = 4096, .n = 3072, .k = 768, .lda = 768, .ldb = 3072, .ldc = 3072};
  const DeviceArray<bf16> a(laws::normals<bf16>(p.m * p.k, random)), b(laws::normals<bf16>(p.k * p.n, random, 0.04)),
      before(laws::normals<bf16>(p.m * p.n, random));
  const Size bytes = gpu::product_workspace(p.m, p.n);
  const DeviceArray<std::uint8_t> workspace(bytes, laws::to_256);
  const auto product = [&](MeasuredProducts measured) {
    gpu::Blas blas({}, measured);
    const DeviceArray<bf16> c(p.m * p.n);
    CHECK(gpu::blas_matmul_gelu_vjp<bf16>(blas, stream, p, a, b, before, c, {workspace.data(), bytes}));
    return c.read(stream);
  };
  CHECK(laws::in_f64(product(MeasuredProducts::no)) == laws::in_f64(product(MeasuredProducts::print)));
}

TEST_CASE("a measured product with gelu has the bits of cuBLASLt's first algorithm, both of its results") {
  std::mt19937 random(22);
  const laws::TestStream stream;
  const kernels::Product p{.m = 4096, .n = 3072, .k = 768, .lda = 768, .ldb = 3072, .ldc = 3072};
  const DeviceArray<bf16> a(laws::normals<bf16>(p.m * p.k, random)), b(laws::normals<bf16>(p.k * p.n, random, 0.04)),
      bias(laws::normals<bf16>(p.n, random));
  const Size bytes = gpu::product_workspace(p.m, p.n);
  const DeviceArray<std::uint8_t> workspace(bytes, laws::to_256);
  const auto product = [&](MeasuredProducts measured) {
    gpu::Blas blas({}, measured);
    const DeviceArray<bf16> before(p.m * p.n), c(p.m * p.n);
    CHECK(gpu::blas_matmul_gelu<bf16>(blas, stream, p, a, b, before, c, bias, {workspace.data(), bytes}));
    return std::pair{before.read(stream), c.read(stream)};
  };
  const auto first = product(MeasuredProducts::no), measured = product(MeasuredProducts::print);
  const auto is_same = [](bf16 x, bf16 y) { return x.bits == y.bits; };
  CHECK(std::equal(first.first.begin(), first.first.end(), measured.first.begin(), is_same));
  CHECK(std::equal(first.second.begin(), first.second.end(), measured.second.begin(), is_same));
}

#else

TEST_CASE("a probe takes at most half of the memory that is free, and else none") {
  const laws::TestStream stream;
  const auto p = gpu::blas_product({.m = 64, .n = 64, .k = 64, .lda = 64, .ldb = 64, .ldc = 64}, 1, ElementType::f32,
                                   ElementType::f32);
  const Size bytes = 3 * 64 * 64 * 4 + 8 * 1024 + 256;
  const auto is_had = [&](Size free) {
    software_gpu::limit_memory(static_cast<std::size_t>(free));
    const gpu::ProductProbe probe(gpu::Work{"test"}, stream, p, untouchable<float>(false, false));
    software_gpu::limit_memory(std::numeric_limits<std::size_t>::max());
    return static_cast<bool>(probe);
  };
  CHECK(is_had(2 * bytes));
  CHECK(!is_had(2 * bytes - 1));
  CHECK(!is_had(0));
  CHECK(cudaGetLastError() == cudaSuccess);
  software_gpu::fail_call(2);  // the allocation itself
  const gpu::ProductProbe probe(gpu::Work{"test"}, stream, p, untouchable<float>(false, false));
  software_gpu::fail_call(0);
  CHECK(!probe);
}

#endif
