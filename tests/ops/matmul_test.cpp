// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <limits>

#include <dspp/base/config.hpp>
#include <dspp/ops/activation.hpp>
#include <dspp/ops/matmul.hpp>

#include <laws/vjp.hpp>

using namespace dspp;
using enum Transpose;

namespace {

struct Case {
  Size m, n, k;
};

/// One small product of every kind of edge, and some that are cut into pieces and tiles (512 x 384 x 256).
constexpr Case cases[] = {{1, 1, 1},    {1, 17, 3},  {3, 7, 17},      {17, 1, 64},
                          {64, 64, 64}, {5, 3, 300}, {530, 401, 270}, {130, 790, 515}};

/// Calls f(m, n, k) for each case: names, since clang 14 lets no lambda capture a structured binding.
template <class F>
void for_all_cases(F f) {
  for (const Case& e : cases) f(e.m, e.n, e.k);
}

template <class T>
Tensor<T, 2> operand(Size rows, Size columns, Transpose t, Pool& pool, std::uint32_t stream) {
  return laws::random<T>(t == no ? shape(rows, columns) : shape(columns, rows), pool, stream);
}

template <class T>
double element(const Tensor<T, 2>& x, Transpose t, Size i, Size j) {
  return static_cast<double>(t == no ? x.data()[i * x[1] + j] : x.data()[j * x[1] + i]);
}

/// |c - (op(a) op(b) + added)| <= (k + 2) u sum |a| |b| + r |c|: u rounds each addition, r the result (Higham
/// 2002, 3.5).
template <class R, class T, class F>
void check_product(const Tensor<R, 2>& c, const Tensor<T, 2>& a, Transpose ta, const Tensor<T, 2>& b, Transpose tb,
                   F added) {
  const Size k = ta == no ? a[1] : a[0];
  const double u = laws::rounding<Compute<T>>, r = laws::rounding<R>;
  laws::Worst worst;
  for (Size i = 0; i < c[0]; ++i)
    for (Size j = 0; j < c[1]; ++j) {
      double sum = added(i, j), sizes = std::abs(sum);
      for (Size p = 0; p < k; ++p) {
        const double term = element(a, ta, i, p) * element(b, tb, p, j);
        sum += term;
        sizes += std::abs(term);
      }
      const double bound = static_cast<double>(k + 2) * u * sizes + r * std::abs(sum) + 1e-300;
      worst.add(laws::difference(static_cast<double>(c.data()[i * c[1] + j]), sum, bound));
    }
  CHECK(worst.value() <= 1);
}

constexpr auto nothing = [](Size, Size) { return 0.0; };

template <class F>
void for_all_transposes(F f) {
  for (const Transpose ta : {no, yes})
    for (const Transpose tb : {no, yes}) f(ta, tb);
}

template <class T>
void check_matmul() {
  Pool pool;
  for_all_cases([&](Size m, Size n, Size k) {
    for_all_transposes([&](Transpose ta, Transpose tb) {
      const auto a = operand<T>(m, k, ta, pool, 1), b = operand<T>(k, n, tb, pool, 2);
      const auto c = ops::matmul(a, ta, b, tb);
      REQUIRE(c.shape() == shape(m, n));
      check_product(c, a, ta, b, tb, nothing);
    });
  });
}

template <class G, class T>
void check_into() {
  Pool pool;
  for_all_cases([&](Size m, Size n, Size k) {
    const auto a = operand<T>(m, k, yes, pool, 3), b = operand<T>(k, n, no, pool, 4);
    auto into = Tensor<G, 2>::uninitialized(shape(m, n), pool);
    into.fill(static_cast<G>(std::numeric_limits<float>::quiet_NaN()));
    ops::matmul_into(into, Write::overwrite, a, yes, b, no);
    check_product(into, a, yes, b, no, nothing);
    const auto before = laws::random<G>(shape(m, n), pool, 5);
    into = laws::copy<G>(before);
    ops::matmul_into(into, Write::accumulate, a, yes, b, no);
    check_product(into, a, yes, b, no, [&](Size i, Size j) { return element(before, no, i, j); });
  });
}

template <class T>
void check_epilogues() {
  Pool pool;
  for_all_cases([&](Size m, Size n, Size k) {
    for (const GeluForm form : {GeluForm::exact, GeluForm::tanh}) {
      const auto x = operand<T>(m, k, no, pool, 6), w = operand<T>(k, n, yes, pool, 7);
      const auto bias = laws::random<T>(shape(n), pool, 8);
      const auto y = ops::matmul_bias(x, no, w, yes, bias);
      check_product(y, x, no, w, yes, [&](Size, Size j) { return static_cast<double>(bias.data()[j]); });
      const auto both = ops::matmul_bias_gelu(x, no, w, yes, bias, form);
      CHECK(laws::same_bits(both.pre, y));
      CHECK(laws::same_bits(both.y, ops::gelu(y, form)));
    }
  });
}

/// In one pass as one after the other.
template <class T>
void check_gelu_vjp() {
  Pool pool;
  for_all_cases([&](Size m, Size n, Size k) {
    for (const GeluForm form : {GeluForm::exact, GeluForm::tanh}) {
      const auto dy = operand<T>(m, k, no, pool, 9), w = operand<T>(k, n, no, pool, 10);
      const auto x = laws::random<T>(shape(m, n), pool, 11);
      const auto dx = ops::matmul_gelu_vjp(dy, no, w, no, x, form);
      const auto apart = ops::gelu_vjp(x, form, ops::matmul(dy, no, w, no));
      CHECK(laws::same_bits(dx, apart));
    }
  });
}

struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    auto a = Tensor<bf16, 2, D>::zeros(shape(6, 4), memory);
    auto b = Tensor<bf16, 2, D>::zeros(shape(5, 4), memory);
    auto bias = Tensor<bf16, 1, D>::zeros(shape(5), memory);
    auto y = ops::matmul(a, no, b, yes, Category::workspace);
    y = ops::matmul_bias(a, no, b, yes, bias);
    auto both = ops::matmul_bias_gelu(a, no, b, yes, bias, GeluForm::tanh);
    auto of_argument = ops::matmul_gelu_vjp(y, no, b, no, a, GeluForm::tanh);
    auto gradient = Tensor<float, 2, D>::zeros(shape(5, 4), memory, Category::gradients);
    ops::matmul_into(gradient, Write::accumulate, both.y, yes, a, no);
    auto batches = ops::batched_matmul(a.reshape(shape(2, 3, 4)), no, a.reshape(shape(2, 3, 4)), yes);
  }
};

constexpr bool runs_on_paper() {
  Ledger ledger;
  Calls{}.operator()<Meta>(ledger);
  return ledger.live() == 0 && ledger.flops_forward() == 5 * 240 + 30 + 9 * 30 + 14 * 24 + 2 * 2 * 3 * 3 * 4;
}
static_assert(runs_on_paper());

}  // namespace

TEST_CASE("a product is the sum of its definition, in every type and transposition, cut into pieces or not") {
  check_matmul<double>();
  check_matmul<float>();
  check_matmul<bf16>();
  check_matmul<f16>();
}

TEST_CASE("a product overwrites whatever was there, or is added to it, in its type or in f32") {
  check_into<double, double>();
  check_into<float, float>();
  check_into<bf16, bf16>();
  check_into<float, bf16>();
  check_into<f16, f16>();
  check_into<float, f16>();
}

TEST_CASE("bias and gelu in one pass are bias and gelu one after the other") {
  check_epilogues<double>();
  check_epilogues<float>();
  check_epilogues<bf16>();
  check_epilogues<f16>();
}

TEST_CASE("a product times gelu's derivative in one pass is one after the other") {
  check_gelu_vjp<double>();
  check_gelu_vjp<float>();
  check_gelu_vjp<bf16>();
  check_gelu_vjp<f16>();
}

TEST_CASE("the gradients of a product are products") {
  Pool pool;
  for_all_transposes([&](Transpose ta, Transpose tb) {
    const auto a = operand<double>(7, 17, ta, pool, 1), b = operand<double>(17, 3, tb, pool, 2);
    const auto dy = laws::random<double>(shape(7, 3), pool, 3);
    const auto value = [&] { return laws::dot(ops::matmul(a, ta, b, tb), dy); };
    const auto not_tb = tb == no ? yes : no, not_ta = ta == no ? yes : no;
    laws::check_gradient(a, ta == no ? ops::matmul(dy, no, b, not_tb) : ops::matmul(b, tb, dy, yes), value);
    laws::check_gradient(b, tb == no ? ops::matmul(a, not_ta, dy, no) : ops::matmul(dy, yes, a, ta), value);
  });
}

TEST_CASE("a batched product is each of its products") {
  Pool pool;
  for_all_transposes([&](Transpose ta, Transpose tb) {
    const auto a = laws::random<float>(ta == no ? shape(3, 7, 5) : shape(3, 5, 7), pool, 1);
    const auto b = laws::random<float>(tb == no ? shape(3, 5, 9) : shape(3, 9, 5), pool, 2);
    const auto c = ops::batched_matmul(a, ta, b, tb);
    for (Size i = 0; i < 3; ++i) {
      const auto a_i = Tensor<float, 2>::view(a.storage(), i * 35, shape(a[1], a[2]));
      const auto b_i = Tensor<float, 2>::view(b.storage(), i * 45, shape(b[1], b[2]));
      CHECK(laws::same_bits(ops::matmul(a_i, ta, b_i, tb), Tensor<float, 2>::view(c.storage(), i * 63, shape(7, 9))));
    }
  });
}

TEST_CASE("a product over no elements is zero") {
  Pool pool;
  const auto a = Tensor<float, 2>::zeros(shape(3, 0), pool), b = Tensor<float, 2>::zeros(shape(0, 5), pool);
  const auto c = ops::matmul(a, no, b, no);
  for (Size i = 0; i < c.count(); ++i) CHECK(c.data()[i] == 0.0f);
}

TEST_CASE("neither threads nor alignment nor repetition change a bit of a product") {
  Pool pool;
  const auto check = [&]<class T>(T) {
    for_all_transposes([&](Transpose ta, Transpose tb) {
      const auto a = operand<T>(390, 700, ta, pool, 1), b = operand<T>(700, 410, tb, pool, 2);
      laws::check_threads([&] { return ops::matmul(a, ta, b, tb); });
      auto room = Tensor<T, 1>::uninitialized(shape(a.count() + 3), pool);
      const auto moved = Tensor<T, 2>::view(room.storage(), 3, a.shape());
      std::copy_n(a.data(), a.count(), moved.data());
      CHECK(laws::same_bits(ops::matmul(a, ta, b, tb), ops::matmul(moved, ta, b, tb)));
    });
  };
  check(0.0);
  check(0.0f);
  check(bf16());
  check(f16());
}

namespace {

/// c[i, j] = k (i + 1) (j + 1), exact in every type, with NaN between the rows of all operands, by pieces of
/// whole columns and of `columns`.
template <class T, class R>
void check_distances(const cpu::Product& p, Size columns) {
  const Size a_rows = p.ta == no ? p.m : p.k, b_rows = p.tb == no ? p.k : p.n;
  const auto nan = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  std::vector<T> a(static_cast<std::size_t>(a_rows * p.lda), nan), b(static_cast<std::size_t>(b_rows * p.ldb), nan);
  for (Size i = 0; i < p.m; ++i)
    for (Size q = 0; q < p.k; ++q)
      a[static_cast<std::size_t>(p.ta == no ? i * p.lda + q : q * p.lda + i)] =
          static_cast<T>(static_cast<float>(i + 1));
  for (Size q = 0; q < p.k; ++q)
    for (Size j = 0; j < p.n; ++j)
      b[static_cast<std::size_t>(p.tb == no ? q * p.ldb + j : j * p.ldb + q)] =
          static_cast<T>(static_cast<float>(j + 1));
  for (const Write write : {Write::overwrite, Write::accumulate}) {
    std::vector<R> c(static_cast<std::size_t>(p.m * p.ldc), static_cast<R>(3.0f));
    for (Size first = 0; first < p.n; first += columns)
      cpu::detail::one_piece(p, cpu::Piece{0, p.m, first, std::min(columns, p.n - first)}, a.data(), b.data(),
                             cpu::Finish<R>{.c = c.data(), .write = write});
    const Size added = write == Write::accumulate ? 3 : 0;
    bool all = true;
    for (Size i = 0; i < p.m; ++i)
      for (Size j = 0; j < p.ldc; ++j)
        all = all && static_cast<double>(c[static_cast<std::size_t>(i * p.ldc + j)]) ==
                         static_cast<double>(j < p.n ? p.k * (i + 1) * (j + 1) + added : 3);
    CAPTURE(p.m);
    CAPTURE(p.n);
    CAPTURE(p.k);
    CAPTURE(p.lda);
    CAPTURE(p.ldb);
    CAPTURE(p.ldc);
    CHECK(all);
  }
}

template <class T, class R>
void check_all_distances() {
  for_all_transposes([&](Transpose ta, Transpose tb) {
    for (const Size m : {1, 2, 5})
      for (const Size n : {1, 2, 5})
        for (const Size k : {1, 2, 5})
          for (const Size more_a : {0, 3})
            for (const Size more_b : {0, 3})
              for (const Size more_c : {0, 3}) {
                const cpu::Product p{m,         n, k, ta, tb, (ta == no ? k : m) + more_a, (tb == no ? n : k) + more_b,
                                     n + more_c};
                check_distances<T, R>(p, n);
                check_distances<T, R>(p, n > 1 ? n - 1 : 1);
              }
  });
}

}  // namespace

TEST_CASE("rows and columns of one element, at any distance, are multiplied as any others, and nothing between them") {
  check_all_distances<double, double>();
  check_all_distances<float, float>();
  check_all_distances<bf16, bf16>();
  check_all_distances<bf16, float>();
  check_all_distances<f16, f16>();
}

TEST_CASE("a product with its tiles repacked is the same product") {
  Pool pool;
  for_all_transposes([&](Transpose ta, Transpose tb) {
    const auto a = operand<bf16>(300, 530, ta, pool, 1), b = operand<bf16>(530, 200, tb, pool, 2);
    const cpu::Product p{300, 200, 530, ta, tb, a[1], b[1], 200};
    auto c = Tensor<float, 2>::uninitialized(shape(300, 200), pool);
    cpu::detail::gemm_repacked(p, a.data(), b.data(), c.data(), Write::overwrite, {true, true});
    check_product(c, laws::copy<float>(a), ta, laws::copy<float>(b), tb, nothing);
    const auto wide_a = laws::copy<float>(a), wide_b = laws::copy<float>(b);
    for (const auto& copies : {cpu::detail::Copies{true, true}, {true, false}, {false, true}}) {
      cpu::detail::gemm_repacked(p, wide_a.data(), wide_b.data(), c.data(), Write::overwrite, copies);
      check_product(c, wide_a, ta, wide_b, tb, nothing);
    }
  });
}

TEST_CASE("copies are made of what collides or lies beside a transposed left operand, and of nothing that is packed") {
  constexpr auto no = Transpose::no, yes = Transpose::yes;
  const auto of = [](const cpu::Product& p) { return cpu::detail::copies_of<float>(p); };
  const bool has_collisions = cpu::rows_collide<float>(512);
  CHECK(of({130, 900, 300, yes, no, 520, 768, 900}).b == has_collisions);  // rows 1 KiB apart
  CHECK_FALSE(of({130, 900, 300, no, no, 520, 768, 900}).b);
  CHECK(of({383, 640, 300, no, no, 300, 1024, 640}).b == has_collisions);
  CHECK_FALSE(of({384, 640, 300, no, no, 300, 1024, 640}).b);  // the provider packs it
  CHECK_FALSE(of({130, 900, 31, no, no, 520, 1024, 900}).b);
  CHECK(of({130, 900, 300, yes, no, 520, 900, 900}).a == has_collisions);
}

TEST_CASE("operands whose rows collide in the cache are copied, in columns of the tiles, and give the same product") {
  Pool pool;
  for_all_transposes([&](Transpose ta, Transpose tb) {
    const Size m = ta == Transpose::yes ? 512 : 130, n = 1024, k = tb == Transpose::yes ? 512 : 300;
    const auto a = operand<float>(m, k, ta, pool, 1), b = operand<float>(k, n, tb, pool, 2);
    const cpu::Product p{130, 900, k, ta, tb, a[1], b[1], n};
    const auto copies = cpu::detail::copies_of<float>(p);
    const bool has_collisions = cpu::rows_collide<float>(512);
    CHECK(copies.a == (ta == Transpose::yes && has_collisions));
    CHECK(copies.b == (tb == Transpose::no && has_collisions));
    auto c = laws::random<float>(shape(130, n), pool, 3);
    const auto before = laws::copy<float>(c);
    cpu::gemm_piece(p, a.data(), b.data(), c.data(), Write::accumulate);
    laws::Worst worst;
    for (Size i = 0; i < 130; ++i)
      for (Size j = 0; j < n; ++j) {
        double sum = element(before, Transpose::no, i, j);
        for (Size l = 0; j < 900 && l < k; ++l) sum += double(element(a, ta, i, l)) * double(element(b, tb, l, j));
        worst.add(laws::difference(c.data()[i * n + j], sum, 10));
      }
    CHECK(worst.value() < 1e-5);
  });
}

#if DSPP_HAS_ONEDNN()
namespace {

/// Every transposition, overwriting and accumulating, with bias and gelu, in a piece of a larger result.
template <class T, class R>
void check_primitive() {
  Pool pool;
  for_all_transposes([&](Transpose ta, Transpose tb) {
    const auto a = operand<T>(65, 48, ta, pool, 1), b = operand<T>(48, 33, tb, pool, 2);
    const auto bias = laws::random<R>(shape(33), pool, 3);
    const auto before = laws::random<R>(shape(65, 33), pool, 4);
    const cpu::Product p{65, 33, 48, ta, tb, a[1], b[1], 33};
    const cpu::Piece pieces[] = {{0, 40, 0, 33}, {40, 25, 0, 10}, {40, 25, 10, 23}};
    const auto run = [&](cpu::Finish<R> finish) {
      for (const cpu::Piece& piece : pieces) cpu::detail::piece_by_primitive(p, piece, a.data(), b.data(), finish);
    };
    auto c = laws::copy<R>(before);
    run({.c = c.data()});
    check_product(c, a, ta, b, tb, nothing);
    c = laws::copy<R>(before);
    run({.c = c.data(), .write = Write::accumulate});
    check_product(c, a, ta, b, tb, [&](Size i, Size j) { return element(before, no, i, j); });
    auto y = laws::copy<R>(before);
    run({.c = c.data(), .before = before.data(), .form = GeluForm::tanh});
    auto product = laws::copy<R>(before);
    run({.c = product.data()});
    CHECK(laws::same_bits(c, ops::gelu_vjp(before, GeluForm::tanh, product)));
    run({.c = c.data(), .bias = bias.data(), .activated = y.data(), .form = GeluForm::tanh});
    check_product(c, a, ta, b, tb, [&](Size, Size j) { return static_cast<double>(bias.data()[j]); });
    CHECK(laws::same_bits(y, ops::gelu(c, GeluForm::tanh)));
  });
}

}  // namespace

TEST_CASE("a product prepared by oneDNN is the same product, in bf16 where the processor has it") {
  check_primitive<float, float>();
  if (!cpu::onednn_has_bf16()) {
    MESSAGE("this processor has no bf16 products: the path to them was checked in f32 only");
    return;
  }
  check_primitive<bf16, bf16>();
  check_primitive<bf16, float>();
}
#endif

TEST_CASE("the pieces of a product cover each element once") {
  for (const auto& [m, n] :
       {std::pair<Size, Size>{1, 1}, {2048, 1152}, {384, 1536}, {17, 5000}, {5000, 17}, {1, 100000}}) {
    const cpu::Cut cut = cpu::detail::cut_of({m, n, 3000});
    std::vector<char> seen(static_cast<std::size_t>(m * n));
    for (Size i = 0; i < cut.pieces(); ++i) {
      CHECK(cut[i].rows <= cpu::tile_extents.rows);
      for (Size row = cut[i].row; row < cut[i].row + cut[i].rows; ++row)
        for (Size column = cut[i].column; column < cut[i].column + cut[i].columns; ++column)
          ++seen[static_cast<std::size_t>(row * n + column)];
    }
    CHECK(std::count(seen.begin(), seen.end(), 1) == m * n);
  }
}

TEST_CASE("products on paper and on the Cpu allocate alike") {
  laws::check_paper(Calls{});
}

TEST_CASE("products of shapes that do not fit are an error sentence") {
  Pool pool;
  const auto a = Tensor<float, 2>::zeros(shape(2, 3), pool), b = Tensor<float, 2>::zeros(shape(2, 5), pool);
  const auto bias = Tensor<float, 1>::zeros(shape(2), pool);
  CHECK_THROWS_WITH_AS(ops::matmul(a, no, b, yes),
                       "dspp: matmul needs two operands of one inner extent, but they are [2, 3] and [2, 5] "
                       "transposed. Transpose one of them, or change its shape.",
                       Error);
  CHECK_THROWS_WITH_AS(ops::matmul_bias(a, yes, b, no, bias),
                       "dspp: matmul_bias needs a bias of shape [5], but it is [2]. Give one that fits the product.",
                       Error);
  CHECK_THROWS_WITH_AS(ops::matmul_bias_gelu(a, yes, b, no, bias, GeluForm::tanh),
                       "dspp: matmul_bias_gelu needs a bias of shape [5], but it is [2]. Give one that fits the "
                       "product.",
                       Error);
  CHECK_THROWS_WITH_AS(ops::matmul_gelu_vjp(a, yes, b, no, b, GeluForm::tanh),
                       "dspp: matmul_gelu_vjp needs an argument of gelu of shape [3, 5], but it is [2, 5]. Give one "
                       "that fits the product.",
                       Error);
  CHECK_THROWS_WITH_AS(ops::matmul_into(b, Write::overwrite, a, yes, b, no),
                       "dspp: matmul_into needs a destination of shape [3, 5], but it is [2, 5]. Give one that fits "
                       "the product.",
                       Error);
  CHECK_THROWS_WITH_AS(ops::batched_matmul(a.reshape(shape(2, 3, 1)), no, a.reshape(shape(1, 1, 6)), no),
                       "dspp: batched_matmul needs two operands of one batch, but they are [2, 3, 1] and [1, 1, 6]. "
                       "Repeat the smaller one, or use matmul on each.",
                       Error);
}

TEST_CASE("the pieces of a loop depend on its length and grain alone") {
  laws::check_threads([] {
    static Pool pool;
    auto begins = Tensor<std::int32_t, 1>::uninitialized(shape(100), pool);
    cpu::parallel_for(100, 7, [&](Size begin, Size end) {
      CHECK(begin % 7 == 0);
      CHECK(end == std::min<Size>(100, begin + 7));
      for (Size i = begin; i < end; ++i) begins.data()[i] = static_cast<std::int32_t>(begin);
    });
    return begins;
  });
}
