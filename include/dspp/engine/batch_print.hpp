// SPDX-License-Identifier: Apache-2.0
/// The digests of a batch that ranks compare.
#pragma once

#include <algorithm>
#include <cstdint>

#include <dspp/base/digest.hpp>
#include <dspp/base/list.hpp>
#include <dspp/engine/batch.hpp>
#include <dspp/ops/cross_entropy.hpp>

namespace dspp {

/// What ranks compare of the batch of a micro-step.
struct BatchPrint {
  struct Field {
    const char* name = "";
    std::uint64_t digest = 0;
    bool given = false;  ///< or left out
    bool cut = false;    ///< over Cp: ranks of Cp have other elements
  };
  Size first_sample = 0, rows = 0;
  Size length = 0;          ///< of a slice of the sequences of tokens
  std::uint64_t slice = 0;  ///< a digest of the tokens and targets there
  List<Field> fields{};
  List<const char*> reports{};  ///< the names that the forward reported
  /// In some row every inner target is the next token, but the last target is not the first token, or is ignored in a
  /// row that is not constant.
  bool ends_otherwise = false;

  constexpr void add_left_out(const char* name) { fields.push_back(Field{name}); }
  void add(const char* name, const void* data, Size bytes, bool cut);
  /// Target weights of the last field: its digest is that of both.
  void add_weights(const void* data, Size bytes);
};

namespace detail {
/// Slices of fewer tokens may be equal by chance.
inline constexpr Size least_compared_tokens = 8;

/// BatchPrint::ends_otherwise of rows of `length` tokens and targets.
bool ends_otherwise(Size rows, Size length, const std::int32_t* tokens, const std::int32_t* targets);

/// Whether Cp cuts a field. Those of a Batch are sequences.
template <class T, int Rank, class D>
constexpr bool is_cut_field(const Tensor<T, Rank, D>&) {
  return true;
}
template <class T, int Rank, Device D, class Where>
constexpr bool is_cut_field(const Variable<T, Rank, D, Where>&) {
  return Where::cp_dimension >= 0;
}
}  // namespace detail

/// The digests of a batch; empty on paper.
///
/// Cost     reads it once; synchronizes
template <class B>
constexpr BatchPrint print_of(const B& batch, Size first_sample) {
  BatchPrint print{.first_sample = first_sample};
  const Size rows = detail::rows_of(batch);
  detail::for_each_field(batch, [&](const char* name, const auto& field) {
    const auto& tensor = detail::tensor_of(field);
    if (!tensor) return print.add_left_out(name);
    tensor.read([&](const auto* host) {
      print.rows = rows;
      print.add(name, host, tensor.bytes(), detail::is_cut_field(field));
    });
    detail::with_target_weights(field, [&](const auto& weights) {
      weights.read([&](const auto* host) { print.add_weights(host, weights.bytes()); });
    });
  });
  if constexpr (detail::is_token_batch<B>)
    batch.tokens.read([&](const auto* tokens) {
      print.length = batch.tokens[1];
      print.slice = Digest().add(print.fields[0].digest).add(print.fields[1].digest).value();
      if (batch.targets.shape() != batch.tokens.shape()) return;
      batch.targets.read([&](const auto* targets) {
        print.ends_otherwise = detail::ends_otherwise(batch.tokens[0], batch.tokens[1], tokens, targets);
      });
    });
  return print;
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void BatchPrint::add(const char* name, const void* data, Size bytes, bool cut) {
  fields.push_back(Field{name, Digest().add(data, bytes).value(), true, cut});
}

DSPP_INLINE void BatchPrint::add_weights(const void* data, Size bytes) {
  std::uint64_t& digest = fields.back().digest;
  digest = Digest().add(digest).add(data, bytes).value();
}

DSPP_INLINE bool detail::ends_otherwise(Size rows, Size length, const std::int32_t* all_tokens,
                                        const std::int32_t* all_targets) {
  bool otherwise = false;
  Size unended = 0;  // tokens of rows that are not constant and whose last target is ignored
  for (Size i = 0; i < rows && length > 1; ++i) {
    const std::int32_t *tokens = all_tokens + i * length, *targets = all_targets + i * length;
    const bool follows = std::equal(tokens + 1, tokens + length, targets, [](std::int32_t token, std::int32_t target) {
      return target == token || target == ignored_target;
    });
    const std::int32_t last = targets[length - 1];
    otherwise |= follows && last >= 0 && last != tokens[0];
    if (follows && last == ignored_target && std::count(tokens, tokens + length, tokens[0]) != length)
      unended += length;
  }
  return otherwise || unended >= least_compared_tokens;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
