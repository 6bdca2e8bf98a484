#include "wire/pcapng.h"

#include "util/endian.h"

namespace softhca::wire {
namespace {

// Section numbers are those of draft-ietf-opsawg-pcapng-02.
enum BlockType : std::uint32_t {
  kSectionHeader = 0x0a0d0d0a,         // 4.1
  kInterfaceDescription = 0x00000001,  // 4.2
  kEnhancedPacket = 0x00000006,        // 4.3
};

enum OptionCode : std::uint16_t {
  kComment = 1,          // 3.5.1
  kUserApplication = 4,  // 4.1
  kInterfaceName = 2,    // 4.2
  kTimeResolution = 9,   // 4.2
  kPacketFlags = 2,      // 4.3.1
};

constexpr std::uint32_t kByteOrderMagic = 0x1a2b3c4d;
constexpr std::uint16_t kLinkTypeEthernet = 1;
constexpr std::byte kNanoseconds{9};

}  // namespace

PcapngWriter::PcapngWriter(std::ostream& out) : out_(out) {
  begin_block(kSectionHeader);
  put_u32(kByteOrderMagic);
  put_u16(1);           // major version
  put_u16(0);           // minor version
  put_u32(0xffffffff);  // the section's length is not known: 64 bits of ones
  put_u32(0xffffffff);
  put_option(kUserApplication, "softhca");
  end_options();
  end_block();
}

std::uint32_t PcapngWriter::add_interface(std::string_view name) {
  begin_block(kInterfaceDescription);
  put_u16(kLinkTypeEthernet);
  put_u16(0);  // reserved
  put_u32(0);  // no snap length: packets are whole
  put_option(kInterfaceName, name);
  put_option(kTimeResolution, std::span(&kNanoseconds, 1));
  end_options();
  end_block();
  return interface_count_++;
}

void PcapngWriter::write(const Packet& packet, const Frame& frame) {
  assert(packet.interface_id < interface_count_);
  const auto size = static_cast<std::uint32_t>(frame.size());
  begin_block(kEnhancedPacket);
  put_u32(packet.interface_id);
  put_u32(static_cast<std::uint32_t>(packet.time_ns >> 32));
  put_u32(static_cast<std::uint32_t>(packet.time_ns));
  put_u32(size);  // captured
  put_u32(size);  // on the wire
  const auto at = block_.size();
  block_.resize(at + size);
  frame.copy_to(std::span(block_).subspan(at));
  pad();
  const bool has_direction = packet.direction != Direction::kUnknown;
  if (!packet.comment.empty()) put_option(kComment, packet.comment);
  if (has_direction) {
    std::byte flags[4];
    util::store_le32(flags, static_cast<std::uint32_t>(packet.direction));
    put_option(kPacketFlags, flags);
  }
  if (has_direction || !packet.comment.empty()) end_options();
  end_block();
}

void PcapngWriter::begin_block(std::uint32_t type) {
  block_.clear();
  put_u32(type);
  put_u32(0);  // the total length, set by end_block()
}

void PcapngWriter::put_u16(std::uint16_t value) {
  std::byte bytes[2];
  util::store_le16(bytes, value);
  block_.insert(block_.end(), std::begin(bytes), std::end(bytes));
}

void PcapngWriter::put_u32(std::uint32_t value) {
  std::byte bytes[4];
  util::store_le32(bytes, value);
  block_.insert(block_.end(), std::begin(bytes), std::end(bytes));
}

void PcapngWriter::put_option(std::uint16_t code, std::span<const std::byte> value) {
  value = value.first(std::min<std::size_t>(value.size(), 0xffff));
  put_u16(code);
  put_u16(static_cast<std::uint16_t>(value.size()));
  block_.insert(block_.end(), value.begin(), value.end());
  pad();
}

void PcapngWriter::put_option(std::uint16_t code, std::string_view text) {
  put_option(code, std::as_bytes(std::span(text)));
}

void PcapngWriter::pad() { block_.resize((block_.size() + 3) / 4 * 4); }

void PcapngWriter::end_block() {
  const auto total = static_cast<std::uint32_t>(block_.size() + sizeof(std::uint32_t));
  util::store_le32(block_.data() + 4, total);
  put_u32(total);
  out_.write(reinterpret_cast<const char*>(block_.data()),
             static_cast<std::streamsize>(block_.size()));
}

}  // namespace softhca::wire
