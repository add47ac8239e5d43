// SPDX-License-Identifier: Apache-2.0
#include <laws/communicator.hpp>
#include <laws/random_program.hpp>
#include <laws/worlds.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("Self obeys the laws of a communicator") {
  check_communicator_laws<SelfWorld>(1);
}

TEST_CASE("Self erased and recorded obeys the laws of a communicator") {
  check_communicator_laws<ErasedWorld<SelfWorld>>(1);
  check_communicator_laws<RecordedWorld<SelfWorld>>(1);
  check_random_programs<RecordedWorld<ErasedWorld<SelfWorld>>>(1, 50);
}

TEST_CASE("Self moves no bytes") {
  Self c;
  std::vector<float> x(100), y(100);
  all_reduce(c, buffer(x.data(), 100), Purpose::gradient);
  all_gather(c, buffer(x.data(), 100), buffer(y.data(), 100), Purpose::parameter);
  CHECK(c.traffic().total() == 0);
  CHECK(c.traffic().calls(Collective::all_reduce, Purpose::gradient) == 1);
  CHECK(c.traffic().calls(Collective::all_gather, Purpose::parameter) == 1);
}
