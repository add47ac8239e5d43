// SPDX-License-Identifier: Apache-2.0
/// Holds a type that constant expressions cannot have, such as std::string, in an object that they can.
#pragma once

#include <type_traits>
#include <utility>

#include <dspp/base/config.hpp>

namespace dspp {

/// A T, or empty until get_or_make() at run time. Move-only.
template <class T>
class AtRunTime {
 public:
  constexpr AtRunTime() = default;
  constexpr AtRunTime(AtRunTime&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  constexpr AtRunTime& operator=(AtRunTime&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  constexpr ~AtRunTime() {
    if (value_) delete value_;
  }

  T& get_or_make() {
    if (!value_) value_ = new T();
    return *value_;
  }
  constexpr explicit operator bool() const { return value_ != nullptr; }
  constexpr const T& operator*() const { return *value_; }
  constexpr T* operator->() const { return value_; }

 private:
  T* value_ = nullptr;
};

}  // namespace dspp
