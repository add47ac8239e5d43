// SPDX-License-Identifier: Apache-2.0
/// The rotary angles of a config.json: their base and their scaling. Used by hugging_face_config.hpp alone.
#pragma once

#include <array>
#include <map>
#include <string>

#include <dspp/hub/hugging_face_fields.hpp>
#include <dspp/ops/rope_scaling.hpp>

namespace dspp::hub::detail {

/// The words of "rope_type", in the order of RopeKind.
inline constexpr std::array<const char*, 5> rope_words{"default", "linear", "dynamic", "llama3", "yarn"};

struct RotaryFields {
  double theta = 10000;
  RopeScaling scaling{};
};

/// The angles of a model whose "max_position_embeddings" is `sequence`: transformers takes it for the original length
/// of dynamic angles, and of others where their object names none.
inline RotaryFields read_rotary(const ConfigFields& whole, Size sequence);

/// Writes them as members, for transformers 5 in one object, for older ones in two fields.
inline void add_rotary_members(std::map<std::string, std::string>& members, const RotaryFields& rotary);

// ---------------------------------------------------------------------------------------------------------------------

/// The scaling that an object of angles describes.
inline RopeScaling read_rope_scaling(const ConfigFields& inner, Size original) {
  constexpr double most = 1e9;
  const auto number = [&](const char* name, double missing, double least) {
    return inner.is_null(name) ? missing : inner.real(name, missing, least, most);
  };
  RopeScaling scaling;
  if (inner.has("factor") && !inner.has("rope_type") && !inner.has("type"))
    inner.refuse("a \"rope_type\" beside \"factor\"", "there is none");
  for (const char* kind_of_layer : {"full_attention", "sliding_attention"})
    if (inner.object(kind_of_layer))
      inner.refuse("rotary angles that all layers share", std::string("there are those of \"") + kind_of_layer + "\"");
  scaling.kind = static_cast<RopeKind>(inner.require_word(
      {"rope_type", "type"}, "default", {rope_words[0], rope_words[1], rope_words[2], rope_words[3], rope_words[4]}));
  if (scaling.kind == RopeKind::none) return scaling;
  inner.require_present("factor");
  scaling.factor = inner.real("factor", 1, 1, most);
  if (scaling.kind == RopeKind::dynamic) scaling.original_sequence = original;
  if (scaling.kind != RopeKind::llama3 && scaling.kind != RopeKind::yarn) return scaling;
  scaling.original_sequence = inner.size_or_null("original_max_position_embeddings", original);
  if (scaling.kind == RopeKind::llama3) {
    inner.require_present("low_freq_factor"), inner.require_present("high_freq_factor");
    scaling.low_freq_factor = inner.real("low_freq_factor", 1, 1e-9, most);
    scaling.high_freq_factor = inner.real("high_freq_factor", 4, 1e-9, most);
    if (scaling.high_freq_factor <= scaling.low_freq_factor)
      inner.refuse("a \"high_freq_factor\" above \"low_freq_factor\"",
                   "they are " + json_real(scaling.high_freq_factor) + " and " + json_real(scaling.low_freq_factor));
    return scaling;
  }
  scaling.beta_fast = number("beta_fast", 32, 1e-9), scaling.beta_slow = number("beta_slow", 1, 1e-9);
  if (scaling.beta_fast < scaling.beta_slow)
    inner.refuse("a \"beta_fast\" of at least \"beta_slow\"",
                 "they are " + json_real(scaling.beta_fast) + " and " + json_real(scaling.beta_slow));
  scaling.attention_factor = number("attention_factor", 0, 1e-9);
  scaling.mscale = number("mscale", 0, 0), scaling.mscale_all_dim = number("mscale_all_dim", 0, 0);
  scaling.truncate = inner.flag("truncate", true);
  return scaling;
}

inline RotaryFields read_rotary(const ConfigFields& whole, Size sequence) {
  const double outside = whole.real("rope_theta", RotaryFields{}.theta, 1, 1e12);
  whole.require_real("partial_rotary_factor", 1, 1);
  RotaryFields rotary{.theta = outside};
  bool known = false;
  for (const char* member : {"rope_scaling", "rope_parameters"}) {
    const auto inner = whole.object(member);
    if (!inner) continue;
    const RopeScaling scaling = read_rope_scaling(*inner, sequence);
    const Size used = scaling.original_sequence,
               original = whole.size_or_null("original_max_position_embeddings", used);
    if ((scaling.kind == RopeKind::llama3 || scaling.kind == RopeKind::yarn) && original != used)
      whole.refuse("\"original_max_position_embeddings\" in \"" + std::string(member) + "\"",
                   "it is " + std::to_string(original) + " outside, and " + std::to_string(used) + " holds there");
    if (known && scaling != rotary.scaling)
      whole.refuse("one scaling of rotary positions", "those of \"rope_scaling\" and \"rope_parameters\" differ");
    known = true;
    rotary.scaling = scaling;
    inner->require_real("partial_rotary_factor", 1, 1);
    rotary.theta = inner->real("rope_theta", outside, 1, 1e12);
    if (whole.has("rope_theta") && rotary.theta != outside)
      whole.refuse("one \"rope_theta\"", std::string("it is ") + json_real(outside) + ", and " +
                                             json_real(rotary.theta) + " in \"" + member + "\"");
  }
  return rotary;
}

/// The scaling's members, without those that have their defaults.
inline std::map<std::string, std::string> rope_members(const RopeScaling& scaling) {
  std::map<std::string, std::string> members;
  members["rope_type"] = json_quoted(rope_words[static_cast<std::size_t>(scaling.kind)]);
  if (scaling.kind != RopeKind::none) members["factor"] = json_real(scaling.factor);
  if (scaling.kind == RopeKind::llama3) {
    members["low_freq_factor"] = json_real(scaling.low_freq_factor);
    members["high_freq_factor"] = json_real(scaling.high_freq_factor);
  }
  if (scaling.kind == RopeKind::llama3 || scaling.kind == RopeKind::yarn)
    members["original_max_position_embeddings"] = std::to_string(scaling.original_sequence);
  if (scaling.kind != RopeKind::yarn) return members;
  const RopeScaling usual;
  const auto add = [&](const char* name, double value, double missing) {
    if (value != missing) members[name] = json_real(value);
  };
  add("beta_fast", scaling.beta_fast, usual.beta_fast), add("beta_slow", scaling.beta_slow, usual.beta_slow);
  add("attention_factor", scaling.attention_factor, 0);
  add("mscale", scaling.mscale, 0), add("mscale_all_dim", scaling.mscale_all_dim, 0);
  if (!scaling.truncate) members["truncate"] = "false";
  return members;
}

inline void add_rotary_members(std::map<std::string, std::string>& members, const RotaryFields& rotary) {
  auto inner = rope_members(rotary.scaling);
  if (rotary.scaling.kind != RopeKind::none) members["rope_scaling"] = json_lines(inner, 1);
  inner["rope_theta"] = json_real(rotary.theta);
  members["rope_parameters"] = json_lines(inner, 1);
  members["rope_theta"] = json_real(rotary.theta);
}

}  // namespace dspp::hub::detail
