// Hubs with trunks on a network of memory, for the fuzzers of the trunk.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fabric/switch.h"
#include "hub/hub_client.h"
#include "oracle.h"
#include "script.h"
#include "trunk/trunk.h"
#include "util/log.h"
#include "wire/ethernet.h"

namespace softhca::fuzz {

struct Packet {
  trunk::Address from;
  trunk::Address to;
  std::vector<std::byte> bytes;
};

inline trunk::Address address_of(unsigned host) {
  trunk::Address address;
  address.ip[15] = static_cast<std::uint8_t>(host);
  address.port = 24791;
  return address;
}

/// The datagrams under way, and the latest ones sent.
struct Network {
  static constexpr std::size_t kHistory = 64;

  std::deque<Packet> packets;
  std::deque<Packet> history;
  util::Time now{std::chrono::hours(1)};
};

class TrunkEnd final : public trunk::Out {
 public:
  TrunkEnd(Network& network, unsigned host) : network_(network), own_(address_of(host)) {}
  void send(const trunk::Address& to, std::span<const std::byte> datagram) override {
    network_.packets.push_back({own_, to, {datagram.begin(), datagram.end()}});
    network_.history.push_back(network_.packets.back());
    if (network_.history.size() > Network::kHistory) network_.history.pop_front();
  }

 private:
  Network& network_;
  const trunk::Address own_;
};

/// A machine whose hub has one process: a station that takes every frame.
class Machine final : private fabric::Receiver {
 public:
  using Take = std::function<void(std::span<const std::byte> frame)>;

  Machine(Network& network, unsigned host, unsigned process, std::vector<trunk::Target> targets,
          Take take)
      : take_(std::move(take)),
        end_(network, host),
        trunk_({.identity = trunk::make_identity(key(), trunk::fabric_id_of("fuzz")),
                .targets = std::move(targets),
                .far = [](unsigned block, const auto&) { check(block < 256); },
                .clock = [&network] { return network.now; }},
               end_),
        process_(process) {
    port_ = fabric_.create_port("station");
    port_->set_receiver(this);
    trunk_.attach(fabric_.create_port("trunk"), [](auto) { return false; });
    check(trunk_.claim(process / 256));
    trunk_.handle_member(process, true);
  }
  ~Machine() override { trunk_.detach(); }

  static const trunk::Key& key() {
    static const auto key = trunk::key_of("sixteen characters or more");
    return key;
  }
  trunk::Trunk& trunk() { return trunk_; }
  void take(const Packet& packet) {
    const Turn turn;
    trunk_.sessions().handle_datagram(packet.from, packet.bytes);
    fabric_.deliver(1 << 20);
    trunk_.settle();
  }
  /// `payload` follows the Ethernet header.
  void send(std::uint64_t to, std::span<const std::byte> payload) {
    wire::Frame frame;
    wire::Ethernet{wire::MacAddress::from_u64(to), hub::address_of(process_),
                   wire::EtherType{0x88b5}}
        .emit(util::MutableView<wire::EthernetLayout>(frame.resize_head(kHead)));
    (void)frame.add_segment(payload);
    port_->transmit(frame);
    fabric_.deliver(1 << 20);
    trunk_.settle();
  }
  void tick() {
    const Turn turn;
    trunk_.sessions().tick();
    trunk_.settle();
  }

  static constexpr std::size_t kHead = wire::EthernetLayout::kSize;

 private:
  void handle_frame(const wire::Frame& frame) override {
    check(frame.size() >= kHead && frame.size() <= bytes_.size());
    const auto bytes = std::span(bytes_).first(frame.size());
    frame.copy_to(bytes);
    take_(bytes);
  }
  void handle_loopback(const wire::Frame&, std::uint32_t) override { check(false); }

  const Take take_;
  std::array<std::byte, 65536> bytes_{};
  TrunkEnd end_;
  fabric::Switch fabric_;
  std::unique_ptr<fabric::Port> port_;
  trunk::Trunk trunk_;
  const unsigned process_;
};

/// Plays an input in a new World. Hostile inputs would fill the log.
template <class World>
int play_quietly(const std::uint8_t* data, std::size_t size) {
  util::set_log_sink([](auto, auto) {});
  return run_input([&] { World().play(Script(data, size)); });
}

}  // namespace softhca::fuzz
