// The memory that send requests name: payload to send, and the destination of what a READ or atomic
// returns. Internal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rdma/key_cache.h"
#include "rdma/memory_key.h"
#include "rdma/queue_pair.h"
#include "rdma/send_entry.h"
#include "util/copy_short.h"
#include "wire/frame.h"

namespace softhca::rdma {

/// Functions that return a Reason give why an access failed, or kNone.
class RequestMemory {
 public:
  RequestMemory(KeyTable& keys, const QueuePair& qp) : keys_(keys), qp_(qp) {}

  /// The QP's attributes have changed: drops cached key checks.
  void forget();

  Reason check_payload(const SendEntry& entry) const;
  /// Adds [offset, offset + length) of the payload to the frame.
  Reason add_payload(const SendEntry& entry, std::uint64_t offset, std::size_t length,
                     wire::Frame& frame) const;
  /// The same by reference only. False if that is not possible; the frame may then hold a part.
  [[nodiscard]] bool refer(const SendEntry& entry, std::uint64_t offset, std::size_t length,
                           wire::Frame& frame) const;
  /// Fast path for the whole payload of a single-packet message. It must fit behind the headers, or
  /// be one piece of memory behind the same key as the request before. False, with no effect, in
  /// any other case.
  [[gnu::always_inline]] bool add_short(const SendEntry& e, wire::Frame& frame) {
    const auto& request = e.request;
    if (request.is_inline && frame.head_size() + e.length <= wire::Frame::kHeadCapacity) {
      // Copied: the entry may serve another request before the frame is delivered.
      util::copy_short(frame.extend_head(e.length).data(), request.inline_data.data(), e.length);
      return true;
    }
    if (request.is_inline || request.sges.size() != 1 || !request.inline_data.empty() ||
        e.length == 0) {
      return false;
    }
    const auto& piece = request.sges.front();
    auto* const host = find_payload(piece.lkey, piece.address, e.length);
    return host != nullptr && frame.add_segment({host, e.length});
  }
  /// Adds the whole payload of a single-packet message.
  [[gnu::always_inline]] Reason add_all(const SendEntry& e, wire::Frame& frame) {
    return add_short(e, frame) ? Reason::kNone : check_and_add(e, frame);
  }
  /// Host address of payload in one piece of memory, behind the same key as the request before;
  /// else null.
  [[gnu::always_inline]] std::byte* find_payload(MKey lkey, std::uint64_t address,
                                                 std::uint64_t length) {
    return payload_key_.find(keys_, lkey, [&] { return user(); }, address, length, kLocalRead);
  }

  /// Checks the whole destination.
  Reason check_target(const SendEntry& entry) const;
  /// Destination of a READ, if that is one piece of memory behind the same key as the READ before;
  /// else null.
  [[gnu::always_inline]] std::byte* find_target(const SendEntry& e) {
    const auto& sges = e.request.sges;
    if (sges.size() != 1 || e.length == 0) return nullptr;
    const auto& piece = sges.front();
    return target_key_.find(
        keys_, piece.lkey, [&] { return user(); }, piece.address, e.length, kLocalWrite);
  }
  /// Copies [from, from + length) of the frame to the destination, from `offset` on.
  Reason put(const SendEntry& entry, std::uint64_t offset, const wire::Frame& frame,
             std::size_t from, std::size_t length) const;
  /// Copies the result of an atomic, the value before it, to the destination.
  Reason put_result(const SendEntry& entry, std::uint64_t original) const;

 private:
  Reason check_and_add(const SendEntry& entry, wire::Frame& frame) const;
  KeyUser user() const {
    return {qp_.attributes().pd, qp_.qpn(), qp_.attributes().reserved_lkey, true};
  }

  KeyTable& keys_;
  const QueuePair& qp_;
  KeyCache payload_key_;  ///< of single-packet messages
  KeyCache target_key_;   ///< of single-packet READs
};

}  // namespace softhca::rdma
