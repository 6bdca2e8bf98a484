// The targets of dynamic connections of a port, with a responder for each connected initiator
// (README.md, "Dynamic connections").
#pragma once

#include <list>
#include <map>

#include "rdma/dc_target.h"
#include "util/clock.h"
#include "util/inspect.h"
#include "util/work_budget.h"
#include "wire/ib_packet.h"

namespace softhca::rdma {

class Engine;

/// One connection of a target, with its responder. It is kept after its end, so that the
/// initiator's next connection reuses it, and packets of earlier sessions are recognized.
struct DcConnection {
  DcConnection(Engine& engine, DcTarget& the_target, const DcTarget::Peer& the_peer);

  DcTarget& target;
  DcTarget::Peer peer;
  QueuePair qp;
  std::uint32_t session = 0;
  bool open = false;
  util::Time last_packet{};               ///< when it arrived
  std::list<DcConnection*>::iterator at;  ///< its entry in open_ or ended_
};

class DcTargets {
 public:
  /// `connections_max`: most connections of all targets together.
  DcTargets(Engine& engine, std::size_t connections_max)
      : engine_(engine), connections_max_(connections_max) {}

  // For the device -----------------------------------------------------------------------------

  /// Takes requests for `qpn` from now on. `queues` outlives the target; it supplies receives and
  /// takes their completions for all connections. @pre no QP or target has this number
  void add(Qpn qpn, const DcTargetAttributes& attributes, WorkQueues& queues);
  /// Takes no more requests. Transport::run() sends the pending responses; then connections end
  /// until `work` is spent. Call again until it returns true: nothing is left.
  bool drain(Qpn qpn, util::WorkBudget& work);
  /// @pre the target is drained
  void remove(Qpn qpn);
  /// Null if no target has this number.
  DcTarget* find(Qpn qpn) {
    const auto found = targets_.find(qpn);
    return found == targets_.end() ? nullptr : &found->second;
  }
  /// Like Transport::resume(), for the one connection of the target that waits. False if none
  /// waits. The device answers FaultAnswer::kBusy to a second fault meanwhile.
  bool resume(Qpn qpn, bool failed);

  // For the transport --------------------------------------------------------------------------

  /// The QP that the packet is for. Null: the packet has been dropped or fully handled.
  QueuePair* connection_for(DcTarget& target, const wire::IbPacket& packet);
  /// A session number for an initiator of this port: later than all before it, including those of
  /// earlier processes.
  std::uint32_t new_session();
  /// The port's P_Key table has changed.
  void refresh_pkeys();
  /// Tears down all targets until `work` is spent. True when none is left.
  bool dismantle(util::WorkBudget& work);

  void inspect(util::InspectNode& out) const;

 private:
  bool admits(DcTarget& target, const wire::IbPacket& packet);
  DcConnection* make(DcTarget& target, const DcTarget::Peer& peer);
  bool make_room();
  void forget_old();
  void open(DcConnection& connection, const wire::IbPacket& packet);
  void note_packet(DcConnection& connection);
  void end(DcConnection& connection);
  void forget(DcConnection& connection);
  bool end_all(DcTarget& target, util::WorkBudget& work);

  Engine& engine_;
  std::size_t connections_max_;
  std::uint64_t session_ = 0;       ///< last result of new_session()
  std::list<DcConnection*> open_;   ///< in the order of their last packets
  std::list<DcConnection*> ended_;  ///< in the order in which they ended
  std::map<Qpn, DcTarget> targets_;
};

}  // namespace softhca::rdma
