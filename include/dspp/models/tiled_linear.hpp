// SPDX-License-Identifier: Apache-2.0
/// A linear layer whose weight is a grid of tiles, each a unit of its own.
#pragma once

#include <utility>
#include <vector>

#include <dspp/nn/linear.hpp>
#include <dspp/nn/walk.hpp>
#include <dspp/ops/matmul_columns.hpp>
#include <dspp/zero/unit.hpp>

namespace dspp {

/// A tile of a weight: outputs [row, row + rows), inputs [column, column + columns) of this rank's part.
template <class P>
struct WeightTile : Layer<P> {
  using OwnUnit = Unit<ElementOf<P>, DeviceOf<P>>;

  ParameterOf<P, 3> weight;
  OwnUnit unit;
  Size row, column;

  constexpr WeightTile(ParameterOf<P, 3> part, Size first_row, Size first_column)
      : weight(std::move(part)), row(first_row), column(first_column) {}

  constexpr void visit(auto&& f) {
    boundary_ = &unit;
    f("weight", weight);
  }
  /// Gathers the tile for a scope.
  constexpr OpenUnit<ElementOf<P>, DeviceOf<P>> in_use(Pass pass) const {
    if (!boundary_) (void)weight.value();  // throws: visit() did not name it
    return {*boundary_, pass};
  }
  constexpr Size rows() const { return weight.shape()[1]; }
  constexpr Size columns() const { return weight.shape()[2]; }
  constexpr auto matrix() const { return ops::Columns(weight.value().reshape(dspp::shape(rows(), columns()))); }

 private:
  OwnUnit* boundary_ = nullptr;  // `unit` since the visit
};

/// Linear with the weight in In x Out tiles, for Tiled to wrap in a parallel layer. Constructors, `affine`, `times` and
/// `shift` are Linear's. If the counts do not divide the extents, tile extents differ by one.
template <class P, int In, int Out>
struct TiledLinear : Layer<P> {
  std::vector<WeightTile<P>> tiles;  ///< [Out][In]: in order of use
  ParameterOf<P, 2> bias;            ///< whole, in the enclosing unit
  bool has_bias;

  constexpr explicit TiledLinear(const LinearConfig& c) : TiledLinear(c, Cut{}, Cut{}) {}
  constexpr TiledLinear(Size in, Size out) : TiledLinear(LinearConfig{.in = in, .out = out}) {}
  constexpr TiledLinear(const LinearConfig& c, Cut weight_cut, Cut bias_cut);

  constexpr void visit(auto&& f) {
    for (auto& tile : tiles) f(Unnamed{}, tile);
    if (has_bias) f("bias", bias);
  }

  template <Tracked X>
  constexpr auto operator()(const X& x) const {
    check_value_of<P, X>();
    check_whole_features<state_of<X>, X::rank>();
    if constexpr (is_value_of<P, X>)
      return affine<state_of<X>>(x);
    else
      return x;
  }

  /// y + b.
  template <Tracked Y>
  constexpr auto shift(const Y& y) const;

 protected:  // for parallel wrappers, which guarantee State
  template <class State, Tracked X>
  constexpr auto times(const X& x) const {
    return product<State>(x, false, Kept<TensorOf<X::rank>>{x.value()});
  }
  template <class State, Tracked X, class Keep>
  constexpr auto affine(const X& x, Keep keep) const {
    return product<State>(x, has_bias, std::move(keep));
  }
  template <class State, Tracked X>
  constexpr auto affine(const X& x) const {
    return product<State>(x, has_bias, Kept<TensorOf<X::rank>>{x.value()});
  }

 private:
  using T = ElementOf<P>;
  using D = DeviceOf<P>;
  template <int Rank>
  using TensorOf = Tensor<T, Rank, D>;
  /// The default source of x in backward: it is kept.
  template <class Value>
  struct Kept {
    Value value;
    constexpr const Value& operator()(Tape<D>&) const { return value; }
  };

  template <class State, class X, class Keep>
  constexpr auto product(const X& x, bool with_bias, Keep keep) const;
  constexpr void forward(const TensorOf<2>& x, const TensorOf<2>& y, bool with_bias, Pass pass) const;
  constexpr void backward(const TensorOf<2>& x, const TensorOf<2>& dy, const TensorOf<2>& dx) const;
  constexpr void add_to_bias(const TensorOf<2>& dy) const {
    if (bias.is_frozen()) return;
    bias.accumulate([&](auto db, Write how) { ops::sum_rows_into(db.reshape(dspp::shape(rows_)), how, dy); });
  }

  Size rows_ = 0, columns_ = 0;  // of this rank's part
};

// ---------------------------------------------------------------------------------------------------------------------

template <class P, int In, int Out>
constexpr TiledLinear<P, In, Out>::TiledLinear(const LinearConfig& c, Cut weight_cut, Cut bias_cut)
    : bias("Linear bias", dspp::shape(c.groups, c.outputs_of_group()), Initial::zeros(), bias_cut), has_bias(c.bias) {
  // clang-format off
  require(c.in > 0 && c.out > 0, "dspp: Linear needs at least one input and one output, but got none. Give in and out.");
  // clang-format on
  require(c.out % c.groups == 0, "dspp: Linear needs outputs that its groups divide, but they do not. Change out.");
  ParameterOf<P, 3> weight("Linear weight", dspp::shape(c.groups, c.outputs_of_group(), c.in), c.initial, weight_cut);
  weight.groups_first = bias.groups_first = true;
  bias.decays = false;
  rows_ = weight.shape()[0] * weight.shape()[1];
  columns_ = weight.shape()[2];
  // clang-format off
  require(rows_ >= Out && columns_ >= In, "dspp: Tiled needs an input and an output for every tile, but has more tiles than a rank has inputs or outputs. Lower In or Out.");
  // clang-format on
  tiles.reserve(static_cast<std::size_t>(In * Out));
  for (int o = 0; o < Out; ++o)
    for (int i = 0; i < In; ++i) {
      const Size row = rows_ * o / Out, column = columns_ * i / In;
      tiles.emplace_back(
          weight.tile_of(o * In + i, row, rows_ * (o + 1) / Out - row, column, columns_ * (i + 1) / In - column), row,
          column);
    }
}

/// One tile at a time: the first tile of an output overwrites its columns of y, with the bias; the others add to them.
template <class P, int In, int Out>
constexpr void TiledLinear<P, In, Out>::forward(const TensorOf<2>& x, const TensorOf<2>& y, bool with_bias,
                                                Pass pass) const {
  Tensor<T, 1, D> whole_bias;
  if (with_bias) whole_bias = bias.value().reshape(dspp::shape(rows_));
  for (const WeightTile<P>& tile : tiles) {
    const auto use = tile.in_use(pass);
    const bool first = tile.column == 0;
    Tensor<T, 1, D> shift;
    if (first && with_bias)
      shift = Tensor<T, 1, D>::view(whole_bias.storage(), whole_bias.offset() + tile.row, dspp::shape(tile.rows()));
    ops::matmul_columns_into(ops::Columns(y, tile.row, tile.rows()), first ? Write::overwrite : Write::accumulate,
                             ops::Columns(x, tile.column, tile.columns()), Transpose::no, tile.matrix(), Transpose::yes,
                             shift);
  }
}

/// One tile at a time, the last first: its share of dx, unless dx is empty; then its values are released, and dW is
/// computed and its reduction started.
template <class P, int In, int Out>
constexpr void TiledLinear<P, In, Out>::backward(const TensorOf<2>& x, const TensorOf<2>& dy,
                                                 const TensorOf<2>& dx) const {
  for (auto tile = tiles.rbegin(); tile != tiles.rend(); ++tile) {
    const ops::Columns dy_part(dy, tile->row, tile->rows());
    if (dx) {
      const auto use = tile->in_use(Pass::backward);
      const bool first = tile->row + tile->rows() == rows_;
      ops::matmul_columns_into(ops::Columns(dx, tile->column, tile->columns()),
                               first ? Write::overwrite : Write::accumulate, dy_part, Transpose::no, tile->matrix(),
                               Transpose::no);
    }
    if (tile->weight.is_frozen()) continue;
    tile->weight.accumulate([&](auto dw, Write how) {
      ops::matmul_columns_into(ops::Columns(dw.reshape(dspp::shape(tile->rows(), tile->columns()))), how, dy_part,
                               Transpose::yes, ops::Columns(x, tile->column, tile->columns()), Transpose::no);
    });
  }
}

template <class P, int In, int Out>
template <class State, class X, class Keep>
constexpr auto TiledLinear<P, In, Out>::product(const X& x, bool with_bias, Keep keep) const {
  check_whole_over_cp<typename X::Placement, -1, X::rank>();
  if (x[-1] != columns_)
    fail(ErrorCode::shape, "dspp: Linear needs " + std::to_string(columns_) + " features, but its input is " +
                               to_string(x.shape()) + ". Check the width of the layer before it.");
  auto value =
      TensorOf<X::rank>::uninitialized(x.shape().with(-1, rows_), x.memory(), Category::activations, "TiledLinear");
  forward(detail::as_rows(x.value()), detail::as_rows(value), with_bias,
          x.tape().context().in_backward ? Pass::recompute : Pass::forward);
  InState<X, State> y(std::move(value), x);
  if (!x.tape().recording()) return y;
  for (const WeightTile<P>& tile : tiles) tile.weight.register_use(x);
  if (with_bias) bias.register_use(x);
  y.on_backward([self = this, slot = x.slot(), shape = x.shape(), kept = std::move(keep), with_bias](
                    Tape<D>& tape, TensorOf<X::rank> dy) {
    const auto dy_rows = detail::as_rows(dy);
    if (with_bias) self->add_to_bias(dy_rows);
    TensorOf<X::rank> dx;
    TensorOf<2> dx_rows;
    if (slot.takes_gradient()) {
      dx = TensorOf<X::rank>::uninitialized(shape, tape.memory(), Category::activations, "TiledLinear");
      dx_rows = detail::as_rows(dx);
    }
    self->backward(detail::as_rows(kept(tape)), dy_rows, dx_rows);
    dx_rows.release();
    tape.give(slot, std::move(dx));
  });
  return y;
}

template <class P, int In, int Out>
template <Tracked Y>
constexpr auto TiledLinear<P, In, Out>::shift(const Y& y) const {
  static_assert(
      Finished<state_of<Y>>,
      "dspp: a bias needs a finished value, but this one is Partial over Tp: the bias would be added once per rank. "
      "redistribute<Invariant>(x) first, then add the bias.");
  check_equal_slices<state_of<Y>>();
  if (!has_bias) return y;
  Y z(ops::add_bias(y.value(), bias.value().reshape(dspp::shape(rows_))), y);
  if (!y.tape().recording()) return z;
  bias.register_use(y);
  z.on_backward([self = this, slot = y.slot()](Tape<D>& tape, TensorOf<Y::rank> dz) {
    self->add_to_bias(detail::as_rows(dz));
    tape.give(slot, std::move(dz));
  });
  return z;
}

}  // namespace dspp
