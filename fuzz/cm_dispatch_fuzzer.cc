// Packets of peers to the QP1 that the processes of a hub share, while processes join and leave,
// and register listeners.
//
// Besides the sanitizers' checks: a message goes to a process that has the address, or to none;
// each packet is counted once; the tables keep their bounds; and a request goes to the one process
// that listens on its service.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "hub/cm_dispatch.h"
#include "hub/cm_packets.h"
#include "oracle.h"
#include "script.h"

namespace {

using namespace softhca;
using fuzz::check;
using fuzz::Script;
using hub::CmDispatch;
using hub::RoceBlock;

const wire::Gid kOwn = wire::Gid::from_ipv4(198, 51, 100, 1);
const CmDispatch::Options kOptions{
    .listeners_max = 4,
    .requests_max = 8,
    .rate = {.burst = 64, .per_second = 16, .peers_max = 4},
    .unexpected_rate = {.burst = 4, .per_second = 2, .peers_max = 4}};

class World {
 public:
  void play(Script& script) {
    while (!script.empty()) {
      const fuzz::Turn turn;
      step(script);
      look();
    }
  }

 private:
  enum Action : std::uint8_t { kListen, kUnlisten, kJoin, kLeave, kTime, kMessage, kChanged, kRaw };

  void step(Script& script) {
    switch (script.byte() % 8) {
      case kListen:
        return listen(block_of(script), script.byte() % 16);
      case kUnlisten: {
        const auto block = block_of(script);
        const auto service = script.byte() % 16;
        dispatch_.unlisten(block, service_of(service), now_);
        listeners_[service].erase(block);
        return;
      }
      case kJoin: {
        const auto block = block_of(script);
        if (std::ranges::find(members_, block) == members_.end()) members_.push_back(block);
        return;
      }
      case kLeave: {
        const auto block = block_of(script);
        std::erase(members_, block);
        dispatch_.forget(block);
        for (auto& [service, blocks] : listeners_) blocks.erase(block);
        return;
      }
      case kTime:
        now_ += std::chrono::milliseconds(script.word());
        return;
      case kMessage: {
        const auto packet = message(script);
        return send(packet, script.byte());
      }
      case kChanged: {
        auto packet = message(script);
        const auto place = script.word() % packet.bytes.size();
        packet.bytes[place] = std::byte{script.byte()};
        return send(packet, script.byte());
      }
      default: {
        const auto peer = script.byte();
        return send(script.take(script.word() % 600), peer);
      }
    }
  }

  static RoceBlock block_of(Script& script) {
    return static_cast<RoceBlock>(1 + script.byte() % 8);
  }

  static hub::CmService service_of(std::uint64_t service) {
    return {.id = service, .address = hub::CmService::all()};
  }

  void listen(RoceBlock block, std::uint64_t service) {
    if (dispatch_.listen(block, service_of(service), now_)) listeners_[service].insert(block);
  }

  static hub::CmPacket message(Script& script) {
    const auto attribute = static_cast<hub::Cm>(0x10 + script.byte() % 12);
    const auto local = script.byte();
    if (attribute == hub::Cm::REQ || attribute == hub::Cm::SIDR_REQ) {
      return hub::cm_request(script.byte() % 16, local, attribute);
    }
    return hub::cm_packet(attribute, local, script.dword());
  }

  void send(std::span<const std::byte> packet, std::uint8_t peer) {
    const auto from = wire::Gid::from_ipv4(192, 0, 2, peer);
    const auto before = dispatch_.counters();
    const auto to = dispatch_.route({.from = from, .to = kOwn}, packet, members_, now_);
    const auto& after = dispatch_.counters();
    check(total(after) == total(before) + 1);
    check(to.has_value() == (after.forwarded == before.forwarded + 1));
    if (!to) return;
    check(std::ranges::find(members_, *to) != members_.end());
    const auto read = hub::CmMessage::parse(packet);
    check(read.has_value());
    if (!read->is_request() || after.duplicates != before.duplicates) return;
    const auto& blocks = listeners_[read->service];
    const bool is_heard = std::ranges::any_of(
        members_, [&blocks](RoceBlock member) { return blocks.contains(member); });
    if (is_heard) check(blocks.contains(*to) && after.unexpected == before.unexpected);
  }

  static std::uint64_t total(const CmDispatch::Counters& counters) {
    return counters.forwarded + counters.malformed + counters.unknown + counters.over_rate;
  }

  void look() const {
    check(dispatch_.requests() <= kOptions.requests_max);
    check(dispatch_.listeners() <= kOptions.listeners_max * 8);
  }

  CmDispatch dispatch_{kOptions};
  util::Time now_{std::chrono::hours(1)};
  std::vector<RoceBlock> members_;
  /// Those that have not closed, by service.
  std::map<std::uint64_t, std::set<RoceBlock>> listeners_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::run_input([&] {
    Script script(data, size);
    World().play(script);
  });
}
