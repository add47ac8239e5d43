// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/arithmetic.hpp>
#include <dspp/ops/embedding.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

using Ids = Tensor<std::int32_t, 2, Cpu>;

Ids random_ids(Size batch, Size sequence, Size vocabulary, Pool& pool) {
  auto ids = Ids::uninitialized(shape(batch, sequence), pool, Category::data);
  for (Size i = 0; i < ids.count(); ++i)
    ids.data()[i] = static_cast<std::int32_t>(philox_bits({{7}, 0, 0, 1}, i) % static_cast<std::uint32_t>(vocabulary));
  return ids;
}

struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    const auto table = Tensor<bf16, 2, D>::zeros(shape(7, 5), memory, Category::parameters);
    const auto gradient = Tensor<float, 2, D>::zeros(shape(7, 5), memory, Category::gradients);
    const auto ids = Tensor<std::int32_t, 2, D>::zeros(shape(2, 30), memory, Category::data);
    const auto y = ops::embedding(table, ids, 0);
    ops::require_ids(ids, 7, "embedding");
    ops::embedding_vjp(gradient, Write::overwrite, ids, y, 0);
  }
};

constexpr bool runs_on_paper() {
  Ledger ledger;
  Calls{}.operator()<Meta>(ledger);
  return ledger.live() == 0 &&
         ledger.peak_by_category()[Category::workspace] == round_up(8 * 4, 64) + round_up(60 * 4, 64);
}
static_assert(runs_on_paper());

}  // namespace

TEST_CASE("embedding's vjp is its derivative by the table") {
  Pool pool;
  for (const Size n : {1, 3, 7, 17, 40}) {
    const auto table = laws::random<double>(shape(5, n), pool, 1), dtable = laws::copy(table);
    const auto ids = random_ids(2, 7, 5, pool);
    const auto dy = laws::random<double>(shape(2, 7, n), pool, 2);
    ops::embedding_vjp(dtable, Write::overwrite, ids, dy);
    laws::check_gradient(table, dtable, [&] { return laws::dot(ops::embedding(table, ids), dy); });
  }
}

TEST_CASE("the embeddings of the parts of a table add up to the whole one's, and their gradients are its rows") {
  Pool pool;
  const Size vocabulary = 11, n = 6;
  const auto table = laws::random<float>(shape(vocabulary, n), pool, 3);
  const auto ids = random_ids(3, 20, vocabulary, pool);
  const auto dy = laws::random<float>(shape(3, 20, n), pool, 4);
  auto whole = laws::random<float>(shape(vocabulary, n), pool, 5);
  ops::embedding_vjp(whole, Write::overwrite, ids, dy);
  auto sum = Tensor<float, 3, Cpu>::zeros(shape(3, 20, n), pool);
  for (Size first = 0; first < vocabulary; first += 4) {
    const Size rows = std::min<Size>(4, vocabulary - first);
    const auto part = Tensor<float, 2, Cpu>::view(table.storage(), first * n, shape(rows, n));
    ops::add_into(sum, ops::embedding(part, ids, first));
    const auto gradient = laws::random<float>(shape(rows, n), pool, 6);
    ops::embedding_vjp(gradient, Write::overwrite, ids, dy, first);
    CHECK(laws::same_bits(gradient, Tensor<float, 2, Cpu>::view(whole.storage(), first * n, shape(rows, n))));
  }
  CHECK(laws::same_bits(sum, ops::embedding(table, ids)));
}

TEST_CASE("rows of a table that no id names get a zero gradient, or keep theirs") {
  Pool pool;
  const auto ids = Ids::zeros(shape(1, 2), pool);
  const auto dy = laws::random<float>(shape(1, 2, 3), pool, 7);
  auto into = laws::random<float>(shape(2, 3), pool, 8);
  const auto before = laws::copy<float>(into);
  ops::embedding_vjp(into, Write::accumulate, ids, dy);
  for (Size j = 0; j < 3; ++j) {
    CHECK(into.data()[j] == before.data()[j] + (dy.data()[j] + dy.data()[3 + j]));
    CHECK(into.data()[3 + j] == before.data()[3 + j]);
  }
  ops::embedding_vjp(into, Write::overwrite, ids, dy);
  for (Size j = 0; j < 3; ++j) CHECK(into.data()[3 + j] == 0.0f);
}

TEST_CASE("the gradient of a bf16 or f16 table is summed in f32 and rounded once, on any number of threads") {
  Pool pool;
  const auto ids = random_ids(4, 300, 9, pool);
  const auto check = [&]<class T>(T) {
    const auto dy = laws::random<T>(shape(4, 300, 33), pool, 9);
    const auto wide = laws::random<float>(shape(9, 33), pool, 10);
    ops::embedding_vjp(wide, Write::overwrite, ids, laws::copy<float>(dy));
    const auto narrow = [&] {
      auto into = Tensor<T, 2, Cpu>::zeros(shape(9, 33), pool);
      ops::embedding_vjp(into, Write::overwrite, ids, dy);
      return into;
    };
    CHECK(laws::same_bits(narrow(), ops::cast<T>(wide)));
    laws::check_threads(narrow);
  };
  check(bf16());
  check(f16());
}

TEST_CASE("embedding makes the same allocations on paper") {
  laws::check_paper(Calls{});
}

TEST_CASE("a wrong id or shape of embedding is an error with its value") {
  Pool pool;
  auto ids = Ids::zeros(shape(2, 3), pool);
  ids.data()[4] = 17;
  CHECK_THROWS_WITH_AS(
      ops::require_ids(ids, 17, "embedding"),
      "dspp: embedding needs ids from 0 to 16, but the id at position 4 is 17. Encode the text with the "
      "vocabulary that the model was made for.",
      Error);
  ids.data()[4] = -1;
  CHECK_THROWS_AS(ops::require_ids(ids, 17, "embedding"), Error);
  const auto table = laws::random<float>(shape(4, 5), pool, 11);
  CHECK_THROWS_WITH_AS(
      ops::embedding_vjp(table, Write::overwrite, ids, laws::random<float>(shape(2, 3, 4), pool, 12)),
      "dspp: embedding_vjp needs two tensors of one shape, but they are [2, 3, 4] and [2, 3, 5]. Reshape "
      "or broadcast one of them first.",
      Error);
}
