// The receive queue (PRM 7.7): states, scatter of frames to posted WQEs, completions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "connectx/ethernet/transport_interface.h"
#include "connectx/event/completion_queue.h"
#include "connectx/queue/receive_wqe.h"
#include "connectx/queue/work_queue.h"
#include "hca/use.h"
#include "rdma/key_cache.h"
#include "rdma/memory_key.h"
#include "spec/connectx/cqe.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/raw_queues.h"
#include "util/notes.h"
#include "wire/frame.h"

namespace softhca::connectx {

class NetworkPort;
class Resources;

/// A frame on its way to RQs, and the results of its delivery.
struct ReceivedFrame {
  /// Offset of a VLAN tag: after the two MAC addresses.
  static constexpr std::size_t kVlanOffset = 12;
  static constexpr std::size_t kVlanSize = 4;

  const wire::Frame* frame = nullptr;
  /// TCI of the outer 802.1Q tag, which the RQ may strip.
  std::optional<std::uint16_t> vlan_tci;
  /// Contribution of that tag to the checksum if the RQ does not strip it: the ones-complement sum
  /// of the four bytes after the Ethernet header. 0 if the frame has no tag or is not IP.
  std::uint16_t tag_sum = 0;
  // For the delivery to this RQ.
  std::uint32_t flow_tag = 0;
  std::uint32_t rss_hash = 0;
  std::uint8_t rss_hash_type = 0;  ///< 0: not hashed
  bool is_copy = false;            ///< for a sniffer; the port does not count its loss

  std::size_t tag_size() const { return vlan_tci ? kVlanSize : 0; }
};

/// Scratch memory for one scatter list.
struct ScatterScratch {
  std::array<std::byte, kReceiveWqeMax> wqe;
  std::vector<rdma::Sge> sges;
};

class ReceiveQueue : public hca::Used {
 public:
  using State = spec::connectx::rq_state;

  /// The CQ of the context, and the objects that count, check and report frames.
  struct Parts {
    CompletionQueue& cq;
    rdma::KeyTable& keys;
    Resources& resources;
    NetworkPort& port;
    EventQueues& event_queues;
    util::Notes& notes;
  };

  ReceiveQueue(Rqn rqn, util::View<spec::connectx::rq_context> context, WorkQueue wq,
               const Parts& parts);

  Rqn rqn() const { return rqn_; }
  const CompletionQueue& cq() const { return parts_.cq; }
  State state() const { return state_; }
  const hca::WorkRing& ring() const { return wq_.ring; }
  /// Frames without a WQE since the last CQE, at most 255.
  unsigned dropped() const { return dropped_; }

  /// MODIFY_RQ (PRM 7.7.1). RST drops all posted WQEs.
  void set_state(State state);
  /// Drops CQEs that a fault rule holds back: software that resets or destroys an RQ expects none
  /// later.
  void drop_held();
  void set_vlan_strip_disable(bool disable) { vlan_strip_ = !disable; }
  void set_counter_set(CounterSetId id) { counter_set_ = id; }
  /// QUERY_RQ: the context as created, with its changes since.
  void write_context(util::MutableView<spec::connectx::rq_context> out);

  /// Sets the CQE fields that all frames with this delivery have in common.
  void describe_way(util::MutableView<spec::connectx::cqe64> cqe, const ReceivedFrame& frame) const;
  /// Writes the frame to the next WQE. If there is none, drops the frame. `cqe` already describes
  /// the frame and, by describe_way(), its delivery. This fills in the other fields.
  void receive(const ReceivedFrame& frame, util::MutableView<spec::connectx::cqe64> cqe,
               ScatterScratch& scratch);

  /// True if the RQ is in ERR and flushes WQEs. It also flushes WQEs that are posted later, for
  /// which software rings no doorbell.
  bool flushes() const { return state_ == State::ERR && flush_in_error_ && !dead_; }
  /// Flushes posted WQEs, at most `budget`.
  void flush(unsigned& budget);
  /// State of Ethernet: true if the RQ is in its list of flushing RQs.
  bool in_flush_list = false;

 private:
  /// Reads the doorbell record, if no WQE is known. If it has no WQE either, drops the frame and
  /// returns false.
  [[gnu::noinline]] bool look_for_wqe(const ReceivedFrame& frame);
  /// Counts a frame that is dropped. Copies for sniffers are no frames of the port.
  void count_discard(const ReceivedFrame& frame);
  void drop_for_want_of_wqe(const ReceivedFrame& frame);
  /// Copies the next WQE. False if its memory is not mapped.
  bool read_wqe(std::span<std::byte> wqe);
  /// Copies the frame without `skip` bytes at the VLAN offset. Returns kNone, or the reason for a
  /// failure. kTooManyPieces: the frame is too costly, and a part of it was copied.
  rdma::Reason scatter(const wire::Frame& frame, std::size_t skip, std::span<const rdma::Sge> sges);
  /// Fast path of scatter(): copies the frame to the first data segment of the next WQE. False,
  /// with no effect, if the frame does not fit there or the memory is not local.
  bool scatter_fast(const wire::Frame& frame, std::size_t size);
  [[gnu::noinline]] void receive_slow(const ReceivedFrame& frame,
                                      util::MutableView<spec::connectx::cqe64> cqe,
                                      ScatterScratch& scratch);
  rdma::Reason write(const wire::Frame& frame, std::size_t skip, std::span<const rdma::Sge> sges);
  rdma::Reason write_part(const wire::Frame& frame, std::size_t from, std::size_t size,
                          std::span<const rdma::Sge> sges, std::uint64_t offset);
  void complete(const ReceivedFrame& frame, util::MutableView<spec::connectx::cqe64> cqe,
                std::size_t bytes, bool stripped, std::uint16_t counter);
  void write_error(std::uint16_t counter, spec::connectx::cqe_syndrome syndrome,
                   rdma::Reason reason);
  void fail_queue(std::string_view reason);
  void post(std::span<std::byte, 64> cqe, bool solicited);

  Rqn rqn_;
  SavedContext<spec::connectx::rq_context> context_;
  WorkQueue wq_;
  rdma::KeyCache key_cache_;
  rdma::KeyUser user_;
  Parts parts_;
  hca::Use cq_use_;
  std::uint32_t user_index_;
  CounterSetId counter_set_;
  bool vlan_strip_;
  bool pad_end_;
  bool plain_;  ///< a WQE begins with a data segment, and frames are not padded
  bool flush_in_error_;
  bool dead_ = false;  ///< ring or CQ unusable: not even flushes are possible
  State state_ = State::RST;
  std::uint8_t dropped_ = 0;  ///< frames without a WQE since the last CQE, at most 255
};

}  // namespace softhca::connectx
