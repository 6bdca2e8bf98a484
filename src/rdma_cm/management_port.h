// A port's QP1: sends and receives management datagrams.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cm/mad.h"
#include "driver/connectx/completion_queue.h"
#include "driver/connectx/memory_key.h"
#include "driver/connectx/protection_domain.h"
#include "driver/connectx/queue_pair.h"
#include "spec/infiniband/constants.h"
#include "uverbs/device.h"

namespace softhca::rdma_cm {

class ManagementPort final : private uverbs::EventTarget {
 public:
  using Handler = std::function<void(const cm::Arrival& arrival)>;

  /// `device` must outlive this.
  static util::Result<std::unique_ptr<ManagementPort>> create(uverbs::Device& device,
                                                              Handler handler);
  ~ManagementPort() override;

  /// Sends from entry `gid_index` of the GID table. If the queue is full, the datagram is sent
  /// later. False: there is no route to `to` from that entry, or too many datagrams wait.
  bool send(const cm::Mad& mad, std::uint8_t gid_index, const driver::Gid& to);

 private:
  /// Linux's queue sizes (ib_mad): requests come in bursts.
  static constexpr unsigned kReceives = 512;
  static constexpr unsigned kSends = 128;
  static constexpr std::size_t kWaitingMax = 1024;
  static constexpr std::size_t kHeader = softhca::spec::infiniband::kGrhBytes;
  /// Bytes of each receive buffer. The send buffers follow and have the same size.
  static constexpr std::size_t kSlot = 320;

  ManagementPort(uverbs::Device& device, Handler handler)
      : device_(device), handler_(std::move(handler)) {}
  util::Result<void> set_up();
  void handle_event(softhca::spec::connectx::event_type type) override;
  void drain();
  struct Waiting {
    cm::Mad mad;
    std::uint8_t gid_index;
    driver::Gid to;
  };
  bool is_source(std::uint8_t gid_index, const driver::Gid& to) const;
  /// @pre !free_sends_.empty()
  bool post(const Waiting& datagram);
  void post_receive(std::uint64_t slot);
  std::span<std::byte> slot(std::uint64_t number) {
    return std::span(memory_).subspan(number * kSlot, kSlot);
  }

  uverbs::Device& device_;
  Handler handler_;
  std::vector<std::byte> memory_;
  std::unique_ptr<driver::connectx::ProtectionDomain> pd_;
  std::unique_ptr<driver::connectx::MemoryKey> key_;
  std::unique_ptr<driver::connectx::CompletionQueue> cq_;
  std::unique_ptr<driver::connectx::QueuePair> qp_;
  std::vector<std::uint64_t> free_sends_;
  std::deque<Waiting> waiting_;
};

}  // namespace softhca::rdma_cm
