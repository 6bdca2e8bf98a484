// The targets of dynamic connections of a port, and what they have of their peers: a responder for
// each initiator that is connected (README.md, "Dynamic connections"). Internal.
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

/// One connection of a target, as its responder sees it. It stays after its end, so that the next
/// one with the same initiator finds its place, and packets of earlier ones are known as such.
struct DcConnection {
  DcConnection(Engine& engine, DcTarget& the_target, const DcTarget::Peer& the_peer);

  DcTarget& target;
  DcTarget::Peer peer;
  QueuePair qp;
  std::uint32_t session = 0;
  bool open = false;
  util::Time heard{};                     ///< when its last packet came
  std::list<DcConnection*>::iterator at;  ///< its place in the list of open or ended ones
};

class DcTargets {
 public:
  /// All targets together have at most so many connections.
  DcTargets(Engine& engine, std::size_t connections_max)
      : engine_(engine), connections_max_(connections_max) {}

  void add(Qpn qpn, const DcTargetAttributes& attributes, WorkQueues& queues);
  bool drain(DcTarget& target, util::WorkBudget& work);
  /// @pre it is drained
  void remove(Qpn qpn);
  /// Null if there is none.
  DcTarget* find(Qpn qpn) {
    const auto found = targets_.find(qpn);
    return found == targets_.end() ? nullptr : &found->second;
  }
  /// The QP that the packet is for. Null: the packet is dropped, or is done with.
  QueuePair* connection_for(DcTarget& target, const wire::IbPacket& packet);
  /// The page is there, or cannot be brought, that one of its connections waits for. False: none
  /// waits.
  bool resume(DcTarget& target, bool failed);
  /// A number for a connection of an initiator here, later than all before it, also those of
  /// processes that are gone.
  std::uint32_t new_session();
  /// The port's table has changed.
  void refresh_pkeys();
  /// Ends all, until `work` is spent, when all go. True: none is left.
  bool dismantle(util::WorkBudget& work);

  void inspect(util::InspectNode& out) const;

 private:
  bool admits(DcTarget& target, const wire::IbPacket& packet);
  DcConnection* make(DcTarget& target, const DcTarget::Peer& peer);
  bool make_room();
  void forget_old();
  void open(DcConnection& connection, const wire::IbPacket& packet);
  void hear(DcConnection& connection);
  void end(DcConnection& connection);
  void forget(DcConnection& connection);
  bool end_all(DcTarget& target, util::WorkBudget& work);

  Engine& engine_;
  std::size_t connections_max_;
  std::uint64_t session_ = 0;       ///< the last that new_session() gave
  std::list<DcConnection*> open_;   ///< by the time of their last packet
  std::list<DcConnection*> ended_;  ///< by the time of their end
  std::map<Qpn, DcTarget> targets_;
};

}  // namespace softhca::rdma
