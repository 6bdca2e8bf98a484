// A target of dynamic connections (README.md, "Dynamic connections"), as its device uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "rdma/queue_pair.h"
#include "util/clock.h"

namespace softhca::rdma {

/// Attributes that are fixed at CREATE.
struct DcTargetAttributes {
  std::uint64_t key = 0;  ///< the DC access key: requests with another key are dropped
  /// Attributes of its connections. Each connection brings its own peer, PSN and source address.
  /// The path supplies the other fields of responses: hop limit, traffic class, flow label,
  /// priority, UDP source port.
  QpAttributes connection;
  CompletionData completion_data{};
  QpCounters* counters = nullptr;  ///< the device's counters to use; null: none
};

struct DcConnection;

class DcTarget {
 public:
  DcTarget(Qpn qpn, const DcTargetAttributes& attributes, WorkQueues& queues);
  ~DcTarget();
  DcTarget(const DcTarget&) = delete;
  DcTarget& operator=(const DcTarget&) = delete;

  Qpn qpn() const { return qpn_; }
  bool draining() const { return draining_; }
  /// Requests with a wrong key.
  std::uint32_t key_violations() const { return key_violations_; }
  /// Open connections, plus ended ones that are still remembered.
  std::size_t connections() const { return connections_.size(); }

 private:
  friend class DcTargets;
  friend struct DcConnection;
  /// An initiator: GID and LID (InfiniBand) of its port, and its QPN.
  using Peer = std::tuple<Gid, Lid, Qpn>;

  Qpn qpn_;
  DcTargetAttributes attributes_;
  WorkQueues& queues_;
  bool draining_ = false;
  util::Time drain_end_{};  ///< if draining_: responses that are pending then are dropped
  std::uint32_t key_violations_ = 0;
  std::map<Peer, std::unique_ptr<DcConnection>> connections_;
};

}  // namespace softhca::rdma
