// SPDX-License-Identifier: Apache-2.0
// labels: golden
// Operations and AdamW against PyTorch's values in f64; README.md says what the file holds and how it was made.
#include <doctest/doctest.h>

#include <dspp/io/safetensors.hpp>
#include <dspp/ops.hpp>
#include <dspp/optim.hpp>

#include <laws/update.hpp>
#include <laws/vjp.hpp>

using namespace dspp;

namespace {

struct Golden {
  io::SafetensorsReader file{DSPP_TESTS_DIRECTORY "/golden/ops_expected.safetensors"};
  Pool pool{};

  template <class T = double, int Rank>
  Tensor<T, Rank, Cpu> read(const char* name, const Shape<Rank>& shape) {
    const io::TensorEntry& entry = file.tensor(name);
    auto values = Tensor<T, Rank, Cpu>::uninitialized(shape, pool);
    file.read(entry, 0, values.count(), values.data());
    return values;
  }
};

/// f64 against f64: both make some tens of roundings.
constexpr double bound = 1e-13;

template <class F>
void check_pointwise(F f, const std::string& name) {
  Golden golden;
  const auto read = [&](const char* part) { return golden.read((name + part).c_str(), shape(17)); };
  const auto x = read(".x");
  laws::check_close(ops::apply(f, x), read(".y"), bound);
  laws::check_close(ops::apply_vjp(f, x, read(".dy")), read(".dx"), bound);
}

/// [batch, heads, sequence, size] as PyTorch has it, as one of the three parts of [batch, sequence, 3, heads * size].
Tensor<double, 4, Cpu> part_of_qkv(const Tensor<double, 4, Cpu>& x) {
  return ops::transpose(x, {0, 2, 1, 3}).reshape(shape(x[0], x[2], 1, x[1] * x[3]));
}

void check_attention(AttentionRule mask, const std::string& name) {
  Golden golden;
  const auto read = [&](const char* part) {
    return part_of_qkv(golden.read((name + part).c_str(), shape(2, 3, 5, 4)));
  };
  const auto qkv = ops::concat(ops::concat(read(".q"), read(".k"), 2), read(".v"), 2);
  const auto expected = ops::concat(ops::concat(read(".dq"), read(".dk"), 2), read(".dv"), 2);
  const auto forward = ops::attention(qkv, 3, mask);
  laws::check_close(forward.y, read(".y").reshape(shape(2, 5, 12)), bound);
  const auto dy = read(".dy").reshape(shape(2, 5, 12));
  laws::check_close(ops::attention_vjp(qkv, forward.y, forward.log_sum_exp, 3, mask, dy), expected, bound);
}

}  // namespace

TEST_CASE("activations and their vjps have PyTorch's values") {
  check_pointwise(pointwise::GeluExact{}, "gelu_erf");
  check_pointwise(pointwise::GeluTanh{}, "gelu_tanh");
  check_pointwise(pointwise::Silu{}, "silu");
}

TEST_CASE("layer_norm and its vjp have PyTorch's values") {
  Golden golden;
  const auto x = golden.read("layer_norm.x", shape(2, 3, 7));
  const auto gamma = golden.read("layer_norm.weight", shape(7)), beta = golden.read("layer_norm.bias", shape(7));
  const auto forward = ops::layer_norm(x, gamma, beta, 1e-5);
  laws::check_close(forward.y, golden.read("layer_norm.y", shape(2, 3, 7)), bound);
  const auto dgamma = laws::copy(gamma), dbeta = laws::copy(beta);
  const auto dx =
      ops::layer_norm_vjp(x, gamma, forward.mean, forward.rstd, golden.read("layer_norm.dy", shape(2, 3, 7)), dgamma,
                          Write::overwrite, dbeta, Write::overwrite);
  laws::check_close(dx, golden.read("layer_norm.dx", shape(2, 3, 7)), bound);
  laws::check_close(dgamma, golden.read("layer_norm.dweight", shape(7)), bound);
  laws::check_close(dbeta, golden.read("layer_norm.dbias", shape(7)), bound);
}

TEST_CASE("softmax and its vjp have PyTorch's values") {
  Golden golden;
  const auto y = ops::softmax(golden.read("softmax.x", shape(3, 5)));
  laws::check_close(y, golden.read("softmax.y", shape(3, 5)), bound);
  laws::check_close(ops::softmax_vjp(y, golden.read("softmax.dy", shape(3, 5))), golden.read("softmax.dx", shape(3, 5)),
                    bound);
}

TEST_CASE("cross_entropy and its vjp have PyTorch's values") {
  Golden golden;
  const auto logits = golden.read("cross_entropy.logits", shape(6, 9));
  const auto targets = golden.read<std::int32_t>("cross_entropy.targets", shape(6));
  const auto parts = ops::cross_entropy_parts(logits, targets, 0, 9, 9);
  const auto result = ops::cross_entropy_combine(parts.reshape(shape(1, 6, 3)));
  laws::check_close(result.loss.reshape(shape(1)), golden.read("cross_entropy.y", shape(1)), bound);
  const auto upstream = golden.read("cross_entropy.dy", shape(1)).reshape(shape());
  laws::check_close(ops::cross_entropy_vjp(logits, targets, result.log_sum_exp, 0, 9, upstream, result.counted),
                    golden.read("cross_entropy.dlogits", shape(6, 9)), bound);
}

namespace {
/// The loss `name` and its vjp, of the targets of `smoothed`.
void check_smoothed(Golden& golden, const std::string& name, double smoothing, const Tensor<float, 1, Cpu>& weights) {
  CAPTURE(name);
  const auto targets = golden.read<std::int32_t>("smoothed.targets", shape(6));
  const auto wanted = ops::smoothed_targets(smoothing, 9);
  const auto logits = golden.read((name + ".logits").c_str(), shape(6, 9));
  const auto parts = ops::cross_entropy_parts(logits, targets, 0, 9, 9, wanted);
  const auto result = ops::cross_entropy_combine(parts.reshape(shape(1, 6, 3)), targets, weights);
  laws::check_close(result.loss.reshape(shape(1)), golden.read((name + ".y").c_str(), shape(1)), 1e-12);
  const auto upstream = golden.read((name + ".dy").c_str(), shape(1)).reshape(shape());
  laws::check_close(
      ops::cross_entropy_vjp(logits, targets, result.log_sum_exp, 0, 9, upstream, result.counted, weights, wanted),
      golden.read((name + ".dlogits").c_str(), shape(6, 9)), 1e-12);
}
}  // namespace

TEST_CASE("cross_entropy of smoothed labels and its vjp have PyTorch's values, without weights and with") {
  Golden golden;
  check_smoothed(golden, "smoothed", 0.1, {});
  check_smoothed(golden, "weighted", 0.1, golden.read<float>("weighted.weights", shape(6)));
}

TEST_CASE(
    "weights of targets that are those of their classes give PyTorch's cross_entropy with a weight for each class") {
  Golden golden;
  const auto targets = golden.read<std::int32_t>("smoothed.targets", shape(6));
  const auto classes = golden.read<float>("class_weighted.classes", shape(9));
  const auto weights = Tensor<float, 1, Cpu>::uninitialized(shape(6), golden.pool);
  for (Size i = 0; i < 6; ++i) {
    const std::int32_t target = targets.data()[i];
    weights.data()[i] = target == ignored_target ? 7 : classes.data()[target];  // one that is ignored counts nothing
  }
  check_smoothed(golden, "class_weighted", 0, weights);
}

TEST_CASE("attention and its vjp have PyTorch's values") {
  check_attention({AttentionMask::causal}, "attention_causal");
  check_attention({AttentionMask::full}, "attention_full");
}

TEST_CASE("four steps of AdamW have PyTorch's values") {
  Golden golden;
  const auto parameter = golden.read("adamw.before", shape(8));
  const auto gradients = golden.read("adamw.gradients", shape(4, 8)), after = golden.read("adamw.after", shape(4, 8));
  const auto first = Tensor<double, 1, Cpu>::zeros(shape(8), golden.pool), second = laws::copy(first);
  const AdamW rule{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  for (Size t = 0; t < 4; ++t) {
    laws::update(rule,
                 FlatRange<double, double, double>{
                     gradients.data() + 8 * t, parameter.data(), nullptr, {first.data(), second.data()}, 8},
                 {.step = t + 1, .lr = 0.01});
    laws::check_close(parameter, Tensor<double, 1, Cpu>::view(after.storage(), 8 * t, shape(8)), bound);
  }
}

TEST_CASE("f32 becomes bf16 as in PyTorch, bit by bit") {
  Golden golden;
  const auto expected = golden.read<bf16>("rounding.bf16", shape(24));
  const auto wide = golden.read<float>("rounding.f32", shape(24));
  const auto got = ops::cast<bf16>(wide);
  for (Size i = 0; i < 24; ++i) {
    if (std::isnan(wide.data()[i]))
      CHECK(std::isnan(static_cast<float>(got.data()[i])));
    else
      CHECK(got.data()[i].bits == expected.data()[i].bits);
  }
}
