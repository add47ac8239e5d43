// SPDX-License-Identifier: Apache-2.0
/// What must be the same on every rank, as names with values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <dspp/base/digest.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <charconv>
#endif

namespace dspp {

/// An ordered list of names with values, numbers as texts that read back to the same bits:
///
///   Facts facts;
///   facts.add("learning rate", 1e-3);
///
/// Ranks compare them (comm/same_facts.hpp): the first difference is named with both values.
class Facts {
 public:
  struct Fact {
    std::string name, value;
    friend bool operator==(const Fact&, const Fact&) = default;
  };

  Facts() = default;
  Facts(const Facts&);
  Facts(Facts&&) noexcept;
  Facts& operator=(const Facts&);
  Facts& operator=(Facts&&) noexcept;
  ~Facts();

  Facts& add(std::string_view name, std::string_view value);
  Facts& add(std::string_view name, const char* value) { return add(name, std::string_view(value)); }
  Facts& add(std::string_view name, bool value) { return add(name, value ? "yes" : "no"); }
  template <class Number>
  requires std::is_arithmetic_v<Number> Facts& add(std::string_view name, Number value) {
    using Integer = std::conditional_t<std::is_signed_v<Number>, std::int64_t, std::uint64_t>;
    using Real = std::conditional_t<std::is_same_v<Number, float>, float, double>;
    return add_number(name, static_cast<std::conditional_t<std::is_floating_point_v<Number>, Real, Integer>>(value));
  }
  /// All of another list, each name after `prefix`.
  Facts& add(const Facts& others, const std::string& prefix = {});

  const std::vector<Fact>& all() const { return facts_; }
  std::uint64_t digest() const;

  /// As one text, and back.
  std::string sent() const;
  static Facts received(std::string_view text);

 private:
  Facts& add_number(std::string_view name, std::int64_t value);
  Facts& add_number(std::string_view name, std::uint64_t value);
  Facts& add_number(std::string_view name, float value);
  Facts& add_number(std::string_view name, double value);

  std::vector<Fact> facts_;
};

/// 16 hexadecimal digits.
std::string digest_text(std::uint64_t digest);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Facts::Facts(const Facts&) = default;
DSPP_INLINE Facts::Facts(Facts&&) noexcept = default;
DSPP_INLINE Facts& Facts::operator=(const Facts&) = default;
DSPP_INLINE Facts& Facts::operator=(Facts&&) noexcept = default;
DSPP_INLINE Facts::~Facts() = default;

DSPP_INLINE Facts& Facts::add(std::string_view name, std::string_view value) {
  facts_.push_back({std::string(name), std::string(value)});
  return *this;
}

namespace detail {
/// Reads back to the same bits.
template <class Number>
std::string text_of_number(Number value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
}
}  // namespace detail

DSPP_INLINE Facts& Facts::add_number(std::string_view name, std::int64_t value) {
  return add(name, detail::text_of_number(value));
}
DSPP_INLINE Facts& Facts::add_number(std::string_view name, std::uint64_t value) {
  return add(name, detail::text_of_number(value));
}
DSPP_INLINE Facts& Facts::add_number(std::string_view name, float value) {
  return add(name, detail::text_of_number(value));
}
DSPP_INLINE Facts& Facts::add_number(std::string_view name, double value) {
  return add(name, detail::text_of_number(value));
}

DSPP_INLINE Facts& Facts::add(const Facts& others, const std::string& prefix) {
  for (const Fact& fact : others.facts_) add(prefix + fact.name, fact.value);
  return *this;
}

DSPP_INLINE std::uint64_t Facts::digest() const {
  const std::string text = sent();
  return Digest().add(text.data(), std::ssize(text)).value();
}

DSPP_INLINE std::string Facts::sent() const {
  std::string text;
  for (const Fact& fact : facts_) (text += fact.name) += '\0', (text += fact.value) += '\0';
  return text;
}

DSPP_INLINE Facts Facts::received(std::string_view text) {
  Facts facts;
  const auto next = [&text] {
    const std::size_t end = text.find('\0');
    const std::string word(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return word;
  };
  while (!text.empty()) {
    const std::string name = next();
    facts.add(name, next());
  }
  return facts;
}

DSPP_INLINE std::string digest_text(std::uint64_t digest) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; digest >>= 4) text[i] = "0123456789abcdef"[digest & 15];
  return text;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
