// The MAC addresses of the function: frames to them do not reach the wire.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/mac_address.h"

namespace softhca::connectx {

class LocalAddresses {
 public:
  /// Sets the addresses of the vport: its permanent address and its unicast list.
  void set_vport(std::span<const wire::MacAddress> addresses);
  /// Sets the addresses of the GID table, which are source and destination addresses of RDMA.
  void set_roce(std::span<const wire::MacAddress> addresses);
  bool contains(const wire::MacAddress& address) const {
    return (filter_ & filter_bit(address)) != 0 && std::ranges::binary_search(all_, address);
  }

 private:
  static constexpr std::uint64_t filter_bit(const wire::MacAddress& address) {
    return std::uint64_t{1} << (std::to_integer<unsigned>(address.bytes.back()) % 64);
  }
  void update();

  /// A filter with one bit for the last six bits of each address. Most frames are for other
  /// stations, and the filter spares them a search.
  std::uint64_t filter_ = 0;
  std::vector<wire::MacAddress> all_;  ///< sorted
  std::vector<wire::MacAddress> vport_;
  std::vector<wire::MacAddress> roce_;
};

}  // namespace softhca::connectx
