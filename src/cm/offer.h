// The attributes of QPs that REQ and REP carry for the programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace softhca::cm {

/// Vendor-specific options of a connection (rdma_set_local_ece(3)).
struct VendorOptions {
  std::uint32_t vendor_id = 0, attribute = 0;
};

/// The offer of one side to the other. `responder_resources` and `initiator_depth` are those of
/// this side's QP, in received offers too.
struct Offer {
  std::uint32_t qpn = 0;  ///< of the peer; set only in received offers
  std::uint8_t responder_resources = 0, initiator_depth = 0;
  std::uint8_t retry_count = 0, rnr_retry_count = 0;
  std::uint8_t flow_control = 0;
  bool srq = false;
  VendorOptions vendor_options = {};
  std::span<const std::byte> private_data = {};
};

}  // namespace softhca::cm
