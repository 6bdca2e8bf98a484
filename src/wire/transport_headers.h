// The transport headers of a packet as values (IBTA 9.2, 9.3), and their conversion to bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/aeth.h"
#include "wire/atomic_eth.h"
#include "wire/bth.h"
#include "wire/dceth.h"
#include "wire/deth.h"
#include "wire/flow.h"
#include "wire/ieth.h"
#include "wire/immdt.h"
#include "wire/reth.h"
#include "wire/xrceth.h"

namespace softhca::wire {

/// The extended headers. The opcode says which are used: OpcodeInfo::has().
struct ExtHeaders {
  Deth deth;
  XrcEth xrceth;
  DcEth dceth;
  Reth reth;
  AtomicEth atomic;
  Aeth aeth;
  AtomicAckEth atomic_ack;
  ImmDt immdt;
  Ieth ieth;

  friend bool operator==(const ExtHeaders&, const ExtHeaders&) = default;
};

struct TransportHeaders {
  Bth bth;
  ExtHeaders ext;
};

/// Facts about the headers before the BTH, which all packets of a path share; not their bytes.
struct PathHeaders {
  /// The headers that contain a length.
  enum class Form : std::uint8_t { kIpv4, kIpv6, kGrh, kLrh, kLrhGrh };

  /// Frames of one path begin with the same bytes, except for lengths.
  FlowId flow = 0;
  std::uint16_t checksum_base = 0;  ///< IPv4: checksum of the header with a length of 0
  std::uint8_t size = 0;            ///< bytes before the BTH
  std::uint8_t network_offset = 0;  ///< of the IP header or GRH, or of the BTH
  Form form = Form::kIpv4;
};

/// Writes BTH and extended headers into `head`, which begins with the path's headers, and sets the
/// lengths in these. `rest`: bytes of the packet behind the path's headers, including the ICRC but
/// not the VCRC.
/// @pre info(headers.bth.opcode).defined
void write_headers(const PathHeaders& path, const TransportHeaders& headers, std::size_t rest,
                   std::span<std::byte> head);

/// Writes only the IPv4 header, to `out`. `head` begins with the path's headers. `length`: bytes of
/// the packet from this header on. @pre path.form is kIpv4
void write_ipv4(const PathHeaders& path, std::span<const std::byte> head, std::size_t length,
                std::span<std::byte> out);

}  // namespace softhca::wire
