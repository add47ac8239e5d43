// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <map>
#include <string>

#include <dspp/launch/tcp_place.hpp>

#include <laws/sentence_of.hpp>

using namespace dspp;
using dspp::laws::sentence_of;

namespace {

using Variables = std::map<std::string, std::string>;

std::optional<TcpPlace> place_of(const Variables& variables) {
  Launch launch;
  launch.rank = 2, launch.size = 5;
  return read_tcp_place(launch, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string refusal_of(const Variables& variables) {
  return sentence_of([&] { place_of(variables); });
}

}  // namespace

TEST_CASE("the address and the port of rank 0, and the token, are read from variables") {
  CHECK_FALSE(place_of({}));
  CHECK_FALSE(place_of({{"DSPP_TOKEN", "secret"}}));
  const auto place = place_of({{"MASTER_ADDR", "node-1"}, {"MASTER_PORT", "29500"}, {"DSPP_TOKEN", "secret"}});
  REQUIRE(place);
  CHECK(place->rank == 2);
  CHECK(place->size == 5);
  CHECK(place->host == "node-1");
  CHECK(place->port == 29500);
  CHECK(place->token == "secret");
  CHECK(place_of({{"MASTER_ADDR", "node-1"}, {"MASTER_PORT", "1"}})->token.empty());
  CHECK(place_of({{"MASTER_ADDR", "node-1"}, {"MASTER_PORT", "65535"}})->port == 65535);
}

TEST_CASE("beside a store of torchrun's at MASTER_PORT the ranks meet at the next port, or at DSPP_MASTER_PORT") {
  Variables v = {{"MASTER_ADDR", "node-1"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  CHECK(place_of(v)->port == 29501);
  v["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  CHECK(place_of(v)->port == 29500);
  v["DSPP_MASTER_PORT"] = "4000";
  CHECK(place_of(v)->port == 4000);
  v["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  CHECK(place_of(v)->port == 4000);
  v.erase("MASTER_PORT");
  CHECK(place_of(v)->port == 4000);
  CHECK(refusal_of({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "65535"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}) ==
        "dspp: run needs a port beside that of torchrun's store, but MASTER_PORT is 65535. Set DSPP_MASTER_PORT.");
}

TEST_CASE("a variable that is missing or malformed is named") {
  CHECK(
      refusal_of({{"MASTER_ADDR", "node-1"}}) ==
      "dspp: run needs the variable MASTER_PORT beside MASTER_ADDR, where the ranks meet, but it is not set. Set both "
      "on every rank.");
  for (const Variables& none : {Variables{{"MASTER_PORT", "29500"}}, {{"MASTER_PORT", "29500"}, {"MASTER_ADDR", ""}}})
    CHECK(refusal_of(none).find("needs the variable MASTER_ADDR beside MASTER_PORT") != std::string::npos);
  for (const char* port : {"", "0", "65536", "99999999999", "-1", "29500 ", "x", "1e3"}) {
    const std::string shown = std::string("but it holds '") + port + "'. Set it to one that is free";
    CHECK(refusal_of({{"MASTER_ADDR", "a"}, {"MASTER_PORT", port}}).find("in the variable MASTER_PORT, " + shown) !=
          std::string::npos);
    CHECK(refusal_of({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}, {"DSPP_MASTER_PORT", port}})
              .find("in the variable DSPP_MASTER_PORT, " + shown) != std::string::npos);
  }
  CHECK(refusal_of({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}, {"DSPP_TOKEN", ""}})
            .find("needs a secret in the variable DSPP_TOKEN, but it is empty") != std::string::npos);
}
