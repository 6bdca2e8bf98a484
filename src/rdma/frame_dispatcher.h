// Arriving frames: finds the QP of each one, and passes its packets to the QP's requester or
// responder. Internal.
#pragma once

#include "rdma/engine.h"
#include "rdma/multicast_groups.h"
#include "util/clock.h"
#include "wire/frame.h"
#include "wire/ib_packet.h"

namespace softhca::rdma {

/// The functions that take the engine run for every packet. They need no FrameDispatcher, so that
/// handle_frame() keeps one pointer less.
class FrameDispatcher {
 public:
  FrameDispatcher(Engine& engine, const MulticastGroups& groups)
      : engine_(engine), groups_(groups) {}

  /// See Transport.
  bool handle_frame(const wire::Frame& frame, util::Time now);

 private:
  static QueuePair* find_by_header(const Engine& engine, const wire::Frame& frame);
  static bool take_fast(const Engine& engine, QueuePair& qp, const wire::TransportHeaders& headers,
                        const wire::Frame& frame);
  static bool admits(const Engine& engine, const QueuePair& qp, const wire::IbPacket& packet);
  static void deliver(Engine& engine, QueuePair& qp, const wire::Frame& frame,
                      const wire::IbPacket& packet);
  static void deliver_all(Engine& engine, QueuePair& qp, const wire::Frame& frame,
                          const wire::IbPacket& packet);
  static void deliver_train(Engine& engine, QueuePair& qp, const wire::Frame& frame,
                            const wire::IbPacket& first);
  static unsigned deliver_middles(const Engine& engine, QueuePair& qp, const wire::Frame& frame,
                                  const wire::IbPacket& packet, unsigned count);
  static void refuse(Engine& engine, QueuePair& qp, const wire::IbPacket& packet);

  bool handle_uncached(const wire::Frame& frame);
  bool handle_multicast(const wire::Frame& frame, const wire::IbPacket& packet);
  void remember_header(QueuePair& qp, const wire::Frame& frame, const wire::IbPacket& packet);

  Engine& engine_;
  const MulticastGroups& groups_;
};

}  // namespace softhca::rdma
