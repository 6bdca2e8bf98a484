// A guest that sends anything to the command interface.
//
// The input is a script for one device that a driver has initialized, with a PD, an EQ for every
// event, a CQ and spare pages. A record is one of:
// - a command that is delivered properly, with any content
// - a queue entry of any bytes
// - any bytes anywhere in the guest's memory, including mailbox chains
// - any register access
// - time that passes
// Whatever happens, the device completes every properly delivered command, stays within its memory,
// becomes idle, and can be initialized by the next driver.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "card.h"
#include "connectx/command/command_table.h"
#include "connectx_world.h"
#include "pcie/bus_master.h"
#include "spec/connectx/command.h"

namespace {

using namespace softhca;
using namespace softhca::connectx;
using fuzz::check;
using fuzz::Script;
using Entry = FakeHost::Entry;

/// The guest. Its memory begins at bus address 0, so that small numbers are addresses too.
class Guest {
 public:
  static constexpr std::uint64_t kMemorySize = 1u << 20;
  static constexpr std::uint64_t kQueue = 0x1000;
  static constexpr std::size_t kMaxMessage = 8192;

  Guest() {
    host_.turn = fuzz::run_turn;
    start();
  }

  void play(Script& script) {
    switch (script.byte() % 6) {
      case 0:
        play_command(script);
        break;
      case 1:
        play_entry(script);
        break;
      case 2:
        play_memory(script);
        break;
      case 3:
        play_write(script);
        break;
      case 4:
        play_read(script);
        break;
      case 5:
        host_.advance(std::chrono::microseconds(1ull << (script.byte() % 32)));
        break;
    }
    host_.run();
  }

  /// The next driver must find a working device.
  void finish() {
    host_.device.reset();
    pcie::set_bus_master(host_.device, true);
    start();
  }

 private:
  static std::vector<CommandSpec> implemented() {
    std::vector<CommandSpec> specs;
    std::ranges::copy_if(command_table(), std::back_inserter(specs),
                         [](const CommandSpec& spec) { return spec.handler != nullptr; });
    return specs;
  }

  static std::uint32_t place(Script& script) {
    const auto low = script.word();
    return low | std::uint32_t{script.byte()} << 16;
  }

  /// Sent as a driver does: the device must complete it, whatever it says.
  void play_command(Script& script) {
    static const auto table = implemented();
    const auto& spec = table[script.byte() % table.size()];
    const auto op_mod = script.byte();
    const auto size = std::clamp<std::size_t>(script.word(), 8, kMaxMessage);
    const auto body = script.take(size);
    std::vector<std::byte> in(
        std::max({std::size_t{spec.min_input}, std::size_t{16}, body.size() + 8}));
    using Header = spec::connectx::command_input_header;
    const util::MutableView<Header> header(in);
    header.set(Header::opcode, static_cast<std::uint16_t>(spec.opcode));
    header.set(Header::op_mod, op_mod);
    std::copy(body.begin(), body.end(), in.begin() + 8);
    const auto room = script.byte() * std::size_t{8};
    const auto reply = host_.execute(in, std::max<std::size_t>(spec.min_output, 16) + room);
    // If the script moved the queue away, the device need not complete the entry.
    check(reply.completed || !queue_is_ours_);
  }

  void play_entry(Script& script) {
    const auto slot = script.byte() % 32u;
    const auto bytes = script.take(Entry::kSize);
    const auto entry = host_.slot(slot);
    std::ranges::copy(bytes, entry.bytes().begin());
    if ((script.byte() & 1) != 0) entry.set(Entry::type, 7);
    entry.set(Entry::ownership, 1);
    host_.ring_commands(1u << slot);
  }

  void play_memory(Script& script) {
    const auto where = place(script) % kMemorySize;
    const auto bytes = script.take(std::min<std::size_t>(script.byte(), kMemorySize - where));
    std::ranges::copy(bytes, host_.at(where));
  }

  void play_write(Script& script) {
    const auto where = place(script);
    const auto bytes = script.take(1u << script.byte() % 7);
    host_.device.write_bar(0, where % kBarSize, bytes);
    if (where < kUarPageSize) queue_is_ours_ = false;
  }

  void play_read(Script& script) {
    const auto where = place(script);
    std::array<std::byte, 64> bytes;
    host_.device.read_bar(0, where % kBarSize, std::span(bytes).first(1u << script.byte() % 7));
  }

  void start() {
    host_.free_from(kQueue);
    host_.initialize();
    queue_is_ours_ = true;
    (void)host_.allocate_pd();
    (void)host_.allocate_transport_domain();
    (void)host_.allocate_xrcd();
    (void)host_.create_cq(6, host_.create_eq(6, ~0ull, 0));
  }

  FakeHost host_{fuzz::card({.memory_at = 0, .memory_size = kMemorySize, .on_switch = true})};
  bool queue_is_ours_ = true;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::prepare_connectx();
  return fuzz::run_input([&] {
    Script script(data, size);
    Guest guest;
    while (!script.empty()) guest.play(script);
    guest.finish();
  });
}
