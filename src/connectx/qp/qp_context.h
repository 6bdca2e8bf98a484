// The context of a QP, as its driver wrote it (mlx5 driver interface 7.2).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "connectx/base/limits.h"
#include "connectx/base/numbers.h"
#include "connectx/qp/cqe.h"
#include "connectx/queue/mapped_queue.h"
#include "hca/work_ring.h"
#include "rdma/queue_pair.h"
#include "spec/connectx/qp.h"
#include "util/field.h"

namespace softhca::connectx {

class QpContext {
 public:
  using Layout = spec::connectx::qpc;
  using View = util::View<Layout>;
  using Service = spec::connectx::service_type;
  /// The source of receive WQEs.
  enum class Receives : std::uint8_t { kOwn, kSrq, kXrc, kNone };

  // Contexts of commands -----------------------------------------------------------------------

  /// The transport's type for a QP with this context. Unset if the device does not have the
  /// service. An XRC QP is an initiator if it has a send queue, else a target (mlx5 driver
  /// interface 7.5).
  static std::optional<rdma::QpType> transport_type(View context);
  /// True for XRC QPs, which take receive WQEs from the SRQ that a request names, whatever rq_type
  /// is.
  static bool is_xrc(View context) {
    return static_cast<Service>(context.get(Layout::st)) == Service::XRC;
  }
  /// Bytes of a receive WQE.
  static std::uint32_t receive_stride(View context);
  /// The memory of both rings (mlx5 driver interface 7.2). `alignment`:
  /// Model::send_queue_alignment.
  static QueuePlace place(View context, std::span<const std::byte> pas, std::uint32_t alignment);
  static hca::WorkRing make_send_ring(View context, std::uint32_t alignment);
  static hca::WorkRing make_receive_ring(View context);

  // The context of a QP ------------------------------------------------------------------------

  explicit QpContext(View context);
  /// Replaces the context.
  void replace_with(View context);

  View view() const { return context_; }
  Service service() const { return static_cast<Service>(view().get(Layout::st)); }
  bool is_gsi() const { return is_gsi_; }
  bool has_send_queue() const { return view().get(Layout::no_sq) == 0; }
  UarPage uar_page() const { return UarPage(view().get(Layout::uar_page)); }
  Receives receives() const { return receives_; }
  bool is_xrc() const { return receives_ == Receives::kXrc; }
  bool has_receive_queue() const { return receives_ == Receives::kOwn; }
  /// True if the QP receives no messages, only WRITEs, READs and atomics.
  bool receives_nothing() const { return receives_ == Receives::kNone; }
  /// True if all receive WQEs come from one SRQ.
  bool uses_srq() const { return receives_ == Receives::kSrq; }
  /// If the QP sends nothing, the number is not checked and may name no CQ. The same holds for
  /// receive_cqn().
  Cqn send_cqn() const { return send_cqn_; }
  Cqn receive_cqn() const { return receive_cqn_; }
  Srqn srqn() const { return srqn_; }
  /// True if WQEs have signatures. The first segment of a receive WQE is then the signature segment
  /// (PRM 7.4.4.3).
  bool signs_wqes() const { return view().get(Layout::wq_signature) != 0; }
  /// The user index in CQEs of sends; 0 in CQE version 0.
  std::uint32_t send_user_index() const { return is_version_0() ? 0 : user_index_; }
  /// The user index in CQEs of receives. In CQE version 0 it is the SRQ number, by which drivers
  /// find the SRQ.
  std::uint32_t receive_user_index() const {
    return is_version_0() && uses_srq() ? srqn_.value() : send_user_index();
  }
  /// The context, converted to the transport's attributes.
  rdma::QpAttributes attributes(const Limits& limits) const;

 private:
  static Receives receives_of(View context);
  static std::uint64_t receive_queue_size(View context);
  static std::uint64_t send_queue_offset(View context, std::uint32_t alignment);
  /// True in CQE version 0.
  bool is_version_0() const { return user_index_ == kNoUserIndex; }

  util::Struct<Layout> context_;
  // Copies of fields for the data path.
  Cqn send_cqn_;
  Cqn receive_cqn_;
  Srqn srqn_;
  std::uint32_t user_index_ = kNoUserIndex;
  Receives receives_ = Receives::kNone;
  bool is_gsi_ = false;
};

}  // namespace softhca::connectx
