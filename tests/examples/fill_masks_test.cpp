// SPDX-License-Identifier: Apache-2.0
// The BERT of the examples learns to fill in masked bytes, on any number of ranks, and says what it lacks.
#include <examples/job.hpp>

using namespace dspp;
using namespace dspp::examples;

TEST_CASE("fill_masks learns the bytes of new lines, and runs on any number of ranks") {
  const Job job(DSPP_FILL_MASKS);
  const Result result = job.run("--text text.txt --steps 60");
  CAPTURE(result.err);
  REQUIRE(result.status == 0);
  const auto lines = lines_of(result.out);
  REQUIRE(lines.size() == 5);
  CHECK(lines[0].find("step  50  loss ") == 0);
  CHECK(std::stod(lines[1].substr(15)) < 1.2);
  CHECK(lines[2].find('_') != std::string::npos);
  CHECK(lines[3].size() == lines[2].size());
  CHECK(std::stod(lines[4]) >= 60);
  CHECK(lines[4].find(" % of the masked bytes of new lines are right") != std::string::npos);
  const Result on_three = job.run("--text text.txt --steps 1 --ranks 3");
  CHECK(on_three.status == 0);
  CHECK(on_three.out.find("step   1  loss 5.") == 0);
}

TEST_CASE("fill_masks says how it is called, and what a text lacks") {
  const Job job(DSPP_FILL_MASKS);
  CHECK(job.run("--help").out == laws::read_file(DSPP_TESTS_DIRECTORY "/../examples/help/fill_masks.txt"));
  const Result none = job.run("");
  CHECK(none.status == 2);
  CHECK(none.err == "dspp: fill_masks needs --text, but it is not given. Write for example --text a/path.\n");
  job.folder.write("short.txt", "short\nlines\n");
  const Result shorter = job.run("--text short.txt");
  CHECK(shorter.status == 2);
  CHECK(shorter.err ==
        "dspp: fill_masks needs lines of 8 bytes or more, but the training part of the text has none. Give a longer "
        "text.\n");
}
