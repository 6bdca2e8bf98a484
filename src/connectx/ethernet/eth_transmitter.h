// From send WQEs of an SQ to frames on the wire: gather, VLAN insertion, segmentation, checksums,
// padding (PRM 3.3).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <tl/expected.hpp>

#include "connectx/ethernet/eth_send_wqe.h"
#include "ethernet/segmentation.h"
#include "rdma/memory_key.h"
#include "spec/connectx/opcodes.h"
#include "wire/frame.h"

namespace softhca::connectx {

class NetworkPort;
struct Tis;

/// What an SQ's context says about its frames.
struct EthSendRules {
  rdma::KeyUser user;
  spec::connectx::min_wqe_inline_mode min_inline_mode{};
  const Tis* tis = nullptr;  ///< that the SQ sends through; null: it sends nothing
};

/// How far a WQE was executed: an LSO WQE makes many frames.
struct EthTransmission {
  EthGather gather;
  std::optional<ethernet::Segmenter> segmenter;  ///< LSO, once the first frame is made
  bool finished = false;
};

class EthTransmitter {
 public:
  EthTransmitter(rdma::KeyTable& keys, NetworkPort& port) : keys_(keys), port_(port) {}

  /// Makes and sends the next frame of `wqe`. @pre !progress.finished
  tl::expected<void, EthWqeFault> send_next(const EthSendWqe& wqe, const EthSendRules& rules,
                                            EthTransmission& progress);

 private:
  /// The two ways to make frame_.
  tl::expected<void, EthWqeFault> gather_frame(const EthSendWqe& wqe, const EthSendRules& rules,
                                               EthTransmission& progress);
  tl::expected<void, EthWqeFault> gather_segment(const EthSendWqe& wqe, const EthSendRules& rules,
                                                 EthTransmission& progress);
  void transmit(const EthSendWqe& wqe, const EthSendRules& rules);

  rdma::KeyTable& keys_;
  NetworkPort& port_;
  wire::Frame frame_;  ///< its payload memory is used again and again
};

}  // namespace softhca::connectx
