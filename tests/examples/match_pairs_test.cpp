// SPDX-License-Identifier: Apache-2.0
// The two towers of the examples find the texts of new images among those of all ranks.
#include <examples/job.hpp>

using namespace dspp;
using namespace dspp::examples;

TEST_CASE("match_pairs finds the texts of new images, on 1, 2 and 4 ranks") {
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    const Folder folder;
    const Result result = Process(DSPP_MATCH_PAIRS, {"--ranks", std::to_string(ranks)}, folder).wait();
    CAPTURE(result.err);
    REQUIRE(result.status == 0);
    const auto lines = lines_of(result.out);
    REQUIRE(lines.size() == 4);
    CHECK(lines[0].find("step 100  loss ") == 0);
    CHECK(lines[2].find("step 300  loss 0.") == 0);
    CHECK(std::stod(lines[3]) >= 70);  // of 16 texts for each rank
    CHECK(lines[3].find(" % of " + std::to_string(16 * ranks) + " new images find their text") != std::string::npos);
  }
}
