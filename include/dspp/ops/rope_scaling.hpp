// SPDX-License-Identifier: Apache-2.0
/// Scaled rotary angles, for positions beyond those of the training sequences, as in transformers' modeling_rope_utils.
#pragma once

#include <algorithm>
#include <cmath>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>

namespace dspp {

/// linear: every frequency by the factor. dynamic: the base grows with the sequence, once it is longer than the
/// original one. llama3: low frequencies by the factor, middle ones by a part of it. yarn: the same along a ramp over
/// the features, and cosines and sines by attention_factor.
///
/// Source   linear: Chen et al. 2023, arXiv:2306.15595; yarn: Peng et al. 2023, arXiv:2309.00071; dynamic and llama3:
///          transformers 5.24, modeling_rope_utils.py
enum class RopeKind { none, linear, dynamic, llama3, yarn };

/// The fields that a kind does not name are ignored.
struct RopeScaling {
  RopeKind kind = RopeKind::none;
  double factor = 1;
  Size original_sequence = 0;  ///< dynamic, llama3, yarn: of the training before, original_max_position_embeddings
  double low_freq_factor = 1, high_freq_factor = 4;  ///< llama3: wave lengths of original_sequence by these
  double beta_fast = 32, beta_slow = 1;   ///< yarn: turns within original_sequence where the ramp has its ends
  double attention_factor = 0;            ///< yarn: of cosines and sines; 0: from factor, mscale, mscale_all_dim
  double mscale = 0, mscale_all_dim = 0;  ///< yarn: 0 is none; used if both are given
  bool truncate = true;                   ///< yarn: the ramp begins and ends at whole features

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;

  /// Values that no shape shows: those of the kind, none without scaling.
  constexpr void describe(auto&& f) const {
    if (kind == RopeKind::none) return;
    f("rope_scaling", static_cast<int>(kind)), f("rope_factor", factor);
    if (kind != RopeKind::linear) f("original_sequence", original_sequence);
    if (kind == RopeKind::llama3) f("low_freq_factor", low_freq_factor), f("high_freq_factor", high_freq_factor);
    if (kind != RopeKind::yarn) return;
    f("beta_fast", beta_fast), f("beta_slow", beta_slow), f("attention_factor", attention_factor);
    f("mscale", mscale), f("mscale_all_dim", mscale_all_dim), f("truncate", truncate ? 1 : 0);
  }
};

/// Throws   Error(usage) unless the fields of the kind are those of a scaling
constexpr void require_rope_scaling(const RopeScaling& scaling, Size head_dim);

namespace ops {

/// The frequencies of head_dim / 2 pairs of features in sequences of `sequence` positions.
///
/// dynamic   the base of sequences not longer than original_sequence is theta
inline void rope_frequencies(Size head_dim, double theta, const RopeScaling& scaling, Size sequence,
                             double* frequencies);

/// The factor of cosines and sines: 1 but for yarn.
inline double rope_attention_factor(const RopeScaling& scaling);

}  // namespace ops

// ---------------------------------------------------------------------------------------------------------------------

constexpr void require_rope_scaling(const RopeScaling& scaling, Size head_dim) {
  if (scaling.kind == RopeKind::none) return;
  require(scaling.factor >= 1, "dspp: RopeScaling needs a factor of at least 1, but got less, or NaN. Change factor.");
  if (scaling.kind == RopeKind::linear) return;
  require(scaling.original_sequence >= 1,
          "dspp: RopeScaling needs the length of the sequences before it, but got none. Give original_sequence.");
  if (scaling.kind == RopeKind::dynamic)
    require(head_dim > 2,
            "dspp: RopeScaling by RopeKind::dynamic needs heads of more than one pair of features, but they have one. "
            "Change head_dim or kind.");
  if (scaling.kind == RopeKind::llama3)
    require(scaling.low_freq_factor > 0 && scaling.high_freq_factor > scaling.low_freq_factor,
            "dspp: RopeScaling needs a high_freq_factor above low_freq_factor, and both above 0, but they are not. "
            "Change them.");
  if (scaling.kind == RopeKind::yarn)
    require(scaling.beta_slow > 0 && scaling.beta_fast >= scaling.beta_slow && scaling.attention_factor >= 0,
            "dspp: RopeScaling needs a beta_fast of at least beta_slow, both above 0, and no attention_factor below 0, "
            "but they are others. Change them.");
}

namespace ops {

namespace detail {
/// The parts of a ramp from `begin` to `end` at feature j, within [0, 1].
inline double rope_ramp(double begin, double end, Size j) {
  if (begin == end) end += 0.001;
  return std::clamp((static_cast<double>(j) - begin) / (end - begin), 0.0, 1.0);
}

inline constexpr double whole_turn = 6.283185307179586476925286766559;

/// The frequency of yarn's pair j; `frequency` without scaling.
inline double yarn_frequency(double frequency, Size j, Size head_dim, double theta, const RopeScaling& scaling) {
  const auto feature_of = [&](double turns) {
    const double original = static_cast<double>(scaling.original_sequence);
    return static_cast<double>(head_dim) * std::log(original / (turns * whole_turn)) / (2 * std::log(theta));
  };
  double begin = feature_of(scaling.beta_fast), end = feature_of(scaling.beta_slow);
  if (scaling.truncate) begin = std::floor(begin), end = std::ceil(end);
  begin = std::max(begin, 0.0), end = std::min(end, static_cast<double>(head_dim - 1));
  const double kept = 1 - rope_ramp(begin, end, j);
  return frequency / scaling.factor * (1 - kept) + frequency * kept;
}

/// The frequency of llama3's pair; `frequency` without scaling.
inline double llama3_frequency(double frequency, const RopeScaling& scaling) {
  const double original = static_cast<double>(scaling.original_sequence), wave = whole_turn / frequency;
  if (wave < original / scaling.high_freq_factor) return frequency;
  if (wave > original / scaling.low_freq_factor) return frequency / scaling.factor;
  const double kept =
      (original / wave - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

/// The base of dynamic angles.
inline double dynamic_theta(Size head_dim, double theta, const RopeScaling& scaling, Size sequence) {
  if (sequence <= scaling.original_sequence) return theta;
  const double length = static_cast<double>(sequence), original = static_cast<double>(scaling.original_sequence);
  const double dim = static_cast<double>(head_dim);
  return theta * std::pow(scaling.factor * length / original - (scaling.factor - 1), dim / (dim - 2));
}
}  // namespace detail

inline void rope_frequencies(Size head_dim, double theta, const RopeScaling& scaling, Size sequence,
                             double* frequencies) {
  if (scaling.kind == RopeKind::dynamic) theta = detail::dynamic_theta(head_dim, theta, scaling, sequence);
  for (Size j = 0; j < head_dim / 2; ++j) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim));
    switch (scaling.kind) {
      case RopeKind::linear: frequencies[j] = frequency / scaling.factor; break;
      case RopeKind::llama3: frequencies[j] = detail::llama3_frequency(frequency, scaling); break;
      case RopeKind::yarn: frequencies[j] = detail::yarn_frequency(frequency, j, head_dim, theta, scaling); break;
      default: frequencies[j] = frequency;
    }
  }
}

inline double rope_attention_factor(const RopeScaling& scaling) {
  if (scaling.kind != RopeKind::yarn) return 1;
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  const auto magnitude = [&](double times) {
    return scaling.factor <= 1 ? 1.0 : 0.1 * times * std::log(scaling.factor) + 1;
  };
  if (scaling.mscale != 0 && scaling.mscale_all_dim != 0)
    return magnitude(scaling.mscale) / magnitude(scaling.mscale_all_dim);
  return magnitude(1);
}

}  // namespace ops
}  // namespace dspp
