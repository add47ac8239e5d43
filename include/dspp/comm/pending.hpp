// SPDX-License-Identifier: Apache-2.0
/// An operation under way, and what must live until it is complete.
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <dspp/base/config.hpp>

namespace dspp {

/// An operation under way that owns `Owned...` (tensors, vectors: the memory that it reads or writes).
///
///   Pending<> p = c.start_all_gather(in, out, purpose);
///   Pending<Tensor> q = std::move(p).keep(std::move(tensor));
///   Tensor whole = std::move(q).wait();
///
/// Move-only. wait() completes the operation and returns what it owned: nothing, the one object, or a tuple. Moving an
/// owned object must not move its memory. The destructor completes an operation that was not waited for and never
/// throws: the communicator keeps the error for the next call. During stack unwinding it abandons the operation
/// instead: the group has then failed, but no rank reads the memory any more.
template <class... Owned>
class Pending;

namespace detail {

/// How a communicator's operations are completed: plain function pointers, so that Pending is literal.
struct Completion {
  void (*wait)(void* who, std::uint64_t ticket);           ///< completes, or throws; the memory is free either way
  void (*drop)(void* who, std::uint64_t ticket) noexcept;  ///< completes or abandons; the memory is free afterwards
  bool (*is_complete)(const void* who, std::uint64_t ticket) = nullptr;  ///< null: not known before wait()
};

}  // namespace detail

template <>
class Pending<> {
 public:
  /// Already complete.
  constexpr Pending() = default;

  /// For communicators: `how` completes operation `ticket` of `who`.
  constexpr Pending(const detail::Completion* how, void* who, std::uint64_t ticket)
      : how_(how), who_(who), ticket_(ticket) {}

  constexpr Pending(Pending&& other) noexcept : how_(other.how_), who_(other.who_), ticket_(other.ticket_) {
    other.how_ = nullptr;
  }

  constexpr Pending& operator=(Pending&& other) noexcept {
    if (this == &other) return *this;
    if (how_ != nullptr) drop();
    how_ = other.how_;
    who_ = other.who_;
    ticket_ = other.ticket_;
    other.how_ = nullptr;
    return *this;
  }

  constexpr ~Pending() {
    if (how_ != nullptr) drop();
  }

  /// After it, operations of the memory's device see the results, and no other rank accesses this rank's memory: where
  /// operations are done when they return, the results are there. Throws: Error of the communicator.
  constexpr void wait() {
    if (how_ == nullptr) return;
    std::exchange(how_, nullptr)->wait(who_, ticket_);
  }

  /// True if wait() returns at once, with the results. Nothing goes on by asking: poll the communicator. Always false
  /// for communicators that cannot tell.
  constexpr bool is_complete() const {
    return how_ == nullptr || (how_->is_complete != nullptr && how_->is_complete(who_, ticket_));
  }

  /// The same operation, which now owns `things` until it is complete.
  template <class... Things>
  [[nodiscard]] constexpr Pending<std::remove_cvref_t<Things>...> keep(Things&&... things) &&;

 private:
  constexpr void drop() noexcept { std::exchange(how_, nullptr)->drop(who_, ticket_); }

  const detail::Completion* how_ = nullptr;
  void* who_ = nullptr;
  std::uint64_t ticket_ = 0;
};

template <class First, class... Rest>
class Pending<First, Rest...> {
 public:
  /// Already complete, with what it owns.
  constexpr explicit Pending(First first, Rest... rest) : owned_(std::move(first), std::move(rest)...) {}

  constexpr Pending(Pending<>&& operation, First first, Rest... rest)
      : owned_(std::move(first), std::move(rest)...), operation_(std::move(operation)) {}

  constexpr Pending(Pending&&) = default;

  constexpr Pending& operator=(Pending&& other) {
    operation_ = std::move(other.operation_);  // first: completes the operation that writes what is replaced next
    owned_ = std::move(other.owned_);
    return *this;
  }

  constexpr ~Pending() = default;

  /// Completes the operation and returns what it owned.
  constexpr auto wait() && {
    operation_.wait();
    if constexpr (sizeof...(Rest) == 0) {
      return std::get<0>(std::move(owned_));
    } else {
      return std::move(owned_);
    }
  }

 private:
  std::tuple<First, Rest...> owned_;  // destroyed after operation_, which completes first
  Pending<> operation_;
};

template <class... Things>
constexpr Pending<std::remove_cvref_t<Things>...> Pending<>::keep(Things&&... things) && {
  if constexpr (sizeof...(Things) == 0) {
    return std::move(*this);
  } else {
    return Pending<std::remove_cvref_t<Things>...>(std::move(*this), std::forward<Things>(things)...);
  }
}

}  // namespace dspp
