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
#include "connectx/ethernet/eth_wqe_template.h"
#include "ethernet/flow_headers.h"
#include "ethernet/segmentation.h"
#include "rdma/key_cache.h"
#include "rdma/memory_key.h"
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
  bool multi_packet_sends = false;  ///< the SQ accepts multi-packet send WQEs
  const Tis* tis = nullptr;         ///< TIS of the SQ; null: the SQ sends nothing
};

/// Headers of a frame that was sent, so they satisfy the rules of the SQ and of the port. They are
/// in a cache, where other headers may have replaced them since.
struct SentHeaders {
  const ethernet::FlowHeaders* entry = nullptr;  ///< null: none
  wire::FlowId flow = 0;                         ///< FlowHeaders::flow() when the frame was sent
};

/// Template of the last frame of an SQ. The next frame is usually similar.
struct EthFrameTemplate {
  EthWqeTemplate wqe;
  SentHeaders headers;
  rdma::KeyCache key;
};

/// Progress of a WQE. It may take several frames, for example with LSO.
struct EthTransmission {
  /// A frame that is gathered in part, because all of it costs more than the work of a turn.
  struct BegunFrame {
    wire::Frame frame;  ///< owns its payload
    std::size_t left;   ///< bytes at its end that are not gathered yet
    bool finished;      ///< this is the last frame of the WQE
  };

  /// Starts a new WQE, after frames up to number `sent`.
  void start(std::uint64_t sent) {
    gather.start();
    segmenter.reset();
    begun.reset();
    finished = false;
    cut = 0;
    last_frame = sent;
    headers = {};
  }

  EthGather gather;
  std::optional<ethernet::Segmenter> segmenter;  ///< LSO only, once the first frame is made
  std::unique_ptr<BegunFrame> begun;             ///< null: none
  bool finished = false;
  std::uint64_t cut = 0;  ///< bytes of a multi-packet WQE that are already sent
  /// Number of the last frame that refers to the sender's memory, which must stay unchanged until
  /// that frame is released (fabric::Port::released).
  std::uint64_t last_frame = 0;
  unsigned packets = 1;  ///< packets of the last frame
  SentHeaders headers;   ///< of the last frame
};

class EthTransmitter {
 public:
  EthTransmitter(rdma::KeyTable& keys, NetworkPort& port, FlowSteering& steering)
      : keys_(keys), port_(port), steering_(steering) {}

  /// Call it after a command, which may have created or destroyed transmit tables.
  void look_for_tables();

  /// Makes and sends the next frame of `wqe`, or a train of at most `packets_max` packets. If a
  /// frame costs more than the work of a turn, progress.begun keeps it for the next call.
  /// @pre !progress.finished, packets_max != 0
  tl::expected<void, EthWqeFault> send_next(const EthSendWqe& wqe, const EthSendRules& rules,
                                            unsigned packets_max, EthTransmission& progress);

  /// True if the frames sent in this turn have used up its work.
  bool over_budget() const { return keys_.work().over_budget(); }

  /// Fast path of send_next(), for a WQE that matches the template: makes and sends its only frame.
  /// False, with no effect, if it does not match. `block`: copy of the WQE's first block.
  /// `last_frame`: as in EthTransmission.
  bool send_next_fast(std::span<const std::byte, kWqeBasicBlock> block, EthFrameTemplate& pattern,
                      const EthSendRules& rules, std::uint64_t& last_frame);

 private:
  // These make frame_.
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
  /// Gathers `before` and the next `size` bytes of the list in one walk over the pieces of keys, by
  /// reference if possible.
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
  const ethernet::PacketInfo& classify(SentHeaders& headers);

  wire::Frame frame_;                            ///< reused, with its payload memory
  std::span<const std::byte> piece_;             ///< memory behind the inline headers, if one piece
  std::array<ethernet::FlowHeaders, 16> flows_;  ///< by hash
  ethernet::PacketInfo packet_;                  ///< for frames whose headers are not in flows_
};

}  // namespace softhca::connectx
