// SPDX-License-Identifier: Apache-2.0
/// A table of operators on one value: each as a user writes it, and its elements by a naive formula in f64.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <dspp/autograd.hpp>

namespace dspp::laws {

/// Elements of a value of rank 3 in f64, for naive formulas.
struct Elements {
  Shape<3> shape;
  std::vector<double> at;
  double operator()(Size i, Size j, Size k) const {
    return at[static_cast<std::size_t>((i * shape[1] + j) * shape[2] + k)];
  }
  /// The sum of f(index) over a dimension.
  template <class F>
  double sum(int dimension, F f) const {
    double total = 0;
    for (Size l = 0; l < shape[dimension]; ++l) total += f(l);
    return total;
  }
  template <class F>
  double max(int dimension, F f) const {
    double largest = f(0);
    for (Size l = 1; l < shape[dimension]; ++l) largest = std::max(largest, f(l));
    return largest;
  }
};

template <class T, class D>
using RowValue = Variable<T, 3, D, Placed<On<Tp<1>, Invariant>>>;

template <class T, class D>
struct OperatorRow {
  std::string name;
  std::function<RowValue<T, D>(const RowValue<T, D>&)> of;
  std::function<double(const Elements&, Size, Size, Size)> expected;  ///< element [i, j, k] of the result
  bool positive = false;                                              ///< needs elements above 0
  bool needs_elements = false;                                        ///< of every dimension
};

namespace detail {
/// Integers that no rank cuts, number(i) at i.
template <class M, int Rank, class D, class F>
auto integers(const Shape<Rank>& shape, Tape<D>& tape, F number) {
  auto ids = Tensor<M, Rank, D>::uninitialized(shape, tape.memory(), Category::data, "integers");
  ids.write([&](M* host) {
    for (Size i = 0; i < shape.count(); ++i) host[i] = static_cast<M>(number(i));
  });
  return Variable<M, Rank, D, Placed<On<Tp<1>, Invariant>>>::constant(ids, tape);
}
constexpr Size row_id(Size i, Size extent) {
  return (3 * i + 1) % std::max<Size>(extent, 1);
}
constexpr bool masked(Size i) {
  return i % 3 != 1;
}
}  // namespace detail

/// y = c x / (1 + x x), a function that the library has not; c is a parameter.
struct Witch {
  template <class C>
  DSPP_HOST_DEVICE C operator()(C x, C c) const {
    return c * x / (1 + x * x);
  }
};
struct WitchVjp {
  template <class C>
  DSPP_HOST_DEVICE C operator()(C x, C y, C dy, C c) const {
    return dy * (c - 2 * x * y) / (1 + x * x);
  }
};
inline constexpr auto witch = custom_op(Witch(), WitchVjp(), 3);
/// y = a exp(-b b), whose second gradient needs y.
struct Bell {
  template <class C>
  DSPP_HOST_DEVICE C operator()(C a, C b) const {
    return a * math::exp(-b * b);
  }
};
struct BellVjp {
  template <class C>
  DSPP_HOST_DEVICE TwoGradients<C> operator()(C, C b, C y, C dy) const {
    return {math::exp(-b * b) * dy, -2 * b * y * dy};
  }
};
inline constexpr auto bell = custom_op(Bell(), BellVjp());

template <class T, class D>
std::vector<OperatorRow<T, D>> operator_rows() {
  using X = RowValue<T, D>;
  using E = const Elements&;
  using I = Size;
  const auto of_ids = [](const X& x, int dimension) { return x[dimension] == 0 ? Size{0} : x[dimension] + 2; };
  return {
      {"x - y", [](const X& x) { return square(x) - x; },
       [](E x, I i, I j, I k) { return x(i, j, k) * (x(i, j, k) - 1); }},
      {"-x", [](const X& x) { return -x; }, [](E x, I i, I j, I k) { return -x(i, j, k); }},
      {"x + number", [](const X& x) { return x + 2.5; }, [](E x, I i, I j, I k) { return x(i, j, k) + 2.5; }},
      {"number + x", [](const X& x) { return 2 + x; }, [](E x, I i, I j, I k) { return x(i, j, k) + 2; }},
      {"x - number", [](const X& x) { return x - 2.5; }, [](E x, I i, I j, I k) { return x(i, j, k) - 2.5; }},
      {"number - x", [](const X& x) { return 1.5 - x; }, [](E x, I i, I j, I k) { return 1.5 - x(i, j, k); }},
      {"x / number", [](const X& x) { return x / 3.0; }, [](E x, I i, I j, I k) { return x(i, j, k) / 3; }},
      {"number / x", [](const X& x) { return 2.0 / x; }, [](E x, I i, I j, I k) { return 2 / x(i, j, k); }, true},
      {"x / y", [](const X& x) { return x / (x + 1.0); },
       [](E x, I i, I j, I k) { return x(i, j, k) / (x(i, j, k) + 1); }, true},
      {"tanh", [](const X& x) { return tanh(x); }, [](E x, I i, I j, I k) { return std::tanh(x(i, j, k)); }},
      {"sigmoid", [](const X& x) { return sigmoid(x); },
       [](E x, I i, I j, I k) { return 1 / (1 + std::exp(-x(i, j, k))); }},
      {"exp", [](const X& x) { return exp(x); }, [](E x, I i, I j, I k) { return std::exp(x(i, j, k)); }},
      {"log", [](const X& x) { return log(x); }, [](E x, I i, I j, I k) { return std::log(x(i, j, k)); }, true},
      {"sqrt", [](const X& x) { return sqrt(x); }, [](E x, I i, I j, I k) { return std::sqrt(x(i, j, k)); }, true},
      {"square", [](const X& x) { return square(x); }, [](E x, I i, I j, I k) { return x(i, j, k) * x(i, j, k); }},
      {"relu", [](const X& x) { return relu(x); }, [](E x, I i, I j, I k) { return std::max(x(i, j, k), 0.0); }},
      {"silu", [](const X& x) { return silu(x); },
       [](E x, I i, I j, I k) { return x(i, j, k) / (1 + std::exp(-x(i, j, k))); }},
      {"custom_op of one", [](const X& x) { return witch(x); },
       [](E x, I i, I j, I k) { return 3 * x(i, j, k) / (1 + x(i, j, k) * x(i, j, k)); }},
      {"custom_op of two", [](const X& x) { return bell(x, 0.5 * x); },
       [](E x, I i, I j, I k) { return x(i, j, k) * std::exp(-x(i, j, k) * x(i, j, k) / 4); }},
      {"sum of the first", [](const X& x) { return sum<0>(x, keep_dimension); },
       [](E x, I, I j, I k) { return x.sum(0, [&](I l) { return x(l, j, k); }); }},
      {"sum of the second", [](const X& x) { return reshape(sum<1>(x), shape(x[0], 1, x[2])); },
       [](E x, I i, I, I k) { return x.sum(1, [&](I l) { return x(i, l, k); }); }},
      {"sum of the last", [](const X& x) { return reshape(sum<-1>(x), shape(x[0], x[1], 1)); },
       [](E x, I i, I j, I) { return x.sum(2, [&](I l) { return x(i, j, l); }); }},
      {"mean of the second", [](const X& x) { return mean<1>(x, keep_dimension); },
       [](E x, I i, I, I k) { return x.sum(1, [&](I l) { return x(i, l, k); }) / static_cast<double>(x.shape[1]); },
       false, true},
      {"mean of the last", [](const X& x) { return reshape(mean<2>(x), shape(x[0], 1, x[1])); },
       [](E x, I i, I, I k) { return x.sum(2, [&](I l) { return x(i, k, l); }) / static_cast<double>(x.shape[2]); },
       false, true},
      {"max of the first", [](const X& x) { return reshape(max<0>(x), shape(1, x[1], x[2])); },
       [](E x, I, I j, I k) { return x.max(0, [&](I l) { return x(l, j, k); }); }, false, true},
      {"max of the second", [](const X& x) { return max<1>(x, keep_dimension); },
       [](E x, I i, I, I k) { return x.max(1, [&](I l) { return x(i, l, k); }); }, false, true},
      {"max of the last", [](const X& x) { return max<-1>(x, keep_dimension); },
       [](E x, I i, I j, I) { return x.max(2, [&](I l) { return x(i, j, l); }); }, false, true},
      {"x + [n]", [](const X& x) { return x + sum<0>(sum<0>(x)); },
       [](E x, I i, I j, I k) {
         return x(i, j, k) + x.sum(0, [&](I l) { return x.sum(1, [&](I m) { return x(l, m, k); }); });
       }},
      {"[s, n] - x", [](const X& x) { return sum<0>(x) - x; },
       [](E x, I i, I j, I k) { return x.sum(0, [&](I l) { return x(l, j, k); }) - x(i, j, k); }},
      {"x - [b, 1, n]", [](const X& x) { return x - sum<1>(x, keep_dimension); },
       [](E x, I i, I j, I k) { return x(i, j, k) - x.sum(1, [&](I l) { return x(i, l, k); }); }},
      {"x * [b, s, 1]", [](const X& x) { return x * sum<2>(x, keep_dimension); },
       [](E x, I i, I j, I k) { return x(i, j, k) * x.sum(2, [&](I l) { return x(i, j, l); }); }},
      {"x / [b, s, 1]", [](const X& x) { return x / (1 + sum<2>(square(x), keep_dimension)); },
       [](E x, I i, I j, I k) { return x(i, j, k) / (1 + x.sum(2, [&](I l) { return x(i, j, l) * x(i, j, l); })); }},
      {"[n] / x", [](const X& x) { return sum<0>(sum<0>(x)) / x; },
       [](E x, I i, I j, I k) {
         return x.sum(0, [&](I l) { return x.sum(1, [&](I m) { return x(l, m, k); }); }) / x(i, j, k);
       },
       true},
      {"[b, 1, n] + [1, s, n]", [](const X& x) { return sum<1>(x, keep_dimension) + sum<0>(x, keep_dimension); },
       [](E x, I i, I j, I k) {
         return x.sum(1, [&](I l) { return x(i, l, k); }) + x.sum(0, [&](I l) { return x(l, j, k); });
       }},
      {"[b, 1, 1] * [s, 1]",
       [](const X& x) { return sum<2>(sum<1>(x, keep_dimension), keep_dimension) * sum<1>(sum<0>(x), keep_dimension); },
       [](E x, I i, I j, I) {
         return x.sum(1, [&](I m) { return x.sum(2, [&](I l) { return x(i, m, l); }); }) *
                x.sum(0, [&](I m) { return x.sum(2, [&](I l) { return x(m, j, l); }); });
       }},
      {"broadcast_to", [](const X& x) { return broadcast_to(sum<1>(x, keep_dimension), x.shape()); },
       [](E x, I i, I, I k) { return x.sum(1, [&](I l) { return x(i, l, k); }); }},
      {"broadcast_to of [n, 1]",
       [](const X& x) { return broadcast_to(reshape(sum<0>(sum<0>(x)), shape(x[2], 1)), shape(x[0], x[2], Size{5})); },
       [](E x, I, I j, I) { return x.sum(0, [&](I l) { return x.sum(1, [&](I m) { return x(l, m, j); }); }); }},
      {"where of [b, s]",
       [](const X& x) {
         const auto mask = detail::integers<std::uint8_t>(shape(x[0], x[1]), x.tape(), detail::masked);
         return where(mask, x, 2.0 * x);
       },
       [](E x, I i, I j, I k) { return (detail::masked(i * x.shape[1] + j) ? 1 : 2) * x(i, j, k); }},
      {"where of [b, s, n] and a number",
       [](const X& x) {
         const auto mask = detail::integers<std::int32_t>(x.shape(), x.tape(), detail::masked);
         return where(mask, x, -4.0) + where(mask, 0.5, x);
       },
       [](E x, I i, I j, I k) {
         return x(i, j, k) + (detail::masked((i * x.shape[1] + j) * x.shape[2] + k) ? 0.5 : -4);
       }},
      {"gather of [m]",
       [of_ids](const X& x) {
         const auto ids = [&](I i) { return detail::row_id(i, x[0]); };
         return gather(x, detail::integers<std::int32_t>(shape(of_ids(x, 0)), x.tape(), ids));
       },
       [](E x, I i, I j, I k) { return x(detail::row_id(i, x.shape[0]), j, k); }},
      {"gather of [b, m]",
       [of_ids](const X& x) {
         const auto ids = [&](I i) { return detail::row_id(i, x[1]); };
         return gather(x, detail::integers<std::int32_t>(shape(x[0], of_ids(x, 1)), x.tape(), ids));
       },
       [](E x, I i, I j, I k) { return x(i, detail::row_id(i * (x.shape[1] + 2) + j, x.shape[1]), k); }},
      {"gather of [b, s, m]",
       [of_ids](const X& x) {
         const auto ids = [&](I i) { return detail::row_id(i, x[2]); };
         return gather(x, detail::integers<std::int32_t>(shape(x[0], x[1], of_ids(x, 2)), x.tape(), ids));
       },
       [](E x, I i, I j, I k) {
         return x(i, j, detail::row_id((i * x.shape[1] + j) * (x.shape[2] + 2) + k, x.shape[2]));
       }},
      {"parts of grouped heads",
       [](const X& x) {  // [b, s, n (2 + 1 + 1)] of n heads, with queries in pairs
         const auto apart = reshape(concat<-1>(x, 2.0 * x, square(x), -x), shape(x[0], x[1], x[2], Size{4}));
         const auto [q, k, v] = split<-1>(apart, std::array<Size, 3>{2, 1, 1});
         return reshape(concat<-1>(v, q, k), shape(x[0], x[1], 4 * x[2]));
       },
       [](E x, I i, I j, I k) {
         const I n = x.shape[2], from = k / 4 * 4 + (k % 4 + 3) % 4, part = from / n;
         const double a = x(i, j, from % n);
         return part == 0 ? a : part == 1 ? 2 * a : part == 2 ? a * a : -a;
       }},
  };
}

}  // namespace dspp::laws
