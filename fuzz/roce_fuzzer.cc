// Any bytes as a datagram of RoCEv2's UDP port, under any addresses; and any frame as one to be
// sent.
//
// Besides the sanitizers' checks: a frame made from a datagram is sent as the same datagram, apart
// from the ICRC's identification, and its bytes pass every check of a frame from a wire.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "oracle.h"
#include "script.h"
#include "util/endian.h"
#include "wire/ib_packet.h"
#include "wire/icrc_sum.h"
#include "wire/roce_datagram.h"

namespace {

using namespace softhca;

using fuzz::check;

std::vector<std::byte> bytes_of(const wire::RoceDatagram& datagram) {
  std::vector<std::byte> bytes;
  for (const auto piece : datagram.pieces()) bytes.insert(bytes.end(), piece.begin(), piece.end());
  check(bytes.size() == datagram.size);
  return bytes;
}

wire::DatagramPath take_path(fuzz::Script& script) {
  wire::DatagramPath path;
  const auto flags = script.byte();
  const auto take = [&](bool ipv4) {
    if (ipv4) return wire::Gid::from_ipv4(script.dword());
    wire::Gid gid;
    std::ranges::copy(script.take(wire::Gid::kSize), gid.bytes.begin());
    return gid;
  };
  path.source = take((flags & 1) != 0);
  path.destination = take((flags & 2) != 0);
  path.source_port = script.word();
  path.traffic_class = script.byte();
  path.hop_limit = script.byte();
  return path;
}

/// Sends the frame of `datagram` again.
void check_again(std::span<const std::byte> datagram, const wire::DatagramPath& path,
                 const wire::Frame& frame) {
  std::vector<std::byte> whole(frame.size());
  frame.copy_to(whole);
  const auto on_wire = wire::Frame::from_bytes(whole);
  const auto packet = wire::IbPacket::parse(on_wire);
  check(packet.has_value() == wire::IbPacket::parse(frame).has_value());
  if (!packet) return;
  wire::RoceDatagram again;
  const auto made = again.make(on_wire, path.source_port);
  check(made.has_value());
  check(again.path == path);
  const auto bytes = bytes_of(again);
  check(std::ranges::equal(std::span(bytes).first(bytes.size() - wire::kIcrcSize),
                           datagram.first(datagram.size() - wire::kIcrcSize)));
}

void fuzz_datagram(std::vector<std::byte> datagram, const wire::DatagramPath& path) {
  wire::DatagramReader reader(wire::MacAddress::from_u64(0x020000000001),
                              wire::MacAddress::from_u64(0x020000000002));
  wire::Frame frame;
  auto read = reader.read(datagram, path, frame);
  if (!read && read.error() == wire::DatagramError::kIcrc) {
    // A fuzzer does not find the ICRC.
    const auto begin = datagram.size() - wire::kIcrcSize;
    const auto start = wire::find_icrc_start(frame);
    check(start.has_value());
    wire::Frame covered = frame;
    const auto in_head = frame.head_size() - start->offset -
                         (wire::masked_size(start->header) - wire::BthLayout::kSize);
    check(covered.add_segment(std::span(datagram).subspan(in_head, begin - in_head)));
    util::store_le32(&datagram[begin], wire::icrc_of(covered, *start, covered.size()));
    read = reader.read(datagram, path, frame);
    check(read.has_value());
  }
  if (read) check_again(datagram, path, frame);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::run_input([&] {
    fuzz::Script script(data, size);
    const fuzz::Turn turn;
    const auto path = take_path(script);
    const auto rest = script.take(size);
    // Copies of exactly this size, so that a sanitizer reports reads beyond them.
    const std::vector<std::byte> bytes(rest.begin(), rest.end());
    fuzz_datagram(bytes, path);
    wire::RoceDatagram datagram;
    (void)datagram.make(wire::Frame::from_bytes(bytes), path.source_port);
  });
}
