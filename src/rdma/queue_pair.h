// A queue pair as the transport sees it: attributes and state.
#pragma once

#include <cstdint>
#include <optional>

#include "rdma/types.h"

namespace softhca::rdma {

/// The way to the peer of a connected QP.
struct Path {
  Mac dst_mac{};
  Gid dst_gid{};
  std::uint8_t src_gid_index = 0;  ///< entry of the GID table: source MAC, source address, VLAN
  std::uint8_t hop_limit = 64;
  std::uint8_t traffic_class = 0;
  std::uint8_t vlan_priority = 0;
  std::uint32_t flow_label = 0;
  std::uint16_t udp_source_port = 0xC000;
};

/// What CREATE and MODIFY set (names of IBTA 11.2.4.2). A device merges its command into a copy and hands it back whole.
struct QpAttributes {
  Pd pd;
  Path path;
  std::uint32_t path_mtu = 1024;      ///< bytes
  Qpn remote_qpn;
  std::uint32_t qkey = 0;
  std::uint16_t pkey = 0xFFFF;
  std::uint32_t rq_psn = 0;           ///< next expected
  std::uint32_t sq_psn = 0;           ///< next to send
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;         ///< 7: for ever
  std::uint8_t ack_timeout = 14;      ///< 4.096 us * 2^n; 0: never
  std::uint8_t min_rnr_timer = 0;     ///< code of the RNR NAK timer field
  std::uint32_t max_rd_atomic = 1;         ///< outstanding READs and atomics as requester
  std::uint32_t max_dest_rd_atomic = 1;    ///< as responder
  bool remote_read = false;
  bool remote_write = false;
  bool remote_atomic = false;
  bool reserved_lkey = false;         ///< may use the reserved LKey
};

}  // namespace softhca::rdma
