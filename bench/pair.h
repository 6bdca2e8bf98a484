// Two ConnectX devices on a switch in this process, each with a driver, and one connection between
// them. They also exchange Ethernet frames. Everything runs in the caller, on the real clock.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "connectx/device.h"
#include "driver/connectx/completion_queue.h"
#include "driver/connectx/datagram.h"
#include "driver/connectx/frame_receiver.h"
#include "driver/connectx/frame_sender.h"
#include "driver/connectx/hca.h"
#include "driver/connectx/memory_key.h"
#include "driver/connectx/protection_domain.h"
#include "driver/connectx/queue_pair.h"
#include "driver/connectx/transport_domain.h"
#include "driver/in_process_host.h"
#include "fabric/switch.h"

namespace softhca::bench {

/// Ends the program with the reason if the result is an error.
template <class T>
T must(util::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}
void must(util::Result<void> result);
void must(driver::PostStatus status);

/// One end of the connection.
struct Side {
  Side(pcie::Function& device, std::function<void()> progress, unsigned number,
       std::size_t memory_size);

  std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uintptr_t>(memory.data()) + offset;
  }

  driver::InProcessHost host;
  driver::Gid gid;
  std::vector<std::byte> memory;
  std::unique_ptr<driver::connectx::Hca> hca;
  std::unique_ptr<driver::connectx::ProtectionDomain> pd;
  std::unique_ptr<driver::connectx::MemoryKey> key;
  std::unique_ptr<driver::connectx::CompletionQueue> cq;
  std::unique_ptr<driver::connectx::QueuePair> qp;
  std::unique_ptr<driver::connectx::QueuePair> datagrams;
  // For Ethernet.
  std::unique_ptr<driver::connectx::TransportDomain> domain;
  std::unique_ptr<driver::connectx::FrameSender> sender;
  std::unique_ptr<driver::connectx::FrameReceiver> receiver;
};

class Pair {
 public:
  explicit Pair(std::size_t memory_size);

  Side& a() { return *a_; }
  Side& b() { return *b_; }

  /// Connects `a`, a queue pair of a(), and `b`, one of b().
  void connect(driver::connectx::QueuePair& a, driver::connectx::QueuePair& b,
               std::uint8_t ack_timeout = driver::connectx::Connection().ack_timeout);
  /// Lets both devices work, and delivers their frames.
  void progress();
  /// Turns counting by device_memory() on or off.
  void count_device_memory(bool counts = true) { counts_memory_ = counts; }
  /// Bytes that both devices have since taken from the heap and kept. Freed memory that stays in
  /// the allocator's own cache counts as kept.
  std::ptrdiff_t device_memory() const { return device_memory_; }

  /// An RDMA WRITE from the start of one side's memory to the start of the other's.
  void write(Side& from, Side& to, std::size_t size, bool signaled);
  /// An RDMA READ from the start of the other's memory to the start of this one's.
  void read(Side& from, Side& to, std::size_t size, bool signaled);
  /// A SEND from the start of one side's memory, into the other's posted receive.
  void send(Side& from, std::size_t size, bool signaled);
  /// Posts a receive request for the start of the memory.
  void receive(Side& side, std::size_t size);
  /// The same as write() with inline data.
  void write_inline(Side& from, Side& to, std::span<const std::byte> bytes, bool signaled);
  /// A datagram with inline data, into the other's posted receive.
  void send_datagram(Side& from, Side& to, std::span<const std::byte> bytes, bool signaled);
  /// Posts a receive request for one datagram.
  void receive_datagram(Side& side);
  /// Posts receives for `count` frames, each with 2 KiB of the side's memory.
  void receive_frames(Side& side, std::size_t count);
  /// Sends `count` UDP frames of `size` bytes as DPDK does: the device inserts checksums, one
  /// doorbell, one completion. @pre count <= kBurst
  void send_frames(Side& from, Side& to, std::size_t size, std::size_t count);
  /// Waits for `count` completions. Ends the program if one is an error.
  void wait(Side& side, std::size_t count);

  static constexpr unsigned kQueueDepth = 128;
  static constexpr unsigned kInlineMax = 64;
  static constexpr std::size_t kBurst = 32;

 private:
  fabric::Switch switch_;
  std::unique_ptr<fabric::Port> port_a_;
  std::unique_ptr<fabric::Port> port_b_;
  std::unique_ptr<connectx::Device> device_a_;
  std::unique_ptr<connectx::Device> device_b_;
  std::unique_ptr<Side> a_;
  std::unique_ptr<Side> b_;
  std::unique_ptr<driver::connectx::AddressVector> way_to_a_;
  std::unique_ptr<driver::connectx::AddressVector> way_to_b_;
  std::uint64_t next_receive_ = 0;
  bool counts_memory_ = false;
  std::ptrdiff_t device_memory_ = 0;
  std::array<driver::Completion, 64>
      done_;  ///< a member, because clearing it costs as much as an operation
};

}  // namespace softhca::bench
