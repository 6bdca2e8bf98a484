// Two JingZhao devices on one switch, a driver on each, one thread, and a virtual clock that moves
// only when nothing else can.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "driver/expect.h"
#include "driver/in_process_host.h"
#include "driver/jingzhao/hca.h"
#include "driver/jingzhao/queue_pair.h"
#include "driver/turns.h"
#include "fabric/faulty_link.h"
#include "fabric/network_faults.h"
#include "fabric/switch.h"
#include "jingzhao/device.h"
#include "subnet/subnet.h"
#include "util/inspect.h"

namespace softhca::jingzhao::test {

using driver::Completion;
using driver::CompletionOpcode;
using driver::PostStatus;
using driver::Sge;
using driver::WorkStatus;
namespace jz = driver::jingzhao;
using driver::test::expect_error;
using driver::test::expect_success;
using driver::test::fill;
using driver::test::must;
using driver::test::pattern;

class World;

using MakeHost = std::function<std::unique_ptr<driver::InProcessHost>(
    pcie::Function&, driver::InProcessHost::Options)>;

/// One device with its host. `hca` is its driver once opened.
struct Node {
  Node(World& world, unsigned number, DeviceOptions card, const MakeHost& make_host);
  void open(const jz::Hca::Options& options = {}) { hca = must(jz::Hca::open(*host, options)); }

  jz::Endpoint address;
  std::unique_ptr<fabric::Port> port;
  std::unique_ptr<fabric::FaultyLink> link;
  std::unique_ptr<Device> device;
  std::unique_ptr<driver::InProcessHost> host;
  std::unique_ptr<jz::Hca> hca;
};

class World {
 public:
  struct Options {
    DeviceOptions card = {};
    /// Creates the driver's host; null for the default one.
    MakeHost make_host = nullptr;
  };
  World() : World(Options()) {}
  explicit World(const Options& options);
  ~World();

  Node& a() { return *nodes_[0]; }
  Node& b() { return *nodes_[1]; }
  void open(const jz::Hca::Options& options = {});
  util::Time now() const { return turns_.now(); }
  fabric::Switch& network() { return switch_; }
  /// The subnet. @pre the cards have InfiniBand links
  const subnet::Subnet& subnet() const { return *subnet_; }

  /// Rules for the links; their ports are jingzhao0 and jingzhao1.
  fabric::NetworkFaults& faults() { return faults_; }
  /// Adds a rule for the links, and returns its counters. Their ports are jingzhao0 and jingzhao1.
  const fabric::NetworkFaults::Counters& add_fault(std::string_view rule);

  /// The virtual clock, and turns of both devices.
  void progress() { turns_.progress(); }
  bool run_until(const std::function<bool()>& done) { return turns_.run_until(done); }
  void advance(util::Duration duration) { turns_.advance(duration); }

 private:
  friend struct Node;
  /// Runs both devices and delivers their frames. Returns when the next event is due.
  util::Time run(util::Time now);

  fabric::Switch switch_;
  std::optional<subnet::Subnet> subnet_;
  driver::test::Turns turns_{[this](util::Time now) { return run(now); }};
  fabric::NetworkFaults faults_{[this] { return now(); }};
  std::vector<std::unique_ptr<Node>> nodes_;
};

/// One side of a work request test: memory, its key, and queues.
struct Side {
  struct Options {
    std::size_t memory = 64 << 10;
    unsigned cq_entries = 256;
    spec::jingzhao::qp_type type = spec::jingzhao::qp_type::RC;
    unsigned requests = 64;
    unsigned pieces = 4;
    unsigned inline_size = 64;
    unsigned log_message_max = 31;
    jz::MemoryAccess access = {
        .local_write = true, .remote_read = true, .remote_write = true, .remote_atomic = true};
  };
  explicit Side(Node& on) : Side(on, Options()) {}
  Side(Node& on, const Options& options);

  std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uintptr_t>(memory.data()) + offset;
  }
  Sge piece(std::size_t offset, std::size_t length) const {
    return {address(offset), static_cast<std::uint32_t>(length), key->key()};
  }
  std::span<std::byte> bytes(std::size_t offset, std::size_t length) {
    return std::span(memory).subspan(offset, length);
  }
  jz::RemoteQueuePair as_remote(std::uint32_t psn) const {
    return {.qpn = qp->qpn(), .psn = psn, .at = node.address};
  }
  /// Posts a receive of one piece.
  void receive(std::uint64_t id, std::size_t offset, std::size_t length);

  Node& node;
  std::vector<std::byte> memory;
  std::uint32_t pd;
  std::unique_ptr<jz::MemoryKey> key;
  std::unique_ptr<jz::CompletionQueue> send_cq;
  std::unique_ptr<jz::CompletionQueue> receive_cq;
  std::unique_ptr<jz::QueuePair> qp;
};

inline constexpr std::uint32_t kPsnA = 0xfffffe;  ///< wraps after two packets
inline constexpr std::uint32_t kPsnB = 0x123456;
inline constexpr std::uint32_t kQkey = 0x1111;

/// Connects both ends, each with its own PSN.
void connect(Side& a, Side& b, jz::Connection connection = {}, jz::RemoteAccess access = {});

/// The next `count` completions of `cq`; fewer if no more come.
std::vector<Completion> wait(World& world, jz::CompletionQueue& cq, std::size_t count = 1);

bool same(std::span<const std::byte> a, std::span<const std::byte> b);

/// The full `softhca inspect` output for this device, as text.
std::string inspect(const Device& device);

}  // namespace softhca::jingzhao::test
