// Two ConnectX devices on one switch, each with a driver of driver/connectx/, on virtual time.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "connectx/device.h"
#include "driver/connectx/completion_queue.h"
#include "driver/connectx/hca.h"
#include "driver/connectx/memory_key.h"
#include "driver/connectx/protection_domain.h"
#include "driver/connectx/queue_pair.h"
#include "driver/expect.h"
#include "driver/in_process_host.h"
#include "driver/side.h"
#include "lab/network.h"

namespace softhca::driver::test {

class World;

/// One device with its host, and the driver once it is open.
struct Node {
  /// `card` says what to build. The node sets name, addresses and clock.
  Node(World& world, unsigned number, softhca::connectx::DeviceOptions card);

  void open(const connectx::Hca::Options& options = {});

  Mac mac;
  Gid gid;
  std::unique_ptr<softhca::connectx::Device> device;
  std::unique_ptr<InProcessHost> host;
  std::unique_ptr<connectx::Hca> hca;
};

/// The ports of faults() are connectx0 and connectx1.
class World : public lab::Network {
 public:
  World() : World({}, {}) {}
  World(const softhca::connectx::DeviceOptions& card_a,
        const softhca::connectx::DeviceOptions& card_b);
  /// Closes the drivers first, because they run both devices while they wait.
  ~World() override;

  Node& a() { return *nodes_[0]; }
  Node& b() { return *nodes_[1]; }
  /// Opens both drivers. Entry 0 of each holds its RoCE address.
  void open(const connectx::Hca::Options& options = {});
  /// Closes drivers and devices, for objects that must outlive them. Nothing runs any more.
  void close();

  /// Heap bytes of the program, for device_heap(). Unset: no count.
  std::function<std::ptrdiff_t()> heap;
  /// Heap bytes that the devices have allocated and kept since `heap` was set.
  std::ptrdiff_t device_heap() const { return device_heap_; }

 private:
  util::Time run(util::Time now) override;

  std::ptrdiff_t device_heap_ = 0;
  std::vector<std::unique_ptr<Node>> nodes_;
};

/// One side of a work-request test: memory, its key, queues.
struct Endpoint : SideMemory {
  struct Options {
    std::size_t memory = 64 << 10;
    unsigned cq_entries = 256;
    connectx::SendQueue::Limits send = {.requests = 64, .pieces = 4, .inline_size = 128};
    connectx::ReceiveQueue::Limits receive = {.requests = 64, .pieces = 4};
    connectx::MemoryAccess access = {
        .local_write = true, .remote_read = true, .remote_write = true, .remote_atomic = true};
  };
  explicit Endpoint(Node& on) : Endpoint(on, Options()) {}
  Endpoint(Node& on, const Options& options);

  Sge piece(std::size_t offset, std::size_t length) const;
  connectx::RemoteQueuePair as_remote(std::uint32_t psn) const;
  /// A receive of one piece.
  void receive(std::uint64_t id, std::size_t offset, std::size_t length);

  Node& node;
  std::unique_ptr<connectx::ProtectionDomain> pd;
  std::unique_ptr<connectx::MemoryKey> key;
  std::unique_ptr<connectx::CompletionQueue> send_cq;
  std::unique_ptr<connectx::CompletionQueue> receive_cq;
  std::unique_ptr<connectx::QueuePair> qp;
};

/// Connects both ends, each with its own PSN.
void connect(Endpoint& a, Endpoint& b, connectx::Connection connection = {},
             connectx::RemoteAccess access = {});

}  // namespace softhca::driver::test
