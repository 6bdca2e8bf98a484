// Writes captures in the pcapng format (draft-ietf-opsawg-pcapng), which Wireshark reads.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "wire/frame.h"

namespace softhca::wire {

/// One section with any number of interfaces, appended to a buffer as whole blocks. The buffer's
/// owner writes them out, and may empty the buffer at any time. Interfaces may be added at any time
/// before their first packet.
class PcapngWriter {
 public:
  /// As the interface sees it.
  enum class Direction : std::uint8_t { kUnknown = 0, kInbound = 1, kOutbound = 2 };

  struct Packet {
    std::uint32_t interface_id = 0;
    std::uint64_t time_ns = 0;  ///< since 1970-01-01 UTC
    Direction direction = Direction::kUnknown;
    std::uint64_t dropped = 0;  ///< packets of this interface missing before this one
    std::string_view comment;   ///< empty: none
  };

  /// Appends the section header. @pre `out` outlives the writer
  explicit PcapngWriter(std::vector<std::byte>& out);

  /// Returns the number for Packet::interface_id. `link`: of all its frames. InfiniBand frames are
  /// each preceded by an ERF header.
  std::uint32_t add_interface(std::string_view name, Link link = Link::kEthernet);
  void write(const Packet& packet, const Frame& frame);

 private:
  void begin_block(std::uint32_t type);
  void put_u16(std::uint16_t value);
  void put_u32(std::uint32_t value);
  void put_option(std::uint16_t code, std::span<const std::byte> value);
  void put_option(std::uint16_t code, std::string_view text);
  void end_options() { put_u32(0); }
  void pad();
  void end_block();

  std::vector<std::byte>& out_;
  std::size_t block_at_ = 0;  ///< start of the block being appended
  std::uint32_t interface_count_ = 0;
};

}  // namespace softhca::wire
