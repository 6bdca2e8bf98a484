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
  kDropCount = 4,        // 4.3.1
};

constexpr std::uint32_t kByteOrderMagic = 0x1a2b3c4d;
// From the LINKTYPE registry of tcpdump.org. Its number for InfiniBand, 247, is unknown to
// Wireshark 4; so each InfiniBand packet follows an ERF record header, which Wireshark reads.
constexpr std::uint16_t kLinkTypeEthernet = 1;
constexpr std::uint16_t kLinkTypeErf = 197;

// ERF, "ERF types reference guide" (Endace): a header before each packet.
constexpr std::size_t kErfHeader = 16;
constexpr std::byte kErfInfiniband{21};
constexpr std::byte kErfVaryingLength{4};
constexpr std::uint64_t kSecond = 1'000'000'000;

/// `size`: bytes of the packet.
void write_erf_header(std::span<std::byte> out, std::uint64_t time_ns, std::size_t size) {
  // Seconds, as a fixed-point number with 32 fractional bits.
  const auto fraction = (time_ns % kSecond << 32) / kSecond;
  util::store_le64(out.data(), time_ns / kSecond << 32 | fraction);
  out[8] = kErfInfiniband;
  out[9] = kErfVaryingLength;
  util::store_be16(&out[10], static_cast<std::uint16_t>(size + kErfHeader));
  util::store_be16(&out[12], 0);  // nothing lost: options report losses
  util::store_be16(&out[14], static_cast<std::uint16_t>(size));
}

constexpr std::byte kNanoseconds{9};

}  // namespace

PcapngWriter::PcapngWriter(std::vector<std::byte>& out) : out_(out) {
  begin_block(kSectionHeader);
  put_u32(kByteOrderMagic);
  put_u16(1);           // major version
  put_u16(0);           // minor version
  put_u32(0xffffffff);  // the section's length is unknown: 64 bits of ones
  put_u32(0xffffffff);
  put_option(kUserApplication, "softhca");
  end_options();
  end_block();
}

std::uint32_t PcapngWriter::add_interface(std::string_view name, Link link) {
  begin_block(kInterfaceDescription);
  put_u16(link == Link::kEthernet ? kLinkTypeEthernet : kLinkTypeErf);
  put_u16(0);  // reserved
  put_u32(0);  // no snap length: packets are complete
  put_option(kInterfaceName, name);
  put_option(kTimeResolution, std::span(&kNanoseconds, 1));
  end_options();
  end_block();
  return interface_count_++;
}

void PcapngWriter::write(const Packet& packet, const Frame& frame) {
  assert(packet.interface_id < interface_count_);
  const auto header = frame.link() == Link::kInfiniband ? kErfHeader : 0;
  const auto size = static_cast<std::uint32_t>(header + frame.size());
  begin_block(kEnhancedPacket);
  put_u32(packet.interface_id);
  put_u32(static_cast<std::uint32_t>(packet.time_ns >> 32));
  put_u32(static_cast<std::uint32_t>(packet.time_ns));
  put_u32(size);  // captured
  put_u32(size);  // on the wire
  const auto at = out_.size();
  out_.resize(at + size);
  if (header != 0) write_erf_header(std::span(out_).subspan(at), packet.time_ns, frame.size());
  frame.copy_to(std::span(out_).subspan(at + header));
  pad();
  const auto options_at = out_.size();
  if (!packet.comment.empty()) put_option(kComment, packet.comment);
  if (packet.direction != Direction::kUnknown) {
    std::byte flags[4];
    util::store_le32(flags, static_cast<std::uint32_t>(packet.direction));
    put_option(kPacketFlags, flags);
  }
  if (packet.dropped != 0) {
    std::byte count[8];
    util::store_le64(count, packet.dropped);
    put_option(kDropCount, count);
  }
  if (out_.size() != options_at) end_options();
  end_block();
}

void PcapngWriter::begin_block(std::uint32_t type) {
  block_at_ = out_.size();
  put_u32(type);
  put_u32(0);  // the total length, set by end_block()
}

void PcapngWriter::put_u16(std::uint16_t value) {
  std::byte bytes[2];
  util::store_le16(bytes, value);
  out_.insert(out_.end(), std::begin(bytes), std::end(bytes));
}

void PcapngWriter::put_u32(std::uint32_t value) {
  std::byte bytes[4];
  util::store_le32(bytes, value);
  out_.insert(out_.end(), std::begin(bytes), std::end(bytes));
}

void PcapngWriter::put_option(std::uint16_t code, std::span<const std::byte> value) {
  value = value.first(std::min<std::size_t>(value.size(), 0xffff));
  put_u16(code);
  put_u16(static_cast<std::uint16_t>(value.size()));
  out_.insert(out_.end(), value.begin(), value.end());
  pad();
}

void PcapngWriter::put_option(std::uint16_t code, std::string_view text) {
  put_option(code, std::as_bytes(std::span(text)));
}

/// Pads to a multiple of 4 from the block's start: blocks are aligned in the file, not in the
/// buffer.
void PcapngWriter::pad() { out_.resize(block_at_ + (out_.size() - block_at_ + 3) / 4 * 4); }

void PcapngWriter::end_block() {
  const auto total = static_cast<std::uint32_t>(out_.size() - block_at_ + sizeof(std::uint32_t));
  util::store_le32(&out_[block_at_ + 4], total);
  put_u32(total);
}

}  // namespace softhca::wire
