// A receive queue of Ethernet frames (RQ), in memory of the program.
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
    std::uint64_t queue = 0;   ///< its address
    std::uint32_t entries = 0;
    unsigned log_stride = 0;  ///< bytes
    bool strips_vlan = false;
  };

  explicit RawReceiveQueue(Device& device) : device_(device) {}
  ~RawReceiveQueue() { (void)end(); }
  RawReceiveQueue(const RawReceiveQueue&) = delete;
  RawReceiveQueue& operator=(const RawReceiveQueue&) = delete;

  /// Makes it in the device. False: it refuses.
  bool make(const Options& options);
  /// Destroys it in the device. Not 0: something that the program has made by commands of its own
  /// still needs it.
  Errno end();
  /// 0: there is none.
  std::uint32_t number() const { return number_; }
  /// As the device has it, which has failed it perhaps.
  softhca::spec::connectx::rq_state state() const;
  /// False: the device refuses. Of none there is nothing to change.
  bool change(softhca::spec::connectx::rq_state to);
  /// Whether it strips VLAN tags from now on, in a state that it may be in already.
  bool change(softhca::spec::connectx::rq_state to, bool strips_vlan);

 private:
  driver::connectx::Request<softhca::spec::connectx::modify_rq_in> modification(
      softhca::spec::connectx::rq_state from, softhca::spec::connectx::rq_state to) const;

  Device& device_;
  std::uint32_t number_ = 0;
};

}  // namespace softhca::uverbs
