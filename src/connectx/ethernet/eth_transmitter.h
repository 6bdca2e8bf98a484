// Makes frames from the send WQEs of an SQ: gather, VLAN insertion, segmentation, checksums,
// padding (PRM 3.3).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
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

/// The rules of an SQ's context for its frames.
struct EthSendRules {
  rdma::KeyUser user;
  spec::connectx::min_wqe_inline_mode min_inline_mode{};
  bool multi_packet_sends = false;  ///< the SQ takes multi-packet send WQEs
  const Tis* tis = nullptr;         ///< TIS of the SQ; null: it sends nothing
};

/// Headers of a frame that satisfies the rules of its SQ and of the port. Other headers may have
/// replaced them since.
struct EthWay {
  const ethernet::KnownHeader* header = nullptr;  ///< null: none
  std::uint64_t number = 0;                       ///< number of the headers at that time
};

/// Template of the frame that an SQ sent last: the next one usually resembles it.
struct EthSeen {
  SeenEthWqe wqe;
  EthWay way;
  rdma::SeenKey key;
};

/// Progress of a WQE: an LSO WQE makes many frames.
struct EthTransmission {
  /// A frame that is not sent yet: gathering it takes more than the work of a turn.
  struct BegunFrame {
    wire::Frame frame;  ///< owns its payload
    std::size_t left;   ///< bytes at its end that are not gathered yet
    bool finished;      ///< it is the last frame of the WQE
  };

  /// Starts a new WQE, after frames up to number `sent`.
  void start(std::uint64_t sent) {
    gather.start();
    segmenter.reset();
    begun.reset();
    finished = false;
    cut = 0;
    last_frame = sent;
    way = {};
  }

  EthGather gather;
  std::optional<ethernet::Segmenter> segmenter;  ///< LSO, after the first frame is made
  std::unique_ptr<BegunFrame> begun;             ///< null: none
  bool finished = false;
  std::uint64_t cut = 0;  ///< bytes of a multi-packet WQE that are already sent
  /// Number of the last frame that refers to the sender's memory, which must stay unchanged until
  /// that frame is released (fabric::Port::released).
  std::uint64_t last_frame = 0;
  unsigned packets = 1;  ///< packets sent last
  EthWay way;            ///< of the frame sent last
};

class EthTransmitter {
 public:
  EthTransmitter(rdma::KeyTable& keys, NetworkPort& port, FlowSteering& steering)
      : keys_(keys), port_(port), steering_(steering) {}

  /// Call it after a command: transmit tables may now decide what is sent, or no longer do so.
  void look_for_tables();

  /// Makes and sends the next frame of `wqe`, or a train of at most `packets_max` packets. If the
  /// work of a turn does not suffice for a frame, progress.begun keeps it for the next call.
  /// @pre !progress.finished, packets_max != 0
  tl::expected<void, EthWqeFault> send_next(const EthSendWqe& wqe, const EthSendRules& rules,
                                            unsigned packets_max, EthTransmission& progress);

  /// The frames sent so far have used up the work of a turn.
  bool strained() const { return keys_.strained(); }

  /// Fast path: makes and sends a frame that resembles the last one, as nearly all do. False, and
  /// nothing has happened, if the WQE does not fit. `block`: copy of the WQE's first block.
  /// `last_frame`: as in EthTransmission.
  bool send_seen(std::span<const std::byte, kWqeBasicBlock> block, EthSeen& seen,
                 const EthSendRules& rules, std::uint64_t& last_frame);

 private:
  /// Each of these makes frame_.
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
  bool has_tables_ = false;  ///< transmit tables exist: each frame is checked
  /// Gathers `before` and the next `size` bytes of the list, by reference as far as possible, in
  /// one walk over the pieces of keys.
  tl::expected<void, EthWqeFault> gather_payload(const EthSendWqe& wqe, const EthSendRules& rules,
                                                 EthTransmission& progress, std::size_t size,
                                                 std::span<const std::byte> before = {});
  tl::expected<void, EthWqeFault> gather_parts(const EthSendWqe& wqe, const EthSendRules& rules,
                                               EthTransmission& progress, std::size_t size,
                                               rdma::Gathering& gathering);
  tl::expected<void, EthWqeFault> gather_rest(const EthSendWqe& wqe, const EthSendRules& rules,
                                              EthTransmission& progress);
  tl::expected<bool, EthWqeFault> gather_piece(const EthDataSegment& segment,
                                               const EthSendRules& rules,
                                               std::span<std::byte> headers);
  void shorten_head(std::size_t headers);
  void finish_packet(const EthSendWqe& wqe, const ethernet::PacketInfo& packet);
  /// Classifies frame_.
  const ethernet::PacketInfo& classify(EthWay& way);

  wire::Frame frame_;                            ///< its payload memory is reused
  std::span<const std::byte> piece_;             ///< all but the inline headers, if it is one piece
  std::array<ethernet::KnownHeader, 16> known_;  ///< by hash
  ethernet::PacketInfo packet_;                  ///< used for frames that are not in known_
};

}  // namespace softhca::connectx
