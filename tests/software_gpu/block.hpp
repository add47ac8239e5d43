// SPDX-License-Identifier: Apache-2.0
/// A block of a kernel in software: its threads are fibers, its barriers switch between them.
///
/// Blocks, the warps of a block and the lanes of a warp run in random orders (seeded), warps also in turns that end at
/// any barrier of theirs, so that what is right only by
/// the luck of an order becomes wrong: a missing __syncthreads, a result that depends on which block ends first.
///
/// All orders, those of the streams, too, are drawn from one sequence, in the order of the calls. Where one thread of
/// the host calls, a seed gives the same orders again. Where ranks are threads, it also depends on when the system runs
/// them: a seed that failed may have to be tried several times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_extent = 1, unsigned y_extent = 1, unsigned z_extent = 1)
      : x(x_extent), y(y_extent), z(z_extent) {}
};
using uint3 = dim3;

// The names that kernels use, of the thread that runs.
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace dspp::software_gpu {

inline constexpr unsigned warp_size = 32;
inline constexpr unsigned all_lanes = 0xffffffffu;

/// Where a thread waits. Threads of one warp, or of one block, must wait at the same.
enum class Barrier { none, block, warp };

/// Stops the running thread until all threads of its block, or of its warp, have come to that barrier.
void wait_at(Barrier barrier);

/// The slot of the running thread's warp through which lane `lane` gives a value to the others in a shuffle.
std::uint64_t& slot_of_lane(unsigned lane);
/// The next shuffle of the running thread uses the other set of slots: one barrier a shuffle is then enough.
void next_slots();
unsigned lane_of_thread();
void require_all_lanes(unsigned mask);

/// The value of another lane, or the own one where there is no such lane.
template <class T>
T shuffle(unsigned mask, T value, unsigned from) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  require_all_lanes(mask);
  std::memcpy(&slot_of_lane(lane_of_thread()), &value, sizeof value);
  wait_at(Barrier::warp);
  T result;
  std::memcpy(&result, &slot_of_lane(from), sizeof result);
  next_slots();
  return result;
}

/// Copies of the running thread, which are done as late as they may be: when it waits for their group. The last `zeros`
/// of the bytes are 0 and not read.
void copy_later(void* to, const void* from, std::size_t bytes, std::size_t zeros = 0);
void end_group_of_copies();
/// For all groups but the last `later`.
void wait_for_copies(std::size_t later);

// ---- products of a warp, see mma.hpp ----

inline constexpr int fragment_elements = 8;  // of a lane

/// The places, 16 row + column, of the running lane's elements in a fragment of a kind below 8. Each kind has an order
/// of its own, and another in each launch: hardware does not say its own.
const std::uint8_t* places_of_fragment(int kind);
/// An operation of a whole warp begins. Throws Error with a sentence if a lane comes to another, or with other
/// arguments, than the lanes before it.
void begin_warp_operation(int kind, const void* memory, std::size_t stride);
/// Two matrices [16, 16] of the running thread's warp, until next_slots(): the left one, and the right one transposed.
float* operands_of_warp();
/// d = a b + c of the lane's elements at those places, of operands_of_warp().
void multiply_operands(const std::uint8_t* places, float* d, const float* c);

/// Runs all blocks. Throws Error with a sentence if threads wait at different barriers, or if one ends while others
/// wait.
/// `shared_bytes` are what shared_memory() gives it, filled with NaN for each block.
void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, void (*kernel)(void*), void* arguments);
void* shared_memory();

/// Of every thread, __syncthreads number `number` of a kernel, counted from 0, does nothing, as if it were not there;
/// below 0: all of them work.
void leave_out_barrier(int number);

/// __pipeline_wait_prior waits for nothing: copies that it should wait for are never done.
void leave_out_waits_for_copies(bool out);

/// A number in the environment, or `otherwise` where it is not set.
///
/// Throws   Error(usage) for anything but a number below 2^32
unsigned number_of_environment(const char* name, unsigned otherwise);
/// DSPP_GPU_SEED in the environment, or 1: the seed with which a process begins, and each of its test cases.
unsigned first_seed();
/// The orders of all later blocks and streams.
void seed(unsigned number);
/// What seed() was last given.
unsigned current_seed();
unsigned times_seeded();
unsigned random_below(unsigned bound);

}  // namespace dspp::software_gpu
