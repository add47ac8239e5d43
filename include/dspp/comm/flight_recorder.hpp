// SPDX-License-Identifier: Apache-2.0
/// The last operations of each rank, recorded as they run and listed after a timeout.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/comm/call_site.hpp>
#include <dspp/comm/posted.hpp>

namespace dspp::detail {

/// A name cut to fit, in words that are written one by one.
using NameWords = std::array<std::uint64_t, site_name_words>;

NameWords words_of_name(std::string_view name);

/// The last `kept` operations of one rank, in memory of a fixed size that processes may share. The rank writes without
/// a lock, each word with release order after the operation's number; others read at any time and skip what is being
/// written.
///
/// Cost     some twenty stores for each operation; a new file name is copied
class FlightRecorder {
 public:
  static constexpr std::uint64_t kept = 16;

  struct Operation {
    std::uint64_t number = 0;  ///< of the rank's operations, from 0
    bool left = false;         ///< true: complete; else under way
    std::string text;          ///< "all_reduce(f32 x 24), the 7th operation of the world, at examples/train.cpp:41"
  };

  /// Records the begin of operation `operation` of a group. Returns its number. Called by the recording rank only.
  std::uint64_t enter(const Posted& posted, int size, std::uint64_t operation, const NameWords& group);

  /// Operation `number` is complete. Called by the recording rank only.
  void leave(std::uint64_t number);

  /// The last operations, the newest first. Callable from any thread, and any process that has the memory.
  std::vector<Operation> read() const;

 private:
  using Word = std::atomic<std::uint64_t>;
  static_assert(Word::is_always_lock_free);
  struct Record {
    Word number{0};  // from 1; 0 while it is written
    Word left{0};
    std::array<Word, 6> values{};
    std::array<Word, site_name_words> group{};
  };
  struct Name {
    Word file{0};  // the address of its name, which identifies it within this process
    std::array<Word, site_name_words> words{};
  };
  static constexpr std::size_t names = 64;

  static std::uint64_t address(const CallSite& site) { return reinterpret_cast<std::uintptr_t>(site.file); }
  static std::uint64_t lines(const CallPlace& at);
  static std::size_t place_of_name(std::uint64_t file) { return (file * 0x9E3779B97F4A7C15u) >> 58; }
  static_assert(names == std::size_t{1} << (64 - 58));
  static std::uint64_t packed(const Posted& p);
  /// What describe() prints of the first pair in a group of one: what the rank passes in.
  static std::uint64_t count_of(const Posted& p, int size);
  void note_name(const CallSite& site);
  static std::string text_of(const std::array<Word, site_name_words>& words);

  /// " at examples/train.cpp:41 (autograd/move.hpp:40)", without names that have been overwritten.
  std::string place(std::uint64_t outer, std::uint64_t inner, std::uint64_t lines) const;
  std::optional<Operation> read(const Record& r) const;

  Word entered_{0};
  std::array<Record, kept> records_{};
  std::array<Name, names> names_{};
};

/// The list printed after a timeout: a line for each operation, grouped by rank; with many ranks fewer each.
/// `recorder_of(rank)` is null for a rank on another machine, or whose process has ended.
template <class RecorderOf>
std::string list_operations(int ranks, RecorderOf recorder_of) {
  constexpr int most_lines = 128;
  const auto each = static_cast<std::size_t>(std::clamp<int>(most_lines / std::max(ranks, 1), 2, FlightRecorder::kept));
  std::string text = "  the last operations of each rank, the newest first; > is not complete:";
  for (int r = 0; r < ranks; ++r) {
    const FlightRecorder* recorder = recorder_of(r);
    const std::string name = "\n    rank " + std::to_string(r);
    const auto all = recorder ? recorder->read() : std::vector<FlightRecorder::Operation>();
    if (all.empty()) text += name + (recorder ? " has called none" : " cannot be read from here");
    for (std::size_t i = 0; i < std::min(each, all.size()); ++i)
      text += name + (all[i].left ? "   " : " > ") + all[i].text;
  }
  return text;
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::uint64_t FlightRecorder::enter(const Posted& posted, int size, std::uint64_t operation,
                                                const NameWords& group) {
  const std::uint64_t number = entered_.load(std::memory_order_relaxed);
  Record& r = records_[number % kept];
  r.number.store(0, std::memory_order_relaxed);
  const std::uint64_t values[] = {
      operation,       packed(posted), count_of(posted, size), address(posted.at.outer), address(posted.at.inner),
      lines(posted.at)};
  for (std::size_t i = 0; i < std::size(values); ++i) r.values[i].store(values[i], std::memory_order_release);
  for (std::size_t i = 0; i < site_name_words; ++i) r.group[i].store(group[i], std::memory_order_release);
  note_name(posted.at.outer);
  note_name(posted.at.inner);
  r.left.store(0, std::memory_order_release);
  r.number.store(number + 1, std::memory_order_release);
  entered_.store(number + 1, std::memory_order_relaxed);
  return number;
}

DSPP_INLINE void FlightRecorder::leave(std::uint64_t number) {
  Record& r = records_[number % kept];
  if (r.number.load(std::memory_order_relaxed) == number + 1) r.left.store(1, std::memory_order_relaxed);
}

DSPP_INLINE std::vector<FlightRecorder::Operation> FlightRecorder::read() const {
  std::vector<Operation> all;
  for (const Record& r : records_)
    if (std::optional<Operation> one = read(r)) all.push_back(std::move(*one));
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.number > b.number; });
  return all;
}

DSPP_INLINE std::uint64_t FlightRecorder::lines(const CallPlace& at) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(at.outer.line)) << 32 |
         static_cast<std::uint32_t>(at.inner.line);
}

DSPP_INLINE std::uint64_t FlightRecorder::packed(const Posted& p) {
  const auto type = p.pairs.empty() ? ElementType::f32 : p.pairs.front().type;
  const auto pairs = p.collective == Collective::all_to_all ? 1 : std::min<std::size_t>(p.pairs.size(), 0xFFFFF);
  return static_cast<std::uint64_t>(p.collective) | static_cast<std::uint64_t>(type) << 8 |
         static_cast<std::uint64_t>(p.root & 0xFFFFFF) << 16 | static_cast<std::uint64_t>(pairs) << 40;
}

DSPP_INLINE std::uint64_t FlightRecorder::count_of(const Posted& p, int size) {
  Size count = p.pairs.empty() ? 0 : p.pairs.front().count;
  if (p.collective == Collective::reduce_scatter) count *= size;
  if (p.collective == Collective::all_to_all)
    for (std::size_t i = 1; i < p.pairs.size(); ++i) count += p.pairs[i].count;
  return static_cast<std::uint64_t>(count);
}

DSPP_INLINE void FlightRecorder::note_name(const CallSite& site) {
  const std::uint64_t file = address(site);
  Name& name = names_[place_of_name(file)];
  if (name.file.load(std::memory_order_relaxed) == file) return;
  name.file.store(0, std::memory_order_relaxed);
  const NameWords words = words_of_name(short_name(site));
  for (std::size_t i = 0; i < site_name_words; ++i) name.words[i].store(words[i], std::memory_order_release);
  name.file.store(file, std::memory_order_release);
}

DSPP_INLINE std::string FlightRecorder::text_of(const std::array<Word, site_name_words>& words) {
  char text[sizeof(NameWords) + 1] = {};
  for (std::size_t i = 0; i < site_name_words; ++i) {
    const std::uint64_t word = words[i].load(std::memory_order_acquire);
    std::memcpy(text + i * sizeof word, &word, sizeof word);
  }
  return text;
}

DSPP_INLINE std::string FlightRecorder::place(std::uint64_t outer, std::uint64_t inner, std::uint64_t lines) const {
  const auto site = [&](std::uint64_t file, std::uint64_t line) {
    const Name& name = names_[place_of_name(file)];
    if (file == 0 || name.file.load(std::memory_order_acquire) != file) return std::string();
    const std::string text = text_of(name.words) + ":" + std::to_string(line);
    return name.file.load(std::memory_order_relaxed) == file ? text : std::string();
  };
  const std::string a = site(outer, lines >> 32), b = site(inner, lines & 0xFFFFFFFF);
  if (a.empty()) return {};
  return " at " + a + (b.empty() || a == b ? "" : " (" + b + ")");
}

DSPP_INLINE std::optional<FlightRecorder::Operation> FlightRecorder::read(const Record& r) const {
  const std::uint64_t number = r.number.load(std::memory_order_acquire);
  std::uint64_t v[6];
  for (std::size_t i = 0; i < std::size(v); ++i) v[i] = r.values[i].load(std::memory_order_acquire);
  const std::string group = text_of(r.group);
  const bool left = r.left.load(std::memory_order_acquire) != 0;
  if (number == 0 || r.number.load(std::memory_order_relaxed) != number) return std::nullopt;
  Posted posted;
  posted.collective = static_cast<Collective>(v[1] & 0xFF);
  posted.root = static_cast<int>(v[1] >> 16 & 0xFFFFFF);
  posted.pairs.assign(v[1] >> 40,
                      {nullptr, nullptr, static_cast<Size>(v[2]), static_cast<ElementType>(v[1] >> 8 & 0xFF)});
  return Operation{number - 1, left,
                   describe(posted, 1) + ", the " + ordinal(v[0]) + " operation of " + group + place(v[3], v[4], v[5])};
}

DSPP_INLINE NameWords words_of_name(std::string_view name) {
  NameWords words{};
  name = name.substr(0, sizeof words - 1);
  if (!name.empty()) std::memcpy(words.data(), name.data(), name.size());
  return words;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
