// Frames for Ethernet tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace softhca::connectx::test {

using Bytes = std::vector<std::byte>;

/// MAC address of a station that is not the device.
inline constexpr std::uint64_t kOther = 0x020000000077;

struct FrameSpec {
  std::uint64_t destination = 0x020000000001;
  std::uint64_t source = 0x0200000000AA;
  bool ipv6 = false;
  bool udp = false;
  std::uint16_t source_port = 1000;
  std::uint16_t destination_port = 2000;
  std::uint32_t source_ip = 0x0A000001;
  std::uint32_t destination_ip = 0x0A000002;
  std::uint32_t tcp_sequence = 100;
  int vlan_tci = -1;
  std::size_t payload = 100;
};
/// A frame of Ethernet, IP, TCP or UDP headers without checksums, and `payload` bytes of a pattern.
Bytes make_frame(const FrameSpec& spec);
std::size_t header_size(const FrameSpec& spec);
/// A checksum independent of the device's code: word by word (RFC 1071).
std::uint16_t slow_sum(std::span<const std::byte> bytes, std::uint32_t start = 0);
/// Writes correct checksums into a frame of make_frame().
void fix_checksums(Bytes& frame, const FrameSpec& spec);

}  // namespace softhca::connectx::test
