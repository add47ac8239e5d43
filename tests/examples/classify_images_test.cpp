// SPDX-License-Identifier: Apache-2.0
// The vision transformer of the examples learns what it is shown, on any number of ranks.
#include <examples/job.hpp>

using namespace dspp;
using namespace dspp::examples;

TEST_CASE("classify_images tells new images of four kinds apart, on one rank and on three") {
  for (const int ranks : {1, 3}) {
    CAPTURE(ranks);
    const Folder folder;
    const Result result = Process(DSPP_CLASSIFY_IMAGES, {"--ranks", std::to_string(ranks)}, folder).wait();
    CAPTURE(result.err);
    REQUIRE(result.status == 0);
    const auto lines = lines_of(result.out);
    REQUIRE(lines.size() == 7);
    CHECK(lines[0].find("step 10  loss 1.") == 0);
    CHECK(lines[5].find("step 60  loss 0.") == 0);
    CHECK(std::stod(lines[6]) >= 90);
    CHECK(lines[6].find(" % of " + std::to_string(16 * ranks) + " new images are right") != std::string::npos);
  }
}
