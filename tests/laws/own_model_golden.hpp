// SPDX-License-Identifier: Apache-2.0
/// A model of examples/models gives the gradients and the losses of its PyTorch twin, which
/// tests/golden/make_models_golden.py has, under every strategy, at the memory of its plan.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <dspp/plan/plan.hpp>
#include <laws/golden_model.hpp>
#include <support/far_device.hpp>

namespace dspp::laws {

/// The elements of a tensor, on the host.
inline std::vector<double> on_host(const auto& tensor) {
  std::vector<double> values;
  tensor.read([&](const auto* host) { values.assign(host, host + tensor.count()); });
  return values;
}

/// The initial values of the script, by the number of the parameter in the order of names.
inline std::vector<double> golden_values(const std::string& name, std::size_t number, Size count) {
  const double base = name.find("norm") != std::string::npos && name.ends_with("weight") ? 1 : 0;
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = base + 0.3 * std::sin(1 + 0.37 * static_cast<double>(i) + 1.7 * static_cast<double>(number));
  return values;
}

/// Fills a field, of this rank's samples, from the whole of a golden file, [samples, ...], of which Cp cuts `Dim`.
template <class X, class P>
void fill_field(X& field, World<P>& world, const io::SafetensorsReader& file, const std::string& name) {
  using T = typename X::Element;
  const auto whole = values_of<T>(file, name);
  constexpr int cut = X::Placement::cp_dimension;
  const auto& shape = field.shape();
  constexpr int dimension = cut >= 0 ? cut : 0;
  const Size outer = shape.product(0, cut >= 0 ? cut : 1), extent = cut >= 0 ? shape[cut] : 1;
  const Size inner = shape.product(dimension + 1, X::rank), parts = cut >= 0 ? P::cp : 1;
  const Size part = cut >= 0 ? world.cp_rank() : 0;
  const Size first = world.data_rank() * outer;
  field.value().write([&](T* out) {
    for (Size o = 0; o < outer; ++o)
      std::copy_n(whole.begin() + ((first + o) * parts + part) * extent * inner, extent * inner,
                  out + o * extent * inner);
  });
}

/// This rank's samples of a golden file: as Golden fills the model's own batch, or tokens and targets.
template <class Golden, class P>
auto golden_batch_of(const auto& model, World<P>& world, const BatchSizes& sizes, const io::SafetensorsReader& golden) {
  if constexpr (requires { model.new_batch(sizes, world.memory()); }) {
    auto batch = model.new_batch(sizes, world.memory());
    Golden::fill(batch, world, golden);
    return batch;
  } else {
    using D = DeviceOf<P>;
    const auto ids = [&](const char* name) {
      Tokens<P> field;
      field = Tensor<std::int32_t, 2, D>::zeros(shape(sizes.micro_batch, sizes.sequence / P::cp), world.memory());
      fill_field(field, world, golden, name);
      return field.value();
    };
    return Batch<D>{ids("tokens"), ids("targets")};
  }
}

/// Two steps have the peak and the traffic of the plan; in the second, which checks no ranks, the host waits for
/// nothing.
template <class Golden, class Model, class P>
void train_at_the_cost_of_its_plan(World<P>& world, const BatchSizes& sizes) {
  const Plan paper = plan<Model>(Golden::config, sizes, {.data = world.data_size(), .rank = world.place()});
  Engine engine{world, Model(Golden::config), AdamW{}, sizes};
  const auto before = world.traffic();
  for (int step = 0; step < 2; ++step) {
    auto batch = golden_batch_of<Golden>(engine.model(), world, sizes, open_golden(Golden::file));
    engine.finish_step();
    const Size waits = far_device::waits(world.memory());
    auto loss = engine.forward(batch);
    engine.backward(loss);
    engine.step();
    if (step == 1) CHECK(far_device::waits(world.memory()) == waits);
    if (step == 0) engine.replicas().complete_all();
    if (step == 0) CHECK((world.traffic() - before).without(Purpose::check).total() == paper.traffic().total());
  }
  CHECK(world.memory().peak() == paper.peak);
}

/// Everything within `bound` of the golden values: each gradient in f64 and f32, else their norm. Returns what the
/// first rank saw: gradients, losses and the last parameters. `Golden` defines Model<P>, `config`, `file`, `samples`,
/// their `sequence` and their `targets`, and fill(batch, world, file) for a model with a batch of its own.
template <class Golden, class P>
std::vector<double> check_own_golden(int ranks, double bound) {
  using Model = typename Golden::template Model<P>;
  CAPTURE(ranks);
  const io::SafetensorsReader golden = open_golden(Golden::file);
  const auto expected = values_of<double>(golden, "losses");
  std::vector<double> seen;
  run_ranks_of<P>({.ranks = ranks, .timeout_seconds = 60}, [&](World<P>& world) {
    const BatchSizes sizes{.micro_batch = Golden::samples / world.data_size(), .sequence = Golden::sequence};
    train_at_the_cost_of_its_plan<Golden, Model>(world, sizes);
    Engine engine{world, Model(Golden::config), AdamW{.lr = 1e-2}, sizes};
    std::vector<std::string> names;
    for (const auto& named : engine.inventory().parameters) names.emplace_back(named.name->text);
    std::sort(names.begin(), names.end());
    for (std::size_t n = 0; n < names.size(); ++n)
      set_parameter(engine, names[n], golden_values(names[n], n, engine.gather_parameter(names[n]).count()));
    std::vector<double> losses;
    double apart = 0, squares = 0;  // of all gradients
    for (std::size_t step = 0; step < expected.size(); ++step) {
      auto batch = golden_batch_of<Golden>(engine.model(), world, sizes, golden);
      auto loss = engine.forward(batch);
      engine.backward(loss);
      for (const std::string& name : step == 0 ? names : std::vector<std::string>{}) {
        CAPTURE(name);
        const std::vector<double> own = on_host(engine.gather_gradient(name));
        if (world.is_first()) seen.insert(seen.end(), own.begin(), own.end());
        const auto whole = values_of<double>(golden, "grad." + name);
        if (bound < 1e-3) CHECK(difference_to_largest(own, whole) < bound);
        for (std::size_t i = 0; i < whole.size(); ++i)
          apart += (own[i] - whole[i]) * (own[i] - whole[i]), squares += whole[i] * whole[i];
      }
      const StepReport report = engine.step();
      losses.push_back(report.loss);
      CHECK(report.targets == static_cast<double>(Golden::targets));
    }
    CHECK(std::sqrt(apart / squares) < bound);
    CHECK(worst_difference(losses, expected) < bound);
    if (world.is_first()) seen.insert(seen.end(), losses.begin(), losses.end());
    for (const std::string& name : names) {
      const std::vector<double> last = on_host(engine.gather_parameter(name));
      if (world.is_first()) seen.insert(seen.end(), last.begin(), last.end());
    }
  });
  return seen;
}

/// The same in f64, and in the same bits on a far device.
template <class Golden, class... Members>
void check_far_golden(int ranks, double bound) {
  const std::vector<double> near = check_own_golden<Golden, Policy<F64, Members...>>(ranks, bound);
  CHECK(near.size() > 20);
  CHECK(check_own_golden<Golden, Policy<F64, Members..., Far>>(ranks, bound) == near);
}

}  // namespace dspp::laws
