#include "fabric/frame_record.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "wire/icrc.h"
#include "wire/train.h"

namespace softhca::fabric {
namespace {

struct Note {
  enum class Kind : std::uint8_t {
    kWhole,            ///< all bytes of a frame
    kWithoutIcrc,      ///< a packet without its ICRC
    kTrain,            ///< only its first packet may have AckReq
    kTrainWithAckReq,  ///< its last packet has AckReq
  };

  std::uint16_t payload = 0;  ///< of a train: bytes per packet
  std::uint8_t packets = 0;   ///< of a train
  Kind kind = Kind::kWhole;
};
static_assert(sizeof(Note) == sizeof(std::uint32_t));

/// Appends room for the omitted ICRC to a frame that is otherwise complete.
void add_icrc(wire::Frame& frame) {
  std::ranges::fill(frame.resize_tail(wire::kIcrcSize), std::byte{0});
  frame.set_icrc(wire::Frame::Icrc::kDeferred);
}

void put_bytes(std::span<const std::byte> bytes, std::size_t head_size, wire::Frame& frame) {
  frame.clear();
  std::ranges::copy(bytes.first(head_size), frame.resize_head(head_size).begin());
  (void)frame.add_segment(bytes.subspan(head_size));
}

bool read_train(std::span<const std::byte> bytes, const Note& note, wire::Frame& frame) {
  const auto payload = std::size_t{note.packets} * note.payload;
  if (payload >= bytes.size() || bytes.size() - payload > wire::Frame::kHeadCapacity) return false;
  put_bytes(bytes, bytes.size() - payload, frame);
  add_icrc(frame);
  return wire::couple(frame, note.packets, note.payload, note.kind == Note::Kind::kTrainWithAckReq);
}

}  // namespace

bool write_record(const wire::Frame& frame, RecordForm form, os::RingProducer& out) {
  assert(frame.link() == wire::Link::kEthernet && !frame.empty());
  if (form == RecordForm::kWire) {
    const auto room = out.reserve(frame.size());
    if (!room.empty()) frame.copy_to(room);
    return !room.empty();
  }
  Note note;
  auto size = frame.size();
  if (frame.packets() != 1) {
    const auto& train = frame.train();
    assert(train.part == nullptr && frame.packets() <= kRecordPacketsMax);
    note.kind = train.ack_req_at_end ? Note::Kind::kTrainWithAckReq : Note::Kind::kTrain;
    note.payload = train.payload;
    note.packets = static_cast<std::uint8_t>(train.packets);
    size = frame.head_size() + std::size_t{train.packets} * train.payload;
  } else if (frame.icrc() == wire::Frame::Icrc::kDeferred) {
    note.kind = Note::Kind::kWithoutIcrc;
    size -= wire::kIcrcSize;
  }
  const auto room = out.reserve(size, std::bit_cast<std::uint32_t>(note));
  if (room.empty()) return false;
  frame.copy_range(0, room);
  return true;
}

bool read_record(std::span<const std::byte> bytes, std::uint32_t note_bits, RecordForm form,
                 wire::Frame& frame) {
  const auto note = form == RecordForm::kWire ? Note{} : std::bit_cast<Note>(note_bits);
  switch (note.kind) {
    case Note::Kind::kWhole:
      put_bytes(bytes, std::min(bytes.size(), wire::Frame::kHeadCapacity), frame);
      return true;
    case Note::Kind::kWithoutIcrc:
      put_bytes(bytes, std::min(bytes.size(), wire::Frame::kHeadCapacity), frame);
      add_icrc(frame);
      // The ICRC must be computable when the bytes are needed.
      return wire::find_icrc_start(frame).has_value();
    case Note::Kind::kTrain:
    case Note::Kind::kTrainWithAckReq:
      return read_train(bytes, note, frame);
  }
  return false;
}

}  // namespace softhca::fabric
