// SPDX-License-Identifier: Apache-2.0
// Row E6, extremes: no element, one, counts without divisors, the smallest numbers, and more elements than 32 bits
// count, in memory and files whose pages are never touched. Each is right, or an error with a sentence.
// labels: faults
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <vector>

#include <dspp/checkpoint/checkpoint.hpp>
#include <dspp/engine/engine.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/ops.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/plan/plan.hpp>

#include <laws/difference.hpp>
#include <laws/folder.hpp>
#include <laws/tiny_model.hpp>
#include <laws/training_run.hpp>
#include <laws/vjp.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Transpose no = Transpose::no, yes = Transpose::yes;
constexpr Size beyond = (Size{1} << 31) + 5;  ///< more than an int counts

/// The parameters of a tiny model after three steps.
template <class P>
std::vector<double> trained(int ranks, const TinyConfig& config, Size rows, Size sequence) {
  std::vector<double> values;
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine<TinyModel<P>, AdamW> engine(world, TinyModel<P>(config), AdamW{.lr = 1e-2},
                                       EngineConfig{.bucket_bytes = 64});
    const Size own = rows / world.data_size();
    for (Size step = 0; step < 3; ++step) {
      auto loss = engine.forward(
          batch_of(world.memory(), step * rows, own * world.data_rank(), own, sequence, config.vocabulary));
      engine.backward(loss);
      engine.step();
    }
    for (const auto& named : engine.inventory().parameters) {
      const auto whole = engine.gather_parameter(named.name->text);
      if (world.is_first()) values.insert(values.end(), whole.data(), whole.data() + whole.count());
    }
  });
  return values;
}

}  // namespace

TEST_CASE("E6: operations on no elements give none, and a sum of none is zero") {
  Pool pool;
  for (const Shape<2>& none : {shape(0, 3), shape(4, 0), shape(0, 0)}) {
    const auto x = Tensor<float, 2>::zeros(none, pool);
    CHECK(*ops::sum(x).data() == 0);
    CHECK(ops::squared_norm(x).item() == 0);
    CHECK(ops::add(x, x).shape() == none);
    CHECK(ops::scale(x, 2.0f).shape() == none);
    CHECK(ops::cast<bf16>(x).shape() == none);
    CHECK(ops::gelu(x, GeluForm::tanh).shape() == none);
    CHECK(ops::transpose(x, {1, 0}).shape() == shape(none[1], none[0]));
    CHECK(ops::concat(x, x, 0).shape() == shape(2 * none[0], none[1]));
    CHECK(ops::softmax(x).shape() == none);
    CHECK(ops::all_finite(x));
  }
}

TEST_CASE("E6: products with an extent of none or one are those of the definition") {
  Pool pool;
  for (const Size m : {0, 1, 2})
    for (const Size n : {0, 1, 2})
      for (const Size k : {0, 1, 2})
        for (const Transpose t : {no, yes}) {
          CAPTURE(m);
          CAPTURE(n);
          CAPTURE(k);
          const auto a = random<double>(t == no ? shape(m, k) : shape(k, m), pool, 1);
          const auto b = random<double>(t == no ? shape(k, n) : shape(n, k), pool, 2);
          const auto c = ops::matmul(a, t, b, t);
          REQUIRE(c.shape() == shape(m, n));
          for (Size i = 0; i < m; ++i)
            for (Size j = 0; j < n; ++j) {
              double sum = 0;
              for (Size p = 0; p < k; ++p)
                sum += a.data()[t == no ? i * k + p : p * m + i] * b.data()[t == no ? p * n + j : j * k + p];
              CHECK(close(c.data()[i * n + j], sum, 1e-14));
            }
        }
}

TEST_CASE("E6: parameters of one element, and counts not divisible by the ranks, train as on one rank") {
  for (const TinyConfig& config : {TinyConfig{.vocabulary = 2, .width = 1, .ffn_width = 1},
                                   TinyConfig{.vocabulary = 7, .width = 5, .ffn_width = 3}})
    for (const Size sequence : {1, 3}) {
      CAPTURE(config.width);
      const auto one = trained<Policy<F64>>(1, config, 12, sequence);
      for (const int ranks : {2, 3, 4}) {
        CAPTURE(ranks);
        CHECK(worst_difference(trained<Policy<F64>>(ranks, config, 12, sequence), one) < 1e-11);
        CHECK(worst_difference(trained<Policy<F64, Zero<3>>>(ranks, config, 12, sequence), one) < 1e-11);
      }
    }
}

TEST_CASE("E6: the smallest numbers are neither flushed to zero nor rounded") {
  Pool pool;
  const float least = std::numeric_limits<float>::denorm_min();
  const auto x = Tensor<float, 2>::zeros(shape(9, 9), pool), one = Tensor<float, 2>::zeros(shape(9, 9), pool);
  for (Size i = 0; i < 81; ++i) x.data()[i] = static_cast<float>(i - 40) * least;
  for (Size i = 0; i < 9; ++i) one.data()[i * 10] = 1;
  CHECK(same_bits(ops::scale(x, 1.0f), x));
  CHECK(same_bits(ops::add(x, Tensor<float, 2>::zeros(shape(9, 9), pool)), x));
  CHECK(ops::squared_norm(x).item() > 0);
  CHECK(same_bits(ops::cast<float>(ops::cast<double>(x)), x));
  CHECK(f16(std::ldexp(1.0f, -24)).bits == 1);
  CHECK(static_cast<float>(bf16::from_bits(1)) == std::ldexp(1.0f, -133));
  ThreadGroup group(3);
  run_ranks(group, [&](int rank) {
    auto ranks = group.communicator(rank);
    std::vector<float> mine(5, least * static_cast<float>(rank + 1));
    all_reduce(ranks, buffer(mine.data(), 5), Purpose::gradient);
    for (const float sum : mine) CHECK(sum == 6 * least);
  });
}

TEST_CASE("E6: the smallest weights are saved and loaded bit for bit") {
  using P = Policy<F32, Zero<2>>;
  const Folder folder;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine<TinyModel<P>, AdamW> engine(world, TinyModel<P>(TinyConfig{}), AdamW{}),
        other(world, TinyModel<P>(TinyConfig{}), AdamW{});
    const std::string name = "inside.up.weight";
    auto whole = engine.gather_parameter(name);
    for (Size i = 0; i < whole.count(); ++i)
      whole.data()[i] = static_cast<float>(i - 9) * std::numeric_limits<float>::denorm_min();
    set_parameter(engine, name, std::span(whole.data(), static_cast<std::size_t>(whole.count())));
    save_weights(engine, folder.file("saved"));
    load_weights(other, folder.file("saved"));
    CHECK(same_bits(other.gather_parameter(name), whole));
  });
}

TEST_CASE("E6: slices, tiles and random streams of more elements than 32 bits count are at their offsets") {
  for (const int rank : {0, 1, 2}) {
    const SliceGeometry rows{.outer = 1, .global = 3 * beyond, .local = beyond, .inner = 4, .parts = 3};
    Size seen = 0;
    rows.for_each_run(rank, 4 * beyond - 6, 4 * beyond, [&](Size local, Size global, Size count) {
      CHECK(local == 4 * beyond - 6);
      CHECK(global == 4 * beyond * (rank + 1) - 6);
      seen += count;
    });
    CHECK(seen == 6);
  }
  CHECK(shape(beyond, 3).count() == 3 * beyond);
  const PhiloxStream numbers{{1}, 0, 0, 0};
  std::vector<float> many(8);
  philox_fill_normal(numbers, 2 * beyond - 8, 2 * beyond, many.data());
  for (Size i = 0; i < 8; ++i) CHECK(many[static_cast<std::size_t>(i)] == philox_normal(numbers, 2 * beyond - 8 + i));
  CHECK(philox_bits(numbers, 7) != philox_bits(numbers, 7 + (Size{1} << 32)));
}

TEST_CASE("E6: rows of a table of more elements than 32 bits count are read and written where they are") {
  Pool pool;
  constexpr Size width = 4096, rows = (Size{1} << 20) + 3;  // 2^32 + 12288 elements, of which four rows are touched
  const auto table = Tensor<bf16, 2>::uninitialized(shape(rows, width), pool);
  const auto ids = Tensor<std::int32_t, 2>::zeros(shape(1, 3), pool);
  const Size at[] = {(Size{1} << 19) - 1, Size{1} << 20, rows - 1};
  for (int i = 0; i < 3; ++i) {
    ids.data()[i] = static_cast<std::int32_t>(at[i]);
    std::fill_n(table.data() + at[i] * width, width, bf16(static_cast<float>(i + 1)));
  }
  const auto y = ops::embedding(table, ids);
  for (Size i = 0; i < 3; ++i)
    for (Size j = 0; j < width; ++j)
      if (!(static_cast<float>(y.data()[i * width + j]) == static_cast<float>(i + 1))) FAIL(i << " " << j);
  const auto part = ops::slice(table, 0, rows - 1, 1);
  CHECK(static_cast<float>(part.data()[width - 1]) == 3);
}

TEST_CASE("E6: a file of more elements than 32 bits count is read at its end, and one cut short is refused") {
  const Folder folder;
  const std::string path = folder.file("large.safetensors");
  {
    const std::string header = "{\"x\":{\"dtype\":\"BF16\",\"shape\":[" + std::to_string(beyond) +
                               "],\"data_offsets\":[0," + std::to_string(2 * beyond) + "]}}";
    std::string begin(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) begin[i] = static_cast<char>(header.size() >> (8 * i) & 255);
    folder.write("large.safetensors", begin + header);
    const Size bytes = std::ssize(begin + header) + 2 * beyond;
    fs::resize_file(path, static_cast<std::uintmax_t>(bytes));  // a hole: no page of it is on the disk
    const io::File file = io::File::to_write(path);
    file.write_at(bytes - 2, "\x80\x3f", 2);
  }
  const io::SafetensorsReader reader(path);
  float last[3] = {};
  reader.read_as(reader.tensor("x"), beyond - 3, 3, last);
  CHECK(last[0] == 0);
  CHECK(last[2] == 1);
  fs::resize_file(path, fs::file_size(path) - 1);
  CHECK_THROWS_AS(io::SafetensorsReader{path}, Error);
}

TEST_CASE("E6: a model of more parameters than 32 bits count is planned on paper in whole bytes") {
  using P = Policy<Bf16, Zero<1>>;
  constexpr Size vocabulary = Size{1} << 22, width = 2048;  // 2^33 elements in the table alone
  const Plan paper =
      plan<Gpt<P>>(GptConfig{.layers = 1, .width = width, .heads = 1, .vocabulary = vocabulary, .sequence = 1},
                   {.micro_batch = 1, .sequence = 1}, {.data = 4});
  CHECK(paper.parameters > vocabulary * width);
  CHECK(paper.state[Category::parameters] >= 2 * vocabulary * width);
  CHECK(paper.state[Category::optimizer] >= 12 * (vocabulary * width / 4));
  CHECK(paper.state[Category::optimizer] < 12 * (vocabulary * width / 4) + 400'000'000);
}
