// The device objects of a raw packet QP: an SQ with its TIS, and an RQ with its TIR.
#pragma once

#include <cstdint>

#include "spec/connectx/opcodes.h"
#include "uverbs/device.h"
#include "uverbs/raw_receive_queue.h"

namespace softhca::uverbs {

class RawPacketQueues {
 public:
  struct Options {
    std::uint16_t uid = 0;  ///< user context; 0: the kernel's
    std::uint32_t transport_domain = 0;
    std::uint32_t pdn = 0;
    std::uint32_t send_cqn = 0, receive_cqn = 0;
    std::uint32_t user_index = 0;
    std::uint32_t uar = 0;
    std::uint64_t record = 0;  ///< address of the doorbell record of both
    std::uint64_t send_queue = 0, receive_queue = 0;
    std::uint32_t send_blocks = 0;      ///< of 64 bytes; 0: no send queue
    std::uint32_t receive_entries = 0;  ///< 0: no receive queue
    unsigned log_receive_stride = 0;    ///< bytes
    bool hears_itself = false;          ///< receives frames from its own address
    bool hears_own_multicast = false;   ///< receives its own multicast
    bool strips_vlan = false;
  };

  RawPacketQueues(Device& device, const Options& options)
      : device_(device), options_(options), receiver_(device) {}
  ~RawPacketQueues();
  RawPacketQueues(const RawPacketQueues&) = delete;
  RawPacketQueues& operator=(const RawPacketQueues&) = delete;

  /// Creates them in the device. False: the device refuses.
  bool make();

  // Numbers in the device; 0: none.
  std::uint32_t tisn() const { return tisn_; }
  std::uint32_t sqn() const { return sqn_; }
  std::uint32_t rqn() const { return receiver_.number(); }
  std::uint32_t tirn() const { return tirn_; }

  /// Moves from one ib_qp_state to another. False: the device refuses.
  /// @pre the transition is valid for the QP
  bool change(std::uint8_t from, std::uint8_t to);
  /// The states in the device, which may have failed a queue.
  /// @pre there is such a queue
  softhca::spec::connectx::sq_state sender_state() const;
  softhca::spec::connectx::rq_state receiver_state() const { return receiver_.state(); }

 private:
  bool sender_has_failed() const {
    return sqn_ != 0 && sender_state() == softhca::spec::connectx::sq_state::ERR;
  }
  /// False: the device refuses. True if there is no send queue.
  bool change_sender(softhca::spec::connectx::sq_state to);
  bool change_receiver(softhca::spec::connectx::rq_state to) { return receiver_.change(to); }
  bool make_sender();
  bool make_receiver();

  Device& device_;
  Options options_;
  RawReceiveQueue receiver_;
  std::uint32_t tisn_ = 0, sqn_ = 0, tirn_ = 0;
  softhca::spec::connectx::sq_state send_state_{};
};

}  // namespace softhca::uverbs
