// SPDX-License-Identifier: Apache-2.0
/// BERT and the models of examples/models as make_models_golden.py has them, for check_own_golden().
#pragma once

#include <dspp/models/bert.hpp>
#include <laws/own_model_golden.hpp>

#include "../../examples/models/parallel_llama.hpp"
#include "../../examples/models/two_towers.hpp"
#include "../../examples/models/vit.hpp"

namespace dspp::laws {

/// Sequences padded to one length, and labels of the masked tokens.
struct SmallBert {
  template <class P>
  using Model = Bert<P>;
  static constexpr BertConfig config{.layers = 2, .width = 16, .vocabulary = 61, .sequence = 10};
  static constexpr const char* file = "bert_golden.safetensors";
  static constexpr Size samples = 4, sequence = 8, targets = 7;
  static void fill(auto& batch, auto& world, const io::SafetensorsReader& golden) {
    fill_field(batch.tokens, world, golden, "tokens");
    fill_field(batch.token_types, world, golden, "token_types");
    fill_field(batch.lengths, world, golden, "lengths");
    fill_field(batch.labels, world, golden, "labels");
  }
};

/// Images of floats in patches.
struct SmallVit {
  template <class P>
  using Model = dspp::vit::Vit<P>;
  static constexpr dspp::vit::Config config{.width = 16, .image = 4, .patch = 2};
  static constexpr const char* file = "vit_golden.safetensors";
  static constexpr Size samples = 4, sequence = 0, targets = 4;
  static void fill(auto& batch, auto& world, const io::SafetensorsReader& golden) {
    fill_field(batch.images, world, golden, "images");
    fill_field(batch.labels, world, golden, "labels");
  }
};

/// Images and texts that are gathered over the data ranks.
struct SmallTowers {
  template <class P>
  using Model = dspp::two_towers::TwoTowers<P>;
  static constexpr dspp::two_towers::Config config{
      .width = 8, .features = 6, .image = 4, .patch = 2, .channels = 2, .vocabulary = 11, .tokens = 4};
  static constexpr const char* file = "two_towers_golden.safetensors";
  static constexpr Size samples = 4, sequence = 0, targets = 4;
  static void fill(auto& batch, auto& world, const io::SafetensorsReader& golden) {
    fill_field(batch.images, world, golden, "images");
    fill_field(batch.tokens, world, golden, "tokens");
    fill_field(batch.match, world, golden, "match");
  }
};

/// Norms of queries and keys, soft caps of scores and logits, smoothed labels, ignored targets.
struct SmallParallelLlama {
  template <class P>
  using Model = dspp::parallel_llama::ParallelLlama<P>;
  static constexpr dspp::parallel_llama::Config config{.width = 16,
                                                       .ffn_width = 24,
                                                       .vocabulary = 61,
                                                       .rope_theta = 100,
                                                       .score_cap = 2,
                                                       .logit_cap = 3,
                                                       .label_smoothing = 0.1};
  static constexpr const char* file = "parallel_llama_golden.safetensors";
  static constexpr Size samples = 4, sequence = 8, targets = 26;
};

}  // namespace dspp::laws
