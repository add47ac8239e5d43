// SPDX-License-Identifier: Apache-2.0
// Optimizers that ask for norms or matrices, beyond those of the library. labels: optim engine
#include <cmath>
#include <string>
#include <vector>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/engine/weight_average.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/muon.hpp>
#include <laws/folder.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 2, .vocabulary = 13, .sequence = 4};

/// Gradient descent with so many sums of gradients as moments, of which the last one moves the matrices.
template <int moments, int of_matrices>
struct Sums {
  static constexpr const char* name = "Sums";
  static constexpr int moment_count = moments, matrix_moment_count = of_matrices;
  double lr = 0.05;

  template <class S>
  auto rule(const UpdateScalars& scalars) const {
    return [rate = static_cast<S>(scalars.lr)](auto& b) {
      for (int k = 0; k < b.length; ++k) {
        for (int m = 0; m < moments; ++m) b.new_moments[m][k] = b.moments[m][k] + b.gradient[k];
        b.new_value[k] = b.value[k] - rate * b.gradient[k];
      }
    };
  }
  template <class S>
  auto matrix_direction(const UpdateScalars&) const {
    return [](auto& b) {
      for (int k = 0; k < b.length; ++k) {
        for (int m = 0; m < of_matrices; ++m) b.new_moments[m][k] = S(0.5) * b.moments[m][k] + S(m + 1) * b.gradient[k];
        b.new_value[k] = b.new_moments[of_matrices - 1][k];
      }
    };
  }
  template <class S, class D>
  constexpr Tensor<S, 2, D> matrix_update(const Tensor<S, 2, D>& u) const {
    return u;
  }
  template <class S>
  auto matrix_rule(const UpdateScalars& scalars, const MatrixShape&) const {
    return [rate = static_cast<S>(scalars.lr)](auto& b) {
      for (int k = 0; k < b.length; ++k) b.new_value[k] = b.value[k] - rate * b.gradient[k];
    };
  }
};

/// Keeps the first gradient as its direction for ever: moments that a direction does not write are unchanged.
struct First {
  static constexpr int moment_count = 1;
  double lr = 0.01;
  std::vector<double>* norms = nullptr;
  template <class S>
  auto direction(const UpdateScalars& scalars) const {
    return [first = scalars.step == 1](auto& b) {
      for (int k = 0; k < b.length; ++k) {
        if (first) b.new_moments[0][k] = b.gradient[k];
        b.new_value[k] = b.new_moments[0][k];
      }
    };
  }
  double ratio(double, double update_norm) const {
    norms->push_back(update_norm);
    return 1;
  }
};

template <class Engine>
double train(Engine& engine, Size from, Size steps) {
  double last = 0;
  for (Size i = from; i < from + steps; ++i) {
    auto& world = engine.world();
    last = StepReport(engine.train_batch(batch_of(world.memory(), 8 * i, 2 * world.data_rank(), 2, 4, 13))).loss;
  }
  return last;
}

template <class O>
void check_resumed() {
  using P = Policy<F64>;
  const Folder folder;
  const std::string state = (folder.path / "state").string();
  run_ranks_of<P>({}, [&](World<P>& world) {
    Engine engine{world, Gpt<P>(tiny), O{}};
    train(engine, 0, 3);
    save_checkpoint(engine, state);
    const double whole = train(engine, 3, 3);
    Engine resumed{world, Gpt<P>(tiny), O{}};
    load_checkpoint(resumed, state);
    CHECK(train(resumed, 3, 3) == whole);
  });
}

/// The sentence of a training, by rank.
template <class P>
std::string sentence(auto train_rank) {
  try {
    run_ranks_of<P>({.ranks = 2}, train_rank);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("a training resumes with all moments, however many its matrices and its other parameters have") {
  check_resumed<Sums<0, 1>>();
  check_resumed<Sums<1, 2>>();
  check_resumed<Sums<2, 1>>();
}

TEST_CASE("a direction that leaves a moment as it is has the norm of that moment") {
  using P = Policy<F64>;
  std::vector<double> norms;
  run_ranks_of<P>({}, [&](World<P>& world) {
    Engine engine{world, Gpt<P>(tiny), First{.norms = &norms}};
    train(engine, 0, 2);
  });
  const std::size_t half = norms.size() / 2;
  REQUIRE(half > 0);
  CHECK(std::vector(norms.begin(), norms.begin() + static_cast<std::ptrdiff_t>(half)) ==
        std::vector(norms.begin() + static_cast<std::ptrdiff_t>(half), norms.end()));
}

TEST_CASE("Muon's update of a matrix without a gradient is zero, whatever its epsilon") {
  Pool pool;
  const auto u = Tensor<float, 2>::zeros(shape(4, 3), pool);
  for (const double epsilon : {0.0, 1e-46, 1e-7})
    Muon{.epsilon = epsilon}.matrix_update(u).read([](const float* host) {
      for (int i = 0; i < 12; ++i) CHECK(host[i] == 0);
    });
}

TEST_CASE("groups whose matrices are updated otherwise, and averages of another decay, are refused") {
  using P = Policy<F64, Tp<2>>;
  CHECK(
      sentence<P>([](World<P>& world) {
        const auto matrices = world.rank() == 0 ? MatrixUpdate::in_blocks : MatrixUpdate::never;
        const EngineConfig config{
            .groups = {{.name = "up",
                        .contains = [](std::string_view p) { return p.find("up.weight") != p.npos; },
                        .matrices = matrices}}};
        Engine engine{world, Gpt<P>(tiny), Muon{}, config};
      }) ==
      "dspp: Engine needs the same on every rank, but 'groups group 1 matrices' is 1 on rank 1 and 0 on rank 0. Start "
      "all ranks with the same program, options and files.");
  CHECK(sentence<P>([](World<P>& world) {
          Engine engine{world, Gpt<P>(tiny), Muon{}};
          WeightAverage average{engine, world.rank() == 0 ? 0.9 : 0.99};
        }) ==
        "dspp: WeightAverage needs the same on every rank, but 'decay' is 0.99 on rank 1 and 0.9 on rank 0. Start all "
        "ranks with the same program, options and files.");
}

TEST_CASE("what one rank throws while the weights are the averages ends the run with its sentence") {
  using P = Policy<F64, Zero<1>>;
  CHECK(sentence<P>([](World<P>& world) {
          Engine engine{world, Gpt<P>(tiny), Muon{}};
          WeightAverage average{engine, 0.9};
          train(engine, 0, 1);
          average.update();
          average.within([&] {
            if (world.rank() == 1) fail(ErrorCode::file, "dspp: rank 1 cannot read its text.");
          });
        }) == "dspp: rank 1 cannot read its text.");
}
