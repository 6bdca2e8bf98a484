// The destination of a datagram.
#pragma once

#include <array>
#include <cstdint>

#include "driver/address.h"
#include "spec/connectx/wqe.h"
#include "spec/infiniband/constants.h"

namespace softhca::driver::connectx {

namespace spec = softhca::spec::connectx;

/// An address vector (IBTA 11.2.2.1): the path to a port. Built once, in the form that requests
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
    std::uint16_t udp_source_port = softhca::spec::infiniband::kUdpSourcePort;
  };

  explicit AddressVector(const Attributes& attributes);

  /// The segment of a request, except QPN and Q_Key.
  const AddressForm& form() const { return form_; }

 private:
  static_assert(Layout::kSize <= std::tuple_size_v<decltype(AddressForm::bytes)>);
  AddressForm form_;
};

}  // namespace softhca::driver::connectx
