// Two honest hubs that join each other over a network that loses, repeats, reorders, damages and
// delays their datagrams, carries only short ones, and replays earlier ones. The hubs crash and
// restart.
//
// Besides the sanitizers' checks: a station gets each frame that was sent to it once or not at all,
// byte for byte, and no other frame. Once the network is as it should be, the hubs have joined and
// frames cross.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "trunk_machine.h"
#include "util/endian.h"

namespace softhca::fuzz {
namespace {

constexpr unsigned kHosts = 2;
constexpr unsigned kProcesses[kHosts] = {3 * 256 + 1, 9 * 256 + 5};
constexpr std::uint64_t kBroadcast = 0xffff'ffff'ffff;
/// The network has no room for more: it loses the oldest.
constexpr std::size_t kPacketsMax = 4096;
constexpr std::size_t kDatagramMax = trunk::kDatagramMax;

class World {
 public:
  World() {
    for (unsigned host = 0; host != kHosts; ++host) restart(host);
  }
  void play(Script script) {
    while (!script.empty()) act(script);
    mtu_ = kDatagramMax;
    run(std::chrono::seconds(20));
    for (unsigned host = 0; host != kHosts; ++host) {
      for (const std::size_t size : {40, 4000}) {
        const auto before = arrived_;
        send(host, hub::address_of(kProcesses[1 - host]).to_u64(), size);
        deliver(kPacketsMax);
        check(arrived_ == before + 1);
      }
    }
  }

 private:
  struct Sent {
    unsigned to = 0;
    std::size_t size = 0;  ///< of the payload
    bool has_arrived = false;
  };

  void act(Script& script) {
    const auto what = script.byte();
    const auto host = script.byte() % kHosts;
    auto& packets = network_.packets;
    switch (what % 11) {
      case 0:
        return send(host, hub::address_of(kProcesses[1 - host]).to_u64(), size_in(script));
      case 1:
        return send(host, kBroadcast, size_in(script));
      case 2:
        return deliver(script.byte());
      case 3:
        if (!packets.empty()) packets.pop_front();
        return;
      case 4:
        if (!packets.empty()) packets.push_back(packets.front());
        return;
      case 5:
        if (!packets.empty()) std::rotate(packets.begin(), packets.begin() + 1, packets.end());
        return;
      case 6:
        return damage(script);
      case 7:
        return pass(std::chrono::milliseconds(script.word() % 3000));
      case 8:
        return repeat(script);
      case 9:
        mtu_ = 100 + script.word() % kDatagramMax;
        return;
      default:
        // Seldom: a session takes several steps.
        if (script.byte() % 8 == 0) restart(host);
    }
  }
  static std::size_t size_in(Script& script) {
    return sizeof(std::uint32_t) + script.word() % 17'000;
  }
  void damage(Script& script) {
    auto& packets = network_.packets;
    const auto at = script.word();
    const auto bits = script.byte();
    if (packets.empty()) return;
    auto& bytes = packets.front().bytes;
    bytes[at % bytes.size()] ^= std::byte{bits};
  }
  void repeat(Script& script) {
    const auto at = script.byte();
    if (!network_.history.empty()) {
      network_.packets.push_back(network_.history[at % network_.history.size()]);
    }
  }
  void restart(unsigned host) {
    machines_[host].reset();
    machines_[host] = std::make_unique<Machine>(
        network_, host, kProcesses[host],
        std::vector<trunk::Target>{{"other", address_of(1 - host)}},
        [this, host](std::span<const std::byte> frame) { take(host, frame); });
  }
  void send(unsigned host, std::uint64_t to, std::size_t size) {
    const auto number = static_cast<std::uint32_t>(sent_.size());
    sent_.push_back({.to = 1 - host, .size = size});
    std::vector<std::byte> payload(size);
    fill(payload, number);
    machines_[host]->send(to, payload);
  }
  /// The number of the frame, and bytes that follow from it.
  static void fill(std::span<std::byte> payload, std::uint32_t number) {
    for (std::size_t i = 0; i != payload.size(); ++i) {
      payload[i] = static_cast<std::byte>(number * 31 + i * 7);
    }
    util::store_be32(payload.data(), number);
  }
  void take(unsigned host, std::span<const std::byte> frame) {
    const auto payload = frame.subspan(Machine::kHead);
    check(payload.size() >= sizeof(std::uint32_t));
    const auto number = util::load_be32(payload.data());
    check(number < sent_.size());
    auto& sent = sent_[number];
    check(sent.to == host && sent.size == payload.size() && !sent.has_arrived);
    sent.has_arrived = true;
    ++arrived_;
    std::vector<std::byte> expected(payload.size());
    fill(expected, number);
    check(std::ranges::equal(payload, expected));
  }
  void deliver(std::size_t count) {
    auto& packets = network_.packets;
    for (; count != 0 && !packets.empty(); --count) {
      const auto packet = std::move(packets.front());
      packets.pop_front();
      if (packet.bytes.size() > mtu_) continue;
      for (unsigned host = 0; host != kHosts; ++host) {
        if (packet.to == address_of(host)) machines_[host]->take(packet);
      }
      while (packets.size() > kPacketsMax) packets.pop_front();
    }
  }
  /// Time passes, and no datagram arrives.
  void pass(util::Duration time) {
    for (const auto until = network_.now + time; network_.now < until;) {
      network_.now += std::chrono::milliseconds(50);
      for (auto& machine : machines_) machine->tick();
    }
  }
  void run(util::Duration time) {
    for (const auto until = network_.now + time; network_.now < until;) {
      pass(std::chrono::milliseconds(50));
      deliver(kPacketsMax);
    }
  }

  Network network_;
  std::size_t mtu_ = kDatagramMax;
  std::vector<Sent> sent_;
  std::size_t arrived_ = 0;
  std::unique_ptr<Machine> machines_[kHosts];
};

}  // namespace
}  // namespace softhca::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return softhca::fuzz::play_quietly<softhca::fuzz::World>(data, size);
}
