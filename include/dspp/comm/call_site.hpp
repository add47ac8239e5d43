// SPDX-License-Identifier: Apache-2.0
/// Where in a program a collective was called: the line that an error sentence names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <dspp/comm/traffic.hpp>

namespace dspp {

/// A line of a source file; the file's name must live as long as the program. The default argument `CallSite::here()`
/// is the line of the call. (Not std::source_location, which is empty under clang 14.)
struct CallSite {
  const char* file = nullptr;
  int line = 0;

  static constexpr CallSite here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  constexpr explicit operator bool() const { return file != nullptr; }
  friend constexpr bool operator==(const CallSite&, const CallSite&) = default;
};

/// What a collective is about, beyond purpose and size. Ranks whose subjects differ do not call the same.
struct Subject {
  int bucket = 0;               ///< the ZeRO bucket, in order of the model, from 1; 0: none
  std::int64_t micro_step = 0;  ///< of the engine, from 1; 0: none
  friend constexpr bool operator==(const Subject&, const Subject&) = default;
};

/// The digest of this rank's slice of a sum, which a communicator computes apart from the sum itself, so that a wrong
/// bit in the result shows. A transport may make none.
struct SumDigest {
  std::uint64_t value = 0;  ///< as PlacedDigest has it, of the slice's bytes
  bool made = false;
  bool nonfinite = false;  ///< a sum is not finite: the bits of a NaN may differ when it is summed again

  constexpr explicit operator bool() const { return made && !nonfinite; }
};

/// A purpose and the line that names it. A Purpose converts to one where it is passed to a collective.
struct PurposeAt {
  Purpose purpose;
  CallSite site;
  Subject subject{};
  SumDigest* digest = nullptr;

  constexpr PurposeAt(Purpose purpose_ = {}, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : purpose(purpose_), site{file, line} {}
  constexpr PurposeAt(Purpose purpose_, CallSite site_) : purpose(purpose_), site(site_) {}
  constexpr operator Purpose() const { return purpose; }
  constexpr PurposeAt of(const Subject& about) const {
    PurposeAt result = *this;
    result.subject = about;
    return result;
  }
  /// Asks a reduce-scatter of one pair for the digest of its result, which lives until the operation completes.
  constexpr PurposeAt with_digest(SumDigest* of_sum) const {
    PurposeAt result = *this;
    result.digest = of_sum;
    return result;
  }
};

namespace detail {

/// The two lines of a sentence: the program's call of dspp, and the collective's call within dspp.
struct CallPlace {
  CallSite outer, inner;
};

/// The calls of dspp that this thread is in.
struct CallPath {
  CallSite outermost, innermost;
  int depth = 0;
};

/// Thread-local: a rank is a thread, and the program's line is not passed down to its collectives.
CallPath& call_path();

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE CallPath& call_path() {
  thread_local CallPath path;
  return path;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

/// While it lives, collectives of this thread are part of a call of dspp from `site`. Nests. Free in constant
/// expressions; else a few stores.
class CalledAt {
 public:
  constexpr explicit CalledAt(CallSite site) {
    if (!__builtin_is_constant_evaluated()) enter(site);
  }
  constexpr ~CalledAt() {
    if (!__builtin_is_constant_evaluated()) leave();
  }
  CalledAt(const CalledAt&) = delete;
  CalledAt& operator=(const CalledAt&) = delete;

 private:
  void enter(CallSite site);
  void leave() noexcept;

  detail::CallPath before_{};
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The call site of a collective that was called at `site`.
CallPlace place_of(CallSite site);

/// Names are kept and sent in words of 8 bytes; the last byte is 0.
inline constexpr std::size_t site_name_words = 5, longest_site_name = 8 * site_name_words - 1;

/// The file and its folder; the end of a long name.
std::string_view short_name(CallSite site);

/// "examples/train.cpp:41"
inline std::string describe(CallSite site) {
  return std::string(short_name(site)) + ":" + std::to_string(site.line);
}

/// "examples/train.cpp:41 (autograd/move.hpp:40)", or one of them if they are equal; empty if there is no call site.
std::string describe(const CallPlace& at);

/// " at examples/train.cpp:41", or empty.
inline std::string at_place(const CallPlace& at) {
  return at.outer ? " at " + describe(at) : std::string();
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE CallPlace place_of(CallSite site) {
  const CallPath& path = call_path();
  if (path.depth == 0) return {site, site};
  return {path.outermost, path.innermost == path.outermost ? site : path.innermost};
}

DSPP_INLINE std::string_view short_name(CallSite site) {
  const std::string_view path = site.file == nullptr ? "" : site.file;
  const std::size_t file = path.rfind('/');
  const std::size_t folder = file == 0 || file == path.npos ? path.npos : path.rfind('/', file - 1);
  std::string_view name = file == path.npos || folder == path.npos ? path : path.substr(folder + 1);
  if (name.size() > longest_site_name && file != path.npos) name = path.substr(file + 1);
  return name.size() > longest_site_name ? name.substr(name.size() - longest_site_name) : name;
}

DSPP_INLINE std::string describe(const CallPlace& at) {
  if (!at.outer) return {};
  const std::string outer = describe(at.outer), inner = describe(at.inner);
  return outer == inner || !at.inner ? outer : outer + " (" + inner + ")";
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void CalledAt::enter(CallSite site) {
  detail::CallPath& path = detail::call_path();
  before_ = path;
  path = {path.depth == 0 ? site : path.outermost, site, path.depth + 1};
}

DSPP_INLINE void CalledAt::leave() noexcept {
  detail::call_path() = before_;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
