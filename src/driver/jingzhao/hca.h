// A running JingZhao HCA, with the objects that all its users share.
//
//   auto hca = Hca::open(host);       reset, limits, ICM, INIT_HCA, event queues
//   ... MemoryKey, CompletionQueue, QueuePair ...
//   (*hca)->close();                  destroy the objects first
//
// Single-threaded, like its Host.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "driver/dma_memory.h"
#include "driver/host.h"
#include "driver/jingzhao/command_interface.h"
#include "driver/jingzhao/event_queue.h"
#include "driver/jingzhao/numbers.h"
#include "util/field.h"

namespace softhca::driver::jingzhao {

inline constexpr std::uint64_t kPage = Host::kPageSize;

/// Port status as MAD_IFC reports it (docs/jingzhao.md, gap 8).
struct PortStatus {
  bool infiniband = false;
  std::uint16_t lid = 0;   ///< on InfiniBand; 0: no subnet manager has assigned one yet
  std::uint8_t state = 0;  ///< 1: down, 2: initialised, 3: armed, 4: active (IBTA 14.2.5.6)
  /// True if data may pass.
  bool up() const { return infiniband ? state == 4 : state != 1; }
};

class CompletionQueue;
class QueuePair;

class Hca {
 public:
  struct Options {
    // Sizes of the tables, as powers of two; at most the device's limits.
    unsigned log_qps = 10;
    unsigned log_cqs = 10;
    unsigned log_mpts = 13;
    unsigned log_mtts = 18;
    /// Time limit of each command.
    util::Duration patience = std::chrono::seconds(10);
  };

  static util::Result<std::unique_ptr<Hca>> open(Host& host, const Options& options);
  static util::Result<std::unique_ptr<Hca>> open(Host& host) { return open(host, Options()); }
  ~Hca();
  Hca(const Hca&) = delete;
  Hca& operator=(const Hca&) = delete;

  /// Stops the device and frees all its resources.
  /// @pre all objects made on this HCA are destroyed
  util::Result<void> close();

  /// The output of QUERY_DEV_LIM.
  util::View<spec::query_dev_lim_out> limits() const {
    return util::View<spec::query_dev_lim_out>(limits_);
  }
  std::uint64_t board_id() const { return board_id_; }
  util::Result<PortStatus> query_port();
  /// Passes an SMP to the port's agent: `mad`, of 256 bytes, is replaced by the response. Fails on
  /// RoCE.
  util::Result<void> process_mad(std::span<std::byte> mad);

  /// Events other than completions: EQ 0, vector 0. Completion events: EQ 1, vector 1.
  EventQueue& events() { return *events_; }
  EventQueue& completion_events() { return *completion_events_; }
  /// Returns the next event that is no completion.
  std::optional<Event> poll_event() { return events_->poll(); }
  /// The next CQ that raised an event after CompletionQueue::arm(); null if none did.
  CompletionQueue* poll_completion_event();

  // For the objects of this folder -------------------------------------------------------------

  Host& host() { return host_; }
  util::Result<void> run(const Request& request) { return commands_->run(request); }
  const Options& options() const { return options_; }
  Numbers& qpns() { return qpns_; }
  Numbers& cqns() { return cqns_; }
  Numbers& mpts() { return mpts_; }
  Numbers& pds() { return pds_; }
  MttRanges& mtts() { return mtts_; }
  /// The doorbell page that all queues share.
  std::uint64_t uar() const { return 0; }
  /// Variant of the next memory key: it differs from one key to the next.
  std::uint32_t next_key_variant() { return ++key_variant_; }

  void add(std::uint32_t qpn, QueuePair& qp) { queue_pairs_[qpn] = &qp; }
  void remove_queue_pair(std::uint32_t qpn) { queue_pairs_[qpn] = nullptr; }
  QueuePair* find_queue_pair(std::uint32_t qpn) {
    return qpn < queue_pairs_.size() ? queue_pairs_[qpn] : nullptr;
  }
  void add(std::uint32_t cqn, CompletionQueue& cq) { completion_queues_[cqn] = &cq; }
  void remove_completion_queue(std::uint32_t cqn) { completion_queues_[cqn] = nullptr; }

 private:
  Hca(Host& host, const Options& options);

  util::Result<void> bring_up();
  util::Result<void> query();
  util::Result<void> map_tables();
  util::Result<void> map_table(spec::icm_group group, std::uint64_t virt, std::uint64_t size);
  util::Result<void> create_event_queues();

  /// A table of the ICM: its address there, and the memory mapped to it.
  struct IcmTable {
    spec::icm_group group;
    std::uint64_t virt;
    DmaBuffer memory;
  };

  Host& host_;
  Options options_;
  std::unique_ptr<CommandInterface> commands_;
  bool initialized_ = false;
  std::vector<std::byte> limits_;
  std::uint64_t board_id_ = 0;
  std::vector<IcmTable> icm_;
  Numbers qpns_, cqns_, mpts_, pds_;
  MttRanges mtts_;
  std::uint32_t key_variant_ = 0;
  std::unique_ptr<EventQueue> events_;
  std::unique_ptr<EventQueue> completion_events_;
  std::vector<QueuePair*> queue_pairs_;
  std::vector<CompletionQueue*> completion_queues_;
};

}  // namespace softhca::driver::jingzhao
