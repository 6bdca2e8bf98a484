// A frame as a record of a ring between two processes.
//
// Where others stand behind one of them, it is as on a wire: all bytes of a packet. Two that have
// nobody behind them have no wire between them either: a train (wire/train.h) stays one, and CRCs
// that nobody has computed yet nobody computes. Then the record is the frame's bytes without
// deferred CRCs, of a train the head of the first packet and the payload of all, and the ring's
// note says which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "util/shared_ring.h"
#include "wire/frame.h"

namespace softhca::fabric {

/// Both processes say the same.
enum class RecordForm : std::uint8_t { kWire, kProcess };

/// So much payload of a train fits a record, with any head.
inline constexpr std::size_t kRecordPayloadMax =
    util::SharedRing::kRecordMax - wire::Frame::kHeadCapacity;
/// Packets of the longest train in a record.
inline constexpr unsigned kRecordPacketsMax = 255;

/// Fills a record that `out` has to publish. False if there is no room.
/// @pre an Ethernet frame, no longer than a record; with kProcess also a train of the InfiniBand
/// transport within both limits above
bool write_record(const wire::Frame& frame, RecordForm form, util::RingProducer& out);

/// The frame of a record, whose head is copied and whose payload stays where it is. The other
/// process may have written anything, and may write on. False if no frame is like that.
bool read_record(std::span<const std::byte> bytes, std::uint32_t note, RecordForm form,
                 wire::Frame& frame);

}  // namespace softhca::fabric
