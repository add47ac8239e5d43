// SPDX-License-Identifier: Apache-2.0
/// Text from a model, token by token.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <dspp/base/philox.hpp>
#include <dspp/engine/weights.hpp>

namespace dspp {

struct GenerateConfig {
  Size tokens = 200;         ///< tokens to generate
  Size sequence = 0;         ///< context length: how many of the last tokens the model sees; required
  double temperature = 0.8;  ///< logits are divided by it; 0 is greedy
  std::uint64_t seed = 0;
};

/// The tokens that follow `prompt`, which must not be empty, from Weights or an engine. Every rank gets the same
/// tokens.
///
/// Cost     per token one forward pass over `sequence` positions, with logits of the last position only if the model
///          has logits_at(ids, position); under Tp an all-gather of these, and under Cp a broadcast of the token from
///          the rank that has the last position
/// Throws   Error(usage) for an empty prompt; Error(placement) unless Cp divides the sequence
template <HoldsWeights Holder>
std::vector<std::int32_t> generate(Holder& engine, std::vector<std::int32_t> prompt, const GenerateConfig& config,
                                   CallSite site = CallSite::here());

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
/// Samples from softmax(logits / temperature): the inverse of its distribution function at `uniform`.
template <class T>
std::int32_t draw(const T* logits, Size count, double temperature, double uniform) {
  const T* likeliest = std::max_element(logits, logits + count,
                                        [](T a, T b) { return static_cast<double>(a) < static_cast<double>(b); });
  if (temperature <= 0) return static_cast<std::int32_t>(likeliest - logits);
  const double largest = static_cast<double>(*likeliest);
  std::vector<double> weights(static_cast<std::size_t>(count));
  double sum = 0;
  for (Size i = 0; i < count; ++i)
    sum += weights[static_cast<std::size_t>(i)] = std::exp((static_cast<double>(logits[i]) - largest) / temperature);
  double left = uniform * sum;
  for (Size i = 0; i < count; ++i)
    if ((left -= weights[static_cast<std::size_t>(i)]) < 0) return static_cast<std::int32_t>(i);
  return static_cast<std::int32_t>(likeliest - logits);
}
}  // namespace detail

template <HoldsWeights Holder>
std::vector<std::int32_t> generate(Holder& engine, std::vector<std::int32_t> prompt, const GenerateConfig& config,
                                   CallSite site) {
  CalledAt here(site);
  using P = typename Holder::P;
  using D = DeviceOf<P>;
  require(!prompt.empty(), "dspp: generate needs a prompt of at least one token, but it is empty. Give it one.");
  require(config.sequence > 0, "dspp: generate needs a sequence of at least 1, but got less. Name the model's.");
  require(config.tokens >= 0 && config.temperature >= 0 && config.temperature - config.temperature == 0,
          "dspp: generate needs tokens and a temperature of at least 0, but got less, infinity or NaN. Change them.");
  static_assert(
      requires { static_cast<Size>(engine.model().config.vocabulary); },
      "dspp: generate needs a model with config.vocabulary, but this one has none. Add a member config that has it, as "
      "Gpt does.");
  auto& world = engine.world();
  const Size own = config.sequence / P::cp;  // positions of this rank
  require(config.sequence % P::cp == 0, "dspp: generate needs a sequence that Cp divides, but it does not. Change it.",
          ErrorCode::placement, {{"sequence", config.sequence}, {"Cp", P::cp}});
  std::vector<std::int32_t> text = std::move(prompt), result;
  const Size vocabulary = engine.model().config.vocabulary;
  for (Size n = 0; n < config.tokens; ++n) {
    // always `sequence` long: the mask hides what follows the last token, and one shape is planned once
    const Size seen = std::min(config.sequence, static_cast<Size>(text.size()));
    auto ids = Tensor<std::int32_t, 2, D>::zeros(shape(Size{1}, own), world.memory(), Category::data, "tokens");
    const Size begin = std::min(seen, own * world.cp_rank()), end = std::min(seen, begin + own);
    D::from_host(world.memory(), ids.data(), text.data() + (std::ssize(text) - seen + begin),
                 std::max<Size>(end - begin, 0));
    engine.no_grad([&](const auto& model, Tape<D>& tape) {
      const Size last = seen - 1, holder = last / own, position = last % own;
      constexpr bool has_logits_at = requires {
        model.logits_at(Tokens<P>::constant(ids, tape), position);
      };
      const auto logits = [&] {
        const auto tokens = Tokens<P>::constant(ids, tape);
        if constexpr (has_logits_at)
          return redistribute<Invariant>(model.logits_at(tokens, position));
        else
          return redistribute<Invariant>(model(tokens));
      }();
      const PhiloxStream stream{.key = {config.seed}, .step = n, .sample = 0, .site = 0x005A3B1Eu};
      const auto uniform = static_cast<double>(philox_uniform(stream, 0));
      const auto token = Scalar<std::int32_t, D>::uninitialized({}, world.memory(), Category::communication, "token");
      if (world.cp_rank() == holder)
        D::read(world.memory(), logits.value().data_from(has_logits_at ? 0 : position * logits[-1]), vocabulary,
                [&](const auto* row) { token.fill(detail::draw(row, vocabulary, config.temperature, uniform)); });
      if (P::cp > 1) broadcast(world.cp(), buffer(token.data(), 1), static_cast<int>(holder), Purpose::scalar);
      text.push_back(token.item());
      return 0;
    });
    result.push_back(text.back());
  }
  return result;
}

}  // namespace dspp
