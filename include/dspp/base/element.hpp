// SPDX-License-Identifier: Apache-2.0
/// Element types: as C++ types in tensors, as values on the wire and in files.
#pragma once

#include <cstdint>

#include <dspp/base/bf16.hpp>
#include <dspp/base/f16.hpp>
#include <dspp/base/types.hpp>

namespace dspp {

enum class ElementType : std::uint8_t { f64, f32, bf16, f16, i32, i64, u8 };

constexpr Size bytes_of(ElementType type) {
  switch (type) {
    case ElementType::f64: return 8;
    case ElementType::i64: return 8;
    case ElementType::f32: return 4;
    case ElementType::i32: return 4;
    case ElementType::bf16: return 2;
    case ElementType::f16: return 2;
    case ElementType::u8: return 1;
  }
  return 0;
}

constexpr const char* name_of(ElementType type) {
  switch (type) {
    case ElementType::f64: return "f64";
    case ElementType::f32: return "f32";
    case ElementType::bf16: return "bf16";
    case ElementType::f16: return "f16";
    case ElementType::i32: return "i32";
    case ElementType::i64: return "i64";
    case ElementType::u8: return "u8";
  }
  return "?";
}

namespace detail {
template <class T>
struct ElementOf;
template <>
struct ElementOf<double> {
  static constexpr ElementType value = ElementType::f64;
};
template <>
struct ElementOf<float> {
  static constexpr ElementType value = ElementType::f32;
};
template <>
struct ElementOf<bf16> {
  static constexpr ElementType value = ElementType::bf16;
};
template <>
struct ElementOf<f16> {
  static constexpr ElementType value = ElementType::f16;
};
template <>
struct ElementOf<std::int32_t> {
  static constexpr ElementType value = ElementType::i32;
};
template <>
struct ElementOf<std::int64_t> {
  static constexpr ElementType value = ElementType::i64;
};
template <>
struct ElementOf<std::uint8_t> {
  static constexpr ElementType value = ElementType::u8;
};

template <class T>
struct ComputeOf {
  using type = T;
};
template <>
struct ComputeOf<bf16> {
  using type = float;
};
template <>
struct ComputeOf<f16> {
  using type = float;
};
}  // namespace detail

template <class T>
inline constexpr ElementType element_type = detail::ElementOf<T>::value;

/// The type that elements of T are computed in: f32 for bf16 and f16, else T itself.
template <class T>
using Compute = typename detail::ComputeOf<T>::type;

}  // namespace dspp
