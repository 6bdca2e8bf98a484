// From send WQEs of an SQ to frames on the wire: gather, VLAN insertion, segmentation, checksums,
// padding (PRM 3.3).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tl/expected.hpp>

#include "connectx/ethernet/eth_send_wqe.h"
#include "connectx/ethernet/seen_eth_wqe.h"
#include "ethernet/known_header.h"
#include "ethernet/segmentation.h"
#include "rdma/memory_key.h"
#include "rdma/seen_key.h"
#include "spec/connectx/opcodes.h"
#include "wire/frame.h"

namespace softhca::connectx {

class FlowSteering;
class NetworkPort;
struct Tis;

/// What an SQ's context says about its frames.
struct EthSendRules {
  rdma::KeyUser user;
  spec::connectx::min_wqe_inline_mode min_inline_mode{};
  bool multi_packet_sends = false;  ///< of the model
  const Tis* tis = nullptr;         ///< that the SQ sends through; null: it sends nothing
};

/// The headers of a frame that has all that its SQ's rules and the port want of them. They may
/// have been replaced by others since.
struct EthWay {
  const ethernet::KnownHeader* header = nullptr;  ///< null: none
  std::uint64_t number = 0;                       ///< that they had
};

/// What an SQ knows of the frame that it sent last: the next is mostly like it.
struct EthSeen {
  SeenEthWqe wqe;
  EthWay way;
  rdma::SeenKey key;
};

/// How far a WQE was executed: an LSO WQE makes many frames.
struct EthTransmission {
  /// Of a new WQE, after frames up to number `sent`.
  void start(std::uint64_t sent) {
    gather.start();
    segmenter.reset();
    finished = false;
    cut = 0;
    last_frame = sent;
    way = {};
  }

  EthGather gather;
  std::optional<ethernet::Segmenter> segmenter;  ///< LSO, once the first frame is made
  bool finished = false;
  std::uint64_t cut = 0;  ///< bytes of a multi-packet WQE that are packets already
  /// Number of the last frame that refers to the sender's memory: until it is released, that is to
  /// stay as it is (fabric::Port::released).
  std::uint64_t last_frame = 0;
  unsigned packets = 1;  ///< that were sent last
  EthWay way;            ///< of the frame that was sent last
};

class EthTransmitter {
 public:
  EthTransmitter(rdma::KeyTable& keys, NetworkPort& port, FlowSteering& steering)
      : keys_(keys), port_(port), steering_(steering) {}

  /// A command was executed, after which transmit tables may decide what is sent, or do no more.
  void look_for_tables();

  /// Makes and sends the next frame of `wqe`, or a train of at most `packets_max`.
  /// @pre !progress.finished, packets_max != 0
  tl::expected<void, EthWqeFault> send_next(const EthSendWqe& wqe, const EthSendRules& rules,
                                            unsigned packets_max, EthTransmission& progress);

  /// Makes and sends a frame like the one before, as nearly all are. False, and nothing has
  /// happened, if there is more to think of. `block`: the WQE's first, copied; `last_frame`: of
  /// EthTransmission.
  bool send_seen(std::span<const std::byte, kWqeBasicBlock> block, EthSeen& seen,
                 const EthSendRules& rules, std::uint64_t& last_frame);

 private:
  /// The ways to make frame_.
  tl::expected<void, EthWqeFault> gather_frame(const EthSendWqe& wqe, const EthSendRules& rules,
                                               EthTransmission& progress);
  tl::expected<void, EthWqeFault> gather_packet(const EthSendWqe& wqe, const EthSendRules& rules,
                                                EthTransmission& progress);
  tl::expected<void, EthWqeFault> gather_segment(const EthSendWqe& wqe, const EthSendRules& rules,
                                                 unsigned packets_max, EthTransmission& progress);
  bool gather_train(const EthSendWqe& wqe, const EthSendRules& rules, std::size_t middles,
                    EthTransmission& progress);
  void transmit(const EthSendWqe& wqe, const EthSendRules& rules, EthTransmission& progress);
  bool is_allowed(const ethernet::PacketInfo& packet);

  rdma::KeyTable& keys_;
  NetworkPort& port_;
  FlowSteering& steering_;
  bool has_tables_ = false;  ///< that decide what is sent: each frame is looked at then
  /// As much as can be by reference.
  tl::expected<void, EthWqeFault> gather_payload(const EthSendWqe& wqe, const EthSendRules& rules,
                                                 EthGather& gather, std::size_t size);
  tl::expected<bool, EthWqeFault> gather_piece(const EthDataSegment& segment,
                                               const EthSendRules& rules,
                                               std::span<std::byte> headers);
  void shorten_head(std::size_t headers);
  void finish_packet(const EthSendWqe& wqe, const ethernet::PacketInfo& packet);
  /// What frame_ is.
  const ethernet::PacketInfo& classify(EthWay& way);

  wire::Frame frame_;                 ///< its payload memory is used again and again
  std::span<const std::byte> piece_;  ///< of memory that all but the inline headers is, if any
  std::array<ethernet::KnownHeader, 16> known_;  ///< by hash
  ethernet::PacketInfo packet_;                  ///< of a frame that is none of these
};

}  // namespace softhca::connectx
