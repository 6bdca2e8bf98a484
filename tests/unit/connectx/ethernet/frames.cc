#include "connectx/ethernet/frames.h"

#include "util/endian.h"

namespace softhca::connectx::test {

std::size_t header_size(const FrameSpec& spec) {
  return 14u + (spec.vlan_tci >= 0 ? 4 : 0) + (spec.ipv6 ? 40 : 20) + (spec.udp ? 8 : 20);
}

Bytes make_frame(const FrameSpec& spec) {
  Bytes frame;
  const auto put = [&](std::uint64_t value, unsigned size) {
    for (unsigned i = size; i-- != 0;) frame.push_back(std::byte(value >> (8 * i)));
  };
  const auto l4 = (spec.udp ? 8u : 20u) + spec.payload;
  const unsigned protocol = spec.udp ? 17 : 6;
  put(spec.destination, 6);
  put(spec.source, 6);
  if (spec.vlan_tci >= 0) put(0x81000000u | static_cast<unsigned>(spec.vlan_tci), 4);
  if (spec.ipv6) {
    put(0x86DD, 2);
    put(0x60000000, 4);
    put(l4, 2);
    put(protocol << 8 | 64, 2);
    for (const auto ip : {spec.source_ip, spec.destination_ip}) {
      put(0x20010DB800000000, 8);
      put(ip, 8);
    }
  } else {
    put(0x0800, 2);
    put(0x4500, 2);
    put(20 + l4, 2);
    put(0x1234'4000, 4);
    put(64u << 24 | protocol << 16, 4);
    put(spec.source_ip, 4);
    put(spec.destination_ip, 4);
  }
  put(spec.source_port, 2);
  put(spec.destination_port, 2);
  if (spec.udp) {
    put(l4, 2);
    put(0, 2);
  } else {
    put(spec.tcp_sequence, 4);
    put(7, 4);
    put(0x5018, 2);  // ACK PSH
    put(512, 2);
    put(0, 4);
  }
  for (std::size_t i = 0; i < spec.payload; ++i) frame.push_back(std::byte(i * 7 + 1));
  return frame;
}

std::uint16_t slow_sum(std::span<const std::byte> bytes, std::uint32_t start) {
  std::uint64_t sum = start;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    sum += std::to_integer<std::uint64_t>(bytes[i]) << (i % 2 == 0 ? 8 : 0);
  }
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

void fix_checksums(Bytes& frame, const FrameSpec& spec) {
  const std::size_t l3 = spec.vlan_tci >= 0 ? 18 : 14;
  const std::size_t l4 = l3 + (spec.ipv6 ? 40 : 20);
  const auto bytes = std::span(frame);
  const auto field = l4 + (spec.udp ? 6 : 16);
  util::store_be16(frame.data() + field, 0);
  const auto addresses = spec.ipv6 ? bytes.subspan(l3 + 8, 32) : bytes.subspan(l3 + 12, 8);
  const auto pseudo =
      slow_sum(addresses, static_cast<std::uint32_t>(frame.size() - l4) + (spec.udp ? 17 : 6));
  util::store_be16(frame.data() + field,
                   static_cast<std::uint16_t>(~slow_sum(bytes.subspan(l4), pseudo)));
  if (spec.ipv6) return;
  util::store_be16(frame.data() + l3 + 10, 0);
  util::store_be16(frame.data() + l3 + 10,
                   static_cast<std::uint16_t>(~slow_sum(bytes.subspan(l3, 20))));
}

}  // namespace softhca::connectx::test
