// Stores a frame as a record of a ring between two processes.
//
// If one of the processes has further peers, a record is all bytes of a packet, as on a wire. Two
// processes without peers need no wire format: a train (wire/train.h) stays a train, and deferred
// CRCs stay deferred. Then the record is the frame's bytes without deferred CRCs; for a train, the
// head of the first packet and the payload of all. The ring's note says which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "os/shared_ring.h"
#include "wire/frame.h"

namespace softhca::fabric {

/// Both processes must use the same form.
enum class RecordForm : std::uint8_t { kWire, kProcess };

/// Most payload bytes of a train that fit into a record, with any head.
inline constexpr std::size_t kRecordPayloadMax =
    os::SharedRing::kRecordMax - wire::Frame::kHeadCapacity;
/// Most packets of a train in a record.
inline constexpr unsigned kRecordPacketsMax = 255;

/// Fills a record, which the caller publishes by `out`. False if there is no room.
/// @pre an Ethernet frame, no longer than a record; with kProcess also a train of the InfiniBand
/// transport within both limits above
bool write_record(const wire::Frame& frame, RecordForm form, os::RingProducer& out);

/// Reads the frame of a record: copies its head, and refers to its payload in place. The other
/// process may have written anything, and may still be writing. False if the record is no valid
/// frame.
bool read_record(std::span<const std::byte> bytes, std::uint32_t note, RecordForm form,
                 wire::Frame& frame);

}  // namespace softhca::fabric
