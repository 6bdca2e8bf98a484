#include "ethernet/rss.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "util/endian.h"

namespace softhca::ethernet {

HashInput::HashInput(const PacketInfo& info, std::uint32_t fields, bool symmetric) {
  auto source = info.ip.source, destination = info.ip.destination;
  auto source_port = info.source_port, destination_port = info.destination_port;
  if (symmetric) {
    if (destination < source) std::swap(source, destination);
    if (destination_port < source_port) std::swap(source_port, destination_port);
  }
  if (info.l3 != L3Type::kNone) {
    const std::size_t unused = info.l3 == L3Type::kIpv4 ? 12 : 0;  // the prefix of the mapped form
    if (fields & kHashSourceIp) put(std::span(source.bytes).subspan(unused));
    if (fields & kHashDestinationIp) put(std::span(destination.bytes).subspan(unused));
  }
  if (info.l4 != L4Type::kNone) {
    std::array<std::byte, 2> port;
    util::store_be16(port.data(), source_port);
    if (fields & kHashSourcePort) put(port);
    util::store_be16(port.data(), destination_port);
    if (fields & kHashDestinationPort) put(port);
  }
  if (info.ipsec_spi && (fields & kHashIpsecSpi)) {
    std::array<std::byte, 4> spi;
    util::store_be32(spi.data(), *info.ipsec_spi);
    put(spi);
  }
}

void HashInput::put(std::span<const std::byte> bytes) {
  std::memcpy(bytes_.data() + size_, bytes.data(), bytes.size());
  size_ += bytes.size();
}

Toeplitz::Toeplitz(std::span<const std::byte, kKeySize> key) {
  static_assert(HashInput::kCapacity + 4 <= kKeySize);
  for (std::size_t nibble = 0; nibble != table_.size(); ++nibble) {
    // The 35 bits of the key that the four bits of this half byte use.
    std::uint64_t window = 0;
    for (std::size_t i = 0; i != 5; ++i) {
      // no format: a hash
      window = window << 8 | std::to_integer<std::uint64_t>(key[nibble / 2 + i]);
    }
    if (nibble % 2 != 0) window <<= 4;
    for (unsigned value = 0; value != 16; ++value) {
      std::uint32_t sum = 0;
      for (unsigned bit = 0; bit != 4; ++bit) {
        // no format: the top bit of the half byte comes first
        if (value & (8u >> bit)) sum ^= static_cast<std::uint32_t>(window >> (8 - bit));
      }
      table_[nibble][value] = sum;
    }
  }
}

std::uint32_t Toeplitz::hash(std::span<const std::byte> input) const {
  assert(input.size() <= HashInput::kCapacity);
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i != input.size(); ++i) {
    const auto byte = std::to_integer<unsigned>(input[i]);
    // no format: a hash, looked up by half bytes
    sum ^= table_[2 * i][byte >> 4] ^ table_[2 * i + 1][byte & 15];
  }
  return sum;
}

std::uint32_t inverted_xor8(std::span<const std::byte> input, unsigned log_rqt_max_size) {
  std::byte sum{};
  for (const auto byte : input) sum ^= byte;
  const std::uint32_t inverted = log_rqt_max_size >= 32 ? ~0u : (1u << log_rqt_max_size) - 1;
  return std::to_integer<std::uint32_t>(sum) ^ inverted;
}

}  // namespace softhca::ethernet
