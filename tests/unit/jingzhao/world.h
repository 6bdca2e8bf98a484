// Two JingZhao devices on one switch, each with a driver of driver/jingzhao/, on virtual time.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "driver/expect.h"
#include "driver/in_process_host.h"
#include "driver/jingzhao/hca.h"
#include "driver/jingzhao/queue_pair.h"
#include "driver/side.h"
#include "jingzhao/device.h"
#include "lab/network.h"
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
using driver::test::kPsnA;
using driver::test::kPsnB;
using driver::test::must;
using driver::test::pattern;
using driver::test::wait;

class World;

using MakeHost = std::function<std::unique_ptr<driver::InProcessHost>(
    pcie::Function&, driver::InProcessHost::Options)>;

/// One device with its host. `hca` is its driver once opened.
struct Node {
  Node(World& world, unsigned number, DeviceOptions card, const MakeHost& make_host);
  void open(const jz::Hca::Options& options = {}) { hca = must(jz::Hca::open(*host, options)); }

  jz::Endpoint address;
  std::unique_ptr<Device> device;
  std::unique_ptr<driver::InProcessHost> host;
  std::unique_ptr<jz::Hca> hca;
};

/// The ports of faults() are jingzhao0 and jingzhao1.
class World : public lab::Network {
 public:
  struct Options {
    DeviceOptions card = {};
    /// Creates the driver's host; null for the default one.
    MakeHost make_host = nullptr;
  };
  World() : World(Options()) {}
  explicit World(const Options& options);
  ~World() override;

  Node& a() { return *nodes_[0]; }
  Node& b() { return *nodes_[1]; }
  void open(const jz::Hca::Options& options = {});

 private:
  std::vector<std::unique_ptr<Node>> nodes_;
};

/// One side of a work request test: memory, its key, and queues.
struct Side : driver::test::SideMemory {
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

  Sge piece(std::size_t offset, std::size_t length) const {
    return {address(offset), static_cast<std::uint32_t>(length), key->key()};
  }
  jz::RemoteQueuePair as_remote(std::uint32_t psn) const {
    return {.qpn = qp->qpn(), .psn = psn, .at = node.address};
  }
  /// Posts a receive of one piece.
  void receive(std::uint64_t id, std::size_t offset, std::size_t length);

  Node& node;
  std::uint32_t pd;
  std::unique_ptr<jz::MemoryKey> key;
  std::unique_ptr<jz::CompletionQueue> send_cq;
  std::unique_ptr<jz::CompletionQueue> receive_cq;
  std::unique_ptr<jz::QueuePair> qp;
};

inline constexpr std::uint32_t kQkey = 0x1111;

/// Connects both ends, each with its own PSN.
void connect(Side& a, Side& b, jz::Connection connection = {}, jz::RemoteAccess access = {});

bool same(std::span<const std::byte> a, std::span<const std::byte> b);

/// The full `softhca inspect` output for this device, as text.
std::string inspect(const Device& device);

}  // namespace softhca::jingzhao::test
