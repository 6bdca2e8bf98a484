#include "wire/train.h"

#include <bit>
#include <cassert>

#include "wire/ib_header.h"

namespace softhca::wire {
namespace {

/// IBTA Table 38: in every service, Middle follows First.
Opcode middle_of(Opcode opcode) {
  if (!info(opcode).first) return opcode;
  const auto middle = static_cast<Opcode>(static_cast<std::uint8_t>(opcode) + 1);
  assert(info(middle).middle() && info(middle).operation == info(opcode).operation);
  return middle;
}

}  // namespace

void advance(IbPacket& packet, const Frame& train, unsigned count, unsigned left) {
  packet.bth.opcode = middle_of(packet.bth.opcode);
  packet.bth.psn += count;
  packet.bth.ack_req = left == 1 && train.train().ack_req_at_end;
  packet.payload_offset += count * train.train().payload;
}

void part(const Frame& train, unsigned index, unsigned count, Frame& out) {
  const auto& all = train.train();
  assert(index + count <= all.packets && count != 0);
  if (all.part != nullptr) return all.part(train, index, count, out);
  auto parsed = IbPacket::parse(train);
  assert(parsed && "the head of a train is a packet's");
  auto& packet = *parsed;
  const auto left = all.packets - index;
  if (index != 0) advance(packet, train, index, left);
  const bool at_end = count == left && all.ack_req_at_end;
  packet.bth.ack_req = count == 1 && at_end;
  out.clear();
  IbHeader(packet.address).emit(packet.bth, packet.ext, all.payload, out);
  if (count != 1) {
    const auto more = info(packet.bth.opcode).first ? all.first_has_more : std::uint8_t{0};
    out.set_train({static_cast<std::uint16_t>(count), all.payload, more, at_end});
  }
  train.for_each_piece(packet.payload_offset, std::size_t{count} * all.payload,
                       [&](std::span<const std::byte> piece) {
                         const bool fits = out.add_segment(piece);
                         assert(fits);
                         (void)fits;
                       });
}

bool couple(Frame& frame, std::uint16_t packets, std::uint16_t payload, bool ack_req_at_end) {
  assert(frame.icrc() == Frame::Icrc::kDeferred);
  // IBTA 9.4.3: the path MTUs.
  if (packets < 2 || !std::has_single_bit(payload) || payload < 256 || payload > 4096) return false;
  Frame::Train train{.packets = packets, .payload = payload, .ack_req_at_end = ack_req_at_end};
  frame.set_train(train);  // now size() is that of the first packet
  const auto packet = IbPacket::parse(frame);
  if (!packet || packet->info().last || packet->payload_size != payload ||
      packet->payload_offset != frame.head_size()) {
    return false;
  }
  const auto& opcode = packet->bth.opcode;
  train.first_has_more =
      static_cast<std::uint8_t>(info(opcode).headers_size - info(middle_of(opcode)).headers_size);
  frame.set_train(train);
  return true;
}

void cut(const Frame& train, unsigned index, Frame& packet) { part(train, index, 1, packet); }

void keep_part(Frame& train, unsigned index, unsigned count) {
  Frame kept;
  part(train, index, count, kept);
  train = kept;
}

}  // namespace softhca::wire
