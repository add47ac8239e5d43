// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/cross_entropy.hpp>
#include <kernels/cross_entropy.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

struct Case {
  Size rows, columns, valid, offset;
  double smoothing;
  bool weights;
};

struct Expected {
  std::vector<double> gradient;
  std::vector<double> lse;
  double loss = 0, counted = 0;
};

/// Where cross_entropy writes beside the logits.
struct Results {
  explicit Results(Size rows) : parts(3 * rows), lse(rows), loss(1), counted(1) {}
  operator gpu::LossResult() const { return {parts, lse, loss, counted}; }

  DeviceArray<float> parts, lse, loss;
  DeviceArray<double> counted;
};

/// The Cpu's kernels in f64.
Expected on_cpu(const Case& at, const std::vector<double>& logits, const std::vector<std::int32_t>& targets,
                const float* weights, const TargetProbabilities& wanted, double dloss) {
  std::vector<double> parts(3 * at.rows);
  Expected e;
  e.lse.resize(at.rows);
  e.gradient.resize(logits.size());
  Kernel<kernels::CrossEntropyParts<double>, Cpu>::run(at.rows, at.columns, logits.data(), targets.data(), 0, at.valid,
                                                       parts.data(), wanted);
  Kernel<kernels::CrossEntropyCombine<double>, Cpu>::run(1, at.rows, parts.data(), targets.data(), weights,
                                                         e.lse.data(), &e.loss, &e.counted);
  Kernel<kernels::CrossEntropyVjp<double>, Cpu>::run(at.rows, at.columns, e.gradient.data(), logits.data(),
                                                     targets.data(), weights, e.lse.data(), 0, at.valid, &dloss,
                                                     &e.counted, wanted);
  return e;
}

template <class T>
void check_case(const Case& at, std::mt19937& random) {
  const std::string what = laws::describe("rows", at.rows, "columns", at.columns, "valid", at.valid, "offset",
                                          at.offset, "smoothing", at.smoothing);
  const auto logits = laws::normals<T>(at.rows * at.columns, random, 4.0);
  std::vector<std::int32_t> targets(at.rows);
  std::vector<float> weights(at.rows);
  for (Size i = 0; i < at.rows; ++i) {
    targets[i] = random() % 4 == 0 ? ignored_target : static_cast<std::int32_t>(random() % at.valid);
    weights[i] = static_cast<float>(random() % 8) / 4;
  }
  const TargetProbabilities wanted{1 - at.smoothing, at.smoothing / static_cast<double>(at.valid)};
  const float dloss = 128;
  const Expected e = on_cpu(at, laws::in_f64(logits), targets, at.weights ? weights.data() : nullptr, wanted,
                            static_cast<double>(dloss));

  const laws::TestStream stream;
  const DeviceArray<T> d_logits(logits, at.offset);
  const DeviceArray<std::int32_t> d_targets(targets);
  const DeviceArray<float> d_weights(weights);
  const Results to(at.rows);
  gpu::cross_entropy<T>(stream, at.rows, at.columns, d_logits,
                        {d_targets, at.weights ? d_weights.data() : nullptr, at.valid, wanted, dloss}, to);
  CHECK(laws::difference(to.counted.read(stream)[0], e.counted) <= 1e-9 * e.counted);
  CHECK(laws::close(static_cast<double>(to.loss.read(stream)[0]), e.loss, 2e-6));
  const auto lse = to.lse.read(stream);
  for (Size i = 0; i < at.rows; ++i)
    if (targets[i] != ignored_target && (!at.weights || weights[i] != 0)) CHECK(laws::close(lse[i], e.lse[i], 2e-6));
  laws::check_elements(d_logits.read(stream), e.gradient, 32, what);
}

template <class T>
void check_cases() {
  std::mt19937 random(12);
  for (const Case& at : {Case{0, 10, 10, 0, 0, false},
                         {1, 1, 1, 0, 0, false},
                         {5, 8, 8, 0, 0, false},
                         {40, 3, 3, 1, 0, false},  // within a pack
                         {9, 5, 2, 2, 0.1, true},
                         {6, 50257, 50257, 0, 0, false},
                         {3, 50304, 50257, 0, 0.1, true},
                         {4, 70001, 66000, 1, 0, true}})
    check_case<T>(at, random);
  for (int i = 0; i < 8; ++i) {
    const Size columns = laws::odd_extent(5000, random),
               valid = columns - static_cast<Size>(random() % (columns / 2 + 1));
    check_case<T>({laws::odd_extent(12, random), columns, valid, i % 3, i % 2 ? 0.2 : 0, i % 4 == 0}, random);
  }
}

}  // namespace

TEST_CASE("gpu::cross_entropy and its gradient in place agree with f64 on the Cpu, f32") {
  check_cases<float>();
}
TEST_CASE("gpu::cross_entropy and its gradient in place agree with f64 on the Cpu, bf16") {
  check_cases<bf16>();
}
TEST_CASE("gpu::cross_entropy and its gradient in place agree with f64 on the Cpu, f16") {
  check_cases<f16>();
}

TEST_CASE("gpu::cross_entropy takes minus infinity for a class that cannot be, and keeps NaN") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Size columns = 40;
  std::vector<float> logits(3 * columns, 1.0f);
  for (Size j = 0; j < 32; ++j) logits[j] = -infinity;  // the first packs of a thread are nothing but that
  logits[2 * columns + 5] = nan;
  const laws::TestStream stream;
  const DeviceArray<float> d_logits(logits);
  const DeviceArray<std::int32_t> targets(std::vector<std::int32_t>{35, 0, 1});
  const Results to(3);
  gpu::cross_entropy<float>(stream, 3, columns, d_logits, {targets, nullptr, columns}, to);
  const auto parts = to.parts.read(stream), lse = to.lse.read(stream), gradient = d_logits.read(stream);
  CHECK(laws::close(lse[0] - parts[2], std::log(8.0), 1e-6));
  CHECK(laws::close(lse[1] - parts[5], std::log(40.0), 1e-6));
  CHECK(std::isnan(lse[2]));
  CHECK(std::isnan(to.loss.read(stream)[0]));
  for (Size j = 0; j < columns; ++j) {
    CHECK(laws::close(gradient[j], (j < 32 ? 0 : 0.125 - (j == 35)) / 3.0, 1e-6));
    CHECK(std::isnan(gradient[2 * columns + j]));
  }
}

TEST_CASE("gpu::cross_entropy of a target that is no class is NaN in that row, and reads nothing beside it") {
  std::mt19937 random(13);
  const Size columns = 1001, valid = 999;
  const laws::TestStream stream;
  for (const std::int32_t wrong : {static_cast<std::int32_t>(valid), static_cast<std::int32_t>(columns), 1 << 30, -1}) {
    const DeviceArray<bf16> logits(laws::normals<bf16>(3 * columns, random));
    const DeviceArray<std::int32_t> targets(std::vector<std::int32_t>{0, wrong, 1});
    const Results to(3);
    gpu::cross_entropy<bf16>(stream, 3, columns, logits, {targets, nullptr, valid}, to);
    const auto parts = to.parts.read(stream);
    const auto gradient = laws::in_f64(logits.read(stream));
    CHECK(std::isnan(to.loss.read(stream)[0]));
    for (Size i = 0; i < 3; ++i) {
      CHECK(std::isnan(parts[3 * i + 2]) == (i == 1));
      for (Size j = 0; j < columns; ++j) CHECK(std::isnan(gradient[i * columns + j]) == (i == 1 && j < valid));
    }
  }
}

namespace {

template <class T>
std::vector<std::uint32_t> bits_of(const std::vector<T>& x) {
  std::vector<std::uint32_t> bits;
  for (const T& value : x)
    bits.push_back(bits_as<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>(value));
  return bits;
}

/// The weights of rows: none; 1; unequal ones, one of them 0, whose sum is the number of rows; any.
enum class Weights { none, ones, of_sum_rows, any };

std::vector<float> weights_of(Weights weights, Size rows) {
  std::vector<float> values;
  for (Size i = 0; i < rows && weights != Weights::none; ++i) {
    const bool of_pair = i < rows / 2 * 2;  // whose weights sum up to 2
    if (weights == Weights::ones || (weights == Weights::of_sum_rows && !of_pair))
      values.push_back(1);
    else if (weights == Weights::of_sum_rows)
      values.push_back(i < 2 ? 2 * static_cast<float>(i) : 0.75f + 0.5f * static_cast<float>(i % 2));
    else
      values.push_back(0.3f * static_cast<float>(i % 5));
  }
  return values;
}

/// Rows of which some may not count, and what the three kernels of cross_entropy_parts give of them.
template <class T>
struct Rows {
  Size rows, columns, valid;
  TargetProbabilities wanted;
  std::vector<T> logits, gradient;
  std::vector<float> parts;
  DeviceArray<std::int32_t> targets;
  std::vector<float> weights;
  DeviceArray<float> device_weights;
  bool all_count;        ///< or have that sum
  DeviceArray<T> array;  ///< of all: what a thread sums depends on addresses

  Rows(Size rows, Size columns, Size valid, const TargetProbabilities& wanted, bool ignores, Weights weighted,
       float dloss, std::mt19937& random)
      : rows(rows),
        columns(columns),
        valid(valid),
        wanted(wanted),
        logits(laws::normals<T>(rows * columns, random, 3.0)),
        targets([&] {
          std::vector<std::int32_t> values(rows);
          for (auto& target : values) target = static_cast<std::int32_t>(random() % valid);
          if (ignores) values[rows / 2] = ignored_target;
          return values;
        }()),
        weights(weights_of(weighted, rows)),
        device_weights(weights),
        all_count(!ignores && weighted != Weights::any),
        array(logits) {
    const laws::TestStream stream;
    const DeviceArray<float> seed(std::vector<float>{dloss});
    const Results to(rows);
    const gpu::OwnColumns own{columns, 0, valid};
    gpu::cross_entropy_parts<T>(stream, rows, own, array, targets, wanted, to.parts);
    gpu::cross_entropy_combine(stream, 1, rows, to.parts, targets, weights_or_null(), to.lse, to.loss, to.counted);
    gpu::cross_entropy_gradient<T>(stream, rows, own, array, array, targets, weights_or_null(), to.lse, wanted, seed,
                                   to.counted);
    CHECK((to.counted.read(stream)[0] == static_cast<double>(rows)) == all_count);
    parts = to.parts.read(stream);
    gradient = array.read(stream);
    laws::check_cuda(cudaMemcpyAsync(array, logits.data(), logits.size() * sizeof(T), cudaMemcpyHostToDevice, stream));
    laws::check_cuda(cudaStreamSynchronize(stream));
  }
  const float* weights_or_null() const { return weights.empty() ? nullptr : device_weights.data(); }
  gpu::LossArguments arguments(float dloss, bool if_all_count) const {
    return {targets, weights_or_null(), valid, wanted, dloss, if_all_count};
  }
};

/// Which begin at each place of a line of 128 bytes, where columns are odd.
template <class T>
void check_bits(Size rows, Size columns, Size valid, double smoothing, Weights weighted, std::mt19937& random) {
  INFO(laws::describe("rows", rows, "columns", columns, "valid", valid, "weights", static_cast<int>(weighted)));
  const float dloss = 0.7f;
  const laws::TestStream stream;
  const TargetProbabilities wanted{1 - smoothing, smoothing / static_cast<double>(valid)};
  for (const bool ignores : {false, true}) {
    const Rows<T> of(rows, columns, valid, wanted, ignores, weighted, dloss, random);
    const DeviceArray<T>& logits = of.array;
    const DeviceArray<float> seed(std::vector<float>{dloss});
    const Results to(rows);
    gpu::cross_entropy<T>(stream, rows, columns, logits, of.arguments(dloss, true), to);
    // The pass leaves the logits where not all rows count.
    CHECK(bits_of(logits.read(stream)) == bits_of(of.all_count ? of.gradient : of.logits));
    if (!ignores && (weighted == Weights::none || weighted == Weights::ones))
      CHECK(bits_of(to.parts.read(stream)) == bits_of(of.parts));
    gpu::cross_entropy_finish<T>(stream, rows, columns, logits, of.arguments(dloss, true), to.lse, seed, to.counted);
    CHECK(bits_of(logits.read(stream)) == bits_of(of.gradient));
  }
}

template <class T>
void check_finish(Size rows, Size columns, Size valid, Weights weighted, std::mt19937& random) {
  const laws::TestStream stream;
  for (const float dloss : {0.5f, 3.0f, std::numeric_limits<float>::quiet_NaN()}) {
    const Rows<T> of(rows, columns, valid, {}, false, weighted, std::isnan(dloss) ? 1.0f : dloss, random);
    const DeviceArray<T>& logits = of.array;
    const DeviceArray<float> seed(std::vector<float>{dloss});
    const Results to(rows);
    gpu::cross_entropy<T>(stream, rows, columns, logits, of.arguments(1024, true), to);
    gpu::cross_entropy_finish<T>(stream, rows, columns, logits, of.arguments(1024, true), to.lse, seed, to.counted);
    const auto got = logits.read(stream);
    if (!std::isnan(dloss)) {                                                                     // rounded once more
      const double terms = 4 * 0x1p-24 * static_cast<double>(dloss) / static_cast<double>(rows);  // p - 1 cancels
      laws::Worst worst;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double expected = static_cast<double>(of.gradient[i]);
        worst.add(laws::difference(got[i], expected) /
                  (2.1 * laws::rounding_of<T> * std::abs(expected) + (std::is_same_v<T, f16> ? 0x1p-24 : 0) + terms));
      }
      CHECK(worst.value() <= 1);
      continue;
    }
    for (Size i = 0; i < rows; ++i)
      for (Size j = 0; j < columns; ++j) {
        const double is = static_cast<double>(got[i * columns + j]);
        CHECK((j < valid ? std::isnan(is) : is == 0));
      }
  }
}

}  // namespace

TEST_CASE("gpu::cross_entropy in one pass has the bits of its parts and of the gradient of these, at every alignment") {
  std::mt19937 random(14);
  check_bits<bf16>(70, 1033, 1033, 0, Weights::none, random);
  check_bits<bf16>(9, 8192, 8192, 0.1, Weights::none, random);
  check_bits<bf16>(9, 8203, 8193, 0.1, Weights::none, random);
  check_bits<bf16>(6, 50257, 50257, 0, Weights::none, random);
  check_bits<f16>(70, 333, 330, 0.1, Weights::none, random);
  check_bits<float>(40, 1025, 1025, 0, Weights::none, random);
}

TEST_CASE("gpu::cross_entropy in one pass has the same bits of rows with weights, which must sum up to the rows") {
  std::mt19937 random(18);
  for (const Weights weighted : {Weights::ones, Weights::of_sum_rows, Weights::any}) {
    check_bits<bf16>(23, 1033, 1030, 0, weighted, random);
    check_bits<bf16>(6, 8203, 8193, 0.1, weighted, random);
    check_bits<f16>(23, 333, 330, 0.1, weighted, random);
    check_bits<float>(12, 1025, 1025, 0, weighted, random);
  }
}

TEST_CASE("gpu::cross_entropy_finish multiplies a gradient of another dloss, and makes it NaN by NaN") {
  std::mt19937 random(15);
  for (const Weights weighted : {Weights::none, Weights::ones, Weights::of_sum_rows}) {
    check_finish<bf16>(9, 1033, 1030, weighted, random);
    check_finish<f16>(5, 200, 200, weighted, random);
    check_finish<float>(7, 77, 70, weighted, random);
  }
}

TEST_CASE("gpu::cross_entropy has the same bits in every run where every second row of a block does not count") {
  std::mt19937 random(17);
  const Size rows = 96, columns = 300;
  const laws::TestStream stream;
  const auto logits = laws::normals<float>(rows * columns, random, 3.0);
  std::vector<std::int32_t> targets(rows);
  for (Size i = 0; i < rows; ++i) targets[i] = i / 16 % 2 == 1 || random() % 8 == 0 ? ignored_target : 7;
  const DeviceArray<std::int32_t> d_targets(targets);
  const DeviceArray<float> d_logits(rows * columns);
  std::vector<std::uint32_t> first;
  for (int run = 0; run < 20; ++run) {
    laws::check_cuda(
        cudaMemcpyAsync(d_logits, logits.data(), logits.size() * sizeof(float), cudaMemcpyHostToDevice, stream));
    const Results to(rows);
    gpu::cross_entropy<float>(stream, rows, columns, d_logits, {d_targets, nullptr, columns}, to);
    const auto bits = bits_of(to.parts.read(stream));
    if (run == 0) first = bits;
    CHECK(bits == first);
  }
}

TEST_CASE("gpu::cross_entropy gives a row the same parts whichever block has it") {
  std::mt19937 random(16);
  const Size rows = 11, columns = 70001;
  const laws::TestStream stream;
  const auto logits = laws::normals<bf16>(rows * columns, random);
  const DeviceArray<std::int32_t> targets(std::vector<std::int32_t>(rows, 3));
  const DeviceArray<bf16> d_logits(rows * columns);  // one, since packs depend on addresses
  const auto parts = [&](Size first, Size count) {
    laws::check_cuda(
        cudaMemcpyAsync(d_logits, logits.data(), logits.size() * sizeof(bf16), cudaMemcpyHostToDevice, stream));
    const Results to(count);
    gpu::cross_entropy<bf16>(stream, count, columns, d_logits + first * columns, {targets, nullptr, columns}, to);
    return bits_of(to.parts.read(stream));
  };
  const auto all = parts(0, rows);
  for (Size row = 0; row < rows; ++row)
    CHECK(parts(row, 1) == std::vector<std::uint32_t>(all.begin() + 3 * row, all.begin() + 3 * row + 3));
}
