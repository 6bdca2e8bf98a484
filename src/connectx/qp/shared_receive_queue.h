// RMPs, XRC SRQs and the SRQs of ISSI 0 (mlx5 driver interface 7.6, 8.5): receive WQEs that several
// QPs share. Links (next_wqe_index) or the ring give their order.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "connectx/base/limits.h"
#include "connectx/base/numbers.h"
#include "connectx/qp/cqe.h"
#include "connectx/queue/mapped_queue.h"
#include "hca/use.h"
#include "hca/work_ring.h"
#include "rdma/types.h"
#include "rdma/work_queues.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/srq.h"

namespace softhca::connectx {

class SharedReceiveQueue : public hca::Used {
 public:
  /// kSrq: an SRQ of ISSI 0, which serves QPs. If it has a CQ and a domain, it also serves XRC
  /// requests.
  enum class Kind : std::uint8_t { kRmp, kXrc, kSrq };
  static constexpr unsigned kLogStrideMin = 5;      ///< bytes: the next segment and one pointer
  static constexpr unsigned kLogStrideMinBare = 4;  ///< bytes: a pointer

  struct Attributes {
    Kind kind = Kind::kRmp;
    unsigned log_size = 0;    ///< WQEs
    unsigned log_stride = 5;  ///< bytes
    /// True if WQEs are in ring order. CQEs then carry counters of WQEs instead of indices.
    bool cyclic = false;
    /// Cyclic only. True if a WQE begins with its scatter list, without a segment for link or
    /// signature.
    bool bare = false;
    /// True if WQEs have a signature in the segment of the link. The device checks it.
    bool wq_signature = false;
    Pd pd{};
    bool serves_xrc = false;
    Cqn cqn{};  ///< XRC
    /// XRC only. kNoUserIndex: the queue's own number.
    std::uint32_t user_index = kNoUserIndex;
    Xrcd xrcd{};              ///< XRC
    std::uint16_t limit = 0;  ///< 0: no event
    MappedQueue queue{};
    hca::Use pd_use{};
    hca::Use cq_use{};    ///< XRC
    hca::Use xrcd_use{};  ///< XRC
    /// The driver's context, in the layout of its kind, for the query commands.
    std::array<std::byte, spec::connectx::rmp_context::kSize> context{};
  };

  static_assert(spec::connectx::xrc_srq_context::kSize <= spec::connectx::rmp_context::kSize);
  static_assert(spec::connectx::srq_context::kSize <= spec::connectx::rmp_context::kSize);

  SharedReceiveQueue(Srqn number, Attributes attributes);

  Srqn number() const { return number_; }
  const Attributes& attributes() const { return attributes_; }
  /// True if QPs and DCTs may use it.
  bool serves_qps() const { return attributes_.kind != Kind::kXrc; }
  bool failed() const { return failed_; }
  const hca::WorkChain& chain() const { return chain_; }
  /// XRC only: the user index in CQEs. In CQE version 0 it is the SRQ number, by which drivers find
  /// the SRQ.
  std::uint32_t cqe_user_index() const {
    const auto index = attributes_.user_index;
    return index == kNoUserIndex ? number_.value() : index;
  }
  std::uint16_t limit() const { return attributes_.limit; }

  /// Fetches the next WQE. The request's cookie is the WQE's index or, if cyclic, its counter.
  /// kMalformed: the WQE's signature is wrong, and the WQE is consumed.
  rdma::Fetch fetch(rdma::ReceiveRequest& request);
  /// Arms the event for fewer than `limit` posted WQEs. 0 disarms it.
  void arm(std::uint16_t limit) { attributes_.limit = limit; }
  /// True if fewer WQEs are posted than the limit, which is then disarmed. Call it after arm() and
  /// after each fetch(). No polling is needed, because software only adds WQEs.
  bool take_limit_event();
  /// Returns and clears the reason of a failure: fetch() could not read the memory, or found a
  /// wrong link (SRQ catastrophic error). Empty if there is none.
  std::string_view take_failure() { return std::exchange(failure_, {}); }

 private:
  rdma::Fetch fail(std::string_view reason);
  /// The scatter list of a WQE.
  std::span<const std::byte> list_of(std::span<const std::byte> wqe) const;

  Srqn number_;
  Attributes attributes_;
  hca::WorkChain chain_;
  bool failed_ = false;
  std::string_view failure_;  ///< not yet reported
};

constexpr std::string_view to_string(SharedReceiveQueue::Kind kind) {
  constexpr std::array<std::string_view, 3> kNames{"RMP", "XRC SRQ", "SRQ"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace softhca::connectx
