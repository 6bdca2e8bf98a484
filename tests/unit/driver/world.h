// Two ConnectX devices on one switch, a driver on each, one thread, and a virtual clock that moves
// only when nothing else can: a retry timer of seconds costs a test nothing.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "connectx/device.h"
#include "driver/connectx/completion_queue.h"
#include "driver/connectx/hca.h"
#include "driver/connectx/memory_key.h"
#include "driver/connectx/protection_domain.h"
#include "driver/connectx/queue_pair.h"
#include "driver/in_process_host.h"
#include "fabric/impairment.h"
#include "fabric/switch.h"

namespace softhca::driver::test {

/// The value of a Result that must be one.
template <class T>
T must(util::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}
inline void must(util::Result<void> result) {
  if (!result) throw std::runtime_error(result.error().message);
}

class World;

/// One device with its host, and the driver once it is open.
struct Node {
  /// `card`: what is built; name, addresses and clock are the node's.
  Node(World& world, unsigned number, const fabric::Impairment::Options& impairment,
       softhca::connectx::DeviceOptions card);

  void open(const connectx::Hca::Options& options = {});

  Mac mac;
  Gid gid;
  std::unique_ptr<fabric::Port> port;
  std::unique_ptr<fabric::Impairment> cable;
  std::unique_ptr<softhca::connectx::Device> device;
  std::unique_ptr<InProcessHost> host;
  std::unique_ptr<connectx::Hca> hca;
};

class World {
 public:
  World() : World(fabric::Impairment::Options()) {}
  /// Each device's cable loses, duplicates and reorders what the device sends.
  explicit World(const fabric::Impairment::Options& impairment,
                 const softhca::connectx::DeviceOptions& card_a = {},
                 const softhca::connectx::DeviceOptions& card_b = {});
  /// Closes the drivers first: they run both devices while they wait.
  ~World();

  Node& a() { return *nodes_[0]; }
  Node& b() { return *nodes_[1]; }
  /// Both drivers, each with its RoCE address in entry 0.
  void open(const connectx::Hca::Options& options = {});
  /// Drivers and devices go, for who must outlive them.
  void close();
  util::Time now() const { return now_; }

  /// What the program has of the heap, for device_heap(); nothing: it does not count.
  std::function<std::ptrdiff_t()> heap;
  /// Bytes that the devices have taken from the heap, and kept, since `heap` was set.
  std::ptrdiff_t device_heap() const { return device_heap_; }

  /// What a driver that waits does: lets both devices work; if they have nothing to do, a little
  /// time passes.
  void progress();
  /// Lets both devices work, and time pass from timer to timer, until `done` says so. False if a
  /// virtual minute was not enough.
  bool run_until(const std::function<bool()>& done);
  /// Lets everything happen that happens until `duration` from now.
  void advance(util::Duration duration);

 private:
  friend struct Node;

  /// Runs both devices and delivers their frames, at the same time. False: nothing more to do now.
  bool pass();

  fabric::Switch switch_;
  util::Time now_{std::chrono::seconds(1)};
  util::Time next_ = util::kNever;
  std::ptrdiff_t device_heap_ = 0;
  std::vector<std::unique_ptr<Node>> nodes_;
};

/// What a test of work requests needs on one side: memory, its key, queues.
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

/// Connects both ends, with PSNs of their own.
void connect(Endpoint& a, Endpoint& b, connectx::Connection connection = {},
             connectx::RemoteAccess access = {});

/// The next `count` completions of `cq`; fewer if no more come.
std::vector<Completion> wait(World& world, connectx::CompletionQueue& cq, std::size_t count = 1);

/// `size` bytes that differ from one seed to the next, and from one place to the next.
std::vector<std::byte> pattern(std::size_t size, std::uint32_t seed);

/// Asserts one completion, and that it is this one.
void expect_success(const std::vector<Completion>& completions, std::uint64_t id,
                    CompletionOpcode opcode);
void expect_error(const std::vector<Completion>& completions, std::uint64_t id, WorkStatus status);

}  // namespace softhca::driver::test
