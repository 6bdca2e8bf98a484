// Copies send WQEs out of guest memory, so that the guest cannot change them between check and use.
// Traces the WQEs of QPs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "connectx/base/numbers.h"
#include "connectx/queue/blue_flame.h"
#include "connectx/queue/mapped_queue.h"
#include "connectx/queue/send_control.h"
#include "connectx/queue/wqe_fault.h"
#include "hca/work_ring.h"
#include "util/notes.h"
#include "util/trace.h"

namespace softhca::connectx {

/// One for all QPs: it has room for one WQE.
class WqeReader {
 public:
  /// `trace`: null if WQEs are not traced.
  WqeReader(const BlueFlame& blue_flame, util::Notes& notes, util::Trace* trace)
      : blue_flame_(blue_flame), notes_(notes), trace_(trace) {}

  /// Room for the WQE that is being decoded.
  std::span<std::byte, kSendWqeMax> room() { return send_wqe_; }
  /// Copies the next WQE of a send queue. If the memory is not mapped or the size is wrong, `wqe`
  /// stays empty. `available`: basic blocks that are posted.
  WqeFault read_send(Qpn qpn, const hca::WorkRing& ring, hca::QueueMemory& memory,
                     std::uint32_t available, SendWqeControl& control,
                     std::span<const std::byte>& wqe);
  /// Copies a WQE that is not contiguous in memory, for example at the end of the ring. Null if it
  /// cannot be read, or if it must be traced.
  const std::byte* read_datagram(const hca::WorkRing& ring, hca::QueueMemory& memory,
                                 std::size_t size);
  /// Adds a send WQE to the trace, if there is one. With a trace, every WQE takes the slow path,
  /// because its ring cannot be accessed directly.
  void trace_send(Qpn qpn, std::uint16_t index, const SendWqeControl& control, WqeFault fault) {
    if (trace_ != nullptr) [[unlikely]]
      add_to_trace(qpn, index, control, fault);
  }
  /// Adds a receive WQE to the trace, if there is one.
  void trace_receive(Qpn qpn, std::uint16_t index) {
    if (trace_ == nullptr) return;
    trace_->note(util::TraceStep::kReceiveWqe, {}, {{"qpn", qpn.value()}, {"index", index}});
  }
  /// Logs a malformed send WQE.
  void note_fault(Qpn qpn, WqeFault fault);

  /// The last number that the destination of a datagram has got (rdma::UdDestination::number).
  std::uint64_t& last_destination() { return last_destination_; }

 private:
  void add_to_trace(Qpn qpn, std::uint16_t index, const SendWqeControl& control, WqeFault fault);

  const BlueFlame& blue_flame_;
  util::Notes& notes_;
  util::Trace* trace_;
  std::uint64_t last_destination_ = 0;
  std::array<std::byte, kSendWqeMax> send_wqe_;
};

}  // namespace softhca::connectx
