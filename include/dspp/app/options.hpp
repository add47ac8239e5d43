// SPDX-License-Identifier: Apache-2.0
/// A program's options as a table: name, value, range, meaning. Every mistake is one sentence.
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/facts.hpp>
#include <dspp/base/types.hpp>

#if DSPP_HAS_OPTIONS()
#if !__has_include(<CLI/CLI.hpp>)
#error "dspp: app/options.hpp needs CLI11, but <CLI/CLI.hpp> was not found. Install libcli11-dev."
#endif
#include <CLI/CLI.hpp>
#endif

namespace dspp {

struct WholeRange {
  Size least = 0;
  Size most = std::numeric_limits<Size>::max();
};

struct RealRange {
  double least = 0;
  double most = std::numeric_limits<double>::max();
};

/// The kind of a text option: a path must not be empty.
enum class TextKind { path, any };

/// Reads `--name value` and `--name=value` into variables; their initial values are the defaults that help() shows.
/// CLI11 splits the command line; numbers, ranges and sentences are dspp's own (docs/decisions/0018).
///
///   Options options("train", "Trains a model.");
///   options.add("--layers", layers, WholeRange{1, 1024}, "blocks of the model");
///   if (!options.read(argc, argv)) return print(options.help());
///
/// A later value replaces an earlier one. The variables must outlive the table.
class Options {
 public:
  Options(std::string program, std::string purpose) : program_(std::move(program)), purpose_(std::move(purpose)) {}

  void add(std::string_view name, Size& value, WholeRange range, std::string_view meaning,
           std::string_view otherwise = {});
  void add(std::string_view name, double& value, RealRange range, std::string_view meaning,
           std::string_view otherwise = {});
  void add(std::string_view name, std::string& value, TextKind kind, std::string_view meaning,
           std::string_view otherwise = {});
  /// A flag, which takes no value: true where it is given.
  void add(std::string_view name, bool& value, std::string_view meaning);

  /// An option that launchers add: read(), but not listed and not part of the facts.
  void accept(std::string_view name, std::string& value);

  /// False if --help is among the arguments: the program then prints help() and ends.
  ///
  /// Throws   Error(usage), which for an unknown option names the nearest one
  bool read(int argc, const char* const* argv);

  bool given(std::string_view name) const { return given_.count(std::string(name)) > 0; }
  std::string help() const;
  /// The current values, for ranks that must agree (comm/same_facts.hpp). Paths are left out: different paths may hold
  /// the same.
  /// there may be the same under another name.
  Facts facts() const;

 private:
  struct Whole {
    Size* value;
    WholeRange range;
  };
  struct Real {
    double* value;
    RealRange range;
  };
  struct Words {
    std::string* value;
    TextKind kind;
  };
  struct Flag {
    bool* value;
  };
  struct Option {
    std::string name;
    std::variant<Whole, Real, Words, Flag> target;
    std::string meaning;
    std::string otherwise;  // the default as text
    bool listed = true;
  };

  static std::string marked(const std::string& word);
  static std::string unmarked(std::string word);
  const Option* meant_by(const std::string& name) const;
  [[noreturn]] void refuse_unknown(const std::string& word) const;
  static std::string needs(const Option& option);
  static void assign(const Option& option, const std::string& text);
  [[noreturn]] static void refuse(const Option& option, const std::string& got);

  static constexpr char of_its_own = ':', attached = '=';  // marks of where a word stood

  std::string program_, purpose_;
  std::vector<Option> options_;
  std::set<std::string> given_;
};

/// The fewest insertions, deletions and replacements that turn one word into the other.
Size edit_distance(std::string_view a, std::string_view b);

/// The bytes that an option's text names: "64MiB", "2GiB", "1000000".
///
/// Throws   Error(usage) for another text, for none, and for fewer than `least`
Size bytes_named(std::string_view option, std::string_view text, Size least = 1);

/// The fewest digits that read back to the same number: 0.1, 2000, 1e-08.
std::string shortest(double number);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_OPTIONS()

DSPP_INLINE Size bytes_named(std::string_view option, std::string_view text, Size least) {
  Size number = 0, unit = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view name(end, static_cast<std::size_t>(text.data() + text.size() - end));
  constexpr std::string_view names[] = {"", "KiB", "MiB", "GiB", "TiB"};
  for (Size i = 0; i < 5; ++i)
    if (name == names[i]) unit = Size{1} << 10 * i;
  Size bytes = 0;
  if (error != std::errc{} || unit == 0 || number < least || __builtin_mul_overflow(number, unit, &bytes))
    fail(ErrorCode::usage, "dspp: " + std::string(option) + " needs a number of bytes of at least " +
                               std::to_string(least) + ", but got '" + printable(std::string(text)) +
                               "'. Write 64MiB, 2GiB or 1000000.");
  return bytes;
}

DSPP_INLINE Size edit_distance(std::string_view a, std::string_view b) {
  std::vector<Size> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<Size>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    Size diagonal = row[0];
    row[0] = static_cast<Size>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const Size replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

DSPP_INLINE std::string shortest(double number) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof text, number).ptr);
}

DSPP_INLINE void Options::add(std::string_view name, Size& value, WholeRange range, std::string_view meaning,
                              std::string_view otherwise) {
  options_.push_back({std::string(name), Whole{&value, range}, std::string(meaning),
                      otherwise.empty() ? std::to_string(value) : std::string(otherwise)});
}

DSPP_INLINE void Options::add(std::string_view name, double& value, RealRange range, std::string_view meaning,
                              std::string_view otherwise) {
  options_.push_back({std::string(name), Real{&value, range}, std::string(meaning),
                      otherwise.empty() ? shortest(value) : std::string(otherwise)});
}

DSPP_INLINE void Options::add(std::string_view name, std::string& value, TextKind kind, std::string_view meaning,
                              std::string_view otherwise) {
  if (otherwise.empty()) otherwise = value.empty() ? "none" : std::string_view(value);
  options_.push_back({std::string(name), Words{&value, kind}, std::string(meaning), std::string(otherwise)});
}

DSPP_INLINE void Options::add(std::string_view name, bool& value, std::string_view meaning) {
  options_.push_back({std::string(name), Flag{&value}, std::string(meaning), "off"});
}

DSPP_INLINE void Options::accept(std::string_view name, std::string& value) {
  options_.push_back({std::string(name), Words{&value, TextKind::any}, {}, {}, false});
}

DSPP_INLINE bool Options::read(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  for (const std::string& word : words)
    if (word == "--help" || word == "-h") return false;
  CLI::App reader;
  reader.set_help_flag();
  reader.allow_extras();
  for (const Option& option : options_) {
    auto* const read =
        std::holds_alternative<Flag>(option.target) ? reader.add_flag(option.name) : reader.add_option(option.name);
    read->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  const std::string last = words.empty() ? std::string() : words.back();
  for (std::string& word : words) word = marked(word);
  std::reverse(words.begin(), words.end());  // the order in which CLI11 takes them
  bool lacks_value = false;
  try {
    reader.parse(words);
  } catch (const CLI::ArgumentMismatch&) {
    lacks_value = true;
  }
  for (const Option& option : options_) {
    for (const std::string& value : reader.get_option(option.name)->results()) {
      given_.insert(option.name);
      if (const auto* flag = std::get_if<Flag>(&option.target)) {
        if (value != "true") refuse(option, "got '" + value.substr(1) + "'");
        *flag->value = true;
        continue;
      }
      if (value.front() == '-') refuse(option, "'" + unmarked(value) + "' follows it");
      assign(option, unmarked(value));
    }
    if (lacks_value && option.name == last) refuse(option, "nothing follows it");
  }
  if (const std::vector<std::string> left = reader.remaining(); !left.empty()) refuse_unknown(unmarked(left.front()));
  return true;
}

// A word as CLI11 gets it, with a mark. Without it CLI11 takes the next word for the value if nothing follows an equals
// sign, takes an option for the value of another, and reads [[...]] as an escape.
DSPP_INLINE std::string Options::marked(const std::string& word) {
  if (word.substr(0, 2) != "--") return of_its_own + word;
  const std::size_t equals = word.find('=');
  return equals == std::string::npos ? word : word.substr(0, equals + 1) + attached + word.substr(equals + 1);
}

DSPP_INLINE std::string Options::unmarked(std::string word) {
  if (const std::size_t mark = word.front() == '-' ? word.find(attached) : 0; mark != std::string::npos)
    word.erase(mark, 1);
  return word;
}

DSPP_INLINE void Options::refuse_unknown(const std::string& word) const {
  const std::string name = word.substr(0, word.find('='));
  const Option* meant = meant_by(name);
  const std::string help = meant                       ? "The nearest is " + meant->name + "; --help lists all."
                           : name.substr(0, 2) == "--" ? "--help lists all."
                                                       : "They begin with two dashes; --help lists all.";
  fail(ErrorCode::usage, "dspp: " + program_ + " needs options that it has, but got '" + name + "'. " + help);
}

// The option with nearly that name, else the first with the word in its name, else the first with it in its meaning.
DSPP_INLINE const Options::Option* Options::meant_by(const std::string& name) const {
  const auto bare = [](const std::string& text) {
    return text.substr(std::min(text.find_first_not_of('-'), text.size()));
  };
  std::string word = bare(name);
  const Option *nearest = nullptr, *named = nullptr, *described = nullptr;
  Size fewest = static_cast<Size>(word.size()) / 3;  // edits
  for (const Option& option : options_) {
    const Size edits = edit_distance(bare(option.name), word);
    if (!option.listed || edits > fewest || (nearest && edits == fewest)) continue;
    nearest = &option;
    fewest = edits;
  }
  const auto has_word = [&](std::string text) {
    for (char& c : text)
      if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = ' ';
    return (" " + text + " ").find(" " + word + " ") != std::string::npos;
  };
  std::replace(word.begin(), word.end(), '-', ' ');
  const bool long_enough = word.size() > 2;
  for (const Option& option : options_) {
    if (!option.listed || !long_enough) continue;
    if (!named && has_word(option.name)) named = &option;
    if (!described && has_word(option.meaning)) described = &option;
  }
  return nearest ? nearest : named ? named : described;
}

DSPP_INLINE std::string Options::needs(const Option& option) {
  const auto between = [](const auto& least, const auto& most, bool bounded) {
    return bounded ? " from " + least + " to " + most : " of at least " + least;
  };
  if (const auto* whole = std::get_if<Whole>(&option.target))
    return "a whole number" + between(std::to_string(whole->range.least), std::to_string(whole->range.most),
                                      whole->range.most < std::numeric_limits<Size>::max());
  if (const auto* real = std::get_if<Real>(&option.target))
    return "a number" + between(shortest(real->range.least), shortest(real->range.most),
                                real->range.most < std::numeric_limits<double>::max());
  return std::get<Words>(option.target).kind == TextKind::path ? "a path" : "a text";
}

DSPP_INLINE void Options::refuse(const Option& option, const std::string& got) {
  std::string example;
  if (std::holds_alternative<Flag>(option.target))
    fail(ErrorCode::usage, "dspp: " + option.name + " needs no value, but " + got + ". Write " + option.name + ".");
  if (const auto* whole = std::get_if<Whole>(&option.target))
    example = std::to_string(std::clamp(*whole->value, whole->range.least, whole->range.most));
  else if (const auto* real = std::get_if<Real>(&option.target))
    example = shortest(std::clamp(*real->value, real->range.least, real->range.most));
  else
    example = std::get<Words>(option.target).kind == TextKind::path ? "a/path" : "'some text'";
  fail(ErrorCode::usage, "dspp: " + option.name + " needs " + needs(option) + ", but " + got + ". Write for example " +
                             option.name + " " + example + ".");
}

DSPP_INLINE void Options::assign(const Option& option, const std::string& text) {
  const auto read_number = [&](auto* value, const auto& range) {
    std::remove_pointer_t<decltype(value)> number{};
    const char* end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, number);
    const bool inside = error == std::errc{} && stopped == end && number >= range.least && number <= range.most;
    if (!inside) refuse(option, "got '" + text + "'");
    *value = number;
  };
  if (const auto* whole = std::get_if<Whole>(&option.target)) read_number(whole->value, whole->range);
  if (const auto* real = std::get_if<Real>(&option.target)) read_number(real->value, real->range);
  if (const auto* words = std::get_if<Words>(&option.target)) {
    if (text.empty() && words->kind == TextKind::path) refuse(option, "got an empty one");
    *words->value = text;
  }
}

DSPP_INLINE Facts Options::facts() const {
  Facts facts;
  for (const Option& option : options_) {
    if (const auto* whole = std::get_if<Whole>(&option.target)) facts.add(option.name, *whole->value);
    if (const auto* real = std::get_if<Real>(&option.target)) facts.add(option.name, *real->value);
    if (const auto* flag = std::get_if<Flag>(&option.target)) facts.add(option.name, Size{*flag->value});
    const auto* words = std::get_if<Words>(&option.target);
    if (words && words->kind == TextKind::any && option.listed) facts.add(option.name, *words->value);
  }
  return facts;
}

DSPP_INLINE std::string Options::help() const {
  std::size_t name_width = 6, meaning_width = 4;
  for (const Option& option : options_) {
    if (!option.listed) continue;
    name_width = std::max(name_width, option.name.size());
    meaning_width = std::max(meaning_width, option.meaning.size());
  }
  const auto padded = [](std::string text, std::size_t width) {
    text.resize(std::max(width, text.size()), ' ');
    return text;
  };
  std::string text = "usage: " + program_ + " [options]\n" + purpose_ + "\n\n";
  for (const Option& option : options_) {
    if (!option.listed) continue;
    text += "  " + padded(option.name, name_width) + "  " + padded(option.meaning, meaning_width) + "  [" +
            option.otherwise + "]\n";
  }
  return text + "  " + padded("--help", name_width) + "  this text\n";
}

#endif  // DSPP_HAS_OPTIONS()

}  // namespace dspp
