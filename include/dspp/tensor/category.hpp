// SPDX-License-Identifier: Apache-2.0
/// What bytes are for: the rows of every memory table.
#pragma once

#include <dspp/base/types.hpp>

namespace dspp {

enum class Category {
  parameters,     ///< parameters that the computation reads, gathered or resident
  gradients,      ///< of parameters, unreduced and reduced
  optimizer,      ///< master weights and moments
  activations,    ///< values between operations, and their gradients
  communication,  ///< buffers that exist for a collective
  workspace,      ///< scratch of one operation; packed weights of a provider
  data,           ///< tokens and targets
};

inline constexpr int category_count = 7;

constexpr const char* name_of(Category category) {
  constexpr const char* names[category_count] = {"parameters",    "gradients", "optimizer", "activations",
                                                 "communication", "workspace", "data"};
  return names[static_cast<int>(category)];
}

/// Bytes of every category.
struct CategoryBytes {
  Size bytes[category_count] = {};
  constexpr Size& operator[](Category category) { return bytes[static_cast<int>(category)]; }
  constexpr Size operator[](Category category) const { return bytes[static_cast<int>(category)]; }
  friend constexpr bool operator==(const CategoryBytes&, const CategoryBytes&) = default;
};

/// Every block is a multiple of this many bytes and is aligned to it: one cache line, one AVX-512 vector.
inline constexpr Size block_alignment = 64;

}  // namespace dspp
