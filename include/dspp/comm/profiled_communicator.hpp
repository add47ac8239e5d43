// SPDX-License-Identifier: Apache-2.0
/// Collectives that a profiler hears of.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <utility>

#include <dspp/base/profiler.hpp>
#include <dspp/comm/any_communicator.hpp>
#include <dspp/comm/recorder.hpp>

namespace dspp {

/// Another communicator, whose starts and waits it tells a profiler, each start with the bytes that this rank must
/// read. A wait has in it the time for which this rank waits for the others, and for operations issued before.
class ProfiledCommunicator {
 public:
  /// The profiler outlives the operations.
  ProfiledCommunicator(AnyCommunicator inner, Profiler& profiler) : inner_(std::move(inner)), profiler_(&profiler) {}
  ProfiledCommunicator(ProfiledCommunicator&&) = default;
  ProfiledCommunicator& operator=(ProfiledCommunicator&&) = delete;

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  SumOrder sum_order() const { return inner_.sum_order(); }
  const Traffic& traffic() const { return inner_.inner().traffic(); }

  Pending<> start_all_reduce(Buffer x, PurposeAt p);
  Pending<> start_reduce_scatter(ConstBuffer in, Buffer out, PurposeAt p);
  Pending<> start_all_gather(ConstBuffer in, Buffer out, PurposeAt p);
  Pending<> start_all_to_all(ConstBuffer in, Buffer out, const PartCounts& parts, PurposeAt p);
  Pending<> start_broadcast(Buffer x, int root, PurposeAt p);
  Pending<> start_send(ConstBuffer in, int to, PurposeAt p);
  Pending<> start_receive(Buffer out, int from, PurposeAt p);
  Pending<> start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt p);
  Pending<> start_all_gather(std::span<const GatherPair> pairs, PurposeAt p);
  void barrier(CallSite site = CallSite::here());

 private:
  struct Operation {
    std::uint64_t ticket = 0;
    Collective collective = Collective::barrier;
    Purpose purpose = Purpose::scalar;
    Pending<> pending{};
  };
  /// Tells the profiler of a part of an operation.
  class Part;

  template <class Start>
  Pending<> start(Collective collective, Purpose purpose, Start begin);
  Operation take(std::uint64_t ticket);
  static void wait(void* who, std::uint64_t ticket);
  static void drop(void* who, std::uint64_t ticket) noexcept;
  static bool is_complete(const void* who, std::uint64_t ticket);

  Recorder<AnyCommunicator> inner_;  // plans what is read
  Profiler* profiler_;
  std::uint64_t tickets_ = 0;
  std::list<Operation> operations_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

class ProfiledCommunicator::Part {
 public:
  Part(ProfiledCommunicator& of, Collective collective, Purpose purpose, bool is_start)
      : of_(of), before_(planned()), is_start_(is_start) {
    of.profiler_->begin_collective(name_of(collective), name_of(purpose), purpose == Purpose::activation);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() { of_.profiler_->end_collective(planned() - before_, is_start_); }

 private:
  Size planned() const { return of_.inner_.traffic().total(); }

  ProfiledCommunicator& of_;
  Size before_;
  bool is_start_;
};

template <class Start>
Pending<> ProfiledCommunicator::start(Collective collective, Purpose purpose, Start begin) {
  static constexpr detail::Completion completion{&wait, &drop, &is_complete};
  const Part part(*this, collective, purpose, true);
  operations_.push_back({++tickets_, collective, purpose, begin()});
  return Pending<>(&completion, this, tickets_);
}

DSPP_INLINE ProfiledCommunicator::Operation ProfiledCommunicator::take(std::uint64_t ticket) {
  auto place = operations_.begin();
  while (place->ticket != ticket) ++place;
  Operation operation = std::move(*place);
  operations_.erase(place);
  return operation;
}

DSPP_INLINE void ProfiledCommunicator::wait(void* who, std::uint64_t ticket) {
  auto& self = *static_cast<ProfiledCommunicator*>(who);
  Operation operation = self.take(ticket);
  const Part part(self, operation.collective, operation.purpose, false);
  operation.pending.wait();
}

DSPP_INLINE void ProfiledCommunicator::drop(void* who, std::uint64_t ticket) noexcept {
  static_cast<ProfiledCommunicator*>(who)->take(ticket);
}

DSPP_INLINE bool ProfiledCommunicator::is_complete(const void* who, std::uint64_t ticket) {
  for (const Operation& operation : static_cast<const ProfiledCommunicator*>(who)->operations_)
    if (operation.ticket == ticket) return operation.pending.is_complete();
  return true;
}

DSPP_INLINE Pending<> ProfiledCommunicator::start_all_reduce(Buffer x, PurposeAt p) {
  return start(Collective::all_reduce, p, [&] { return inner_.start_all_reduce(x, p); });
}
DSPP_INLINE Pending<> ProfiledCommunicator::start_reduce_scatter(ConstBuffer in, Buffer out, PurposeAt p) {
  return start(Collective::reduce_scatter, p, [&] { return inner_.start_reduce_scatter(in, out, p); });
}
DSPP_INLINE Pending<> ProfiledCommunicator::start_all_gather(ConstBuffer in, Buffer out, PurposeAt p) {
  return start(Collective::all_gather, p, [&] { return inner_.start_all_gather(in, out, p); });
}
DSPP_INLINE Pending<> ProfiledCommunicator::start_all_to_all(ConstBuffer in, Buffer out, const PartCounts& parts,
                                                             PurposeAt p) {
  return start(Collective::all_to_all, p, [&] { return inner_.start_all_to_all(in, out, parts, p); });
}
DSPP_INLINE Pending<> ProfiledCommunicator::start_broadcast(Buffer x, int root, PurposeAt p) {
  return start(Collective::broadcast, p, [&] { return inner_.start_broadcast(x, root, p); });
}
DSPP_INLINE Pending<> ProfiledCommunicator::start_send(ConstBuffer in, int to, PurposeAt p) {
  return start(Collective::send, p, [&] { return inner_.start_send(in, to, p); });
}
DSPP_INLINE Pending<> ProfiledCommunicator::start_receive(Buffer out, int from, PurposeAt p) {
  return start(Collective::send, p, [&] { return inner_.start_receive(out, from, p); });
}
DSPP_INLINE Pending<> ProfiledCommunicator::start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt p) {
  return start(Collective::reduce_scatter, p, [&] { return inner_.start_reduce_scatter(pairs, p); });
}
DSPP_INLINE Pending<> ProfiledCommunicator::start_all_gather(std::span<const GatherPair> pairs, PurposeAt p) {
  return start(Collective::all_gather, p, [&] { return inner_.start_all_gather(pairs, p); });
}
DSPP_INLINE void ProfiledCommunicator::barrier(CallSite site) {
  const Part part(*this, Collective::barrier, Purpose::scalar, true);
  inner_.barrier(site);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
