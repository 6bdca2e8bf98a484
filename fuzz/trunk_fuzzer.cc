// A hub with a trunk, and senders that do anything: without the key, datagrams of any bytes, and
// those of others again or changed; with the key, a hub that begins sessions and then breaks every
// rule. A second hub is honest.
//
// Whatever they do, datagrams take a short time, and memory stays bounded. The station gets no
// frame in the name of another hub's process. At the end, the two honest hubs exchange frames.
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabric/switch.h"
#include "hub/hub_client.h"
#include "oracle.h"
#include "script.h"
#include "trunk/trunk.h"
#include "util/log.h"
#include "wire/ethernet.h"

namespace {

using namespace softhca;
using fuzz::check;
using fuzz::Script;

constexpr std::size_t kHistory = 64;
constexpr unsigned kHostile = 7;  ///< hosts
constexpr unsigned kProcess = 3 * 256 + 1, kPeer = 9 * 256 + 5;

struct Packet {
  trunk::Address from;
  trunk::Address to;
  std::vector<std::byte> bytes;
};

trunk::Address address_of(unsigned host) {
  trunk::Address address;
  address.ip[15] = static_cast<std::uint8_t>(host);
  address.port = 24791;
  return address;
}

struct Network {
  std::deque<Packet> packets;
  std::deque<Packet> history;
  util::Time now{std::chrono::hours(1)};
};

class End final : public trunk::Out {
 public:
  End(Network& network, unsigned host) : network_(network), own_(address_of(host)) {}
  void send(const trunk::Address& to, std::span<const std::byte> datagram) override {
    network_.packets.push_back({own_, to, {datagram.begin(), datagram.end()}});
    network_.history.push_back(network_.packets.back());
    if (network_.history.size() > kHistory) network_.history.pop_front();
  }

 private:
  Network& network_;
  const trunk::Address own_;
};

struct Station final : fabric::Receiver {
  explicit Station(unsigned own_process) : block(own_process / 256) {}

  void handle_frame(const wire::Frame& frame) override {
    check(frame.size() <= bytes.size());
    frame.copy_to(std::span(bytes).first(frame.size()));
    const auto from = hub::number_of(std::span(bytes).subspan(6));
    check(from == 0 || from / 256 != block);
    ++frames;
  }
  void handle_loopback(const wire::Frame&, std::uint32_t) override { check(false); }

  std::array<std::byte, 65536> bytes{};
  const unsigned block;  ///< of numbers, of this machine
  unsigned frames = 0;
};

class Machine {
 public:
  Machine(Network& network, unsigned host, unsigned process, std::vector<trunk::Target> targets)
      : station(process),
        end_(network, host),
        trunk_({.identity = trunk::make_identity(key(), trunk::fabric_id_of("fuzz")),
                .targets = std::move(targets),
                .far = [](unsigned block, const auto&) { check(block < 256); },
                .clock = [&network] { return network.now; }},
               end_),
        process_(process) {
    port_ = fabric_.create_port("station");
    port_->set_receiver(&station);
    trunk_.attach(fabric_.create_port("trunk"), [](auto) { return false; });
    check(trunk_.claim(process / 256));
    trunk_.handle_member(process, true);
  }
  ~Machine() { trunk_.detach(); }

  static const trunk::Key& key() {
    static const auto key = trunk::key_of("sixteen characters or more");
    return key;
  }
  trunk::Trunk& trunk() { return trunk_; }
  void take(const Packet& packet) {
    const fuzz::Turn turn;
    trunk_.sessions().handle_datagram(packet.from, packet.bytes);
    fabric_.deliver(1 << 20);
    trunk_.settle();
  }
  void send(std::uint64_t to, std::size_t size) {
    wire::Frame frame;
    wire::Ethernet{wire::MacAddress::from_u64(to), hub::address_of(process_),
                   wire::EtherType{0x88b5}}
        .emit(util::MutableView<wire::EthernetLayout>(frame.resize_head(14)));
    static const std::vector<std::byte> payload(65536);
    (void)frame.add_segment(std::span(payload).first(size));
    port_->transmit(frame);
    fabric_.deliver(1 << 20);
    trunk_.settle();
  }
  void tick() {
    const fuzz::Turn turn;
    trunk_.sessions().tick();
    trunk_.settle();
  }

  Station station;

 private:
  End end_;
  fabric::Switch fabric_;
  std::unique_ptr<fabric::Port> port_;
  trunk::Trunk trunk_;
  const unsigned process_;
};

class World {
 public:
  void play(Script script) {
    run(std::chrono::seconds(1));
    while (!script.empty()) act(script);
    // The hostile hub falls silent.
    hostile_at_.reset();
    run(std::chrono::seconds(15));
    const auto before = victim_.station.frames, before_of_peer = honest_.station.frames;
    honest_.send(hub::address_of(kProcess).to_u64(), 4000);
    victim_.send(hub::address_of(kPeer).to_u64(), 40);
    deliver();
    check(victim_.station.frames == before + 1 && honest_.station.frames == before_of_peer + 1);
  }

 private:
  void act(Script& script) {
    const auto what = script.byte();
    switch (what % 8) {
      case 0:
        return victim_.take({address_of(script.byte()), address_of(1), body(script)});
      case 1:
        return send_in_session(static_cast<trunk::Kind>(script.byte() % 14), script);
      case 2:
        return repeat(script);
      case 3:
        return run(std::chrono::milliseconds(script.word() % 3000));
      case 4:
        return begin(script.byte() % 4 == 0);
      case 5:
        return send_with_key(static_cast<trunk::Kind>(script.byte() % 6), script);
      case 6:
        return victim_.send(script.qword(), script.word() % 20000), deliver();
      default:
        sequence_ += script.dword();
    }
  }
  static std::vector<std::byte> body(Script& script) {
    const auto bytes = script.take(script.word() % 9000);
    return {bytes.begin(), bytes.end()};
  }
  void put(Script& script) {
    auto bytes = body(script);
    bytes.resize(std::min(bytes.size(), trunk::kDatagramMax - trunk::kOverhead));
    draft_.put(bytes);
  }
  void send_in_session(trunk::Kind kind, Script& script) {
    draft_.start({.kind = kind,
                  .from_joiner = true,
                  .fabric = hostile_.fabric,
                  .sender = hostile_.id,
                  .sequence = ++sequence_,
                  .ack = script.word()});
    put(script);
    const auto datagram = draft_.seal(keys_.out);
    victim_.take({address_of(kHostile), address_of(1), {datagram.begin(), datagram.end()}});
    deliver();
  }
  void send_with_key(trunk::Kind kind, Script& script) {
    const auto from = script.byte();
    draft_.start({.kind = kind,
                  .from_joiner = (from & 1) != 0,
                  .fabric = hostile_.fabric,
                  .sender = hostile_.id + from});
    put(script);
    const auto datagram = draft_.seal(hostile_.hello_key);
    victim_.take({address_of(from), address_of(1), {datagram.begin(), datagram.end()}});
    deliver();
  }
  void repeat(Script& script) {
    if (network_.history.empty()) return;
    auto packet = network_.history[script.byte() % network_.history.size()];
    if (const auto change = script.byte(); change != 0) {
      packet.bytes[script.word() % packet.bytes.size()] ^= std::byte{change};
    }
    if (script.byte() % 2 == 0) packet.from = address_of(script.byte());
    victim_.take(packet);
    deliver();
  }
  /// The hostile hub begins a session by the rules.
  void begin(bool another) {
    if (another) hostile_ = trunk::make_identity(Machine::key(), trunk::fabric_id_of("fuzz"));
    joiner_.emplace(hostile_);
    hostile_at_ = kHostile;
    sequence_ = 0;
    hello(true);
    deliver();
  }
  void hello(bool fresh) {
    joiner_->hello(draft_, {}, fresh);
    const auto datagram = draft_.seal(hostile_.hello_key);
    network_.packets.push_back(
        {address_of(kHostile), address_of(1), {datagram.begin(), datagram.end()}});
  }
  void take_as_hostile(const Packet& packet) {
    const auto head = trunk::parse_head(packet.bytes);
    if (!head || !joiner_) return;
    if (head->kind == trunk::Kind::kChallenge && joiner_->take_challenge(packet.bytes))
      hello(false);
    if (head->kind != trunk::Kind::kWelcome) return;
    if (const auto begun = joiner_->take_welcome(*head, packet.bytes)) keys_ = begun->keys;
  }
  void deliver() {
    for (int i = 0; !network_.packets.empty(); ++i) {
      check(i < 10'000);
      const auto packet = std::move(network_.packets.front());
      network_.packets.pop_front();
      if (packet.to == address_of(1)) victim_.take(packet);
      if (packet.to == address_of(2)) honest_.take(packet);
      if (hostile_at_ && packet.to == address_of(kHostile)) take_as_hostile(packet);
      check(victim_.trunk().sessions().pending() <= trunk::Sessions::kPendingMax);
      check(victim_.trunk().sessions().end() <=
            trunk::Sessions::kHubsMax + trunk::Sessions::kPendingMax);
    }
  }
  void run(util::Duration time) {
    for (const auto until = network_.now + time; network_.now < until;) {
      network_.now += std::chrono::milliseconds(50);
      victim_.tick();
      honest_.tick();
      deliver();
    }
  }

  Network network_;
  Machine victim_{network_, 1, kProcess, {}};
  Machine honest_{network_, 2, kPeer, {{"victim", address_of(1)}}};
  trunk::Identity hostile_ = trunk::make_identity(Machine::key(), trunk::fabric_id_of("fuzz"));
  std::optional<trunk::Joiner> joiner_;
  std::optional<unsigned> hostile_at_;
  trunk::Session::Keys keys_{};
  std::uint64_t sequence_ = 0;
  trunk::Draft draft_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  util::set_log_sink([](auto, auto) {});
  return fuzz::run_input([&] { World().play(Script(data, size)); });
}
