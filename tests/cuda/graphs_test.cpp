// SPDX-License-Identifier: Apache-2.0
// Graphs of a step apart from an engine: the table of what changes, memory, and what launches are compared by.
// labels: cuda
#include <kernels/cuda_graphs.cuh>

#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/cuda/launch_watch.hpp>

using namespace dspp;

namespace {

struct OnGpu {
  CudaMemory memory;
  Pool pool{0, &memory};
};

template <class T>
T value_at(CudaMemory& memory, const T* place) {
  T value{};
  memory.to_host(&value, reinterpret_cast<const std::byte*>(place), sizeof value);
  return value;
}

std::string sentence_of(auto f) {
  try {
    f();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::usage);
    return error.what();
  }
  return "";
}

struct Rate {
  float rate, decay;
};
constexpr auto rate_of = [](const UpdateScalars& of_range) {
  return Rate{static_cast<float>(of_range.lr * static_cast<double>(of_range.step)), of_range.decay ? 1.0f : 0.0f};
};

}  // namespace

TEST_CASE("the table has the numbers of each part, and what the host makes of a step for each kind of range") {
  OnGpu device;
  CudaGraphs graphs(device.pool);
  const RangeSettings plain{}, slow{.decays = false, .lr_factor = 0.5};
  const Rate *of_plain = nullptr, *of_slow = nullptr;
  for (Size step = 1; step <= 3; ++step) {
    const UpdateScalars scalars{.step = step, .lr = 4};
    graphs.begin(StepWay::eager);
    CHECK(!graphs.begin_part({.random_step = step, .first_sample = 7}));
    graphs.end_part();
    CHECK(value_at(device.memory, graphs.numbers()).random_step == step);
    CHECK(value_at(device.memory, graphs.numbers()).first_sample == 7);
    CHECK(!graphs.begin_part({}, &scalars));
    Rate now = rate_of(scalars_of(scalars, plain));
    of_plain = graphs.place(plain, {}, rate_of, now);
    CHECK(now.rate == 4);  // the first step's, in every step
    CHECK(of_plain == graphs.place(plain, {}, rate_of, now));
    now = rate_of(scalars_of(scalars, slow));
    of_slow = graphs.place(slow, {}, rate_of, now);
    CHECK(of_slow != of_plain);
    graphs.end_part();
    graphs.end();
    CHECK(value_at(device.memory, of_plain).rate == static_cast<float>(4 * step));
    CHECK(value_at(device.memory, of_plain).decay == 1);
    CHECK(value_at(device.memory, of_slow).rate == static_cast<float>(2 * step));
    CHECK(value_at(device.memory, of_slow).decay == 0);
  }
}

TEST_CASE("rules that do not fit the table are a sentence") {
  OnGpu device;
  CudaGraphs graphs(device.pool);
  graphs.begin(StepWay::eager);
  graphs.begin_part({});
  Rate now{};
  Size fit = 0;
  const std::string sentence = sentence_of([&] {
    for (;; ++fit) graphs.place({}, {.rows = fit + 1, .columns = 1}, rate_of, now);
  });
  CHECK(fit == (CudaGraphs::table_bytes - CudaGraphs::first_rule) / 64);
  CHECK(sentence.find(
            "dspp: EngineConfig::graphs needs an optimizer's rules for all kinds of parameters in 16 KiB, ") == 0);
  graphs.abandon();
}

TEST_CASE("memory is taken during a capture, and what is given back then is freed when the step has been issued") {
  OnGpu device;
  CudaGraphs graphs(device.pool);
  for (const StepWay way : {StepWay::eager, StepWay::eager}) {
    graphs.begin(way);
    graphs.begin_part({});
    graphs.end_part();
    graphs.end();
  }
  const auto before = device.pool.reserved();
  graphs.begin(StepWay::captured);
  graphs.begin_part({});
  CHECK(graphs.is_capturing());
  { const Storage<Pool> own(device.pool, 1 << 20, Category::activations, "own"); }
  CHECK(device.pool.reserved() > before);
  device.pool.trim();
  CHECK(graphs.is_capturing());
  const std::string refused = sentence_of([&] { device.memory.synchronize(); });
  CHECK(refused.find("dspp: wait needs the host in every step, but this step is captured into a graph, ") == 0);
  graphs.end_part();
  graphs.end();
  CHECK(graphs.has_graphs());
  CHECK(!graphs.may_repeat());  // its memory was returned
  device.memory.synchronize();
}

namespace {

/// What a digest of arguments tells; addresses from 0x1000 to 0x1fff are the device's.
struct Heard final : LaunchWatch {
  std::vector<NotedLaunch> launches{};
  void launched(const NotedLaunch& launch) override { launches.push_back(launch); }
  bool uses(std::uintptr_t address) override { return address >= 0x1000 && address < 0x2000; }

  template <class... A>
  NotedLaunch of(const A&... arguments) {
    ArgumentDigest digest(*this, "operation");
    (digest.add(arguments), ...);
    digest.note();
    return launches.back();
  }
};

struct Padded {
  char small;
  double number;
};
struct WithAddress {
  std::uintptr_t address;
  float number;
};

}  // namespace

TEST_CASE("launches are compared by their numbers, without addresses of the device and without padding") {
  Heard heard;
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<const float*>(address); };
  CHECK(heard.of(3, at(0x1008)).numbers == heard.of(3, at(0x1040)).numbers);
  CHECK(heard.of(3, at(0x1008)).all != heard.of(3, at(0x1040)).all);
  CHECK(heard.of(3, at(0x1008)).numbers != heard.of(4, at(0x1008)).numbers);
  CHECK(heard.of(3, at(0x1008)).numbers != heard.of(3, at(0)).numbers);
  CHECK(heard.of(2.5).numbers != heard.of(2.25).numbers);
  CHECK(std::string(heard.launches.back().operation) == "operation");
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
  const auto padded = [&](unsigned char padding, double number) {
    Padded x;
    std::memset(&x, padding, sizeof x);
    x.small = 1, x.number = number;
    return heard.of(x).numbers;
  };
  CHECK(padded(0, 0.5) == padded(0xff, 0.5));
  CHECK(padded(0, 0.5) != padded(0, 0.25));
  CHECK(heard.of(WithAddress{0x1010, 1}).numbers == heard.of(WithAddress{0x1020, 1}).numbers);
  CHECK(heard.of(WithAddress{0x1010, 1}).numbers != heard.of(WithAddress{0x1010, 2}).numbers);
#endif
#endif
}
