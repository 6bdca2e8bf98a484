// The interfaces that a driver implements for the verbs: one for each kind of object. Users see
// only the handles of device.h, which check what is the same for all devices before they call
// these.
//
// An object is handed only objects of the same device, which outlive it; a driver may cast them to
// its own types. The destructors free what is left.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "driver/host.h"
#include "driver/verbs/types.h"
#include "util/result.h"

namespace softhca::driver::verbs {

/// A protection domain (IBTA 10.2.3).
class PdBackend {
 public:
  virtual ~PdBackend() = default;
  virtual util::Result<void> destroy() = 0;
};

/// A memory region (IBTA 10.6).
class MrBackend {
 public:
  virtual ~MrBackend() = default;
  virtual std::uint32_t lkey() const = 0;
  virtual std::uint32_t rkey() const = 0;
  virtual util::Result<void> destroy() = 0;
};

/// A completion queue (IBTA 10.2.6).
class CqBackend {
 public:
  virtual ~CqBackend() = default;
  virtual std::uint32_t number() const = 0;
  virtual unsigned entries() const = 0;
  /// Data path: allocates nothing. If there is no completion, lets the device work once.
  virtual std::size_t poll(std::span<Completion> out) = 0;
  /// Requests one event, for the next completion.
  virtual void arm(bool solicited_only) = 0;
  virtual util::Result<void> destroy() = 0;
};

/// A shared receive queue (IBTA 10.2.9).
class SrqBackend {
 public:
  virtual ~SrqBackend() = default;
  virtual std::uint32_t number() const = 0;
  /// Data path. Returns how many were posted; `status` is that of the first request that was not.
  virtual std::size_t post(std::span<const ReceiveRequest> requests, PostStatus& status) = 0;
  /// Requests an event when fewer than `limit` requests are left; 0: none.
  virtual util::Result<void> arm_limit(unsigned limit) = 0;
  virtual util::Result<void> destroy() = 0;
};

/// A queue pair (IBTA 10.2.4).
class QpBackend {
 public:
  virtual ~QpBackend() = default;
  virtual std::uint32_t number() const = 0;
  /// @pre check_transition() accepted the transition
  virtual util::Result<void> modify(QpState from, QpState to, const QpAttributes& attributes) = 0;
  /// The state that the device reports.
  virtual util::Result<QpState> query_state() = 0;
  /// Data path. Return how many were posted; `status` is that of the first request that was not.
  virtual std::size_t post_send(std::span<const SendRequest> requests, PostStatus& status) = 0;
  virtual std::size_t post_receive(std::span<const ReceiveRequest> requests,
                                   PostStatus& status) = 0;
  /// UD: joins or leaves a multicast group.
  virtual util::Result<void> attach(const Gid& group) = 0;
  virtual util::Result<void> detach(const Gid& group) = 0;
  virtual util::Result<void> destroy() = 0;
};

struct CqBackendOptions {
  unsigned entries = 256;  ///< at least
};
struct SrqBackendOptions {
  unsigned requests = 64;
  unsigned pieces = 4;  ///< per request
};
struct QpBackendOptions {
  QpType type = QpType::kRc;
  CqBackend& send_cq;
  CqBackend& receive_cq;
  SrqBackend* srq = nullptr;
  Capacity capacity = {};
};

/// A running HCA.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  virtual const DeviceAttributes& attributes() const = 0;
  virtual Host& host() = 0;
  virtual util::Result<bool> link_is_up() = 0;
  /// Sets entry `index` of the port's GID table.
  virtual util::Result<void> set_gid(std::uint8_t index, const Gid& gid) = 0;

  virtual util::Result<std::unique_ptr<PdBackend>> allocate_pd() = 0;
  virtual util::Result<std::unique_ptr<MrBackend>> register_memory(PdBackend& pd,
                                                                   std::span<std::byte> memory,
                                                                   MemoryAccess access) = 0;
  virtual util::Result<std::unique_ptr<CqBackend>> create_cq(const CqBackendOptions& options) = 0;
  virtual util::Result<std::unique_ptr<SrqBackend>> create_srq(
      PdBackend& pd, const SrqBackendOptions& options) = 0;
  virtual util::Result<std::unique_ptr<QpBackend>> create_qp(PdBackend& pd,
                                                             const QpBackendOptions& options) = 0;
  virtual util::Result<AddressForm> make_address(PdBackend& pd, const Path& path) = 0;

  virtual util::Result<std::optional<AsyncEvent>> poll_event() = 0;
  /// The number of the next CQ that raised an event after arm().
  virtual std::optional<std::uint32_t> poll_completion_event() = 0;
  /// Sleeps until a completion event may be pending, or until `until`.
  virtual void wait_completion_event(util::Time until) = 0;
  /// Stops the device. @pre all objects are gone
  virtual util::Result<void> close() = 0;
};

}  // namespace softhca::driver::verbs
