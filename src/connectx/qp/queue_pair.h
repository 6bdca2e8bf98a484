// A queue pair as its driver made it: the QP context, and both rings in one buffer of host memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "connectx/base/resources.h"
#include "connectx/command/command.h"
#include "connectx/qp/send_wqe.h"
#include "connectx/queue/queue_buffer.h"
#include "connectx/queue/work_ring.h"
#include "rdma/queue_pair.h"
#include "spec/connectx/qp.h"
#include "util/field.h"

namespace softhca::connectx {

class QueuePair {
 public:
  using Qpc = spec::connectx::qpc;
  using Service = spec::connectx::service_type;

  /// User index of a QP whose CQEs have version 0: drivers then look for the QPN.
  static constexpr std::uint32_t kNoUserIndex = 0xFFFFFF;

  /// The transport service of a service type; nothing if the device does not have it.
  static std::optional<rdma::QpType> transport_type(Service service);

  /// Checks the geometry that `context` tells (mlx5 driver interface 7.2) and maps the buffer that
  /// `pas` lists.
  static tl::expected<std::unique_ptr<QueuePair>, Refusal> make(pcie::DmaSpace& dma,
                                                                util::View<Qpc> context,
                                                                std::span<const std::byte> pas);

  std::uint32_t qpn() const { return qpn_; }
  util::View<Qpc> context() const { return context_; }
  Service service() const { return static_cast<Service>(context().get(Qpc::st)); }
  bool has_send_queue() const { return context().get(Qpc::no_sq) == 0; }
  bool has_receive_queue() const { return rq_type(context()) == RqType::NON_ZERO_RQ; }
  bool uses_srq() const { return rq_type(context()) == RqType::SRQ; }
  std::span<const pcie::Iova> pages() const { return buffer_.pages(); }

  std::uint32_t send_cqn() const { return send_cqn_; }
  std::uint32_t receive_cqn() const { return receive_cqn_; }
  std::uint32_t srqn() const { return srqn_; }
  /// What CQEs of this QP carry as user index: 0 in version 0.
  std::uint32_t cqe_user_index() const { return user_index_ == kNoUserIndex ? 0 : user_index_; }
  bool cqe_version_0() const { return user_index_ == kNoUserIndex; }
  const SendWqeRules& send_rules() const { return send_rules_; }

  WorkRing& send_ring() { return send_ring_; }
  WorkRing& receive_ring() { return receive_ring_; }
  QueueBuffer& buffer() { return buffer_; }
  DoorbellRecord& record() { return record_; }
  const WorkRing& send_ring() const { return send_ring_; }
  const WorkRing& receive_ring() const { return receive_ring_; }

  /// What the context means to the transport.
  rdma::QpAttributes attributes() const;
  /// Replaces the context, whose geometry stays.
  void set_context(util::View<Qpc> context, pcie::DmaSpace& dma);
  /// As after 2RST: nothing is posted.
  void reset_rings();

  /// Keeps what the buffer takes of the device's translations.
  void hold(TranslationBudget::Reservation translations) {
    translations_ = std::move(translations);
  }
  // Set once, when the QP gets its number.
  void bind(std::uint32_t qpn, rdma::QueuePair& transport, bool atomics);
  rdma::QueuePair& transport() { return *transport_; }
  const rdma::QueuePair& transport() const { return *transport_; }

  // Notes of Rdma.
  bool fails = false;    ///< is in the list of QPs that fail, or was since the last 2RST
  bool watched = false;  ///< is in the list of QPs that flush receives

 private:
  using RqType = spec::connectx::qp_rq_type;

  QueuePair(pcie::DmaSpace& dma, util::View<Qpc> context, QueueBuffer buffer);
  static RqType rq_type(util::View<Qpc> context) {
    return static_cast<RqType>(context.get(Qpc::rq_type));
  }
  static std::uint64_t receive_queue_size(util::View<Qpc> context);
  static WorkRing make_send_ring(util::View<Qpc> context);
  static WorkRing make_receive_ring(util::View<Qpc> context);
  void refresh();

  std::uint32_t qpn_ = 0;
  util::Struct<Qpc> context_;
  QueueBuffer buffer_;
  TranslationBudget::Reservation translations_;
  DoorbellRecord record_;
  WorkRing send_ring_;
  WorkRing receive_ring_;
  rdma::QueuePair* transport_ = nullptr;
  // From the context, for the data path.
  std::uint32_t send_cqn_ = 0;
  std::uint32_t receive_cqn_ = 0;
  std::uint32_t srqn_ = 0;
  std::uint32_t user_index_ = kNoUserIndex;
  SendWqeRules send_rules_;
};

}  // namespace softhca::connectx
