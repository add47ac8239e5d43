// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/observe/options.hpp>

using namespace dspp;

namespace {

struct Values {
  Size layers = 4;
  double rate = 0.5;
  std::string path, words = "hello";
};

/// A table with one option of each kind, over `values`.
Options table(Values& values) {
  Options options("program", "Does something.");
  options.add("--layers", values.layers, WholeRange{1, 10}, "how many");
  options.add("--rate", values.rate, RealRange{0.25, 2}, "how fast");
  options.add("--seed", values.layers, WholeRange{}, "which");
  options.add("--path", values.path, TextKind::path, "where");
  options.add("--words", values.words, TextKind::any, "what", "a greeting");
  return options;
}

bool read(Options& options, std::vector<const char*> words) {
  words.insert(words.begin(), "program");
  return options.read(static_cast<int>(words.size()), words.data());
}

std::string sentence(std::vector<const char*> words) {
  Values values;
  Options options = table(values);
  try {
    read(options, std::move(words));
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::usage);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("options without arguments keep their defaults, and none is given") {
  Values values;
  Options options = table(values);
  CHECK(read(options, {}));
  CHECK(values.layers == 4);
  CHECK(values.rate == 0.5);
  CHECK(values.words == "hello");
  CHECK_FALSE(options.given("--layers"));
}

TEST_CASE("a value follows its option or an equals sign, and the last one counts") {
  Values values;
  Options options = table(values);
  CHECK(read(options, {"--layers", "7", "--rate=1.5e0", "--path", "a b/c", "--words=--x=y", "--layers", "10"}));
  CHECK(values.layers == 10);
  CHECK(values.rate == 1.5);
  CHECK(values.path == "a b/c");
  CHECK(values.words == "--x=y");
  CHECK(options.given("--rate"));
  CHECK_FALSE(options.given("--seed"));
}

TEST_CASE("a text may be empty, a path may not") {
  Values values;
  Options options = table(values);
  CHECK(read(options, {"--words", ""}));
  CHECK(values.words.empty());
  CHECK(sentence({"--path", ""}) ==
        "dspp: --path needs a path, but got an empty one. Write for example --path a/path.");
}

TEST_CASE("an unknown option is refused with the nearest one") {
  CHECK(sentence({"--layrs", "3"}) ==
        "dspp: program needs options that it has, but got '--layrs'. The nearest is --layers; --help lists all.");
  CHECK(sentence({"--ratte=3"}).find("The nearest is --rate;") != std::string::npos);
  CHECK(sentence({"paths"}).find("got 'paths'. The nearest is --path;") != std::string::npos);
  CHECK(sentence({"-x"}).find("got '-x'") != std::string::npos);
}

TEST_CASE("a missing value is refused") {
  CHECK(sentence({"--layers"}) ==
        "dspp: --layers needs a whole number from 1 to 10, but nothing follows it. Write for example --layers 4.");
  CHECK(sentence({"--path", "--rate", "1"}) ==
        "dspp: --path needs a path, but '--rate' follows it. Write for example --path a/path.");
}

TEST_CASE("numbers that are none, out of range or too large for a machine are refused, whatever they begin with") {
  for (const char* bad : {"", "four", "4x", " 4", "+4", "4.0", "0", "11", "-1", "99999999999999999999", "0x4", "1e1"})
    CHECK_MESSAGE(sentence({"--layers", bad}) == "dspp: --layers needs a whole number from 1 to 10, but got '" +
                                                     std::string(bad) + "'. Write for example --layers 4.",
                  bad);
  for (const char* bad : {"", "fast", "1x", "0.2", "2.1", "-1", "1e999", "nan", "inf", "-inf", "1e-999"})
    CHECK_MESSAGE(sentence({"--rate", bad}) == "dspp: --rate needs a number from 0.25 to 2, but got '" +
                                                   std::string(bad) + "'. Write for example --rate 0.5.",
                  bad);
  CHECK(sentence({"--seed=-1"}).find("a whole number of at least 0, but got '-1'") != std::string::npos);
}

TEST_CASE("a refused value leaves the variable as it was") {
  Values values;
  Options options = table(values);
  CHECK_THROWS_AS(read(options, {"--layers", "11"}), Error);
  CHECK(values.layers == 4);
}

TEST_CASE("--help wins over mistakes and lists every option with its meaning and default") {
  Values values;
  Options options = table(values);
  CHECK_FALSE(read(options, {"--nonsense", "--help"}));
  CHECK(options.help() ==
        "usage: program [options]\n"
        "Does something.\n"
        "\n"
        "  --layers  how many  [4]\n"
        "  --rate    how fast  [0.5]\n"
        "  --seed    which     [4]\n"
        "  --path    where     [none]\n"
        "  --words   what      [a greeting]\n"
        "  --help    this text\n");
}

TEST_CASE("edit_distance counts insertions, deletions and replacements") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("", "ab") == 2);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("--lr", "--lr") == 0);
}

TEST_CASE("shortest writes a number so that it reads back the same") {
  for (double x : {0.1, 2000.0, 1e-8, 1.0 / 3, 123456789.125}) CHECK(std::stod(shortest(x)) == x);
  CHECK(shortest(0.1) == "0.1");
}
