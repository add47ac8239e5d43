// SPDX-License-Identifier: Apache-2.0
/// The number of segments for a model whose configuration has none.
// expected-error {{dspp: segments_that_fit needs a configuration with layers and recompute_segments, but this one has}}
// expected-error {{not both. Add them, and give the second to the model's Stack as its segments.}}
#include <dspp/models/gpt.hpp>
#include <dspp/plan/segments_that_fit.hpp>

using namespace dspp;

struct Depth {
  int layers = 2;
#ifdef DSPP_TWIN
  int recompute_segments = 1;
#endif
  constexpr operator GptConfig() const { return {.layers = layers, .width = 8, .heads = 2, .sequence = 4}; }
};
constexpr int found = segments_that_fit<Gpt<Policy<>>>(Depth{}, {.micro_batch = 1, .sequence = 4}, 1_GiB);
