// The hashes of receive side scaling (PRM 3.3.3.1, TIR context 7.5.1).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ethernet/packet_info.h"

namespace softhca::ethernet {

/// The hashed fields: bits in the order of the PRM's selected_fields.
enum HashField : std::uint32_t {
  kHashSourceIp = 1u << 0,
  kHashDestinationIp = 1u << 1,
  kHashSourcePort = 1u << 2,
  kHashDestinationPort = 1u << 3,
  kHashIpsecSpi = 1u << 4,
};

/// The selected fields of a packet, concatenated in the order of Microsoft's RSS hash types: source
/// IP, destination IP, source port, destination port (or the IPsec SPI).
class HashInput {
 public:
  static constexpr std::size_t kCapacity = 2 * 16 + 2 * 2;

  /// Fields that the packet lacks are omitted. PRM rx_hash_symmetric: "the L3 and the L4 fields are
  /// sorted prior to insertion into the receive hash function".
  HashInput(const PacketInfo& info, std::uint32_t fields, bool symmetric);

  std::span<const std::byte> bytes() const { return {bytes_.data(), size_}; }

 private:
  void put(std::span<const std::byte> bytes);

  std::array<std::byte, kCapacity> bytes_;
  std::size_t size_ = 0;
};

/// The Toeplitz hash with one key: for each set bit of the input, the 32 bits of the key that begin
/// at the same position are XORed into the result.
class Toeplitz {
 public:
  static constexpr std::size_t kKeySize = 40;

  explicit Toeplitz(std::span<const std::byte, kKeySize> key);

  /// @pre input.size() <= HashInput::kCapacity
  std::uint32_t hash(std::span<const std::byte> input) const;

 private:
  /// The partial hash for each value of each half byte of the input.
  std::array<std::array<std::uint32_t, 16>, 2 * HashInput::kCapacity> table_;
};

/// PRM rx_hash_fn HASH_INVERTED_XOR8: XOR of all bytes, with the low bits inverted. "The number of
/// inverted LSBs ... is log base 2 of the RQT.rqt_max_size".
std::uint32_t inverted_xor8(std::span<const std::byte> input, unsigned log_rqt_max_size);

}  // namespace softhca::ethernet
