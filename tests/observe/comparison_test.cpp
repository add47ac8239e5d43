// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/observe/comparison.hpp>

using namespace dspp;

TEST_CASE("a comparison of bytes has a row for every category, in their order") {
  CategoryBytes planned, measured;
  planned[Category::gradients] = 128;
  measured[Category::gradients] = 192;
  measured[Category::data] = 64;
  const auto rows = compare(planned, measured);
  REQUIRE(rows.size() == category_count);
  CHECK(rows[0].name == "parameters");
  CHECK(rows[1].name == "gradients");
  CHECK(rows[1].planned == 128);
  CHECK(rows[1].measured == 192);
  CHECK(rows[6].measured == 64);
}

TEST_CASE("a comparison of traffic divides the measured bytes by the steps and keeps scalars apart") {
  Traffic planned, measured;
  planned.count(Collective::all_reduce, Purpose::gradient, 1000);
  planned.count(Collective::all_reduce, Purpose::scalar, 24);
  planned.count(Collective::all_gather, Purpose::scalar, 16);
  for (int step = 0; step < 4; ++step) {
    measured.count(Collective::all_reduce, Purpose::gradient, 1000);
    measured.count(Collective::all_reduce, Purpose::scalar, 24);
    measured.count(Collective::all_gather, Purpose::scalar, 16);
  }
  measured.count(Collective::broadcast, Purpose::parameter, 2);
  const auto rows = compare(planned, measured, 4);
  REQUIRE(rows.size() == 5);
  CHECK(rows[0].name == "all_reduce");
  CHECK(rows[0].planned == 1000);
  CHECK(rows[0].measured == 1000);
  CHECK(rows[2].measured == 0);
  CHECK(rows[3].measured == 0.5);
  CHECK(rows[4].name == "scalars");
  CHECK(rows[4].planned == 40);
  CHECK(rows[4].measured == 40);
}

TEST_CASE("collectives of only some strategies have rows only for those") {
  Traffic planned, measured;
  planned.count(Collective::all_to_all, Purpose::activation, 64);
  measured.count(Collective::send, Purpose::activation, 8);
  const auto rows = compare(planned, measured, 1);
  REQUIRE(rows.size() == 7);
  CHECK(rows[3].name == "all_to_all");
  CHECK(rows[3].planned == 64);
  CHECK(rows[3].measured == 0);
  CHECK(rows[5].name == "send");
  CHECK(rows[5].measured == 8);
}

TEST_CASE("checks of ranks have a row of their own, per check") {
  Traffic planned, measured;
  planned.count(Collective::reduce_scatter, Purpose::check, 100);
  planned.count(Collective::all_gather, Purpose::check, 8);
  for (int check = 0; check < 3; ++check) measured += planned;
  measured.count(Collective::reduce_scatter, Purpose::gradient, 500);
  const Comparison row = compare_checks(planned, measured, 3);
  CHECK(row.planned == 108);
  CHECK(row.measured == 108);
  CHECK(compare_checks(planned, Traffic{}, 0).planned == 0);
  CHECK(compare(Traffic{}, measured, 1)[1].measured == 500);
}

TEST_CASE("without steps the measurement is zero") {
  Traffic traffic;
  traffic.count(Collective::all_reduce, Purpose::gradient, 8);
  CHECK(compare(traffic, {}, 0)[0].measured == 0);
}

TEST_CASE("a table names the difference between plan and measurement") {
  const std::string text = table_of("bytes", {{"equal", 2048, 2048}, {"more", 64, 128}, {"less", 64, 0.5}});
  CHECK(text ==
        "  bytes  planned  measured           difference\n"
        "  equal     2048      2048  2.0 KiB        none\n"
        "  more        64       128    128 B         +64\n"
        "  less        64     0.500      0 B     -63.500\n");
}

TEST_CASE("a comparison in JSON has whole numbers where they are whole") {
  CHECK(json_of(std::vector<Comparison>{{"a", 64, 0.5}}).text() == R"({"a":{"planned":64,"measured":0.5}})");
}
