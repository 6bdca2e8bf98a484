// Hubs with trunks on virtual time, joined by a network that the test controls.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fabric/recorder.h"
#include "fabric/switch.h"
#include "hub/hub_client.h"
#include "trunk/trunk.h"

namespace softhca::trunk {

inline Address address_of(unsigned host) {
  Address address;
  address.ip = {0, 0, 0,    0,    0,  0, 0, 0,
                0, 0, 0xff, 0xff, 10, 0, 0, static_cast<std::uint8_t>(host)};
  address.port = 24791;
  return address;
}

inline std::uint64_t mac_of_process(unsigned number) { return hub::address_of(number).to_u64(); }

inline const Key& shared_key() {
  static const Key key = key_of("sixteen characters or more");
  return key;
}

struct Packet {
  Address from;
  Address to;
  std::vector<std::byte> bytes;

  Kind kind() const { return parse_head(bytes).value_or(Head{}).kind; }
};

/// The network: what is sent waits until run() delivers it.
class Network {
 public:
  std::deque<Packet> packets;
  std::vector<Packet> history;               ///< all that was sent
  std::size_t mtu = kDatagramMax;            ///< longer datagrams are lost
  std::function<bool(const Packet&)> loses;  ///< empty: nothing is lost
  util::Time now{std::chrono::seconds(1000)};
};

class End final : public Out {
 public:
  End(Network& network, unsigned host) : network_(network), own_(trunk::address_of(host)) {}
  void send(const Address& to, std::span<const std::byte> datagram) override {
    Packet packet{own_, to, {datagram.begin(), datagram.end()}};
    network_.history.push_back(packet);
    if (datagram.size() > network_.mtu) return;
    if (network_.loses && network_.loses(packet)) return;
    network_.packets.push_back(std::move(packet));
  }
  const Address& own() const { return own_; }

 private:
  Network& network_;
  const Address own_;
};

/// A machine: a switch with a station and a trunk.
class Machine {
 public:
  Machine(Network& network, unsigned host, const std::vector<unsigned>& joins,
          const Key& key = shared_key(), const std::string& fabric = "default")
      : end(network, host), trunk_(options(network, joins, key, fabric), end) {
    station_ = fabric_.create_port("station");
    station_->set_receiver(&receiver);
    trunk_.attach(fabric_.create_port("trunk"), [this](auto) { return is_full; });
  }
  ~Machine() { trunk_.detach(); }

  Trunk& trunk() { return trunk_; }
  Sessions& sessions() { return trunk_.sessions(); }
  /// The only session.
  Session& session() {
    Session* only = nullptr;
    for (std::size_t i = 0; i != sessions().end(); ++i) {
      if (auto* one = sessions().find(i)) only = one;
    }
    EXPECT_NE(only, nullptr);
    return *only;
  }
  std::size_t count() {
    std::size_t all = 0;
    for (std::size_t i = 0; i != sessions().end(); ++i) all += sessions().find(i) != nullptr;
    return all;
  }
  void add_process(unsigned number) {
    EXPECT_TRUE(trunk_.claim(number / 256));
    trunk_.handle_member(number, true);
  }
  /// Sends a frame from a station of this machine.
  void send(std::uint64_t to, std::uint64_t from, std::string_view text) {
    station_->transmit(fabric::frame_of(to, from, text));
    fabric_.deliver(fabric::kAllFrames);
  }
  void send_raw(const wire::Frame& frame) {
    station_->transmit(frame);
    fabric_.deliver(fabric::kAllFrames);
  }
  void take(const Packet& packet) {
    sessions().handle_datagram(packet.from, packet.bytes);
    fabric_.deliver(fabric::kAllFrames);
  }
  std::vector<std::string> texts() { return std::exchange(receiver.texts, {}); }

  End end;
  fabric::Recorder receiver;
  std::set<unsigned> members;  ///< of the others, as reported
  bool is_full = false;

 private:
  Trunk::Options options(Network& network, const std::vector<unsigned>& joins, const Key& key,
                         const std::string& fabric) {
    std::vector<Target> targets;
    for (const auto host : joins) {
      targets.push_back({"host" + std::to_string(host), trunk::address_of(host)});
    }
    return {.identity = make_identity(key, fabric_id_of(fabric)),
            .targets = std::move(targets),
            .far =
                [this](unsigned block, const std::bitset<256>& living) {
                  std::erase_if(members, [=](unsigned one) { return one / 256 == block; });
                  for (unsigned i = 0; i != 256; ++i) {
                    if (living[i]) members.insert(block * 256 + i);
                  }
                },
            .clock = [&network] { return network.now; }};
  }

  fabric::Switch fabric_;
  std::unique_ptr<fabric::Port> station_;
  Trunk trunk_;
};

class TrunkTest : public testing::Test {
 protected:
  Machine& start(unsigned host, const std::vector<unsigned>& joins = {},
                 const Key& key = shared_key(), const std::string& fabric = "default") {
    machines_.push_back(std::make_unique<Machine>(network, host, joins, key, fabric));
    return *machines_.back();
  }
  void kill(const Machine& machine) {
    std::erase_if(machines_, [&](const auto& one) { return one.get() == &machine; });
  }
  /// Delivers all datagrams, and those that they cause.
  void deliver() {
    for (int i = 0; !network.packets.empty(); ++i) {
      ASSERT_LT(i, 100'000) << "the hubs go on and on";
      const auto packet = std::move(network.packets.front());
      network.packets.pop_front();
      for (const auto& machine : machines_) {
        if (machine->end.own() == packet.to) machine->take(packet);
      }
      settle();
    }
  }
  void settle() {
    for (const auto& machine : machines_) machine->trunk().settle();
  }
  void run(util::Duration time) {
    const auto until = network.now + time;
    while (network.now < until) {
      network.now += std::chrono::milliseconds(10);
      for (const auto& machine : machines_) machine->sessions().tick();
      settle();
      deliver();
    }
  }

  Network network;

 private:
  std::vector<std::unique_ptr<Machine>> machines_;
};

inline constexpr std::uint64_t kBroadcast = 0xffffffffffff;
/// Numbers of processes in blocks 3 and 9.
inline constexpr unsigned kHere = 3 * 256 + 1, kThere = 9 * 256 + 5;
/// Stations that are no processes.
inline constexpr std::uint64_t kGuestHere = 0x020000000001, kGuestThere = 0x020000000002;

class JoinedTest : public TrunkTest {
 protected:
  JoinedTest() {
    run(std::chrono::seconds(1));
    here.add_process(kHere);
    there.add_process(kThere);
    deliver();
  }

  Machine& there = start(2);
  Machine& here = start(1, {2});
};

}  // namespace softhca::trunk
