// SPDX-License-Identifier: Apache-2.0
// The fuzzer's corpus for every compiler: each file unchanged, with one bit changed, and truncated.
// labels: thread
#include <doctest/doctest.h>

#include <map>

#include <fuzz/parsers.hpp>
#include <laws/folder.hpp>

using namespace dspp;

namespace {

/// The corpus, by the names of its files.
std::map<std::string, std::string> corpus() {
  std::map<std::string, std::string> inputs;
  for (const auto& file : laws::fs::directory_iterator(std::string(DSPP_TESTS_DIRECTORY) + "/fuzz/corpus"))
    inputs[file.path().filename().string()] = laws::read_file(file.path());
  return inputs;
}

}  // namespace

TEST_CASE("every file of the corpus is accepted or refused as its name says") {
  const auto inputs = corpus();
  CHECK(inputs.size() >= 20);
  std::map<char, int> accepted, refused;
  for (const auto& file : inputs) {
    const std::string &name = file.first, &input = file.second;
    CAPTURE(name);
    REQUIRE(!input.empty());
    const bool good = fuzz::check_parsers(input);
    CHECK(good == (name.find("_good") != std::string::npos));
    ++(good ? accepted : refused)[input[0]];
  }
  for (const char parser : {'j', 'h', 'f', 'i', 'g', 'l', 'b', 'n', 'k', 'K', 's', 'm', 'p', 'o', 'r', 'e'}) {
    CHECK(accepted[parser] > 0);
    CHECK(refused[parser] > 0);
  }
}

TEST_CASE("every file of the corpus with a bit changed or truncated is accepted or refused without a crash") {
  int accepted = 0, refused = 0;
  const auto attempt = [&](std::string_view input) { ++(fuzz::check_parsers(input) ? accepted : refused); };
  for (const auto& [name, input] : corpus())
    for (std::size_t at = 1; at < input.size(); ++at) {
      std::string changed = input;
      changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ (1u << (at % 8)));
      attempt(changed);
      attempt(std::string_view(input).substr(0, at));
    }
  CHECK(accepted > 0);
  CHECK(refused > accepted);
}
