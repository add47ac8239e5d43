// SPDX-License-Identifier: Apache-2.0
/// Counts what operator new allocated and has not been freed, in every thread of the program. The definitions are in
/// engine/heap_test.cpp: only programs that contain it may include this.
#pragma once

#include <cstdint>

namespace dspp::laws {

struct HeapCount {
  std::int64_t bytes = 0;   ///< asked for and not yet given back
  std::int64_t blocks = 0;  ///< of them
};

/// Of all threads.
HeapCount heap_live() noexcept;

/// The calling thread's: allocated less freed.
HeapCount heap_of_this_thread() noexcept;

/// The largest heap_of_this_thread().bytes since reset_heap_peak_of_this_thread().
std::int64_t heap_peak_of_this_thread() noexcept;
void reset_heap_peak_of_this_thread() noexcept;

/// How often any thread called operator new. Those of oneDNN do not count.
std::int64_t heap_requests() noexcept;

/// The n-th request of any thread from now on throws std::bad_alloc, once; 0: none does. Returns how many there were
/// since the last call.
std::int64_t fail_heap_request(std::int64_t n) noexcept;

}  // namespace dspp::laws
