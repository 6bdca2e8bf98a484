// The port's QP1: management datagrams out and in.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "driver/connectx/completion_queue.h"
#include "driver/connectx/datagram_queue_pair.h"
#include "driver/connectx/memory_key.h"
#include "driver/connectx/protection_domain.h"
#include "uverbs/device.h"

namespace softhca::rdma_cm {

/// A datagram: a header of 24 bytes and its data (IBTA 13.4.2).
using Mad = std::array<std::byte, 256>;

class ManagementPort final : private uverbs::EventTarget {
 public:
  using Handler = std::function<void(const Mad& mad, const driver::Gid& from)>;

  /// `gid_index`: of the entry of the GID table from which datagrams are sent. `device` outlives
  /// this.
  static util::Result<std::unique_ptr<ManagementPort>> create(uverbs::Device& device,
                                                              std::uint8_t gid_index,
                                                              Handler handler);
  ~ManagementPort() override;

  /// False: there is no way to `to`, or no room just now.
  bool send(const Mad& mad, const driver::Gid& to);

 private:
  static constexpr unsigned kReceives = 64;
  static constexpr unsigned kSends = 64;
  static constexpr std::size_t kHeader = driver::connectx::DatagramQueuePair::kHeader;
  /// Bytes of each receive buffer; those of sends follow them and are as large.
  static constexpr std::size_t kSlot = 320;

  ManagementPort(uverbs::Device& device, std::uint8_t gid_index, Handler handler)
      : device_(device), gid_index_(gid_index), handler_(std::move(handler)) {}
  util::Result<void> set_up();
  void handle_event(softhca::spec::connectx::event_type type) override;
  void drain();
  void post_receive(std::uint64_t slot);
  std::span<std::byte> slot(std::uint64_t number) {
    return std::span(memory_).subspan(number * kSlot, kSlot);
  }

  uverbs::Device& device_;
  std::uint8_t gid_index_;
  Handler handler_;
  std::vector<std::byte> memory_;
  std::unique_ptr<driver::connectx::ProtectionDomain> pd_;
  std::unique_ptr<driver::connectx::MemoryKey> key_;
  std::unique_ptr<driver::connectx::CompletionQueue> cq_;
  std::unique_ptr<driver::connectx::DatagramQueuePair> qp_;
  std::vector<std::uint64_t> free_sends_;
};

}  // namespace softhca::rdma_cm
