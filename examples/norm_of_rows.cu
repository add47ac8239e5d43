// SPDX-License-Identifier: Apache-2.0
/// A kernel of dspp in a program without dspp: kernels/layer_norm.cuh on plain pointers, as any CUDA program has them.
///
///   nvcc -std=c++20 -I include -I . examples/norm_of_rows.cu -o norm_of_rows
#include <cstdio>
#include <exception>
#include <vector>

#include <kernels/layer_norm.cuh>

namespace {

/// An array of a GPU.
class Floats {
 public:
  explicit Floats(const std::vector<float>& host) : count_(host.size()) {
    dspp::gpu::check({"cudaMalloc"}, cudaMalloc(reinterpret_cast<void**>(&data_), count_ * sizeof(float)));
    dspp::gpu::check({"copy"}, cudaMemcpyAsync(data_, host.data(), count_ * sizeof(float), cudaMemcpyHostToDevice, {}));
  }
  ~Floats() { cudaFree(data_); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  float* data() const { return data_; }
  std::vector<float> host() const {
    std::vector<float> y(count_);
    dspp::gpu::check({"copy"}, cudaMemcpyAsync(y.data(), data_, count_ * sizeof(float), cudaMemcpyDeviceToHost, {}));
    dspp::gpu::check({"wait"}, cudaStreamSynchronize({}));
    return y;
  }

 private:
  float* data_ = nullptr;
  std::size_t count_;
};

void print_norms() {
  constexpr int rows = 2, columns = 4;
  const Floats x({1, 2, 3, 4, 10, 10, 30, 30}), gamma({1, 1, 1, 2}), beta({0, 0, 0, 1});
  const Floats y{std::vector<float>(8)}, mean{std::vector<float>(2)}, rstd{std::vector<float>(2)};
  const float* const no_residual = nullptr;
  float* const no_sum = nullptr;
  dspp::gpu::layer_norm({}, rows, columns, x.data(), no_residual, gamma.data(), beta.data(), 1e-5, no_sum, y.data(),
                        mean.data(), rstd.data());
  const auto of_y = y.host(), of_mean = mean.host();
  for (int i = 0; i < rows; ++i) {
    std::printf("mean %.3f:", static_cast<double>(of_mean[i]));
    for (int j = 0; j < columns; ++j) std::printf(" %.3f", static_cast<double>(of_y[i * columns + j]));
    std::puts("");
  }
}

}  // namespace

int main() {
  try {
    print_norms();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
