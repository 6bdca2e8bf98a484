// A UD queue pair without driver/connectx, so that its requests may be invalid.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "life.h"
#include "spec/connectx/wqe.h"

namespace softhca::guest {

class DatagramQp {
 public:
  static constexpr std::uint32_t kKey = 0x11111111;  ///< Q_Key
  /// log2 of the send queue's blocks and of the receive queue's entries.
  static constexpr unsigned kLogSize = 8;

  /// Creates the QP in RTS. Its completions go to `cq`, where no program polls them.
  DatagramQp(Life& life, const driver::connectx::CompletionQueue& cq);

  std::uint32_t qpn() const { return qpn_; }
  /// Posts an unsignaled datagram of `length` bytes of the life's memory. `lkey`: the memory's key,
  /// or a wrong one.
  void post(std::uint32_t destination, const driver::Gid& gid, const driver::Mac& mac,
            std::uint32_t length, std::uint32_t lkey);
  void ring();
  /// Claims that receives were posted: the same entries every time, which name the life's memory.
  void receive(unsigned count);
  /// Sets the producer counter of the send queue. Another thread may call it at any time.
  void claim_sends(std::uint16_t counter) const;

  /// SQERR2RTS. False if the device refuses.
  bool from_error_to_rts();
  /// 2RST, then to RTS again.
  void restart();
  void attach_to(const driver::Gid& group);

 private:
  void to_rts();
  util::MutableView<spec::connectx::doorbell_record> record() const;

  Life& life_;
  driver::DmaBuffer memory_;  ///< receive queue, send queue, doorbell record
  std::uint32_t cqn_;
  std::uint32_t qpn_ = 0;
  std::uint16_t posted_ = 0;
  std::uint16_t received_ = 0;
};

}  // namespace softhca::guest
