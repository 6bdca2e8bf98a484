// The CRCs of packets of the InfiniBand transport: ICRC, over everything that does not change end
// to end (IBTA 7.8.1; Annex A16 and A17 17.3.3 for RoCE), and VCRC (vcrc.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "spec/infiniband/constants.h"
#include "wire/frame.h"
#include "wire/ib_address.h"

namespace softhca::wire {

inline constexpr std::size_t kIcrcSize = spec::infiniband::kIcrcBytes;

/// The header before the BTH whose variant fields are masked.
enum class NetworkHeader : std::uint8_t { kIpv4, kIpv6, kGrh, kLrh };

constexpr NetworkHeader network_header(const IbAddress& address) {
  if (address.encapsulation == Encapsulation::kLocal) return NetworkHeader::kLrh;
  if (address.encapsulation != Encapsulation::kRoceV2) return NetworkHeader::kGrh;
  return address.destination_gid.is_ipv4() ? NetworkHeader::kIpv4 : NetworkHeader::kIpv6;
}

/// The first header that the ICRC covers.
struct IcrcStart {
  std::size_t offset;  ///< of the header; after kLrh, of the BTH
  NetworkHeader header;
};

/// Nothing if the frame's headers are not those of the transport, or end before the BTH does.
std::optional<IcrcStart> find_icrc_start(const Frame& frame);

/// The ICRC of the packet whose ICRC field begins at `end`. The field on the wire is this number,
/// least significant byte first.
/// @pre all headers up to the BTH are complete and in the frame's head; no IP options
std::uint32_t icrc_of(const Frame& frame, IcrcStart start, std::size_t end);

}  // namespace softhca::wire
