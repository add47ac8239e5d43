// SPDX-License-Identifier: Apache-2.0
/// Checks of ids, targets and target weights.
#pragma once

#include <string>

#include <dspp/base/error.hpp>
#include <dspp/ops/kernels.hpp>

namespace dspp {

template <>
struct Kernel<kernels::RequireIds, Cpu> {
  static void run(Size count, const std::int32_t* ids, Size vocabulary, bool ignored, const char* who) {
    for (Size i = 0; i < count; ++i)
      if ((ids[i] < 0 || ids[i] >= vocabulary) && !(ignored && ids[i] == ignored_target))
        fail_id(i, ids[i], vocabulary, ignored, who);
  }

  [[noreturn]] static void fail_id(Size position, std::int32_t id, Size vocabulary, bool ignored, const char* who);
};

template <>
struct Kernel<kernels::RequireLengths, Cpu> {
  static void run(Size count, const std::int32_t* lengths, Size sequence, const char* who) {
    for (Size i = 0; i < count; ++i)
      if (lengths[i] < 0 || lengths[i] > sequence) fail_length(i, lengths[i], sequence, who);
  }

  [[noreturn]] static void fail_length(Size sample, std::int32_t length, Size sequence, const char* who);
};

template <>
struct Kernel<kernels::RequireWeights, Cpu> {
  static void run(Size count, const float* weights, const char* who) {
    for (Size i = 0; i < count; ++i)
      if (!(weights[i] >= 0 && weights[i] - weights[i] == 0)) fail_weight(i, weights[i], who);
  }

  [[noreturn]] static void fail_weight(Size position, float weight, const char* who);
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void Kernel<kernels::RequireIds, Cpu>::fail_id(Size position, std::int32_t id, Size vocabulary,
                                                           bool ignored, const char* who) {
  std::string text = std::string("dspp: ") + who + " needs " + (ignored ? "targets" : "ids") + " from 0 to " +
                     std::to_string(vocabulary - 1);
  if (ignored) text += ", or " + std::to_string(ignored_target) + " for one that does not count";
  text += std::string(", but the ") + (ignored ? "target" : "id") + " at position " + std::to_string(position) +
          " is " + std::to_string(id);
  if (id >= 0)
    text += ". Encode the text with the vocabulary that the model was made for.";
  else if (ignored)
    text += ". No vocabulary has an id below 0: look for another ignore index, or for a truncated integer.";
  else
    text += ". No vocabulary has an id below 0: look for an ignore index such as -100, or for a truncated integer.";
  fail(ErrorCode::usage, text);
}

DSPP_INLINE void Kernel<kernels::RequireLengths, Cpu>::fail_length(Size sample, std::int32_t length, Size sequence,
                                                                   const char* who) {
  fail(ErrorCode::usage, std::string("dspp: ") + who + " needs lengths from 0 to " + std::to_string(sequence) +
                             ", the positions of the sequence, but that of sample " + std::to_string(sample) + " is " +
                             std::to_string(length) + ". Count the tokens of the sample that are not padding.");
}

DSPP_INLINE void Kernel<kernels::RequireWeights, Cpu>::fail_weight(Size position, float weight, const char* who) {
  fail(ErrorCode::usage, std::string("dspp: ") + who + " needs weights of targets that are 0 or more, but the " +
                             "one at position " + std::to_string(position) + " is " + std::to_string(weight) +
                             ". Give an ignored target weight 0.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
