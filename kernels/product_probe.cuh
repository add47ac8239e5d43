// SPDX-License-Identifier: Apache-2.0
/// Operands by which the bits of a product tell in which order its algorithm adds, in memory of their own.
///
/// The operands of a training would not do: where they are zero, or infinite by a loss scale that overflows, all
/// orders give the same bits, and rounding to 16 bits hides most differences of the others. So the terms of a sum lie
/// in pairs, p beside q = depth - 1 - p:
///
///   op(first)[i, p] = op(first)[i, q]
///   op(second)[p, j] = -op(second)[q, j] in even columns j, op(second)[q, j] in odd ones
///
/// In even columns of the result the exact sum is 0, and what is computed is the rounding of the partial sums alone,
/// which depends on every one of them. In odd columns it is a number near 1, for what follows the sum, as gelu. Biases
/// are 0 in even rows, and what is accumulated onto is 0 in even columns. A value depends on its place alone.
///
/// Bytes     of the operands once, of the result twice for each algorithm
/// Memory    as much as the operands and the result, from CUDA while the probe lives
#pragma once

#include <memory>
#include <optional>

#include <kernels/digest.cuh>
#include <kernels/each.cuh>

namespace dspp::gpu {

enum class ProbeOperand { first, second, result, bias, before };

/// Fills a matrix of [along, depth] (first) or [depth, along] (second), or [i, j], as cuBLASLt lays it: rows follow one
/// another, columns begin `ld` elements apart.
template <class T>
struct FillProbe {
  ProbeOperand operand;
  Size ld, columns, depth;
  bool has_depth_in_rows;
  T* to;

  __device__ void operator()(Size index) const {
    const Size row = index % ld, column = index / ld % columns, matrix = index / ld / columns;
    to[index] = from_float<T>(value(row, column, matrix));
  }

 private:
  /// In [-1, 1), of exponents so far apart that no partial sum of products is exact, those of 16 bits neither.
  __device__ float number(Size a, Size b) const {
    const auto salt = static_cast<std::uint64_t>(operand) << 60;
    const std::uint64_t bits = PlacedDigest::term(salt + static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b));
    return (static_cast<float>(bits >> 40) * 0x1p-23f - 1) / static_cast<float>(1 << (bits & 7));
  }
  __device__ float value(Size row, Size column, Size matrix) const {
    if (operand == ProbeOperand::before) return number(row + column * ld, matrix);
    if (operand == ProbeOperand::bias) return row % 2 == 0 ? 0 : number(row, 0);
    if (operand == ProbeOperand::result) return column % 2 == 0 ? 0 : number(row + column * ld, matrix);
    const Size p = has_depth_in_rows ? row : column, along = has_depth_in_rows ? column : row;
    const Size other = depth - 1 - p;
    const float u = number(p < other ? p : other, along + matrix * (ld + columns));
    if (operand == ProbeOperand::first) return u;
    const float near_1 = 12 * rsqrtf(static_cast<float>(depth)) * u;  // its sum with first's is
    if (along % 2 == 1) return near_1;
    return p == other ? 0 : p < other ? 4096 * near_1 : -4096 * near_1;  // the rounding is a normal number of f16
  }
};

/// Of BlasProduct and BlasOperands. It is false, and does nothing, if its memory is not to be had: it takes at most
/// half of what is free, since others may share the GPU.
///
/// Throws   Error(state) if CUDA fails otherwise
template <class Product, class Operands>
class ProductProbe {
 public:
  /// `at`: the real operands, which are neither read nor written but for the workspace.
  ProductProbe(const Work& work, cudaStream_t stream, const Product& p, const Operands& at)
      : work_(work), stream_(stream), p_(p), at_(at) {
    const Size first = take(p.batch * p.stride_first * bytes_of(p.operands)),
               second = take(p.batch * p.stride_second * bytes_of(p.operands));
    first_written_ = size_;
    const Size elements = p.batch * p.stride_result;
    const Size result = take(elements * bytes_of(p.result)),
               before = take(at.before == nullptr ? 0 : elements * bytes_of(p.result)),
               bias = take(at.bias == nullptr ? 0 : p.rows * bytes_of(p.result));
    end_written_ = size_;
    pieces_ = take((most_digest_pieces + 1) * 8);
    if (!allocate()) return;
    const auto place = [&](Size of) { return memory_.get() + of; };
    at_.first = place(first), at_.second = place(second), at_.result = place(result);
    if (at.before != nullptr) at_.before = place(before);
    if (at.bias != nullptr) at_.bias = place(bias);
    check_issued(work, stream, cudaMemsetAsync(memory_.get(), 0, static_cast<std::size_t>(size_), stream));
    fill(ProbeOperand::first, p.operands, place(first), p.ld_first, p.transposes_first ? p.rows : p.depth,
         p.transposes_first);
    fill(ProbeOperand::second, p.operands, place(second), p.ld_second, p.transposes_second ? p.depth : p.columns,
         !p.transposes_second);
  }

  explicit operator bool() const { return memory_ != nullptr; }
  const Operands& operands() const { return at_; }

  /// The digest of all that run(), which issues the product of operands(), has written. Nothing if run() is false.
  template <class Run>
  std::optional<std::uint64_t> bits_of(Run run) {
    fill(ProbeOperand::result, p_.result, at_.result, p_.ld_result, p_.stride_result / p_.ld_result, false);
    if (at_.before != nullptr)
      fill(ProbeOperand::before, p_.result, at_.before, p_.ld_result, p_.stride_result / p_.ld_result, false);
    if (at_.bias != nullptr)
      launch_fill(ProbeOperand::bias, p_.result, const_cast<void*>(at_.bias), p_.rows, 1, false, p_.rows);
    if (!run()) return std::nullopt;
    auto* const pieces = reinterpret_cast<std::uint64_t*>(memory_.get() + pieces_);
    const auto* const written = reinterpret_cast<const std::uint8_t*>(memory_.get() + first_written_);
    const SumDigest sum = digest_pieces_of(stream_, end_written_ - first_written_, written, pieces);
    std::uint64_t* const digest = pieces + most_digest_pieces;
    launch_once(work_, stream_, StoreDigest{sum, digest});
    std::uint64_t bits = 0;
    check(work_, cudaMemcpyAsync(&bits, digest, sizeof bits, cudaMemcpyDeviceToHost, stream_));
    check(work_, cudaStreamSynchronize(stream_));
    return bits;
  }

 private:
  struct Free {
    cudaStream_t stream = nullptr;
    void operator()(char* memory) const {
      cudaFreeAsync(memory, stream);
      cudaStreamSynchronize(stream);  // what was freed goes back to CUDA when the host waits
    }
  };

  /// The place of so many bytes in the probe's memory.
  Size take(Size bytes) {
    const Size place = size_;
    size_ += (bytes + 255) / 256 * 256;
    return place;
  }
  bool allocate() {
    std::size_t free = 0, total = 0;
    void* memory = nullptr;
    if (cudaMemGetInfo(&free, &total) == cudaSuccess && static_cast<std::size_t>(size_) <= free / 2 &&
        cudaMallocAsync(&memory, static_cast<std::size_t>(size_), stream_) == cudaSuccess) {
      memory_ = {static_cast<char*>(memory), Free{stream_}};
      return true;
    }
    cudaGetLastError();  // else a later call would give it again
    return false;
  }
  void fill(ProbeOperand operand, ElementType type, void* to, Size ld, Size columns, bool has_depth_in_rows) {
    launch_fill(operand, type, to, ld, columns, has_depth_in_rows, p_.batch * ld * columns);
  }
  void launch_fill(ProbeOperand operand, ElementType type, void* to, Size ld, Size columns, bool has_depth_in_rows,
                   Size count) {
    const auto with = [&](auto* elements) {
      using T = std::remove_pointer_t<decltype(elements)>;
      launch_each(work_, stream_, count, FillProbe<T>{operand, ld, columns, p_.depth, has_depth_in_rows, elements});
    };
    if (type == ElementType::bf16)
      with(static_cast<bf16*>(to));
    else if (type == ElementType::f16)
      with(static_cast<f16*>(to));
    else
      with(static_cast<float*>(to));
  }

  Work work_;
  cudaStream_t stream_;
  Product p_;
  Operands at_;
  std::unique_ptr<char, Free> memory_;
  Size size_ = 0, first_written_ = 0, end_written_ = 0, pieces_ = 0;
};

}  // namespace dspp::gpu
