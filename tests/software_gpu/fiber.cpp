// SPDX-License-Identifier: Apache-2.0
// longjmp between stacks is what this file is for, and what glibc's fortified longjmp refuses.
#undef _FORTIFY_SOURCE
#include <software_gpu/fiber.hpp>

#include <sys/mman.h>
#include <ucontext.h>

#include <new>
#include <utility>

namespace dspp::software_gpu {

namespace {
constexpr std::size_t stack_bytes = 128 * 1024;
Fiber* running = nullptr;
}  // namespace

Fiber::Fiber() {
  void* memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  stack_ = static_cast<char*>(memory);
}

Fiber::~Fiber() {
  munmap(stack_, stack_bytes);
}

void Fiber::start(void (*function)(void*), void* argument) {
  if (!ended_) entered_ = false;
  function_ = function;
  argument_ = argument;
  ended_ = false;
}

void Fiber::run() {
  for (;;) {
    try {
      running->function_(running->argument_);
    } catch (...) {
      running->thrown_ = std::current_exception();
    }
    running->ended_ = true;
    yield();
  }
}

// Apart from resume(), whose variables would not survive the second return of setjmp.
void Fiber::enter(Fiber& fiber) {
  if (_setjmp(fiber.caller_) != 0) return;
  if (fiber.entered_) _longjmp(fiber.here_, 1);
  fiber.entered_ = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack_;
  context.uc_stack.ss_size = stack_bytes;
  context.uc_link = nullptr;
  makecontext(&context, &Fiber::run, 0);
  setcontext(&context);
}

void Fiber::resume() {
  running = this;
  enter(*this);
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void Fiber::yield() {
  Fiber& self = *running;
  if (_setjmp(self.here_) == 0) _longjmp(self.caller_, 1);
}

}  // namespace dspp::software_gpu
