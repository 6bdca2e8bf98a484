// QPs of the services of InfiniBand (kernel interface 4.7): one QP of the device each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "spec/connectx/qp.h"
#include "spec/infiniband/services.h"
#include "uverbs/queue_pair.h"
#include "uverbs/xrc_targets.h"

namespace softhca::uverbs {

struct TransportQp : QueuedQp {
  using Type = softhca::spec::infiniband::QpType;
  using Qpc = util::MutableView<softhca::spec::connectx::qpc>;

  TransportQp(Device& the_device, Type type);
  ~TransportQp() override;
  Errno create(const QpCreation& creation) override;
  SendDoorbell doorbell() const override;
  bool is_connected() const override { return true; }

 protected:
  std::optional<QpMasks> masks(std::uint8_t from, std::uint8_t to) const override {
    return infiniband_masks(type_, from, to);
  }
  Errno move(const QpChange& change) override;
  Errno read(ib_uverbs_query_qp_resp& out) override;

  /// Runs CREATE_QP. ENOMEM if the device refuses it.
  Errno make(const QpCreation& creation);
  /// Adds what only its kind has to the context of CREATE_QP.
  virtual void describe_kind(const QpCreation&, Qpc) const {}
  void put_receives_in_cqes(const QpCreation& creation, Qpc context) const;
  void put_reads_in_cqes(const QpCreation& creation, Qpc context) const;

  /// The context that a transition changes.
  virtual void describe(const QpChange& change, Qpc context);
  bool are_in_range(const QpChange& change) const;
  bool change_in_device(const QpChange& change);

  const Type type_;
  const softhca::spec::connectx::service_type service_;
  /// READs and atomics in flight that the device takes as requester and as responder, by their
  /// logarithm.
  unsigned log_reads_, log_read_answers_;
  bool exists_ = false;  ///< the device has the QP, which the destructor destroys
};

/// RC.
struct ReliableQp final : TransportQp {
  explicit ReliableQp(Device& the_device) : TransportQp(the_device, Type::kRc) {}

 protected:
  void describe_kind(const QpCreation& creation, Qpc context) const override;
};

/// UC.
struct UnreliableQp final : TransportQp {
  explicit UnreliableQp(Device& the_device) : TransportQp(the_device, Type::kUc) {}

 protected:
  void describe_kind(const QpCreation& creation, Qpc context) const override {
    put_receives_in_cqes(creation, context);
  }
};

/// UD.
struct DatagramQp final : TransportQp {
  explicit DatagramQp(Device& the_device) : TransportQp(the_device, Type::kUd) {}
  ~DatagramQp() override;
  bool is_connected() const override { return false; }
  /// Membership in a group counts as a use (ib_attach_mcast).
  bool is_busy() const override;
  Errno attach(const MulticastGroup& group) override;
  Errno detach(const MulticastGroup& group) override;

 protected:
  std::uint32_t invalid_flags() const override {
    return IB_UVERBS_QP_CREATE_SCATTER_FCS | IB_UVERBS_QP_CREATE_CVLAN_STRIPPING;
  }
  void describe(const QpChange& change, Qpc context) override;

 private:
  void note_member(const MulticastGroup& group, bool joins) const;

  std::vector<MulticastGroup> groups_;
};

struct XrcInitiator final : TransportQp {
  explicit XrcInitiator(Device& the_device) : TransportQp(the_device, Type::kXrcInitiator) {}
  std::uint32_t relevant_mask(std::uint32_t mask) const override {
    return mask & ~std::uint32_t{kQpMaxDestReads | kQpMinRnr};
  }

 protected:
  Errno find_objects(const QpCreation& creation) override;
  bool has_own_receiver() const override { return false; }
  void describe_kind(const QpCreation&, Qpc context) const override {
    context.set(softhca::spec::connectx::qpc::xrcd, device.own_xrc_domain());
  }
};

/// The target of an XRC domain, as one of its openers has it. It has no queues.
struct XrcTargetQp final : TransportQp {
  explicit XrcTargetQp(Device& the_device) : TransportQp(the_device, Type::kXrcTarget) {}
  ~XrcTargetQp() override;
  Errno create(const QpCreation& creation) override;
  /// ibv_open_qp.
  void open(XrcDomain& domain, std::uint32_t number, std::shared_ptr<XrcTarget> target);
  std::uint32_t relevant_mask(std::uint32_t mask) const override {
    return mask & ~std::uint32_t{kQpMaxReads | kQpRetry | kQpRnrRetry};
  }
  /// All openers share it.
  QpCondition& condition() override { return target_->condition; }

 protected:
  Errno find_objects(const QpCreation& creation) override;
  void describe_kind(const QpCreation& creation, Qpc context) const override;

 private:
  Use xrcd_;
  std::shared_ptr<XrcTarget> target_;  ///< null: create() has failed
};

/// The initiator of dynamic connections (DCI).
struct DynamicInitiator final : TransportQp {
  explicit DynamicInitiator(Device& the_device);
  bool is_connected() const override { return false; }

 protected:
  std::uint32_t invalid_flags() const override { return 0; }
  Errno find_objects(const QpCreation& creation) override;
  Errno check_receive_queue(const mlx5_ib_create_qp& in) override;
  std::optional<QpMasks> masks(std::uint8_t from, std::uint8_t to) const override {
    return dynamic_initiator_masks(from, to);
  }
  void describe_kind(const QpCreation& creation, Qpc context) const override {
    put_reads_in_cqes(creation, context);
  }
};

}  // namespace softhca::uverbs
