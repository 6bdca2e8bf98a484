#include "rdma/guard.h"

#include <array>

namespace softhca::rdma {
namespace {

constexpr std::size_t kSlices = 8;
template <class Value>
using Tables = std::array<std::array<Value, 256>, kSlices>;

/// Table `slice` is for a byte with `slice` bytes behind it.
constexpr auto kT10 = [] {
  constexpr std::uint32_t kPolynomial = 0x8BB7;
  Tables<std::uint16_t> tables{};
  for (unsigned byte = 0; byte != 256; ++byte) {
    std::uint32_t value = byte << 8;  // no format: arithmetic of the CRC, here and below
    for (int bit = 0; bit != 8; ++bit) {
      value = (value & 0x8000) != 0 ? (value << 1) ^ kPolynomial : value << 1;  // no format: CRC
    }
    tables[0][byte] = static_cast<std::uint16_t>(value);
  }
  for (std::size_t slice = 1; slice != kSlices; ++slice) {
    for (unsigned byte = 0; byte != 256; ++byte) {
      const std::uint32_t before = tables[slice - 1][byte];
      tables[slice][byte] = static_cast<std::uint16_t>(
          (before << 8) ^ tables[0][before >> 8 & 0xFF]);  // no format: CRC
    }
  }
  return tables;
}();

/// Bits in wire order, least significant first.
constexpr auto kFcPh = [] {
  constexpr std::uint32_t kPolynomial = 0xEDB88320;
  Tables<std::uint32_t> tables{};
  for (unsigned byte = 0; byte != 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit != 8; ++bit) {
      value = (value & 1) != 0 ? (value >> 1) ^ kPolynomial : value >> 1;  // no format: CRC
    }
    tables[0][byte] = value;
  }
  for (std::size_t slice = 1; slice != kSlices; ++slice) {
    for (unsigned byte = 0; byte != 256; ++byte) {
      const auto before = tables[slice - 1][byte];
      tables[slice][byte] = (before >> 8) ^ tables[0][before & 0xFF];  // no format: CRC
    }
  }
  return tables;
}();

constexpr unsigned value_of(std::byte byte) { return std::to_integer<unsigned>(byte); }

std::uint32_t crc_t10(std::uint32_t sum, std::span<const std::byte> bytes) {
  const auto* at = bytes.data();
  auto left = bytes.size();
  for (; left >= kSlices; left -= kSlices, at += kSlices) {
    std::uint32_t next = kT10[7][value_of(at[0]) ^ (sum >> 8 & 0xFF)] ^  // no format: CRC
                         kT10[6][value_of(at[1]) ^ (sum & 0xFF)];        // no format: CRC
    for (std::size_t i = 2; i != kSlices; ++i) next ^= kT10[kSlices - 1 - i][value_of(at[i])];
    sum = next;
  }
  for (; left != 0; --left, ++at) {
    sum = (sum << 8 & 0xFFFF) ^ kT10[0][(sum >> 8 & 0xFF) ^ value_of(*at)];  // no format: CRC
  }
  return sum;
}

std::uint32_t crc32(std::uint32_t sum, std::span<const std::byte> bytes) {
  const auto* at = bytes.data();
  auto left = bytes.size();
  for (; left >= kSlices; left -= kSlices, at += kSlices) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i != 4; ++i) {
      next ^= kFcPh[kSlices - 1 - i][value_of(at[i]) ^ (sum >> (8 * i) & 0xFF)];  // no format: CRC
    }
    for (std::size_t i = 4; i != kSlices; ++i) next ^= kFcPh[kSlices - 1 - i][value_of(at[i])];
    sum = next;
  }
  for (; left != 0; --left, ++at) {
    sum = (sum >> 8) ^ kFcPh[0][(sum & 0xFF) ^ value_of(*at)];  // no format: CRC
  }
  return sum;
}

std::uint32_t ip_sum(std::uint32_t sum, std::span<const std::byte> bytes, std::uint64_t at) {
  std::uint64_t total = sum;
  for (const auto byte : bytes) {
    total += at++ % 2 == 0 ? value_of(byte) * 0x100u : value_of(byte);
  }
  while (total > 0xFFFF)
    total = (total & 0xFFFF) + (total >> 16);  // no format: a carry comes round
  return static_cast<std::uint32_t>(total);
}

}  // namespace

std::uint32_t add_to_guard(Guard guard, std::uint32_t sum, std::span<const std::byte> bytes,
                           std::uint64_t at) {
  switch (guard) {
    case Guard::kCrcT10Dif:
      return crc_t10(sum, bytes);
    case Guard::kIpChecksum:
      return ip_sum(sum, bytes, at);
    case Guard::kCrc32:
      break;
  }
  return crc32(sum, bytes);
}

std::uint32_t guard_value(Guard guard, std::uint32_t sum) {
  return guard == Guard::kIpChecksum ? static_cast<std::uint16_t>(~sum) : sum;
}

}  // namespace softhca::rdma
