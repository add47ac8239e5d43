// SPDX-License-Identifier: Apache-2.0
// Scaled frequencies equal those that transformers' functions give in f64 (tests/golden/README.md). labels: golden
#include <doctest/doctest.h>

#include <dspp/io/safetensors.hpp>
#include <dspp/ops/rotary.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

constexpr RopeScaling linear{.kind = RopeKind::linear, .factor = 4};
constexpr RopeScaling dynamic{.kind = RopeKind::dynamic, .factor = 2, .original_sequence = 4096};
constexpr RopeScaling llama3{.kind = RopeKind::llama3, .factor = 8, .original_sequence = 8192};
constexpr RopeScaling yarn{.kind = RopeKind::yarn, .factor = 4, .original_sequence = 32768};
constexpr RopeScaling yarn_mscale{.kind = RopeKind::yarn,
                                  .factor = 40,
                                  .original_sequence = 4096,
                                  .mscale = 1,
                                  .mscale_all_dim = 0.707,
                                  .truncate = false};
constexpr RopeScaling yarn_given{
    .kind = RopeKind::yarn, .factor = 2, .original_sequence = 4096, .beta_fast = 1, .attention_factor = 1.25};

std::vector<double> golden(const std::string& name) {
  const io::SafetensorsReader file(std::string(DSPP_TESTS_DIRECTORY) + "/golden/rope_expected.safetensors");
  const io::TensorEntry& entry = file.tensor(name);
  std::vector<double> values(static_cast<std::size_t>(entry.count()));
  file.read(entry, 0, entry.count(), values.data());
  return values;
}

std::string sentence_of(const RopeScaling& scaling, Size head_dim = 4) {
  try {
    require_rope_scaling(scaling, head_dim);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::usage);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("frequencies and factors of every scaling equal those of transformers") {
  const auto check = [](const std::string& name, double theta, const RopeScaling& scaling, Size sequence = 4096) {
    CAPTURE(name);
    const std::string prefix = name + "." + std::to_string(sequence);
    const auto expected = golden(prefix + ".frequencies");
    std::vector<double> frequencies(64);
    ops::rope_frequencies(128, theta, scaling, sequence, frequencies.data());
    REQUIRE(expected.size() == frequencies.size());
    for (std::size_t j = 0; j < expected.size(); ++j)
      CHECK(std::abs(frequencies[j] - expected[j]) < 1e-14 * expected[j]);
    CHECK(std::abs(ops::rope_attention_factor(scaling) - golden(prefix + ".factor")[0]) < 1e-15);
    CHECK_NOTHROW(require_rope_scaling(scaling, 128));
  };
  check("linear", 1e4, linear);
  check("dynamic", 1e4, dynamic);
  check("dynamic", 1e4, dynamic, 9000);
  check("llama3", 5e5, llama3);
  check("yarn", 1e6, yarn);
  check("yarn_mscale", 1e4, yarn_mscale);
  check("yarn_given", 1e4, yarn_given);
}

TEST_CASE("a table has the scaled frequencies, yarn's factor, and dynamic angles of the end of the sequence") {
  Pool pool;
  constexpr RopeScaling short_one{.kind = RopeKind::dynamic, .factor = 2, .original_sequence = 8};
  for (const RopeScaling& scaling : {linear, llama3, yarn, yarn_given, short_one})
    for (const Size first : {0, 31}) {
      const auto table = ops::rotary_table<double, Cpu>(first, 5, 8, 1e4, pool, scaling);
      std::vector<double> frequencies(4);
      ops::rope_frequencies(8, 1e4, scaling, first + 5, frequencies.data());
      const double factor = ops::rope_attention_factor(scaling);
      for (Size i = 0; i < 5; ++i)
        for (Size j = 0; j < 4; ++j) {
          const double angle = static_cast<double>(first + i) * frequencies[static_cast<std::size_t>(j)];
          CHECK(std::abs(table.data()[8 * i + j] - factor * std::cos(angle)) < 1e-14);
          CHECK(std::abs(table.data()[8 * i + 4 + j] - factor * std::sin(angle)) < 1e-14);
        }
    }
  // up to the original length dynamic angles are those without scaling
  CHECK(laws::same_bits(ops::rotary_table<double, Cpu>(0, 8, 8, 1e4, pool, short_one),
                        ops::rotary_table<double, Cpu>(0, 8, 8, 1e4, pool)));
}

TEST_CASE("the vjp of a scaled rotation is its derivative, with yarn's factor") {
  Pool pool;
  const auto x = laws::random<double>(shape(2, 5, 8), pool, 1), dy = laws::random<double>(shape(2, 5, 8), pool, 2);
  const auto table = ops::rotary_table<double, Cpu>(7, 5, 8, 1e4, pool, yarn_mscale);
  laws::check_gradient(x, ops::rotary_vjp(dy, table), [&] { return laws::dot(ops::rotary(x, table), dy); });
}

TEST_CASE("scalings with impossible fields are refused, and describe what they use") {
  CHECK(sentence_of({.kind = RopeKind::linear, .factor = 0.5}) ==
        "dspp: RopeScaling needs a factor of at least 1, but got less, or NaN. Change factor.");
  CHECK(sentence_of({.kind = RopeKind::yarn, .factor = 2}).starts_with("dspp: RopeScaling needs the length of the"));
  CHECK(
      sentence_of(dynamic, 2).starts_with("dspp: RopeScaling by RopeKind::dynamic needs heads of more than one pair"));
  CHECK(sentence_of({.kind = RopeKind::llama3, .original_sequence = 1, .low_freq_factor = 4})
            .starts_with("dspp: RopeScaling needs a high_freq_factor above low_freq_factor"));
  CHECK(sentence_of({.kind = RopeKind::yarn, .original_sequence = 1, .beta_slow = 33})
            .starts_with("dspp: RopeScaling needs a beta_fast of at least beta_slow"));
  CHECK(sentence_of({.factor = 0}) == "no error");
  const auto described = [](const RopeScaling& scaling) {
    std::string names;
    scaling.describe([&](const char* name, auto) { names += name + std::string(" "); });
    return names;
  };
  CHECK(described({.factor = 2, .original_sequence = 3}).empty());
  CHECK(described(linear) == "rope_scaling rope_factor ");
  CHECK(described(llama3) == "rope_scaling rope_factor original_sequence low_freq_factor high_freq_factor ");
  CHECK(described(yarn).ends_with("mscale mscale_all_dim truncate "));
}
