// QPs of a program: what all kinds have, and what those with queues of their own have. The kinds
// are in transport_qps.h, raw_packet_qps.h, rss_qps.h and dynamic_targets.h.
#pragma once

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <cerrno>
#include <cstdint>
#include <optional>

#include "uverbs/objects.h"
#include "uverbs/open_file.h"
#include "uverbs/qp_attributes.h"
#include "uverbs/qp_masks.h"
#include "uverbs/route.h"

namespace softhca::uverbs {

struct DevxName;

/// A program's CREATE_QP.
struct QpCreation {
  const OpenFile& file;
  const Request& request;
  mlx5_ib_create_qp in;  ///< the driver's part
  std::uint32_t flags;   ///< ib_uverbs_qp_create_flags

  bool has(std::uint32_t flag) const { return (flags & flag) != 0; }
  bool has_driver_flag(std::uint32_t flag) const { return (in.flags & flag) != 0; }
  template <class T>
  Errno find(std::uint16_t attribute, T*& object) const {
    return file.find(request, attribute, object);
  }
};

/// A program's MODIFY_QP, and what the checks found out about it.
struct QpChange {
  const QpAttributes& in;
  std::uint32_t rate_limit = 0;
  Route route = {};
  std::uint8_t from = kQpReset, to = kQpReset;
  bool has(std::uint32_t attribute) const { return (in.attr_mask & attribute) != 0; }
};

struct MulticastGroup {
  driver::Gid gid;
  std::uint16_t lid = 0;
  friend bool operator==(const MulticastGroup&, const MulticastGroup&) = default;
};

/// A send queue that the kernel's side polls.
struct SendDoorbell {
  std::uint32_t number = 0;
  std::uint32_t uar = 0;
  std::uint64_t record = 0;  ///< address of the doorbell record; 0: there is no such queue
  std::uint32_t* counter() const { return reinterpret_cast<std::uint32_t*>(record + 4); }
};

/// A QP of any kind. Its destructor destroys it in the device.
struct QueuePair : Object, EventTarget {
  static constexpr Kind kKind = Kind::kQp;
  explicit QueuePair(Device& the_device) : Object(kKind), device(the_device) {}
  void handle_event(softhca::spec::connectx::event_type type) override;

  /// Checks the program's request, finds the objects and the memory that it names, and creates the
  /// QP in the device.
  virtual Errno create(const QpCreation& creation) = 0;
  /// MODIFY_QP (kernel interface 4.8): the checks of Linux's uverbs_cmd.c, verbs.c and mlx5_ib, in
  /// their order. The attributes then live in the device. `rate_limit`: of a raw packet QP.
  Errno modify(QpAttributes in, std::uint32_t rate_limit = 0);
  /// QUERY_QP (kernel interface 4.8). `mask`: the requested attributes; only a DCT uses it.
  virtual Errno query(std::uint32_t mask, ib_uverbs_query_qp_resp& out) = 0;
  /// Puts it into the error state: its work requests are flushed, and its peer gets no more
  /// answers.
  virtual void fail();
  virtual Errno attach(const MulticastGroup&) { return EINVAL; }
  virtual Errno detach(const MulticastGroup&) { return EINVAL; }

  /// Writes the numbers of its objects in the device, which programs with DevX get.
  virtual void put_numbers(mlx5_ib_create_qp_resp&) const {}
  /// Writes the number that DC initiators need (kernel interface 4.14).
  virtual void put_dctn(mlx5_ib_modify_qp_resp&) const {}
  /// Whether `name` is the DevX name of one of its objects.
  virtual bool has_name(const DevxName& name) const;
  /// The TIR to which flows lead; 0: it does not receive. Nothing: it is no QP of raw packets.
  virtual std::optional<std::uint32_t> tirn() const { return std::nullopt; }
  virtual SendDoorbell doorbell() const { return {}; }
  /// Whether a queue or a doorbell record lies in the page that begins at `page`.
  virtual bool lies_in(std::uint64_t /*page*/) const { return false; }
  /// Whether it has one peer (is_qp_type_connected). Other QPs take the destination from each work
  /// request.
  virtual bool is_connected() const { return false; }
  /// Drops the attributes that do not apply to it (modify_qp_mask of uverbs_cmd.c).
  virtual std::uint32_t relevant_mask(std::uint32_t mask) const { return mask; }
  virtual QpCondition& condition() { return condition_; }

  Device& device;
  Use pd, send_cq, receive_cq, srq;
  /// Numbers of these in the device. An XRC target uses the device's own protection domain.
  std::uint32_t pdn = 0, send_cqn = 0, receive_cqn = 0;
  AsyncEvents async;
  std::uint32_t qpn = 0;
  ib_uverbs_qp_cap caps{};
  bool signals_all = false;

 protected:
  /// The part of create() that most kinds share: flags of creation, objects, the event file.
  Errno prepare(const QpCreation& creation);
  /// Flags that are EINVAL, and EOPNOTSUPP.
  virtual std::uint32_t invalid_flags() const;
  virtual std::uint32_t unsupported_flags() const;
  virtual Errno find_objects(const QpCreation& creation);
  Errno find_sender(const QpCreation& creation);
  Errno find_receiver(const QpCreation& creation);
  /// The part of modify() behind the checks that all kinds share.
  virtual Errno apply(QpChange& change) = 0;

 private:
  QpCondition condition_;
};

/// The queues of a QP in the program's memory, and their doorbells.
struct QpQueues {
  Use page;  ///< its doorbell page
  std::uint32_t uar = 0;
  std::uint64_t record = 0;  ///< address of the doorbell record
  MemoryRange range{};       ///< of a raw packet QP: the receive queue
  LockedPages locked;
  MemoryRange send_range{};  ///< of a raw packet QP, whose send queue has a place of its own
  LockedPages send_locked;
  bool has_sender = false;
  std::uint32_t receive_entries = 0;  ///< of its own receive queue; 0: none
  std::uint32_t receive_sges = 0;     ///< scatter entries of a receive request
};

/// A QP with queues of its own, and with the states of InfiniBand.
struct QueuedQp : QueuePair {
  using QueuePair::QueuePair;
  Errno query(std::uint32_t mask, ib_uverbs_query_qp_resp& out) override;
  bool lies_in(std::uint64_t page) const override;
  /// Whether it may make this transition, and `mask` has all required attributes and no forbidden
  /// ones. @pre `from`, `to` are states
  bool takes(std::uint8_t from, std::uint8_t to, std::uint32_t mask) const {
    return takes_mask(masks(from, to), from, mask);
  }

 protected:
  Errno apply(QpChange& change) override;
  virtual std::optional<QpMasks> masks(std::uint8_t from, std::uint8_t to) const = 0;
  /// Makes a transition in the device.
  virtual Errno move(const QpChange& change) = 0;
  /// Reads the attributes from the device, and the state into condition().
  virtual Errno read(ib_uverbs_query_qp_resp& out) = 0;

  /// Whether requests to receive go to a queue of its own.
  virtual bool has_own_receiver() const { return srq.get() == nullptr; }
  virtual Errno check_receive_queue(const mlx5_ib_create_qp& in);
  /// Finds the queue of `size` bytes at buf_addr, the doorbell record and the doorbell page.
  Errno find_queue(const QpCreation& creation, std::uint64_t size);
  QpQueues queues_;
};

/// Whether the driver names a doorbell page, sets no flags but `flags`, and both queues have sizes
/// that the device takes: up to `most` entries.
bool are_valid(const mlx5_ib_create_qp& in, std::uint32_t flags, std::uint32_t most);

}  // namespace softhca::uverbs
