// Two ConnectX devices on one switch, with a driver each, one thread and a virtual clock. The clock
// moves only when nothing else can run, so a retry timer of seconds costs a test nothing.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "connectx/device.h"
#include "driver/connectx/completion_queue.h"
#include "driver/connectx/hca.h"
#include "driver/connectx/memory_key.h"
#include "driver/connectx/protection_domain.h"
#include "driver/connectx/queue_pair.h"
#include "driver/expect.h"
#include "driver/in_process_host.h"
#include "driver/turns.h"
#include "fabric/faulty_link.h"
#include "fabric/network_faults.h"
#include "fabric/switch.h"

namespace softhca::driver::test {

class World;

/// One device with its host, and the driver once it is open.
struct Node {
  /// `card` says what to build. The node sets name, addresses and clock.
  Node(World& world, unsigned number, softhca::connectx::DeviceOptions card);

  void open(const connectx::Hca::Options& options = {});

  Mac mac;
  Gid gid;
  std::unique_ptr<fabric::Port> port;
  std::unique_ptr<fabric::FaultyLink> link;
  std::unique_ptr<softhca::connectx::Device> device;
  std::unique_ptr<InProcessHost> host;
  std::unique_ptr<connectx::Hca> hca;
};

class World {
 public:
  World() : World({}, {}) {}
  World(const softhca::connectx::DeviceOptions& card_a,
        const softhca::connectx::DeviceOptions& card_b);
  /// Closes the drivers first, because they run both devices while they wait.
  ~World();

  Node& a() { return *nodes_[0]; }
  Node& b() { return *nodes_[1]; }
  /// Opens both drivers. Entry 0 of each holds its RoCE address.
  void open(const connectx::Hca::Options& options = {});
  /// Closes drivers and devices, for objects that must outlive them.
  void close();
  util::Time now() const { return turns_.now(); }

  /// Rules for the links; their ports are connectx0 and connectx1.
  fabric::NetworkFaults& faults() { return faults_; }
  /// Adds a rule, and returns its counters.
  const fabric::NetworkFaults::Counters& add_fault(std::string_view rule);

  /// Heap bytes of the program, for device_heap(). Unset: no count.
  std::function<std::ptrdiff_t()> heap;
  /// Heap bytes that the devices have allocated and kept since `heap` was set.
  std::ptrdiff_t device_heap() const { return device_heap_; }

  /// The virtual clock, and turns of both devices.
  void progress() { turns_.progress(); }
  bool run_until(const std::function<bool()>& done) { return turns_.run_until(done); }
  void advance(util::Duration duration) { turns_.advance(duration); }

 private:
  friend struct Node;

  /// Runs both devices and delivers their frames. Returns when the next event is due.
  util::Time run(util::Time now);

  fabric::Switch switch_;
  Turns turns_{[this](util::Time now) { return run(now); }};
  std::ptrdiff_t device_heap_ = 0;
  fabric::NetworkFaults faults_{[this] { return now(); }};
  std::vector<std::unique_ptr<Node>> nodes_;
};

/// One side of a work-request test: memory, its key, queues.
struct Endpoint {
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

  std::uint64_t address(std::size_t offset = 0) const;
  Sge piece(std::size_t offset, std::size_t length) const;
  std::span<std::byte> bytes(std::size_t offset, std::size_t length);
  connectx::RemoteQueuePair as_remote(std::uint32_t psn) const;
  /// A receive of one piece.
  void receive(std::uint64_t id, std::size_t offset, std::size_t length);

  Node& node;
  std::vector<std::byte> memory;
  std::unique_ptr<connectx::ProtectionDomain> pd;
  std::unique_ptr<connectx::MemoryKey> key;
  std::unique_ptr<connectx::CompletionQueue> send_cq;
  std::unique_ptr<connectx::CompletionQueue> receive_cq;
  std::unique_ptr<connectx::QueuePair> qp;
};

inline constexpr std::uint32_t kPsnA = 0xfffffe;  ///< wraps after two packets
inline constexpr std::uint32_t kPsnB = 0x123456;

/// Connects both ends, each with its own PSN.
void connect(Endpoint& a, Endpoint& b, connectx::Connection connection = {},
             connectx::RemoteAccess access = {});

/// The next `count` completions of `cq`, or fewer if no more arrive.
std::vector<Completion> wait(World& world, connectx::CompletionQueue& cq, std::size_t count = 1);

}  // namespace softhca::driver::test
