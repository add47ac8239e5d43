// SPDX-License-Identifier: Apache-2.0
/// Products of tiles against sums in order, on small integers, which are exact; and what vectors compute of their own.
#include <doctest/doctest.h>

#include <bit>
#include <limits>
#include <random>
#include <vector>

#include <dspp/ops/cpu/attention_tiles.hpp>

namespace {

using namespace dspp;
using cpu::HeadRows;
using cpu::KeyRange;
using cpu::LeftTile;

std::mt19937 random_bits(1);

Size below(Size n) {
  return static_cast<Size>(random_bits() % static_cast<unsigned>(n));
}

/// A matrix of small integers, whose rows are longer than its columns.
template <class C>
struct Matrix {
  Matrix(Size rows, Size columns, Size padding) : stride(columns + padding) {
    for (Size i = 0; i < rows * stride; ++i) values.push_back(static_cast<C>(below(9) - 4));
  }
  HeadRows<C> rows() { return {values.data(), stride}; }
  HeadRows<const C> const_rows() const { return {values.data(), stride}; }

  Size stride;
  std::vector<C> values;
};

/// What each row of a product takes of [0, count): neither end falls from a row to the next.
std::vector<KeyRange> random_ranges(Size rows, Size count) {
  std::vector<KeyRange> ranges;
  KeyRange last{0, below(count + 1)};
  for (Size i = 0; i < rows; ++i) {
    last.begin = std::min(count, last.begin + (below(3) == 0 ? below(4) : 0));
    last.end = std::max(last.begin, std::min(count, last.end + below(3)));
    ranges.push_back(last);
  }
  return ranges;
}

KeyRange of_group(const std::vector<KeyRange>& ranges, Size i, Size count) {
  return {ranges[static_cast<std::size_t>(i)].begin, ranges[static_cast<std::size_t>(i + count - 1)].end};
}

template <class C>
void check_products(Size rows, Size columns, Size depth, bool transposed) {
  CAPTURE(rows);
  CAPTURE(columns);
  CAPTURE(depth);
  CAPTURE(transposed);
  constexpr C nan = std::numeric_limits<C>::quiet_NaN();
  Matrix<C> a(transposed ? depth : rows, transposed ? rows : depth, 3), b(depth, columns, 5), c(rows, columns, 2);
  const auto left = transposed ? LeftTile<C>::transposed(a.const_rows()) : LeftTile<C>(a.const_rows());
  const auto at = [&](Size i, Size p) -> C& { return transposed ? a.rows()[p][i] : a.rows()[i][p]; };
  const std::vector<KeyRange> depths = random_ranges(rows, depth);
  for (Size i = 0; i < rows; ++i)
    for (Size p = 0; p < depth; ++p)
      if (p < depths[static_cast<std::size_t>(i)].begin || p >= depths[static_cast<std::size_t>(i)].end) at(i, p) = 0;
  if (rows > 0 && depth > 0 && depths[0].begin > 0) b.rows()[0][0] = nan;  // of no row, since the ranges' begin rises
  for (const bool accumulate : {false, true}) {
    Matrix<C> sums = c;
    cpu::multiply_by_rows<C>(rows, columns, left, b.const_rows(), sums.rows(), accumulate,
                             [&](Size i, Size count) { return of_group(depths, i, count); });
    bool equal = true;
    for (Size i = 0; i < rows; ++i) {
      for (Size j = 0; j < columns; ++j) {
        C sum = accumulate ? c.rows()[i][j] : C(0);
        for (Size p = 0; p < depth; ++p)
          if (at(i, p) != 0) sum += at(i, p) * b.rows()[p][j];
        equal = equal && sums.rows()[i][j] == sum;
      }
      for (Size j = columns; j < c.stride; ++j) equal = equal && sums.rows()[i][j] == c.rows()[i][j];  // not written
    }
    CHECK(equal);
  }
}

template <class C>
void check_ranges(Size rows, Size columns, Size depth) {
  CAPTURE(rows);
  CAPTURE(columns);
  CAPTURE(depth);
  const Size padded = round_up(columns, cpu::vector_length<C>);
  Matrix<C> a(rows, depth, 1), b(depth, padded, 16), c(rows, padded, 16), before = c;
  const std::vector<KeyRange> needed = random_ranges(rows, columns);
  cpu::multiply_to_ranges<C>(rows, columns, depth, a.const_rows(), b.const_rows(), c.rows(),
                             [&](Size i, Size count) { return of_group(needed, i, count); });
  bool equal = true;
  for (Size i = 0; i < rows; ++i)
    for (Size j = needed[static_cast<std::size_t>(i)].begin; j < needed[static_cast<std::size_t>(i)].end; ++j) {
      C sum = 0;
      for (Size p = 0; p < depth; ++p) sum += a.rows()[i][p] * b.rows()[p][j];
      equal = equal && c.rows()[i][j] == sum;
    }
  for (Size i = 0; i < rows; ++i)
    for (Size j = padded; j < c.stride; ++j) equal = equal && c.rows()[i][j] == before.rows()[i][j];  // not written
  CHECK(equal);
}

template <class C>
void check_transposition(Size rows, Size columns) {
  CAPTURE(rows);
  CAPTURE(columns);
  const Size padded = round_up(rows, cpu::vector_length<C>);
  Matrix<C> from(rows, columns, 7), to(columns, padded, 16);
  cpu::transpose_rows<C>(from.const_rows(), rows, columns, to.rows());
  bool equal = true;
  for (Size c = 0; c < columns; ++c)
    for (Size i = 0; i < padded; ++i) equal = equal && to.rows()[c][i] == (i < rows ? from.rows()[i][c] : C(0));
  CHECK(equal);
}

template <class C>
void check_all() {
  for (int i = 0; i < 60; ++i) {
    const Size rows = 1 + below(40), columns = 1 + below(90), depth = 1 + below(40);
    check_products<C>(rows, columns, depth, i % 2 == 1);
    check_ranges<C>(rows, columns, depth);
    check_transposition<C>(rows, columns);
  }
  for (const Size width : {8, 16, 32, 64, 128}) {  // of heads
    check_products<C>(48, width, 96, false);
    check_products<C>(96, width, 72, true);
    check_ranges<C>(48, 192, width);
    check_transposition<C>(96, width);
  }
}

/// Of random masks: what a product reads of the scores covers what its rows see, and is written or zeroed.
template <Size count, Size key_count>
void check_seen(const cpu::HeadExtents& extents, Size first_query, Size rows, Size first_key, Size keys) {
  using cpu::product_rows;
  const cpu::detail::SeenOfTile<count> seen(extents, first_query, rows, first_key, keys);
  const cpu::detail::SeeingOfTile<count, key_count> seeing(seen);
  bool covers = true, zeroed = true;
  const auto sees = [&](Size i, Size j) { return seen[i].begin <= j && j < seen[i].end; };
  const auto written = [&](Size i, Size j) { return seen.read_of(i).begin <= j && j < seen.read_of(i).end; };
  for (Size i = 0; i < rows; ++i)
    for (Size j = 0; j < keys; ++j) {
      const Size query = first_query + i, key = first_key + j;
      covers = covers && sees(i, j) == (extents.seen_from(query) <= key && key < extents.seen_by(query));
      const KeyRange queries = seeing.queries_of(j);
      const bool read_by_key = queries.begin <= i && i < queries.end;
      bool read_by_query = false;
      for (Size group = i / product_rows * product_rows, together = 1; together <= product_rows; ++together)
        if (group + together <= rows && i < group + together) {
          const KeyRange group_keys = seen.keys_of(group, together);
          read_by_query = read_by_query || (group_keys.begin <= j && j < group_keys.end);
        }
      covers = covers && (!sees(i, j) || (read_by_key && read_by_query));
      zeroed = zeroed && (sees(i, j) || written(i, j) || !(read_by_key || read_by_query));
    }
  CHECK(covers);
  CHECK(zeroed);
}

}  // namespace

TEST_CASE("products of tiles are sums over the ranges of their rows, whatever the extents") {
  check_all<float>();
  check_all<double>();
}

TEST_CASE("products of tiles read what their rows see, and nothing that is neither written nor zeroed") {
  for (int i = 0; i < 300; ++i) {
    const Size queries = 1 + below(200), keys = queries + (below(2) == 0 ? 0 : below(60));
    cpu::HeadExtents extents{queries, keys, 64, {}};
    if (below(3) > 0) extents.rule.mask = AttentionMask::causal;
    if (below(3) == 0) extents.rule.window = 1 + below(40);
    std::vector<std::int32_t> ranges;
    if (below(2) == 0)
      for (const KeyRange& range : random_ranges(queries, keys)) {
        ranges.push_back(static_cast<std::int32_t>(range.begin));
        ranges.push_back(static_cast<std::int32_t>(range.end));
      }
    if (!ranges.empty()) extents.ranges = ranges.data();
    const Size first_query = below(queries), first_key = below(keys);
    CAPTURE(i);
    check_seen<48, 96>(extents, first_query, std::min<Size>(48, queries - first_query), first_key,
                       std::min<Size>(96, keys - first_key));
  }
}

TEST_CASE("the exponential of a vector has the bits of each element's") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values{0.0f,  -0.0f,    1e-30f,     88.0f,      88.72283f, 88.72284f, 89.0f,
                            1e30f, infinity, -87.33654f, -87.33655f, -87.4f,    -1e30f,    -infinity};
  for (const std::uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7fc00001u, 0x7fc0007fu, 0xffffffffu})
    values.push_back(std::bit_cast<float>(bits));  // NaN of any payload
  for (int i = 0; i < 4000; ++i) values.push_back(100.0f - static_cast<float>(below(1000000)) * 2e-4f);
  while (values.size() % static_cast<std::size_t>(cpu::vector_length<float>) != 0) values.push_back(0.0f);
  for (std::size_t i = 0; i < values.size(); i += static_cast<std::size_t>(cpu::vector_length<float>)) {
    float results[cpu::vector_length<float>];
    cpu::store_vector<float>(results, cpu::exp_of<float>(cpu::load_vector(values.data() + i)));
    for (std::size_t k = 0; k < static_cast<std::size_t>(cpu::vector_length<float>); ++k) {
      const float x = values[i + k], expected = math::exp(x);
      CAPTURE(x);
      CHECK((std::bit_cast<std::uint32_t>(results[k]) == std::bit_cast<std::uint32_t>(expected) ||
             (results[k] != results[k] && (expected != expected || x == infinity))));
    }
  }
}
