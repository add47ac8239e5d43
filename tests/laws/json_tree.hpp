// SPDX-License-Identifier: Apache-2.0
/// JSON as a tree that tests search and compare.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/io/json.hpp>

namespace dspp::laws {

/// A value. Of an object, keys[i] belongs to items[i], in the order of the text.
struct JsonTree {
  using Kind = io::Json::Kind;

  JsonTree() = default;
  explicit JsonTree(const io::Json& value)
      : kind(value.kind),
        boolean(value.boolean),
        integer(value.integer),
        real(value.real),
        string(value.string),
        text(value.text) {
    for (const io::Json& item : value.items()) {
      items.emplace_back(item);
      if (is(Kind::object)) keys.push_back(item.key);
    }
  }

  bool is(Kind k) const { return kind == k; }
  const JsonTree* find(std::string_view key) const {
    const auto at = std::find(keys.begin(), keys.end(), key);
    return at == keys.end() ? nullptr : &items[static_cast<std::size_t>(at - keys.begin())];
  }

  Kind kind = Kind::null;
  bool boolean = false;
  Size integer = 0;
  double real = 0;
  std::string string, text;
  std::vector<std::string> keys;
  std::vector<JsonTree> items;
};

inline JsonTree json_tree(std::string_view text, const std::string& who, Size most_values = Size{1} << 23) {
  return JsonTree(io::parse_json(text, who, most_values));
}

}  // namespace dspp::laws
