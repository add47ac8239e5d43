// SPDX-License-Identifier: Apache-2.0
/// Checks that all ranks have the same facts, and names the ranks that differ.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/facts.hpp>
#include <dspp/base/function_ref.hpp>
#include <dspp/comm/any_communicator.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <algorithm>
#endif

namespace dspp {

/// Returns if every rank's facts are the same; else every rank throws one sentence, which names the odd ranks (those
/// that differ from the majority; of two, the second), the first fact that differs, and both values. Call on every
/// rank.
///
///   require_same_on_all_ranks(world.host(), "my program", Facts().add("--lr", lr));
///
/// Cost     gathers 8 bytes of each rank; where they differ, two texts are broadcast
/// Throws   Error(code)
template <Communicator C>
void require_same_on_all_ranks(C& ranks, std::string_view who, const Facts& facts, ErrorCode code = ErrorCode::usage);

/// The traffic of that on paper, where there is nothing to compare.
template <Communicator C>
constexpr void same_on_paper(C& ranks) {
  all_gather(ranks, ConstBuffer{nullptr, 8, ElementType::u8}, Buffer{nullptr, 8 * ranks.size(), ElementType::u8},
             Purpose::check);
}

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The members that differ from the majority; on a tie, the lower rank's value counts as the majority's.
struct OddRanks {
  int usual = 0;         ///< the first member that has the majority's value
  std::vector<int> odd;  ///< members
};

OddRanks odd_ranks(const std::vector<std::uint64_t>& values);

/// "rank 1", "rank 1 and rank 2", "rank 1, rank 2 and rank 5"; of very many only the first.
std::string name_ranks(const std::vector<int>& ranks);

/// A value as one line of at most 80 printable characters.
std::string shown(const std::string& value);

/// The first fact in which two lists differ: "'lr' is 0.002 on rank 1 and 0.001 on rank 0".
std::string first_difference(const Facts& odd, const Facts& usual, const std::vector<int>& odd_ranks,
                             const std::string& of_the_others);

std::string facts_sentence(std::string_view who, const std::string& difference);

/// The difference between the odd members of a group and the others. `text_of_rank(rank)` is what that rank sent.
std::string describe_difference(const std::vector<int>& members, const OddRanks& found,
                                FunctionRef<std::string(int)> text_of_rank);

/// The text of rank `root`, on every rank.
template <Communicator C>
std::string text_of(C& ranks, const std::string& text, int root) {
  std::int64_t length = std::ssize(text);
  broadcast(ranks, buffer(&length, 1), root, Purpose::check);
  std::string sent = text;
  sent.resize(static_cast<std::size_t>(length));
  broadcast(ranks, Buffer{sent.data(), length, ElementType::u8}, root, Purpose::check);
  return sent;
}

/// The difference on every rank of `ranks`; collective.
template <Communicator C>
std::string describe_difference(C& ranks, const std::vector<int>& members, const OddRanks& found, const Facts& mine) {
  const std::string text = mine.sent();
  return describe_difference(members, found, [&](int rank) { return text_of(ranks, text, rank); });
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE OddRanks odd_ranks(const std::vector<std::uint64_t>& values) {
  OddRanks result;
  std::ptrdiff_t most = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto count = std::count(values.begin(), values.end(), values[i]);
    if (count > most) most = count, result.usual = static_cast<int>(i);
  }
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != values[static_cast<std::size_t>(result.usual)]) result.odd.push_back(static_cast<int>(i));
  return result;
}

DSPP_INLINE std::string name_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t most = 16;
  std::string text;
  const std::size_t named = std::min(ranks.size(), most);
  for (std::size_t i = 0; i < named; ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += "rank " + std::to_string(ranks[i]);
  }
  return ranks.size() > most ? text + " and " + std::to_string(ranks.size() - most) + " more" : text;
}

DSPP_INLINE std::string shown(const std::string& value) {
  std::string text = value.size() > 80 ? value.substr(0, 77) + "..." : value;
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  return text;
}

DSPP_INLINE std::string first_difference(const Facts& odd, const Facts& usual, const std::vector<int>& odd_ranks,
                                         const std::string& of_the_others) {
  std::size_t i = 0;
  while (i < std::min(odd.all().size(), usual.all().size()) && odd.all()[i] == usual.all()[i]) ++i;
  const auto value_of = [](const Facts& facts, const std::string& name) {
    for (const Facts::Fact& fact : facts.all())
      if (fact.name == name) return shown(fact.value);
    return std::string("absent");
  };
  const auto differs = [&](const Facts& facts) {
    return i < facts.all().size() && value_of(odd, facts.all()[i].name) != value_of(usual, facts.all()[i].name);
  };
  const std::string name = differs(usual) ? usual.all()[i].name : differs(odd) ? odd.all()[i].name : "order";
  return "'" + shown(name) + "' is " + value_of(odd, name) + " on " + name_ranks(odd_ranks) + " and " +
         value_of(usual, name) + " on " + of_the_others;
}

DSPP_INLINE std::string describe_difference(const std::vector<int>& members, const OddRanks& found,
                                            FunctionRef<std::string(int)> text_of_rank) {
  const auto rank_of = [&](int member) { return members[static_cast<std::size_t>(member)]; };
  const Facts usual = Facts::received(text_of_rank(rank_of(found.usual)));
  const Facts odd = Facts::received(text_of_rank(rank_of(found.odd.front())));
  std::vector<int> odd_of_world;
  for (const int member : found.odd) odd_of_world.push_back(rank_of(member));
  const bool one_other = members.size() == found.odd.size() + 1;
  return first_difference(odd, usual, odd_of_world, one_other ? name_ranks({rank_of(found.usual)}) : "the others");
}

DSPP_INLINE std::string facts_sentence(std::string_view who, const std::string& difference) {
  return "dspp: " + std::string(who) + " needs the same on every rank, but " + difference +
         ". Start all ranks with the same program, options and files.";
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

template <Communicator C>
void require_same_on_all_ranks(C& ranks, std::string_view who, const Facts& facts, ErrorCode code) {
  const auto size = static_cast<std::size_t>(ranks.size());
  const std::uint64_t own = facts.digest();
  std::vector<std::uint64_t> all(size);
  all_gather(ranks, ConstBuffer{&own, 8, ElementType::u8}, Buffer{all.data(), 8 * std::ssize(all), ElementType::u8},
             Purpose::check);
  const detail::OddRanks found = detail::odd_ranks(all);
  if (found.odd.empty()) return;
  std::vector<int> members(size);
  std::iota(members.begin(), members.end(), 0);
  fail(code, detail::facts_sentence(who, detail::describe_difference(ranks, members, found, facts)));
}

#if !DSPP_HAS_DEFINITIONS()
extern template std::string detail::text_of(AnyCommunicator&, const std::string&, int);
extern template std::string detail::describe_difference(AnyCommunicator&, const std::vector<int>&,
                                                        const detail::OddRanks&, const Facts&);
extern template void require_same_on_all_ranks(AnyCommunicator&, std::string_view, const Facts&, ErrorCode);
#endif

}  // namespace dspp
