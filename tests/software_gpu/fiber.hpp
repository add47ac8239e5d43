// SPDX-License-Identifier: Apache-2.0
/// Functions that stop in their middle and go on later: one for each thread of a block.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <exception>

namespace dspp::software_gpu {

/// A stack on which a function runs until it ends or yields. Kept and used again: blocks start thousands.
///
/// Cost     some 20 ns for a switch: setjmp and longjmp, after one makecontext per stack
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// The function for the next resume(). One that has not ended is abandoned, without destructors.
  void start(void (*function)(void*), void* argument);
  /// Runs until the function ends or yields. Throws what the function throws.
  void resume();
  bool ended() const { return ended_; }

  /// Back to resume(), from the fiber that runs.
  static void yield();

 private:
  static void run();
  static void enter(Fiber& fiber);

  char* stack_;
  bool entered_ = false, ended_ = true;
  void (*function_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::exception_ptr thrown_;
  std::jmp_buf here_, caller_;
};

}  // namespace dspp::software_gpu
