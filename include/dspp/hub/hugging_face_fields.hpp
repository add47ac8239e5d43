// SPDX-License-Identifier: Apache-2.0
/// The fields of a config.json, each checked for its type and range. Used by hugging_face_config.hpp alone.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dspp/io/json.hpp>

namespace dspp::hub::detail {

inline std::string config_path(const std::string& directory) {
  return directory + "/config.json";
}

inline constexpr Size config_bytes_limit = 1'000'000;

/// One object of a configuration. A missing field has the default given with its name; null is refused if the default
/// of transformers is not null.
class ConfigFields {
 public:
  using Names = std::initializer_list<const char*>;  ///< the field's name, and older ones

  /// `who` begins a sentence; it and the text outlive this object.
  ConfigFields(const io::Json& json, const std::string& who) : json_(json), who_(who) {
    if (!json.is(io::Json::Kind::object)) refuse("an object", "it is " + io::json_in_words(json));
  }

  [[noreturn]] void refuse(const std::string& needs, const std::string& got) const {
    fail(ErrorCode::file,
         "dspp: " + who_ + " needs " + needs + ", but " + got + ". Name the configuration of a model that dspp has.");
  }

  bool has(const char* name) const { return json_.find(name).has_value(); }
  bool is_null(const char* name) const {
    const std::optional<io::Json> value = json_.find(name);
    return value && value->is(io::Json::Kind::null);
  }
  void require_present(const char* name) const {
    if (!has(name)) refuse(quoted(name), "it has none");
  }
  /// The text of a field; empty if it is missing or something else.
  std::string word_or_empty(const char* name) const {
    const std::optional<io::Json> value = json_.find(name);
    return value && value->is(io::Json::Kind::string) ? std::string(value->string) : std::string();
  }
  bool is_word(const char* name, const char* word) const {
    const std::optional<io::Json> value = json_.find(name);
    return value && value->is(io::Json::Kind::string) && value->string == word;
  }

  /// From 1 to 2^20, so that products of three of them and a small factor fit 63 bits.
  Size size(Names names, Size missing) const {
    const auto [name, value] = find(names);
    return value ? checked_size(name, *value) : missing;
  }
  Size size_or_null(const char* name, Size missing) const {
    const std::optional<io::Json> value = json_.find(name);
    return value && !value->is(io::Json::Kind::null) ? checked_size(name, *value) : missing;
  }

  /// From 0 on.
  Size size_or_zero(const char* name, Size missing) const {
    const std::optional<io::Json> value = json_.find(name);
    if (!value) return missing;
    return value->is(io::Json::Kind::integer) && value->integer == 0 ? 0 : checked_size(name, *value);
  }

  /// A list of words, or nothing if it is missing or null.
  std::optional<std::vector<std::string>> words(const char* name) const {
    const std::optional<io::Json> value = json_.find(name);
    if (!value || value->is(io::Json::Kind::null)) return std::nullopt;
    if (!value->is(io::Json::Kind::array))
      refuse(quoted(name) + " that is a list", "it is " + io::json_in_words(*value));
    std::vector<std::string> found;
    for (const io::Json& item : value->items()) {
      if (!item.is(io::Json::Kind::string)) refuse(quoted(name) + " of words", "it has " + io::json_in_words(item));
      found.push_back(std::string(item.string));
    }
    return found;
  }

  /// Token ids: one, a list, or none if the field is missing, null or -1.
  std::vector<Size> tokens(const char* name) const {
    constexpr Size most = Size{1} << 20;
    std::vector<Size> found;
    const auto add = [&](const io::Json& value) {
      if (value.is(io::Json::Kind::integer) && value.integer == -1) return;
      if (!value.is(io::Json::Kind::integer) || value.integer < 0 || value.integer > most)
        refuse(quoted(name) + " of whole numbers from 0 to " + std::to_string(most),
               "it has " + io::json_in_words(value));
      found.push_back(value.integer);
    };
    const std::optional<io::Json> value = json_.find(name);
    if (!value || value->is(io::Json::Kind::null)) return found;
    found.reserve(static_cast<std::size_t>(std::max<Size>(1, value->count())));
    if (!value->is(io::Json::Kind::array)) add(*value);
    for (const io::Json& item : value->items()) add(item);
    return found;
  }

  /// In [least, most].
  double real(const char* name, double missing, double least, double most) const {
    const std::optional<io::Json> value = json_.find(name);
    if (!value) return missing;
    const bool number = value->is(io::Json::Kind::integer) || value->is(io::Json::Kind::real);
    if (!number || !(value->real >= least && value->real <= most))
      refuse(quoted(name) + " from " + json_real(least) + " to " + json_real(most),
             "it is " + io::json_in_words(*value));
    return value->real;
  }
  void require_real(const char* name, double missing, double only) const {
    const double value = real(name, missing, -1e300, 1e300);
    if (value != only) refuse(quoted(name) + " that is " + json_real(only), "it is " + json_real(value));
  }

  bool flag(const char* name, bool missing) const {
    const std::optional<io::Json> value = json_.find(name);
    if (!value) return missing;
    if (!value->is(io::Json::Kind::boolean))
      refuse(quoted(name) + " that is true or false", "it is " + io::json_in_words(*value));
    return value->boolean;
  }
  void require_flag(const char* name, bool only) const {
    if (flag(name, only) != only)
      refuse(quoted(name) + (only ? " that is true" : " that is false"), only ? "it is false" : "it is true");
  }

  /// The place of the word among those supported.
  std::size_t require_word(Names names, const char* missing, Names supported) const {
    const auto [name, value] = find(names);
    const auto known = std::find_if(supported.begin(), supported.end(), [&, text = &value](const char* one) {
      return *text ? (*text)->is(io::Json::Kind::string) && (*text)->string == one : std::string_view(missing) == one;
    });
    if (known != supported.end()) return static_cast<std::size_t>(known - supported.begin());
    std::string list;
    for (const char* one : supported) list += (list.empty() ? "" : " or ") + quoted(one);
    refuse(quoted(name) + " that is " + list, "it is " + io::json_in_words(*value));
  }

  void require_null(const char* name, const char* supported) const {
    const std::optional<io::Json> value = json_.find(name);
    if (value && !value->is(io::Json::Kind::null))
      refuse(supported + std::string(", ") + quoted(name) + " null", "it is " + io::json_in_words(*value));
  }

  /// "architectures" is missing, null, or a list with this one.
  void require_architecture(const char* only) const {
    const std::optional<io::Json> list = json_.find("architectures");
    if (!list || list->is(io::Json::Kind::null)) return;
    const bool known = list->is(io::Json::Kind::array) && std::ranges::any_of(list->items(), [&](const io::Json& one) {
                         return one.is(io::Json::Kind::string) && one.string == only;
                       });
    if (!known)
      refuse("\"architectures\" with " + quoted(only), list->is(io::Json::Kind::array) && list->count() > 0
                                                           ? "it has " + io::json_in_words(*list->items().begin())
                                                       : list->is(io::Json::Kind::array)
                                                           ? "it has none"
                                                           : "it is " + io::json_in_words(*list));
  }

  /// The fields of an object, or nothing if it is missing or null.
  std::optional<ConfigFields> object(const char* name) const {
    const std::optional<io::Json> value = json_.find(name);
    if (!value || value->is(io::Json::Kind::null)) return std::nullopt;
    if (!value->is(io::Json::Kind::object))
      refuse(quoted(name) + " that is an object", "it is " + io::json_in_words(*value));
    return ConfigFields(*value, who_);
  }

 private:
  struct Found {
    const char* name = nullptr;
    std::optional<io::Json> value{};
  };

  static std::string quoted(const char* name) { return json_quoted(name); }

  static bool same(const io::Json& a, const io::Json& b) {
    return a.kind == b.kind && a.boolean == b.boolean && a.real == b.real && a.string == b.string && a.count() == 0 &&
           b.count() == 0;
  }

  /// The field under any of its names; contradicting values are an error.
  Found find(Names names) const {
    Found found{*names.begin()};
    for (const char* name : names) {
      std::optional<io::Json> value = json_.find(name);
      if (!value) continue;
      if (found.value && !same(*found.value, *value))
        refuse("one value of " + quoted(found.name), quoted(name) + " is another");
      if (!found.value) found = {name, std::move(value)};
    }
    return found;
  }

  Size checked_size(const char* name, const io::Json& value) const {
    constexpr Size most = Size{1} << 20;
    if (!value.is(io::Json::Kind::integer) || value.integer < 1 || value.integer > most)
      refuse(quoted(name) + " that is a whole number from 1 to " + std::to_string(most),
             "it is " + io::json_in_words(value));
    return value.integer;
  }

  io::Json json_;
  const std::string& who_;
};

}  // namespace dspp::hub::detail
