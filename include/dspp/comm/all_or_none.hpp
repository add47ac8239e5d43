// SPDX-License-Identifier: Apache-2.0
/// Work that each rank does on its own and that succeeds on all ranks or fails on all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/function_ref.hpp>
#include <dspp/base/out_of_memory.hpp>
#include <dspp/comm/any_communicator.hpp>

namespace dspp {

/// Runs work() on every rank and returns when all have. If it threw on any rank, every rank throws the error of the
/// first such rank, with its number if there are several ranks; so no rank waits for one that failed.
///
/// Cost     gathers a byte of each rank; after an error, broadcasts the sentence
/// Memory   a byte for each rank
template <Communicator C>
void all_or_none(C& ranks, FunctionRef<void()> work);

/// `text` of rank 0, at most 255 bytes, on every rank.
template <Communicator C>
std::string text_of_first(C& ranks, std::string_view text);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// An error as it is sent between ranks; a very long sentence is cut.
struct SentError {
  std::uint8_t code = 0;
  char sentence[1023] = {};

  /// The exception being handled, by its type; needs no run-time type information.
  static SentError of_current();

 private:
  static SentError of(ErrorCode code, std::string_view text);
};
static_assert(sizeof(SentError) == 1024);

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE SentError SentError::of_current() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    SentError sent{static_cast<std::uint8_t>(ErrorCode::out_of_memory), {}};
    std::strcat(std::strcpy(sent.sentence, "dspp: a rank"), out_of_memory_words);
    return sent;
  } catch (const Error& error) {
    return of(error.code(), error.what());
  } catch (const std::exception& error) {
    return of(ErrorCode::state, error.what());
  }
}

DSPP_INLINE SentError SentError::of(ErrorCode code, std::string_view text) {
  SentError sent{static_cast<std::uint8_t>(code), {}};
  std::memcpy(sent.sentence, text.data(), std::min(text.size(), sizeof sent.sentence - 1));
  return sent;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

template <Communicator C>
void all_or_none(C& ranks, FunctionRef<void()> work) {
  detail::SentError error;
  std::uint8_t failed = 0;
  std::vector<std::uint8_t> all(static_cast<std::size_t>(ranks.size()));  // first: after work() no rank may fail
  try {
    work();
  } catch (const std::exception&) {
    error = detail::SentError::of_current();
    failed = 1;
  }
  all_gather(ranks, buffer(static_cast<const std::uint8_t*>(&failed), 1), buffer(all.data(), std::ssize(all)),
             Purpose::checkpoint);
  const auto first = std::find(all.begin(), all.end(), 1);
  if (first == all.end()) return;
  const int root = static_cast<int>(first - all.begin());
  broadcast(ranks, Buffer{&error, sizeof error, ElementType::u8}, root, Purpose::checkpoint);
  std::string sentence = error.sentence;
  if (ranks.size() > 1) sentence += " (It was rank " + std::to_string(root) + ".)";
  throw Error(static_cast<ErrorCode>(error.code), sentence);
}

template <Communicator C>
std::string text_of_first(C& ranks, std::string_view text) {
  char sent[256] = {};
  if (ranks.rank() == 0) std::memcpy(sent, text.data(), std::min<std::size_t>(text.size(), 255));
  broadcast(ranks, Buffer{sent, sizeof sent, ElementType::u8}, 0, Purpose::checkpoint);
  return sent;
}

#if !DSPP_HAS_DEFINITIONS()
extern template void all_or_none(AnyCommunicator&, FunctionRef<void()>);
extern template std::string text_of_first(AnyCommunicator&, std::string_view);
#endif

}  // namespace dspp
