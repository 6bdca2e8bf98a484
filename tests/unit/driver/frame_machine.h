// A device with its driver, a sender and a receiver, for tests that exchange frames between two
// such machines and compare all that can be observed.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "connectx/device.h"
#include "driver/connectx/frame_receiver.h"
#include "driver/connectx/frame_sender.h"
#include "driver/frame_exchange.h"
#include "driver/in_process_host.h"
#include "driver/world.h"
#include "fabric/switch.h"
#include "util/inspected.h"
#include "wire/ethernet.h"
#include "wire/ipv4.h"

namespace softhca::driver::test {

inline constexpr util::Time kExchangeTime(std::chrono::hours(1));

struct FrameMachine {
  struct Options {
    connectx::SendQueue::Limits send;
    connectx::ReceiveQueue::Limits receive;
    /// Makes the device's port from its port of the switch. Empty: the latter is the device's.
    std::function<std::unique_ptr<fabric::Port>(fabric::Port&)> wrap = {};
  };

  FrameMachine(fabric::Switch& network, unsigned number, Options the_options,
               std::function<void()> progress)
      : options(std::move(the_options)),
        port(network.create_port("p")),
        wrapped(options.wrap ? options.wrap(*port) : nullptr),
        device({.name = fmt::format("connectx{}", number),
                .mac = wire::MacAddress::from_u64(0x020000000000u + number),
                .node_guid = number,
                .clock = [] { return kExchangeTime; }},
               wrapped != nullptr ? *wrapped : *port),
        host(device, {.progress = std::move(progress), .clock = [] { return kExchangeTime; }}),
        memory(memory_of(number)) {
    std::ranges::fill(memory, std::byte{0});
  }
  /// Memory at the same address in both runs, because inspect() shows addresses.
  static std::span<std::byte> memory_of(unsigned number) {
    alignas(4096) static std::array<std::byte, kExchangeMemory> memories[2];
    return memories[number - 1];
  }
  void open() {
    hca = must(connectx::Hca::open(host));
    pd = must(connectx::ProtectionDomain::create(*hca));
    domain = must(connectx::TransportDomain::create(*hca));
    register_memory();
    cq = must(connectx::CompletionQueue::create(*hca, {.entries = 4096}));
    sender = must(connectx::FrameSender::create(*pd, *domain, {.cq = *cq, .send = options.send}));
    receiver = must(
        connectx::FrameReceiver::create(*pd, *domain, {.cq = *cq, .receive = options.receive}));
    must(receiver->take_all_frames());
  }
  void register_memory() {
    key = nullptr;
    key = must(connectx::MemoryKey::register_memory(*pd, memory, {}));
  }
  void close() {
    receiver = nullptr;
    sender = nullptr;
    cq = nullptr;
    key = nullptr;
    domain = nullptr;
    pd = nullptr;
    hca = nullptr;
  }
  Sge piece(std::size_t offset, std::size_t length) const {
    return {reinterpret_cast<std::uintptr_t>(memory.data()) + offset,
            static_cast<std::uint32_t>(length), key->key()};
  }
  /// Adds a line to `log` for each completion.
  void poll(std::string& log) {
    Completion c;
    for (unsigned i = 0; i < 1000 && cq->poll({&c, 1}) == 1; ++i) {
      log += fmt::format("{} {} {} {} {} {}\n", c.id, to_string(c.status), c.qpn, c.byte_count,
                         c.l3_checksum_ok, c.l4_checksum_ok);
    }
  }

  Options options;
  std::unique_ptr<fabric::Port> port;
  std::unique_ptr<fabric::Port> wrapped;
  softhca::connectx::Device device;
  InProcessHost host;
  std::span<std::byte> memory;
  std::unique_ptr<connectx::Hca> hca;
  std::unique_ptr<connectx::ProtectionDomain> pd;
  std::unique_ptr<connectx::TransportDomain> domain;
  std::unique_ptr<connectx::MemoryKey> key;
  std::unique_ptr<connectx::CompletionQueue> cq;
  std::unique_ptr<connectx::FrameSender> sender;
  std::unique_ptr<connectx::FrameReceiver> receiver;
};

/// The observable state after an exchange: the receiver's memory, both devices, the switch.
inline std::string end_of_exchange(const FrameMachine& a, const FrameMachine& b,
                                   const fabric::Switch& network) {
  const auto& c = network.counters();
  return fmt::format("memory {:x}\n", hash_of(b.memory)) + softhca::test::inspected(a.device, {}) +
         softhca::test::inspected(b.device, {}) +
         fmt::format("switch {} {} {}\n", c.delivered, c.flooded, c.dropped_queue_full);
}

/// Two machines driven by a seed, and everything that an observer could record.
class FrameExchange {
 protected:
  /// Frames that a pass delivers after each device's turn.
  using Limit = std::function<std::size_t(std::mt19937&)>;

  /// `trains`: of the switch.
  FrameExchange(unsigned seed, bool trains, const FrameMachine::Options& options, Limit limit)
      : random_(seed),
        limit_(std::move(limit)),
        // In some runs, queues too short for what a turn sends.
        network_({.queue_frames_max = seed % 3 == 0 ? 20u : 4096u, .trains = trains}),
        a_(network_, 1, options, [this] { pass(); }),
        b_(network_, 2, options, [this] { pass(); }) {
    network_.set_tap(&log_);
    a_.open();
    b_.open();
    std::ranges::copy(pattern(kExchangeMemory, seed), a_.memory.begin());
  }
  ~FrameExchange() {
    // Closing one driver needs both devices to run.
    a_.close();
    b_.close();
    network_.set_tap(nullptr);
  }
  FrameExchange(const FrameExchange&) = delete;
  FrameExchange& operator=(const FrameExchange&) = delete;

  void pass() {
    for (auto* machine : {&a_, &b_}) {
      (void)machine->device.run(kExchangeTime);
      network_.deliver(limit_(random_));
    }
  }
  void poll() {
    a_.poll(log_.text);
    b_.poll(log_.text);
  }
  /// All that was observed, after so many more passes.
  std::string finish(unsigned passes) {
    for (; passes != 0; --passes) pass();
    poll();
    return log_.text + end_of_exchange(a_, b_, network_);
  }
  /// Bytes that begin with Ethernet and IPv4 headers from machine a to b, or to a group once in
  /// `group_every` times.
  std::vector<std::byte> headers(std::size_t size, unsigned group_every, std::size_t total_length,
                                 wire::IpProtocol protocol) {
    using Ip = wire::Ipv4Layout;
    std::vector<std::byte> bytes(size);
    const std::uint64_t to = random_() % group_every == 0 ? 0x0100'5E00'0001u : 0x020000000002u;
    const wire::Ethernet ethernet{.destination = wire::MacAddress::from_u64(to),
                                  .source = wire::MacAddress::from_u64(0x020000000001u),
                                  .ether_type = wire::EtherType::kIpv4};
    ethernet.emit(util::MutableView<wire::EthernetLayout>(bytes));
    const auto l3 = std::span(bytes).subspan(wire::EthernetLayout::kSize);
    const util::MutableView<Ip> ip(l3);
    ip.set(Ip::version, 4);
    ip.set(Ip::ihl, 5);
    ip.set(Ip::total_length, static_cast<std::uint32_t>(total_length));
    ip.set(Ip::identification, random_() % 0x10000);
    ip.set(Ip::ttl, 64);
    ip.set(Ip::protocol, static_cast<std::uint32_t>(protocol));
    return bytes;
  }
  static constexpr std::size_t kL4 = wire::EthernetLayout::kSize + wire::Ipv4Layout::kSize;

  std::mt19937 random_;
  Limit limit_;
  fabric::Switch network_;
  FrameLog log_;
  FrameMachine a_;
  FrameMachine b_;
  std::uint64_t id_ = 0;
};

/// Both runs of an exchange were observed to be the same, and long.
inline void expect_same(const std::string& one, const std::string& other) {
  const auto differs = std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first;
  const auto place = static_cast<std::size_t>(differs - one.begin());
  ASSERT_TRUE(one == other) << "first difference at "
                            << one.substr(place - std::min<std::size_t>(place, 300), 500)
                            << "\n and " << other.substr(std::min(place, other.size()), 200);
  EXPECT_GT(one.size(), 10000u);
}

}  // namespace softhca::driver::test
