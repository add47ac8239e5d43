// SPDX-License-Identifier: Apache-2.0
// The Llama of parallel blocks of the examples learns a text.
#include <examples/job.hpp>

using namespace dspp;
using namespace dspp::examples;

TEST_CASE("complete_text learns the text on two ranks, and says how it is called") {
  const Job job(DSPP_COMPLETE_TEXT);
  const Result result = job.run("--text text.txt --steps 60 --ranks 2");
  CAPTURE(result.err);
  REQUIRE(result.status == 0);
  const auto lines = lines_of(result.out);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].find("step  50  loss 0.") == 0);
  CHECK(lines[1].find("step  60  loss 0.") == 0);
  CHECK(lines[2].find("held out: loss 0.") == 0);
  CHECK(job.run("--help").out == laws::read_file(DSPP_TESTS_DIRECTORY "/../examples/help/complete_text.txt"));
  CHECK(job.run("--text nowhere").status == 2);
}
