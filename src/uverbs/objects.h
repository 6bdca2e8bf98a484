// The objects that a program creates in one context.
#pragma once

#include <rdma/mlx5-abi.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "driver/connectx/hca.h"
#include "uverbs/device.h"
#include "uverbs/event_pipe.h"
#include "uverbs/locked_memory.h"
#include "uverbs/object_table.h"
#include "uverbs/raw_receive_queue.h"
#include "uverbs/request.h"
#include "uverbs/xrc_targets.h"

namespace softhca::uverbs {

/// A range of the program's memory.
struct MemoryRange {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;  ///< bytes
  /// Whether part of it lies in the page that begins at `page`.
  bool touches(std::uint64_t page) const {
    constexpr std::uint64_t kSize = 4096;
    return begin < page + kSize && page < begin + size;
  }
};

struct ProtectionDomain : Object {
  static constexpr Kind kKind = Kind::kPd;
  ProtectionDomain(Device& the_device, std::uint32_t number)
      : Object(kKind), device(the_device), pdn(number) {}
  ~ProtectionDomain() override { (void)end(); }
  Errno end() override;
  Device& device;
  std::uint32_t pdn;
  bool exists = true;
};

struct MemoryRegion : Object {
  static constexpr Kind kKind = Kind::kMr;
  MemoryRegion(Device& the_device, ProtectionDomain& domain)
      : Object(kKind), device(the_device), pd(&domain) {}
  ~MemoryRegion() override;
  /// Destroys its key. The registration stays without a key until the program destroys it.
  void revoke();
  Device& device;
  Use pd;
  std::uint32_t key = 0;
  MemoryRange memory{};
  std::uint64_t iova = 0;    ///< address of its first byte in work requests
  std::uint32_t access = 0;  ///< ib_access_flags
  bool is_writable = false;  ///< whether its pages were pinned for writing
  LockedPages locked;
  std::uint64_t room = 0;  ///< pages of 4 KiB that new memory may have under the same key
  bool is_on_demand() const;
  /// Whether it covers all memory on demand.
  bool is_implicit() const;
};

struct MemoryWindow : Object {
  static constexpr Kind kKind = Kind::kMw;
  MemoryWindow(Device& the_device, ProtectionDomain& domain)
      : Object(kKind), device(the_device), pd(&domain) {}
  ~MemoryWindow() override;
  Device& device;
  Use pd;
  std::uint32_t index = 0;  ///< of its key; 0: none yet
};

/// A doorbell page allocated by the program.
struct DoorbellPage : Object {
  static constexpr Kind kKind = Kind::kUar;
  DoorbellPage(Device& the_device, std::uint32_t number)
      : Object(kKind), device(the_device), page(number) {}
  ~DoorbellPage() override;
  Device& device;
  std::uint32_t page;
};

struct AddressHandle : Object {
  static constexpr Kind kKind = Kind::kAh;
  AddressHandle(ProtectionDomain& domain, GidUse the_source)
      : Object(kKind), pd(&domain), source(std::move(the_source)) {}
  Use pd;
  GidUse source;
};

/// A descriptor with asynchronous events, or a completion channel.
struct EventFile {
  explicit EventFile(EventPipe the_pipe) : pipe(std::move(the_pipe)) {}
  EventPipe pipe;
};

/// Asynchronous events of one object.
class AsyncEvents {
 public:
  void report(std::uint32_t type);
  /// Withdraws the unread events. Returns how many the program has read.
  std::uint32_t take_back();
  std::shared_ptr<EventFile> file;  ///< null: the program has no descriptor for events
  std::uint64_t user_handle = 0;

 private:
  std::uint32_t reported_ = 0;
};

struct CompletionQueue : Object, EventTarget {
  static constexpr Kind kKind = Kind::kCq;
  explicit CompletionQueue(Device& the_device) : Object(kKind), device(the_device) {}
  ~CompletionQueue() override {
    if (end() != 0) forget();
  }
  Errno end() override;
  void handle_event(softhca::spec::connectx::event_type type) override;
  Device& device;
  Use uar;
  bool exists = false;
  std::uint32_t cqn = 0;
  std::uint32_t entries = 0;
  std::uint32_t entry_size = 64;
  bool padded = false;  ///< CQEs take 128 bytes even where 64 suffice
  std::uint64_t user_handle = 0;
  std::uint64_t record = 0;  ///< address of its doorbell record
  MemoryRange entries_memory{};
  LockedPages locked;
  bool lost = false;                   ///< its memory went, and the program was notified
  std::shared_ptr<EventFile> channel;  ///< null: none
  AsyncEvents async;
  std::uint32_t completions_reported = 0;
  /// cqe_sz of its context.
  std::uint32_t size_code() const {
    using softhca::spec::connectx::cqe_size;
    const auto code = entry_size == 64 ? cqe_size::BYTES_64
                      : padded         ? cqe_size::BYTES_128_PADDED
                                       : cqe_size::BYTES_128;
    return static_cast<std::uint32_t>(code);
  }

 private:
  /// Ends the polling of its doorbell record and the delivery of its events.
  void forget();
};

struct XrcDomain : Object {
  static constexpr Kind kKind = Kind::kXrcd;
  explicit XrcDomain(std::shared_ptr<SharedXrcDomain> the_shared)
      : Object(kKind), shared(std::move(the_shared)) {}
  std::shared_ptr<SharedXrcDomain> shared;
};

/// A shared receive queue: an RMP, or an XRC SRQ.
struct SharedReceiveQueue : Object, EventTarget {
  static constexpr Kind kKind = Kind::kSrq;
  explicit SharedReceiveQueue(Device& the_device) : Object(kKind), device(the_device) {}
  ~SharedReceiveQueue() override {
    if (end() != 0) device.remove_shared_target(number);
  }
  Errno end() override;
  void handle_event(softhca::spec::connectx::event_type type) override;
  Device& device;
  Use pd, cq, xrcd;
  AsyncEvents async;
  bool exists = false;
  bool is_xrc = false;
  std::uint32_t number = 0;
  std::uint32_t max_wr = 0;
  std::uint32_t max_sge = 0;
  std::uint64_t record = 0;  ///< address of its doorbell record
  MemoryRange queue{};
  LockedPages locked;
  bool lost = false;  ///< its memory went, and the program was notified
};

/// A receive WQ of raw packets.
struct ReceiveQueue : Object, EventTarget {
  static constexpr Kind kKind = Kind::kReceiveQueue;
  explicit ReceiveQueue(Device& the_device)
      : Object(kKind), device(the_device), queue(the_device) {}
  ~ReceiveQueue() override {
    if (end() != 0) device.remove_queue_target(queue.number());
  }
  Errno end() override;
  void handle_event(softhca::spec::connectx::event_type type) override;
  Device& device;
  Use pd, cq;
  RawReceiveQueue queue;
  AsyncEvents async;
  std::uint64_t record = 0;  ///< address of its doorbell record
  MemoryRange memory{};
  LockedPages locked;
  bool lost = false;  ///< its memory went, and the program was notified
};

/// An RWQ indirection table: the receive queues over which an RSS QP spreads frames.
struct ReceiveTable : Object {
  static constexpr Kind kKind = Kind::kReceiveTable;
  explicit ReceiveTable(Device& the_device) : Object(kKind), device(the_device) {}
  ~ReceiveTable() override { (void)end(); }
  Errno end() override;
  Device& device;
  std::vector<Use> queues;
  std::uint32_t number = 0;  ///< 0: the device has none
};

/// The mask of flows (mlx5dv_create_flow_matcher).
struct FlowMatcher : Object {
  static constexpr Kind kKind = Kind::kFlowMatcher;
  FlowMatcher() : Object(kKind) {}
  FlowMatch match;               ///< only its mask counts
  std::uint8_t type = 0;         ///< mlx5_ib_flow_type
  std::uint64_t table_type = 0;  ///< mlx5_ib_uapi_flow_table_type
  std::uint16_t priority = 0;
};

/// Counters of the frames that flows match (ibv_counters).
struct Counters : Object {
  static constexpr Kind kKind = Kind::kCounters;
  explicit Counters(Device& the_device) : Object(kKind), device(the_device) {}
  ~Counters() override;
  Device& device;
  std::uint32_t id = 0;  ///< device counter; 0: not bound to a flow yet
  /// Index and meaning of each value in an answer.
  std::vector<mlx5_ib_flow_counters_desc> places;
};

struct Flow : Object {
  static constexpr Kind kKind = Kind::kFlow;
  explicit Flow(Device& the_device) : Object(kKind), device(the_device) {}
  ~Flow() override {
    for (const auto& [table, id] : rules) device.flows(table).remove(id);
  }
  /// May be called twice: for received and for sent frames.
  Errno add(const FlowRule& rule) {
    std::uint32_t id = 0;
    const auto wrong = device.flows(rule.table).add(rule, id);
    if (wrong == 0) rules.emplace_back(rule.table, id);
    return wrong;
  }
  Device& device;
  Use qp, matcher;
  std::vector<Use> counters;
  std::vector<std::pair<softhca::spec::connectx::flow_table_type, std::uint32_t>> rules;
};

}  // namespace softhca::uverbs
