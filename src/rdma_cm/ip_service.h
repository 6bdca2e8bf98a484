// IP addresses in requests, and the service IDs of port numbers (IBTA Annex A11: RDMA IP CM
// service; kernel interface 8.3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "driver/address.h"
#include "spec/infiniband/cm.h"
#include "util/bits.h"

namespace softhca::rdma_cm {

namespace spec = softhca::spec::infiniband;

/// Bytes of the addresses in front of the program's private data.
inline constexpr std::size_t kCmaHeader = spec::cma_header::kSize;

inline constexpr std::uint32_t kDefaultQkey = 0x01234567;  ///< RDMA_UDP_QKEY of Linux

inline std::uint64_t service_of(std::uint16_t port_space, std::uint16_t port) {
  return util::joined(std::uint64_t{port_space}, spec::cma_service_id::port, port);
}

/// The addresses of a request, as the sender sees them.
struct IpAddresses {
  driver::Gid source, destination;
  std::uint16_t source_port = 0;
};

IpAddresses read_addresses(std::span<const std::byte> private_data);
/// Writes them. @pre kCmaHeader bytes fit, and are 0
void write_addresses(std::span<std::byte> private_data, const IpAddresses& addresses);

}  // namespace softhca::rdma_cm
