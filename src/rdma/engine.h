// State and functions that the parts of the transport share. Internal: devices use transport.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "fabric/port.h"
#include "rdma/congestion.h"
#include "rdma/counters.h"
#include "rdma/dc_targets.h"
#include "rdma/memory_key.h"
#include "rdma/pkey_table.h"
#include "rdma/port_addresses.h"
#include "rdma/qp_list_inl.h"
#include "rdma/qp_table.h"
#include "rdma/queue_pair.h"
#include "rdma/ring_pools.h"
#include "rdma/timers_inl.h"
#include "rdma/work_queues.h"
#include "util/notes.h"
#include "wire/ib_header.h"

namespace softhca::rdma {

/// The services of a port for requesters and responders. FrameDispatcher calls these for arriving
/// frames, and QpScheduler for pending work.
class Engine {
 public:
  /// Packets that one QP may send before the next QP gets its turn.
  static constexpr unsigned kQuantum = 128;
  /// Work of one packet, sender and receiver together, besides its bytes. A flushed request or an
  /// expired timer costs the same.
  static constexpr unsigned kStepWork = 600;
  static constexpr unsigned kBytesPerUnit = 16;

  Engine(fabric::Port& the_port, KeyTable& the_keys, util::Notes& the_notes,
         const PortOptions& options);

  // States and events of a QP --------------------------------------------------------------------

  void set_state(QueuePair& qp, QpState state);
  /// Takes the QP to ERR; the scheduler flushes it.
  void to_error(QueuePair& qp);
  void event(QueuePair& qp, QpEvent event, Reason reason);
  void note(const QueuePair& qp, std::string_view what, Reason reason);
  bool is_gsi(const QueuePair& qp) const { return gsi && *gsi == qp.qpn(); }

  // Turns of a QP --------------------------------------------------------------------------------

  /// The scheduler will serve the QP.
  void mark_ready(QueuePair& qp) { ready.push_back(qp); }
  /// True if frame `number` and all before it no longer refer to memory.
  bool released(std::uint64_t number) {
    return number <= released_ || number <= (released_ = port.released());
  }
  /// The scheduler will serve the QP when frame `number` is released.
  void wait_for_release(QueuePair& qp, std::uint64_t number);

  // Packets --------------------------------------------------------------------------------------

  /// Counts packets that are dropped. `detail`: more text for the log.
  void drop(const QueuePair* qp, Drop counter, Reason why, std::string_view detail = {},
            unsigned packets = 1);
  /// The headers for a connected QP's path. Null if the port has no source address for it.
  const wire::IbHeader* path_header(QueuePair& qp) {
    return qp.path_header_.generation == addresses.generation() ? &qp.path_header_.header
                                                                : make_path_header(qp);
  }
  /// Most packets that may travel as one frame.
  unsigned train_max() const { return port.takes_trains() ? kQuantum : 1; }
  /// A new frame. Begin it with IbHeader::begin(), send it with transmit().
  wire::Frame& new_frame() { return port.draft(); }
  /// Sends new_frame(). Returns its number.
  std::uint64_t transmit(const wire::Frame& frame) {
    counters.tx_packets += frame.packets();
    counters.tx_bytes += frame.size_of_all();
    return last_frame = port.transmit(frame);
  }
  /// True if the data were copied. A signature mismatch still copies, and is reported to the
  /// device. `sends`: the data moved for a request of the QP's send queue.
  bool moved(QueuePair& qp, Reason fault, bool sends) {
    return fault == Reason::kNone || report_signature_errors(qp, fault, sends);
  }

  fabric::Port& port;
  KeyTable& keys;
  XrcSrqs xrc_srqs;
  util::Notes& notes;
  PortAddresses addresses;
  PkeyTable pkeys;
  PortCounters counters;
  CongestionControl congestion;
  RingPools rings;
  QpTable qps;
  DcTargets dc_targets;
  const util::Duration ack_timeout_min;  ///< see PortOptions
  unsigned ack_patience = 1;             ///< see Transport::set_ack_patience()
  TimerQueue timers;
  QpList ready{Queue::kReady};
  QpList unreleased{Queue::kUnreleased};
  std::uint64_t last_frame = 0;  ///< number of the last packet
  std::optional<Qpn> gsi;
  util::Time now{};

 private:
  [[gnu::noinline]] bool report_signature_errors(QueuePair& qp, Reason fault, bool sends);
  const wire::IbHeader* make_path_header(QueuePair& qp);

  std::uint64_t released_ = 0;  ///< result of the last port.released()
};

}  // namespace softhca::rdma
