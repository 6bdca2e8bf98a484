// A hub with a trunk, and senders that do anything: without the key, datagrams of any bytes, and
// those of others again or changed; with the key, a hub that begins sessions and then breaks every
// rule. A second hub is honest.
//
// Whatever they do, datagrams take a short time, and memory stays bounded. The station gets no
// frame in the name of another hub's process. At the end, the two honest hubs exchange frames.
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trunk_machine.h"

namespace softhca::fuzz {
namespace {

constexpr unsigned kHostile = 7;  ///< hosts
constexpr unsigned kProcess = 3 * 256 + 1, kPeer = 9 * 256 + 5;

/// Frames that a station has taken. None comes in the name of its own machine's processes.
struct Station {
  unsigned frames = 0;

  Machine::Take take(unsigned process) {
    return [this, process](std::span<const std::byte> frame) {
      const auto from = hub::number_of(frame.subspan(6));
      check(from == 0 || from / 256 != process / 256);
      ++frames;
    };
  }
};

class World {
 public:
  void play(Script script) {
    run(std::chrono::seconds(1));
    while (!script.empty()) act(script);
    // The hostile hub falls silent.
    hostile_at_.reset();
    run(std::chrono::seconds(15));
    const auto before = at_victim_.frames, before_of_peer = at_honest_.frames;
    honest_.send(hub::address_of(kProcess).to_u64(), std::span(payload_).first(4000));
    victim_.send(hub::address_of(kPeer).to_u64(), std::span(payload_).first(40));
    deliver();
    check(at_victim_.frames == before + 1 && at_honest_.frames == before_of_peer + 1);
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
        return send_from_victim(script), deliver();
      default:
        sequence_ += script.dword();
    }
  }
  void send_from_victim(Script& script) {
    const auto to = script.qword();
    victim_.send(to, std::span(payload_).first(script.word() % payload_.size()));
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

  const std::vector<std::byte> payload_ = std::vector<std::byte>(20000);
  Network network_;
  Station at_victim_, at_honest_;
  Machine victim_{network_, 1, kProcess, {}, at_victim_.take(kProcess)};
  Machine honest_{network_, 2, kPeer, {{"victim", address_of(1)}}, at_honest_.take(kPeer)};
  trunk::Identity hostile_ = trunk::make_identity(Machine::key(), trunk::fabric_id_of("fuzz"));
  std::optional<trunk::Joiner> joiner_;
  std::optional<unsigned> hostile_at_;
  trunk::Session::Keys keys_{};
  std::uint64_t sequence_ = 0;
  trunk::Draft draft_;
};

}  // namespace
}  // namespace softhca::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return softhca::fuzz::play_quietly<softhca::fuzz::World>(data, size);
}
