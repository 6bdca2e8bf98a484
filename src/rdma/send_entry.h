// A send request that the requester has fetched and not completed. Internal.
#pragma once

#include <cstdint>

#include "rdma/work_request.h"

namespace softhca::rdma {

struct SendEntry {
  SendRequest request;
  std::uint32_t length = 0;   ///< bytes of the message
  std::uint32_t packets = 0;  ///< request packets
  std::uint32_t psns = 0;     ///< 0: not on the wire (NOP, local)
  std::uint64_t first_psn = 0;
  std::uint64_t first_packet = 0;  ///< number of its first request packet, counted over all
                                   ///< requests
  /// Unless kSuccess, the request ends with this status when its turn to complete comes.
  WorkStatus status = WorkStatus::kSuccess;
  Reason reason = Reason::kNone;
  bool executed = false;         ///< not on the wire: has been executed
  bool in_hand = false;          ///< not on the wire: execution has begun
  bool only_packet = false;      ///< a message of one packet to the peer, without fence
  std::uint64_t last_frame = 0;  ///< number of the last frame that refers to its payload
                                 ///< (fabric::Port::transmit)

  /// Prepares the entry for a new request; the vectors keep their memory.
  void clear() {
    request.reset();
    length = packets = psns = 0;
    status = WorkStatus::kSuccess;
    reason = Reason::kNone;
    executed = in_hand = only_packet = false;
    last_frame = 0;
  }
  /// The request ends with this status when its turn to complete comes.
  void refuse(WorkStatus with, Reason why) {
    status = with;
    reason = why;
    only_packet = false;
  }
  std::uint64_t end_psn() const { return first_psn + psns; }
  bool is_read() const { return request.opcode == SendOpcode::kRdmaRead; }
  bool is_masked() const {
    return request.opcode == SendOpcode::kMaskedCompareSwap ||
           request.opcode == SendOpcode::kMaskedFetchAdd;
  }
  bool is_atomic() const {
    return request.opcode == SendOpcode::kCompareSwap || request.opcode == SendOpcode::kFetchAdd ||
           is_masked();
  }
  /// The response carries data: an acknowledgement alone does not complete it.
  bool wants_data() const { return is_read() || is_atomic(); }
  /// READ only: the response data, if the device takes them with the completion.
  InlineBytes& completion_data() { return request.inline_data; }
};

}  // namespace softhca::rdma
