// SPDX-License-Identifier: Apache-2.0
/// Loops over the threads of one rank: with OpenMP if the compiler has it enabled, else on the calling thread.
#pragma once

#include <algorithm>
#include <exception>

#include <dspp/base/config.hpp>
#include <dspp/base/types.hpp>

#if DSPP_HAS_OPENMP()
#include <omp.h>
#endif

namespace dspp::cpu {

/// How many threads a loop of the calling thread has.
inline int threads_of_a_loop() {
#if DSPP_HAS_OPENMP()
  return omp_in_parallel() ? 1 : omp_get_max_threads();
#else
  return 1;
#endif
}

/// Calls f(begin, end) for the pieces [0, grain), [grain, 2 grain), ... of [0, count), on the threads of the calling
/// thread (omp_get_max_threads, set per rank thread).
///
/// The pieces depend on count and grain only, never on the number of threads: a caller that writes each output from
/// one piece, and reduces piece by piece, gives the same bits on any number of threads.
///
/// Cost     one fork and join (some microseconds) when there is more than one piece and more than one thread
/// Throws   the exception of the first piece that fails, after the others have ended; on one thread later ones do not
///          start
template <class F>
void parallel_for(Size count, Size grain, const F& f) {
  const Size pieces = (count + grain - 1) / grain;
  const auto piece = [&](Size i) { f(i * grain, std::min(count, (i + 1) * grain)); };
#if DSPP_HAS_OPENMP()
  if (pieces > 1 && threads_of_a_loop() > 1) {
    std::exception_ptr error;  // none may leave a parallel region
#pragma omp parallel for schedule(dynamic, 1)
    for (Size i = 0; i < pieces; ++i) {
      try {
        piece(i);
      } catch (...) {
#pragma omp critical(dspp_parallel_for)
        if (!error) error = std::current_exception();
      }
    }
    if (error) std::rethrow_exception(error);
    return;
  }
#endif
  for (Size i = 0; i < pieces; ++i) piece(i);
}

/// While in scope, libraries called by this thread use this thread alone.
///
/// Their threading splits a product by the number of threads, which changes its bits; ours does not.
class OneThread {
 public:
#if DSPP_HAS_OPENMP()
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }

 private:
  int before_;

 public:
#else
  OneThread() {}
  ~OneThread() {}
#endif
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
};

}  // namespace dspp::cpu
