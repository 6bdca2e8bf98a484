// A UD queue pair, made by hand: its requests may name what our driver would not.
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
  /// Blocks of the send queue, entries of the receive queue.
  static constexpr unsigned kLogSize = 8;

  /// Completions go to `cq`, unread. In RTS.
  DatagramQp(Life& life, const driver::connectx::CompletionQueue& cq);

  std::uint32_t qpn() const { return qpn_; }
  /// A datagram of `length` bytes of the life's memory, unsignaled. `lkey`: that, or a wrong one.
  void post(std::uint32_t destination, const driver::Gid& gid, const driver::Mac& mac,
            std::uint32_t length, std::uint32_t lkey);
  void ring();
  /// Claims that receives were posted: always the same entries, of the life's memory.
  void receive(unsigned count);
  /// The counter of what was posted to the send queue, which the device reads: may be turned by
  /// another thread.
  void claim_sends(std::uint16_t counter) const;

  /// SQERR2RTS. False if the device refuses.
  bool from_error_to_rts();
  /// 2RST, and to RTS again.
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
