// SPDX-License-Identifier: Apache-2.0
/// Collectives that a profiler hears of.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <dspp/base/profiler.hpp>
#include <dspp/comm/any_communicator.hpp>
#include <dspp/comm/recorder.hpp>

namespace dspp {

/// Another communicator, whose starts and waits it tells a profiler, each start with the bytes that this rank must
/// read. A wait has in it the time for which this rank waits for the others, and for operations issued before. With
/// other ranks, an operation is in flight from its start until it was waited for, or dropped.
class ProfiledCommunicator {
 public:
  ProfiledCommunicator(AnyCommunicator inner, std::shared_ptr<Profiler> profiler)
      : told_(std::make_shared<Told>(Recorder<AnyCommunicator>(std::move(inner)), std::move(profiler))) {}
  ProfiledCommunicator(ProfiledCommunicator&&) = default;
  ProfiledCommunicator& operator=(ProfiledCommunicator&&) = delete;

  int rank() const { return told_->inner.rank(); }
  int size() const { return told_->inner.size(); }
  SumOrder sum_order() const { return told_->inner.sum_order(); }
  const Traffic& traffic() const { return told_->inner.inner().traffic(); }
  bool async_progress(Size bytes) const { return told_->inner.async_progress(bytes); }

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
  /// What the communicator shares with its operations, which may be waited for when it is gone.
  struct Told {
    Told(Recorder<AnyCommunicator> to, std::shared_ptr<Profiler> by) : inner(std::move(to)), profiler(std::move(by)) {}
    Recorder<AnyCommunicator> inner;  // plans what is read
    std::shared_ptr<Profiler> profiler;
  };
  class Flight;
  struct Operation;
  /// Tells the profiler of a part of an operation.
  class Part;

  template <class Start>
  Pending<> start(Collective collective, Purpose purpose, Start begin);

  std::shared_ptr<Told> told_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

class ProfiledCommunicator::Part {
 public:
  Part(Told& told, Collective collective, Purpose purpose, bool is_start)
      : told_(told), before_(planned()), is_start_(is_start) {
    told.profiler->begin_collective(name_of(collective), name_of(purpose), purpose == Purpose::activation);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() { told_.profiler->end_collective(planned() - before_, is_start_); }

 private:
  Size planned() const { return told_.inner.traffic().total(); }

  Told& told_;
  Size before_;
  bool is_start_;
};

/// Begun within a Part, it ends after the last one.
class ProfiledCommunicator::Flight {
 public:
  explicit Flight(Told& told) : told_(told) {}
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;
  ~Flight() {
    if (is_under_way_) told_.profiler->end_flight(event_);
  }

  void begin() {
    if (told_.inner.size() == 1) return;
    event_ = told_.profiler->begin_flight();
    is_under_way_ = true;
  }

 private:
  Told& told_;
  Profiler::Event event_{};
  bool is_under_way_ = false;
};

struct ProfiledCommunicator::Operation {
  std::shared_ptr<Told> told;
  Collective collective;
  Purpose purpose;
  Flight flight;
  Pending<> pending;  // destroyed, and so completed, before the flight ends
};

template <class Start>
Pending<> ProfiledCommunicator::start(Collective collective, Purpose purpose, Start begin) {
  static constexpr detail::Completion completion{
      .wait =
          [](void* who, std::uint64_t) {
            const std::unique_ptr<Operation> operation(static_cast<Operation*>(who));
            const Part part(*operation->told, operation->collective, operation->purpose, false);
            operation->pending.wait();
          },
      .drop = [](void* who, std::uint64_t) noexcept { delete static_cast<Operation*>(who); },
      .is_complete = [](const void* who,
                        std::uint64_t) { return static_cast<const Operation*>(who)->pending.is_complete(); }};
  std::unique_ptr<Operation> operation(new Operation{told_, collective, purpose, Flight(*told_), {}});
  const Part part(*told_, collective, purpose, true);
  operation->pending = begin();
  operation->flight.begin();
  return Pending<>(&completion, operation.release(), 0);
}

DSPP_INLINE Pending<> ProfiledCommunicator::start_all_reduce(Buffer x, PurposeAt p) {
  return start(Collective::all_reduce, p, [&] { return told_->inner.start_all_reduce(x, p); });
}
DSPP_INLINE Pending<> ProfiledCommunicator::start_reduce_scatter(ConstBuffer in, Buffer out, PurposeAt p) {
  return start(Collective::reduce_scatter, p, [&] { return told_->inner.start_reduce_scatter(in, out, p); });
}
DSPP_INLINE Pending<> ProfiledCommunicator::start_all_gather(ConstBuffer in, Buffer out, PurposeAt p) {
  return start(Collective::all_gather, p, [&] { return told_->inner.start_all_gather(in, out, p); });
}
DSPP_INLINE Pending<> ProfiledCommunicator::start_all_to_all(ConstBuffer in, Buffer out, const PartCounts& parts,
                                                             PurposeAt p) {
  return start(Collective::all_to_all, p, [&] { return told_->inner.start_all_to_all(in, out, parts, p); });
}
DSPP_INLINE Pending<> ProfiledCommunicator::start_broadcast(Buffer x, int root, PurposeAt p) {
  return start(Collective::broadcast, p, [&] { return told_->inner.start_broadcast(x, root, p); });
}
DSPP_INLINE Pending<> ProfiledCommunicator::start_send(ConstBuffer in, int to, PurposeAt p) {
  return start(Collective::send, p, [&] { return told_->inner.start_send(in, to, p); });
}
DSPP_INLINE Pending<> ProfiledCommunicator::start_receive(Buffer out, int from, PurposeAt p) {
  return start(Collective::send, p, [&] { return told_->inner.start_receive(out, from, p); });
}
DSPP_INLINE Pending<> ProfiledCommunicator::start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt p) {
  return start(Collective::reduce_scatter, p, [&] { return told_->inner.start_reduce_scatter(pairs, p); });
}
DSPP_INLINE Pending<> ProfiledCommunicator::start_all_gather(std::span<const GatherPair> pairs, PurposeAt p) {
  return start(Collective::all_gather, p, [&] { return told_->inner.start_all_gather(pairs, p); });
}
DSPP_INLINE void ProfiledCommunicator::barrier(CallSite site) {
  Flight flight(*told_);
  const Part part(*told_, Collective::barrier, Purpose::scalar, true);
  flight.begin();
  told_->inner.barrier(site);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
