// SPDX-License-Identifier: Apache-2.0
/// Visits a model: every parameter, random site and unit, with its global name.
#pragma once

#include <string>
#include <type_traits>

#include <dspp/nn/dropout.hpp>
#include <dspp/nn/parameter.hpp>

namespace dspp {

/// A name as a chain of parents, valid during the visit. Nothing is copied on paper.
struct Path {
  const Path* parent = nullptr;
  const char* name = nullptr;  ///< null for a number
  int number = 0;

  constexpr Path() = default;
  constexpr Path(const Path& up, const char* own) : parent(&up), name(own) {}
  constexpr Path(const Path& up, int own) : parent(&up), number(own) {}

  /// blocks.3.attention.qkv.weight
  std::string text() const;

  /// The same text, also in constant expressions.
  constexpr List<char> characters() const {
    if (parent == nullptr) return {};
    List<char> all = parent->characters();
    if (!all.empty()) all.push_back('.');
    if (name != nullptr)
      for (const char* c = name; *c != 0; ++c) all.push_back(*c);
    else
      append_number(all, number);
    return all;
  }

 private:
  static constexpr void append_number(List<char>& all, int n) {
    if (n > 9) append_number(all, n / 10);
    all.push_back(static_cast<char>('0' + n % 10));
  }
};

/// In place of a name: f(Unnamed{}, part) names the parts of `part` as parts of the layer itself.
struct Unnamed {};

/// Calls, in visit order: handler.parameter(path, p), handler.site(path, s), and around the parts of a layer that is a
/// unit (it names its type OwnUnit, see zero/in_unit.hpp) handler.begin_unit(path, unit) and handler.end_unit(unit). A
/// handler with layer(path, layer) also sees each layer, before its parts.
template <class L, class Handler>
constexpr void walk(L& layer, Handler& handler, const Path& path = {}) {
  if constexpr (std::is_const_v<L>) {
    static_assert(!std::is_const_v<L>,
                  "dspp: a layer needs a visit(f) that hands out its parts to be filled, but this one is const. Remove "
                  "the const behind visit(auto&& f).");
  } else if constexpr (is_parameter<L>) {
    handler.parameter(path, layer);
  } else if constexpr (std::is_same_v<L, RandomSite>) {
    handler.site(path, layer);
  } else {
    if constexpr (requires { handler.layer(path, layer); }) handler.layer(path, layer);
    const auto parts = [&](auto name, auto& part) {
      if constexpr (std::is_same_v<decltype(name), Unnamed>)
        walk(part, handler, path);
      else
        walk(part, handler, Path(path, name));
    };
    if constexpr (requires { typename L::OwnUnit; }) {
      handler.begin_unit(path, layer.unit);
      layer.visit(parts);
      handler.end_unit(layer.unit);
    } else {
      layer.visit(parts);
    }
  }
}

/// visit(f) of a layer around one other, whose names are its own: `inner` is a unit still, if it was one.
template <class L>
constexpr void visit_inner(L& inner, auto&& f) {
  if constexpr (requires { typename L::OwnUnit; })
    f(Unnamed{}, inner);
  else
    inner.visit(f);
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string Path::text() const {
  if (parent == nullptr) return {};
  const std::string above = parent->text();
  return (above.empty() ? "" : above + ".") + (name ? std::string(name) : std::to_string(number));
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
