// SPDX-License-Identifier: Apache-2.0
/// Arrays on the GPU, or on the one in software, for the tests of kernels/.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/base/element.hpp>
#include <kernels/device.cuh>
#include <laws/difference.hpp>

namespace dspp::laws {

/// Throws what CUDA says. Work: the name of a test.
inline void check_cuda(cudaError_t status) {
  gpu::check({"test"}, status);
}

/// A stream, ended when it has done its work.
class TestStream {
 public:
  TestStream() { check_cuda(cudaStreamCreate(&stream_)); }
  ~TestStream() { cudaStreamDestroy(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Elements on the device, all bits set (NaN) until something writes them, with `offset` elements before them, so that
/// they need not begin at a multiple of 16 bytes. Beside them lie 64 guard bytes, which the destructor checks.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(Size count, Size offset = 0) : count_(count), offset_(offset) {
    std::vector<unsigned char> bytes(total(), 0xa5);
    std::fill_n(bytes.begin() + guard + offset * sizeof(T), count * sizeof(T), 0xff);
    check_cuda(cudaMalloc(&memory_, bytes.size()));
    check_cuda(cudaMemcpyAsync(memory_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, nullptr));
    check_cuda(cudaStreamSynchronize(nullptr));
  }
  DeviceArray(const std::vector<T>& values, Size offset = 0) : DeviceArray(static_cast<Size>(values.size()), offset) {
    check_cuda(cudaMemcpyAsync(data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice, nullptr));
    check_cuda(cudaStreamSynchronize(nullptr));
  }
  ~DeviceArray() {
    std::vector<unsigned char> bytes(total());
    cudaMemcpyAsync(bytes.data(), memory_, bytes.size(), cudaMemcpyDeviceToHost, nullptr);
    cudaStreamSynchronize(nullptr);
    const Size first = guard + offset_ * sizeof(T), last = first + count_ * sizeof(T);
    Size written = 0;
    for (Size i = 0; i < static_cast<Size>(bytes.size()); ++i) written += (i < first || i >= last) && bytes[i] != 0xa5;
    CHECK_MESSAGE(written == 0, "a kernel wrote beside an array");
    cudaFree(memory_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  Size size() const { return count_; }
  T* data() const { return reinterpret_cast<T*>(static_cast<char*>(memory_) + guard) + offset_; }
  operator T*() const { return data(); }

  /// What it holds once `stream` has come so far.
  std::vector<T> read(cudaStream_t stream) const {
    std::vector<T> values(count_);
    check_cuda(cudaMemcpyAsync(values.data(), data(), count_ * sizeof(T), cudaMemcpyDeviceToHost, stream));
    check_cuda(cudaStreamSynchronize(stream));
    return values;
  }

 private:
  static constexpr Size guard = 64;
  std::size_t total() const { return 2 * guard + (offset_ + count_) * sizeof(T) + 16; }

  Size count_, offset_;
  void* memory_ = nullptr;
};

/// The offset at which a DeviceArray of bytes begins at a multiple of 256, as workspaces of libraries must.
inline constexpr Size to_256 = 192;

/// Normal numbers, rounded to T.
template <class T>
std::vector<T> normals(Size count, std::mt19937& random, double deviation = 1, double mean = 0) {
  std::normal_distribution<float> normal(static_cast<float>(mean), static_cast<float>(deviation));
  std::vector<T> values(count);
  for (T& x : values) x = static_cast<T>(normal(random));
  return values;
}

template <class T>
std::vector<double> in_f64(const std::vector<T>& values) {
  std::vector<double> wide(values.size());
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<double>(values[i]);
  return wide;
}

/// Half the distance of neighbours, relative: the error of one rounding to T.
template <class T>
inline constexpr double rounding_of = std::is_same_v<T, float>  ? 0x1p-24
                                      : std::is_same_v<T, bf16> ? 0x1p-8
                                                                : 0x1p-11;

/// |is - expected| <= rounding_of<T> |expected| + `f32_roundings` of f32 of the largest |expected|, for every element.
/// Where large terms cancel, `terms` is the largest of those.
template <class T>
void check_elements(const std::vector<T>& is, const std::vector<double>& expected, double f32_roundings,
                    const std::string& what, double terms = 0) {
  REQUIRE(is.size() == expected.size());
  if (expected.empty()) return;
  const double largest = std::max(largest_of(expected), terms);
  const double unit = std::is_same_v<T, f16> ? 0x1p-25 : 0;  // subnormal
  const double worst = worst_difference(is, expected, [&](double e) {
    return (std::is_same_v<T, float> ? 0 : 1.01 * rounding_of<T> * std::abs(e)) + f32_roundings * 0x1p-24 * largest +
           unit;
  });
  INFO(what);
  CHECK(worst <= 1);
}

/// The gradient that x has before an operation's backward adds dx to it: null, or an array of its own, so many elements
/// behind a multiple of 16 bytes, or the one that takes the sum.
struct Earlier {
  bool given, in_place;
  Size offset;
};
/// All of them for arrays of that offset.
inline std::array<Earlier, 4> earlier_gradients(Size offset) {
  return {{{false, false, 0}, {true, false, offset}, {true, false, offset + 1}, {true, true, offset}}};
}

/// "rows 3, n 40" of ("rows", 3, "n", 40).
template <class T, class... More>
std::string describe(const char* name, T value, More... more) {
  const std::string own = name + (" " + std::to_string(value));
  if constexpr (sizeof...(more) == 0)
    return own;
  else
    return own + ", " + describe(more...);
}

/// An extent from 1 to `most`, mostly no multiple of anything.
inline Size odd_extent(Size most, std::mt19937& random) {
  return 1 + static_cast<Size>(random() % most);
}

}  // namespace dspp::laws
