// SPDX-License-Identifier: Apache-2.0
// Four steps of each optimizer have PyTorch's values, on 1 to 4 ranks along Data and Tp and under every stage, which
// share their bits. golden/README.md says what the file holds and how it was made.
// labels: thread golden
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/io/safetensors.hpp>
#include <dspp/optim.hpp>
#include <dspp/zero/update.hpp>
#include <laws/difference.hpp>
#include <laws/small_units.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace zero_update {  // with a name: SmallUnits, of a header, has it as a member

/// Matrices inside and outside of a block, cut over Tp along either dimension or whole, and vectors.
template <class T>
struct GoldenModel {
  struct Block {
    using OwnUnit = Unit<T, Cpu>;
    Parameter<T, 2, Cpu> up, down, square;
    Parameter<T, 1, Cpu> bias, norm;
    OwnUnit unit;

    explicit Block(int tp)
        : up("up", shape(12, 5), Initial::zeros(), Cut{0, tp}),
          down("down", shape(4, 12), Initial::zeros(), Cut{1, tp}),
          square("square", shape(6, 6), Initial::zeros()),
          bias("bias", shape(12), Initial::zeros(), Cut{0, tp}),
          norm("norm", shape(5), Initial::zeros()) {
      bias.decays = norm.decays = false;
    }
    void visit(auto&& f) { f("up", up), f("down", down), f("square", square), f("bias", bias), f("norm", norm); }
  };
  using OwnUnit = Unit<T, Cpu>;
  Parameter<T, 2, Cpu> table, head;
  Block block;
  OwnUnit unit;

  explicit GoldenModel(int tp)
      : table("table", shape(7, 4), Initial::zeros(), Cut{0, tp}),
        head("head", shape(3, 4), Initial::zeros()),
        block(tp) {}
  void visit(auto&& f) { f("table", table), f("block", block), f("head", head); }
};

}  // namespace zero_update

namespace {

using zero_update::GoldenModel;
constexpr Size steps = 4;
using Units = SmallUnits<double, GoldenModel>;
using Values = std::map<std::string, std::vector<double>>;  ///< by name, step after step

/// Tensors `<prefix>.<parameter>` of the golden file.
Values golden(const std::string& prefix) {
  io::SafetensorsReader file{DSPP_TESTS_DIRECTORY "/golden/optim_expected.safetensors"};
  Values values;
  for (const char* name : {"table", "block.up", "block.down", "block.square", "block.bias", "block.norm", "head"}) {
    const io::TensorEntry& entry = file.tensor(prefix + "." + name);
    auto& all = values[name];
    Size count = 1;
    for (const Size extent : entry.shape) count *= extent;
    all.resize(static_cast<std::size_t>(count));
    file.read(entry, 0, count, all.data());
  }
  return values;
}

/// Trains on the golden gradients, of which every replica has its share; the parameters after each step.
template <class O>
Values train_on_golden(const UnitStrategy& strategy, const O& optimizer) {
  const Values before = golden("before"), gradients = golden("gradients");
  Values after;
  run_units<double, GoldenModel>(strategy, [&](const auto& ranks) {
    Units units(strategy, ranks, O::moment_count);
    std::map<const void*, const std::vector<double>*> gradient_of;
    for (const auto& named : units.inventory().parameters) {
      set_parameter(units, named.name->text, before.at(named.name->text));
      gradient_of[named.parameter] = &gradients.at(named.name->text);
    }
    for (Size t = 0; t < steps; ++t) {
      units.reduce_gradients([&](const auto& p, Size at) {
        const auto& all = *gradient_of.at(&p);
        return 2 * all[static_cast<std::size_t>(t * p.geometry.global_count() + at)] / strategy.data;
      });
      update_units<double, Cpu>(units.units(), optimizer, units.state(),
                                {.step = t + 1, .lr = optimizer.lr, .gradient_scale = 0.5}, nullptr,
                                units.world().tp());
      units.drop_gradients();
      refresh_units<double, Cpu>(units.units(), units.replicas());
      for (const auto& named : units.inventory().parameters) {
        const auto whole = units.gather_parameter(named.name->text);
        if (units.world().all().rank() == 0)
          after[named.name->text].insert(after[named.name->text].end(), whole.data(), whole.data() + whole.count());
      }
    }
  });
  return after;
}

template <class O>
void check_golden(const std::string& name, const O& optimizer, const ParameterGroups* groups = nullptr) {
  const Values expected = golden(name);
  std::map<std::pair<int, int>, Values> of_stage_0;
  for_each_strategy([&](UnitStrategy strategy) {
    strategy.choices = {groups, dspp::detail::asks_for_matrices<O>};
    CAPTURE(name);
    CAPTURE(strategy.stage);
    CAPTURE(strategy.data);
    CAPTURE(strategy.tp);
    const Values got = train_on_golden(strategy, optimizer);
    REQUIRE(got.size() == expected.size());
    for (const auto& named : expected) {
      const std::string& parameter = named.first;
      CAPTURE(parameter);
      CHECK(worst_difference(got.at(parameter), named.second) < 1e-12);
    }
    if (strategy.stage == 0) of_stage_0[{strategy.data, strategy.tp}] = got;
    CHECK(got == of_stage_0.at({strategy.data, strategy.tp}));
  });
}

}  // namespace

TEST_CASE("AdamW, SGD and Adagrad have torch.optim's values") {
  check_golden("adamw", AdamW{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1});
  check_golden("sgd", Sgd{.lr = 0.01, .weight_decay = 0.1});
  check_golden("momentum_sgd", MomentumSgd{.lr = 0.01, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1});
  check_golden("adagrad", Adagrad{.lr = 0.01, .lr_decay = 0.25, .epsilon = 1e-10, .weight_decay = 0.1});
}

TEST_CASE("Lion has the values of its paper's algorithm") {
  check_golden("lion", Lion{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.5, .weight_decay = 0.1});
}

TEST_CASE("Lamb has the values of its paper's algorithm: norms are those of whole parameters") {
  check_golden("lamb", Lamb{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1});
}

TEST_CASE("Muon has torch.optim's values for the matrices of the block, in f64, and AdamW's for the others") {
  const AdamW others{.lr = 0.004, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  check_golden("muon", Muon{.lr = 0.02, .weight_decay = 0.1, .others = others});
  check_golden("muon_rms", Muon{.lr = 0.02,
                                .momentum = 0.9,
                                .nesterov = false,
                                .weight_decay = 0,
                                .rate = MuonRate::match_rms_adamw,
                                .others = others});
}

TEST_CASE("groups have torch.optim's values: own rate, own decay, frozen") {
  constexpr ParameterGroups groups = {
      {.name = "matrices of the block",
       .contains =
           [](std::string_view p) { return p.starts_with("block.") && !p.ends_with("bias") && !p.ends_with("norm"); },
       .lr_factor = 2,
       .weight_decay = 0.3},
      {.name = "table", .contains = [](std::string_view p) { return p == "table"; }, .frozen = true}};
  check_golden("groups", AdamW{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1}, &groups);
}
