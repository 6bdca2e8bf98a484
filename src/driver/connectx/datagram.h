// What a datagram needs besides what every message has: where it goes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "driver/address.h"
#include "driver/work.h"
#include "spec/connectx/wqe.h"

namespace softhca::driver::connectx {

namespace spec = softhca::spec::connectx;

/// An address vector (IBTA 11.2.2.1): the way to a port. Made once, in the form that requests
/// carry.
class AddressVector {
 public:
  using Layout = spec::wqe_datagram_segment;

  struct Attributes {
    Gid gid;
    Mac mac;
    std::uint8_t source_gid_index = 0;  ///< entry of the RoCE address table
    std::uint8_t hop_limit = 64;
    std::uint8_t traffic_class = 0;
    std::uint8_t priority = 0;     ///< of the VLAN, 0 to 7
    std::uint32_t flow_label = 0;  ///< 20 bits
    std::uint16_t udp_source_port = 0xC000;
  };

  explicit AddressVector(const Attributes& attributes);

  /// The segment of a request, but for QPN and Q_Key.
  const AddressForm& form() const { return form_; }

 private:
  static_assert(Layout::kSize <= std::tuple_size_v<decltype(AddressForm::bytes)>);
  AddressForm form_;
};

/// The spans, and `to`, are read while posting only; the memory of `pieces` belongs to the device
/// until the request is complete.
struct DatagramRequest {
  std::uint64_t id = 0;  ///< comes back in the completion
  const AddressVector& to;
  std::uint32_t qpn = 0;   ///< of the receiver
  std::uint32_t qkey = 0;  ///< the receiver's; with the top bit set, the sender's own is sent
  std::span<const Sge> pieces = {};
  std::span<const std::byte> inline_data = {};  ///< if not empty: copied, no `pieces`
  std::optional<std::uint32_t> immediate = {};
  bool signaled = true;    ///< completes with a completion even if all is well
  bool solicited = false;  ///< raises an event where the peer waits for solicited ones
};

}  // namespace softhca::driver::connectx
