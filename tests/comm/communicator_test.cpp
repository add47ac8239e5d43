// SPDX-License-Identifier: Apache-2.0
// Types that are a Communicator and types that are not.
#include <doctest/doctest.h>

#include <vector>

#include <dspp/comm.hpp>

using namespace dspp;

namespace {

struct NoRank : Self {
  int rank() const = delete;
};

struct SizeIsLong : Self {
  long size() const { return 1; }
};

struct ReducesAtOnce : Self {
  void start_all_reduce(Buffer, Purpose) {}
};

struct NoPurpose : Self {
  Pending<> start_broadcast(Buffer, int) { return {}; }
};

struct NoParts : Self {
  Pending<> start_all_to_all(ConstBuffer, Buffer, Purpose) { return {}; }
};

struct NoReceive : Self {
  Pending<> start_receive(Buffer, Purpose) { return {}; }
};

struct NoLists : Self {
  Pending<> start_reduce_scatter(ConstBuffer, Buffer, Purpose) { return {}; }
};

struct BarrierReturns : Self {
  int barrier() { return 0; }
};

struct TrafficByValue : Self {
  Traffic traffic() const { return {}; }
};

struct NoSumOrder : Self {
  SumOrder sum_order() const = delete;
};

struct Renamed : Self {};

}  // namespace

static_assert(Communicator<Self> && Communicator<Paper> && Communicator<Threads> && Communicator<AnyCommunicator>);
static_assert(Communicator<Recorder<>> && Communicator<Recorder<Threads>> &&
              Communicator<Recorder<Recorder<AnyCommunicator>>>);
static_assert(Communicator<Renamed> && Communicator<Renamed&> && Communicator<const Renamed&>);

static_assert(!Communicator<int> && !Communicator<ThreadGroup> && !Communicator<Pending<>>);
static_assert(!Communicator<NoRank>);
static_assert(!Communicator<SizeIsLong>);
static_assert(!Communicator<ReducesAtOnce>);
static_assert(!Communicator<NoPurpose>);
static_assert(!Communicator<NoParts>);
static_assert(!Communicator<NoReceive>);
static_assert(!Communicator<NoLists>);
static_assert(!Communicator<BarrierReturns>);
static_assert(!Communicator<TrafficByValue>);
static_assert(!Communicator<NoSumOrder>);

static_assert(!std::is_constructible_v<AnyCommunicator, NoRank> && !std::is_constructible_v<AnyCommunicator, int>);

TEST_CASE("a Buffer has its bytes and converts to a ConstBuffer") {
  std::vector<bf16> x(10);
  const Buffer all = buffer(x.data(), 10);
  CHECK(all.type == ElementType::bf16);
  CHECK(all.bytes() == 20);
  const ConstBuffer read = all;
  CHECK(read.data == x.data());
  CHECK(read.count == 10);
  const std::vector<double>& y = std::vector<double>(3);
  static_assert(std::is_same_v<decltype(buffer(y.data(), 3)), ConstBuffer>);
}

TEST_CASE("a default AnyCommunicator is a group of one") {
  const AnyCommunicator c;
  CHECK(c.rank() == 0);
  CHECK(c.size() == 1);
}
