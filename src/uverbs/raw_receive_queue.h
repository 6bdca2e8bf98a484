// A receive queue of Ethernet frames (RQ) in the program's memory.
#pragma once

#include <cstdint>

#include "driver/connectx/hca.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/raw_queues.h"
#include "uverbs/device.h"
#include "uverbs/request.h"

namespace softhca::uverbs {

class RawReceiveQueue {
 public:
  struct Options {
    std::uint16_t uid = 0;  ///< user context; 0: the kernel's
    std::uint32_t pdn = 0;
    std::uint32_t cqn = 0;
    std::uint32_t user_index = 0;
    std::uint64_t record = 0;  ///< address of its doorbell record
    std::uint64_t queue = 0;   ///< address of its WQEs
    std::uint32_t entries = 0;
    unsigned log_stride = 0;  ///< bytes
    bool strips_vlan = false;
    bool is_signed = false;  ///< the device checks signatures of its WQEs
  };

  explicit RawReceiveQueue(Device& device) : device_(device) {}
  ~RawReceiveQueue() { (void)end(); }
  RawReceiveQueue(const RawReceiveQueue&) = delete;
  RawReceiveQueue& operator=(const RawReceiveQueue&) = delete;

  /// Creates it in the device. False: the device refuses.
  bool make(const Options& options);
  /// Destroys it in the device. Nonzero: a DevX object still needs it.
  Errno end();
  /// 0: none.
  std::uint32_t number() const { return number_; }
  /// The state in the device, which may have failed the queue.
  softhca::spec::connectx::rq_state state() const;
  /// False: the device refuses. True if there is no queue.
  bool change(softhca::spec::connectx::rq_state to);
  /// Changes the state, perhaps to the present one, and whether VLAN tags are stripped.
  bool change(softhca::spec::connectx::rq_state to, bool strips_vlan);

 private:
  driver::connectx::Request<softhca::spec::connectx::modify_rq_in> modification(
      softhca::spec::connectx::rq_state from, softhca::spec::connectx::rq_state to) const;

  Device& device_;
  std::uint32_t number_ = 0;
};

}  // namespace softhca::uverbs
