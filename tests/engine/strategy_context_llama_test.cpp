// SPDX-License-Identifier: Apache-2.0
// The strategy matrix: context parallelism of a Llama, whose heads of keys and values may be fewer than ranks.
// labels: matrix
#include <algorithm>

#include <laws/one_rank_curves.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// A cell of a Llama: if there are fewer heads of keys and values than ranks, each is sent once to every rank.
template <class Model>
void check_llama(const Cell& cell, const Trained& one) {
  const LlamaConfig c = config_of<Model>(cell);
  const Trained trained = check_cell<Model>(cell, one, 1e-9);
  const Size moved_kv_heads = std::max<Size>(c.kv_heads, trained.facts.cp * trained.facts.tp);
  check_tensor_traffic(trained, sizes_of(c));
  check_context_traffic(trained, c.layers, (2 * c.heads + 2 * moved_kv_heads) * c.head_dim);
  CHECK(parameter_gap(trained, one) < 1e-9);
}

}  // namespace

TEST_CASE("f64: a Llama's grouped heads and rotary positions over context ranks follow the one-rank curve") {
  const Trained one = train<Llama<Policy<F64>>>({});
  for (int ranks : {2, 4}) check_llama<Llama<Policy<F64, Zero<3>, Cp<2>>>>({.ranks = ranks}, one);
  check_llama<Llama<Policy<F64, Zero<1>, Cp<4>>>>({.ranks = 4, .accumulate = 2}, one);
  check_llama<Llama<Policy<F64, Cp<2>, Tp<2>, SequenceParallel>>>({.ranks = 4}, one);
}

TEST_CASE("f64: a Llama with a window, biases, normed queries and keys and scaled angles over context ranks") {
  const Trained one = train<Llama<Policy<F64>>>({.steps = 5, .llama_options = true});
  check_llama<Llama<Policy<F64, Zero<3>, Cp<2>>>>({.ranks = 4, .steps = 5, .llama_options = true}, one);
  check_llama<Llama<Policy<F64, Zero<1>, Cp<4>>>>({.ranks = 4, .accumulate = 2, .steps = 5, .llama_options = true},
                                                  one);
}

TEST_CASE("f64: a Llama with fewer heads of keys and values than context ranks follows the one-rank curve") {
  for (const Size kv_heads : {1, 2}) {
    CAPTURE(kv_heads);
    const Trained one = train<Llama<Policy<F64>>>({.kv_heads = kv_heads});
    check_llama<Llama<Policy<F64, Zero<1>, Cp<4>>>>({.ranks = 4, .accumulate = 2, .kv_heads = kv_heads}, one);
    for (int ranks : {2, 4})
      check_llama<Llama<Policy<F64, Zero<3>, Cp<2>>>>({.ranks = ranks, .kv_heads = kv_heads}, one);
    if (kv_heads == 2)
      check_llama<Llama<Policy<F64, Cp<2>, Tp<2>, SequenceParallel>>>({.ranks = 4, .kv_heads = kv_heads}, one);
  }
}
