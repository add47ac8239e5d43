// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <random>
#include <string>

#include <dspp/app/options.hpp>

using namespace dspp;

namespace {

struct Values {
  Size layers = 4;
  double rate = 0.5;
  std::string path, words = "hello";
  bool loud = false;
};

/// A table with one option of each kind, over `values`.
Options table(Values& values) {
  Options options("program", "Does something.");
  options.add("--layers", values.layers, WholeRange{1, 10}, "how many");
  options.add("--rate", values.rate, RealRange{0.25, 2}, "how fast");
  options.add("--seed", values.layers, WholeRange{}, "which");
  options.add("--path", values.path, TextKind::path, "where");
  options.add("--words", values.words, TextKind::any, "what", "a greeting");
  options.add("--loud", values.loud, "and it is heard");
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

TEST_CASE("a number of bytes has a unit of 1024, or none") {
  CHECK(bytes_named("--limit", "1000000") == 1000000);
  CHECK(bytes_named("--limit", "1KiB") == 1024);
  CHECK(bytes_named("--limit", "64MiB") == 64_MiB);
  CHECK(bytes_named("--limit", "2GiB") == 2048_MiB);
  CHECK(bytes_named("--limit", "8TiB") == Size{8} << 40);
  for (const char* text : {"", "MiB", "0", "-1MiB", "1.5GiB", "64MB", "64 MiB", "64mib", "8388608TiB", "0x10", "nan",
                           "99999999999999999999"}) {
    CAPTURE(text);
    std::string said;
    try {
      bytes_named("--limit", text);
    } catch (const Error& error) {
      said = error.what();
    }
    CHECK(said == "dspp: --limit needs a number of bytes of at least 1, but got '" + std::string(text) +
                      "'. Write 64MiB, 2GiB or 1000000.");
  }
}

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

TEST_CASE("a flag takes no value") {
  Values values;
  Options options = table(values);
  CHECK(read(options, {}));
  CHECK_FALSE(values.loud);
  CHECK_FALSE(options.given("--loud"));
  CHECK(read(options, {"--loud", "--layers", "7", "--loud"}));
  CHECK(values.loud);
  CHECK(options.given("--loud"));
  CHECK(values.layers == 7);
  CHECK(sentence({"--loud=yes"}) == "dspp: --loud needs no value, but got 'yes'. Write --loud.");
  CHECK(sentence({"--loud="}) == "dspp: --loud needs no value, but got ''. Write --loud.");
  CHECK(sentence({"--loud=true"}) == "dspp: --loud needs no value, but got 'true'. Write --loud.");
  CHECK(sentence({"--loud", "7"}).find("needs options that it has, but got '7'") != std::string::npos);
  CHECK(sentence({"--layers", "--loud"}).find("'--loud' follows it") != std::string::npos);
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
  CHECK(sentence({"-layers", "3"}).find("got '-layers'. The nearest is --layers;") != std::string::npos);
}

TEST_CASE("an unknown option that is near to none is refused with the one about that word, or with none") {
  Size batch = 1;
  std::string file;
  const auto said = [&](const char* word) -> std::string {
    Options options("program", "Does something.");
    options.add("--micro-batch", batch, WholeRange{}, "sequences");
    options.add("--data", file, TextKind::path, "a text file, after the warm-up");
    try {
      read(options, {word, "10"});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string got = "dspp: program needs options that it has, but got ";
  CHECK(said("--text") == got + "'--text'. The nearest is --data; --help lists all.");
  CHECK(said("--batch") == got + "'--batch'. The nearest is --micro-batch; --help lists all.");
  CHECK(said("--warm-up=3") == got + "'--warm-up'. The nearest is --data; --help lists all.");
  CHECK(said("--warm-up-steps") == got + "'--warm-up-steps'. --help lists all.");
  CHECK(said("--a") == got + "'--a'. --help lists all.");
  CHECK(said("--") == got + "'--'. --help lists all.");
  CHECK(said("10") == got + "'10'. They begin with two dashes; --help lists all.");
  CHECK(said("") == got + "''. They begin with two dashes; --help lists all.");
}

TEST_CASE("a text is taken as given, whatever its characters") {
  for (const char* text : {"",   "-",  "-x", "-1",  "- item",     "=", "==",  "=x", ":",     ":x", "[a,b]", "[[aabb]]",
                           "{}", "%%", "++", "a=b", "\"quoted\"", "'", "\\n", "/x", "@file", "#",  " ",     "\n"}) {
    Values values;
    Options apart = table(values), together = table(values);
    CHECK(read(apart, {"--words", text, "--layers", "7"}));
    CHECK(values.words == text);
    values.words = "other";
    CHECK(read(together, {("--words=" + std::string(text)).c_str(), "--layers", "8"}));
    CHECK(values.words == text);
    CHECK(values.layers == 8);
  }
  for (const char* text : {"--", "--x", "--layers", "--layers=3", "---", "--=", "--[[aa]]"}) {
    Values values;
    Options options = table(values);
    CHECK(read(options, {("--words=" + std::string(text)).c_str()}));
    CHECK(values.words == text);
    CHECK(sentence({"--words", text}) == "dspp: --words needs a text, but '" + std::string(text) +
                                             "' follows it. Write for example --words 'some text'.");
  }
}

TEST_CASE("every value of an option that is given twice is checked") {
  CHECK(sentence({"--layers", "11", "--layers", "3"}).find("got '11'") != std::string::npos);
  CHECK(sentence({"--layers=3", "--layers"}).find("nothing follows it") != std::string::npos);
  CHECK(sentence({"--words=--path", "--path"}).find("--path needs a path, but nothing follows it") !=
        std::string::npos);
}

TEST_CASE("a missing value is refused") {
  CHECK(sentence({"--layers"}) ==
        "dspp: --layers needs a whole number from 1 to 10, but nothing follows it. Write for example --layers 4.");
  CHECK(sentence({"--path", "--rate", "1"}) ==
        "dspp: --path needs a path, but '--rate' follows it. Write for example --path a/path.");
}

TEST_CASE("malformed, out-of-range and overflowing numbers are refused, whatever they begin with") {
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

TEST_CASE("--help takes precedence over mistakes and lists every option with its meaning and default") {
  Values values;
  Options options = table(values);
  CHECK_FALSE(read(options, {"--nonsense", "--help"}));
  CHECK(options.help() ==
        "usage: program [options]\n"
        "Does something.\n"
        "\n"
        "  --layers  how many         [4]\n"
        "  --rate    how fast         [0.5]\n"
        "  --seed    which            [4]\n"
        "  --path    where            [none]\n"
        "  --words   what             [a greeting]\n"
        "  --loud    and it is heard  [off]\n"
        "  --help    this text\n");
}

TEST_CASE("an option that launchers add is read, but is not listed, not a fact and never suggested") {
  Values values;
  std::string local;
  Options options = table(values);
  const std::string help = options.help();
  const std::size_t facts = options.facts().sent().size();
  options.accept("--local_rank", local);
  CHECK(read(options, {"--local_rank=3", "--layers", "7"}));
  CHECK(local == "3");
  CHECK(options.given("--local_rank"));
  CHECK(read(options, {"--local_rank", "4"}));
  CHECK(local == "4");
  CHECK(options.facts().sent().size() == facts);
  values.layers = 4;
  CHECK(options.help() == help);
  const auto said = [&](std::vector<const char*> words) -> std::string {
    try {
      read(options, std::move(words));
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(said({"--local_rnk=3"}) == "dspp: program needs options that it has, but got '--local_rnk'. --help lists all.");
  CHECK(said({"--local_rank"}).find("--local_rank needs a text, but nothing follows it") != std::string::npos);
}

namespace {

struct Line {
  std::vector<std::string> words{"program"};
  bool help = false, good = true;
};

/// A line of up to four options with the expected values, in `values`.
template <class Random>
Line drawn_line(Random& random, Values& values) {
  static const char* const wholes[] = {"1", "10", "7", "007", "0", "11", "-1", "", "1x", "+4", "0x4", "1e1", "\xff"};
  static const char* const reals[] = {"0.25", "2", "1e0", "5e-1", "0.2", "2.1", "nan", "inf", "", "1e999", "x", "--"};
  static const char* const names[] = {"--layers", "--rate", "--path", "--words", "--wrods", "layers", "-l", "", "--"};
  Line line;
  const auto word = [&](const std::string& name, const std::string& value) {
    if (random() % 2 == 0) return line.words.push_back(name + "=" + value);
    line.words.push_back(name);
    line.words.push_back(value);
    line.good = line.good && value.substr(0, 2) != "--";
  };
  for (std::uint64_t left = random() % 5; left > 0 && line.good; --left) {
    const std::uint64_t kind = random() % 32;
    const std::size_t which = kind < 4 ? random() % std::size(names) : kind % 4;
    const std::string name = names[which];
    if (kind == 31) {
      line.words.push_back(random() % 2 == 0 ? "--help" : "-h");
      line.help = true;
    } else if (kind == 30) {  // nothing follows
      line.words.push_back(name);
      line.good = false;
    } else if (which == 0) {
      const std::size_t at = random() % (random() % 4 == 0 ? std::size(wholes) : 4);
      word(name, wholes[at]);
      line.good = line.good && at < 4;
      if (line.good) values.layers = at == 0 ? 1 : at == 1 ? 10 : 7;
    } else if (which == 1) {
      const std::size_t at = random() % (random() % 4 == 0 ? std::size(reals) : 4);
      word(name, reals[at]);
      line.good = line.good && at < 4;
      if (line.good) values.rate = at == 0 ? 0.25 : at == 1 ? 2 : at == 2 ? 1 : 0.5;
    } else {
      std::string text(random() % 3, static_cast<char>(random() % 255 + 1));
      word(name, text);
      line.good = line.good && (which == 3 || (which == 2 && !text.empty()));
      if (line.good) (which == 2 ? values.path : values.words) = text;
    }
  }
  return line;
}

}  // namespace

TEST_CASE("random lines of options set their values, or are refused in a sentence and set nothing wrong") {
  const char* size = std::getenv("DSPP_FAULTS");
  const int count = size != nullptr && size == std::string("full") ? 2'500'000 : 50'000;
  std::mt19937_64 random(11);
  int good = 0, refused = 0, wrong = 0;
  for (int n = 0; n < count; ++n) {
    Values values, expected;
    Options options = table(values);
    const Line line = drawn_line(random, expected);
    std::vector<const char*> words;
    for (const std::string& word : line.words) words.push_back(word.c_str());
    bool right = false;
    try {
      const bool goes_on = options.read(static_cast<int>(words.size()), words.data());
      const bool helped = std::any_of(line.words.begin(), line.words.end(),
                                      [](const auto& word) { return word == "--help" || word == "-h"; });
      right = goes_on != helped &&
              (helped || (line.good && values.layers == expected.layers && values.rate == expected.rate &&
                          values.path == expected.path && values.words == expected.words));
      good += goes_on;
    } catch (const Error& error) {
      const std::string sentence = error.what();
      right = !line.good && !line.help && error.code() == ErrorCode::usage && sentence.starts_with("dspp: ") &&
              sentence.find('\n') == std::string::npos && values.layers >= 1 && values.layers <= 10 &&
              values.rate >= 0.25 && values.rate <= 2;
      ++refused;
    }
    if (!right && ++wrong < 4) {
      std::string all;
      for (const std::string& word : line.words) all += "'" + word + "' ";
      MESSAGE(all);
    }
  }
  CHECK(wrong == 0);
  CHECK(good > count / 4);
  CHECK(refused > count / 8);
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
