// Raw packet QPs (kernel interface 4.7): an SQ with its TIS, and an RQ with its TIR.
#pragma once

#include <cstdint>
#include <optional>

#include "spec/connectx/opcodes.h"
#include "uverbs/queue_pair.h"
#include "uverbs/raw_receive_queue.h"

namespace softhca::uverbs {

struct RawPacketQp final : QueuedQp {
  explicit RawPacketQp(Device& the_device) : QueuedQp(the_device), receiver_(the_device) {}
  ~RawPacketQp() override;
  Errno create(const QpCreation& creation) override;
  void put_numbers(mlx5_ib_create_qp_resp& out) const override;
  bool has_name(const DevxName& name) const override;
  std::optional<std::uint32_t> tirn() const override { return tirn_; }

 protected:
  std::uint32_t invalid_flags() const override { return 0; }
  std::uint32_t unsupported_flags() const override { return 0; }
  std::optional<QpMasks> masks(std::uint8_t from, std::uint8_t to) const override {
    return raw_packet_masks(from, to);
  }
  Errno move(const QpChange& change) override;
  Errno read(ib_uverbs_query_qp_resp& out) override;

 private:
  // False: the device refuses.
  bool make_sender(const QpCreation& creation);
  bool make_receiver(const QpCreation& creation);
  /// True also if there is no send queue.
  bool change_sender(softhca::spec::connectx::sq_state to);
  /// The state in the device, which may have failed the queue. @pre there is a send queue
  softhca::spec::connectx::sq_state sender_state() const;

  RawReceiveQueue receiver_;
  std::uint32_t tisn_ = 0, sqn_ = 0, tirn_ = 0;  ///< in the device; 0: none
  softhca::spec::connectx::sq_state send_state_{};
};

}  // namespace softhca::uverbs
