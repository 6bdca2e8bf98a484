// A guest that sends the command interface what it likes.
//
// The input is a script for one device that a driver has initialized, with a PD, an EQ for every
// event, a CQ and pages to spare. Each record is a command that is delivered well and says
// anything, a queue entry of any bytes, any bytes at any place of the guest's memory (mailbox
// chains among them), any register access, or time that passes. Whatever happens, the device
// completes what was delivered well, stays in its memory, comes to rest, and starts anew for the
// next driver.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "connectx/command/command_table.h"
#include "connectx/command/refusals.h"
#include "connectx/device.h"
#include "connectx/function/pages.h"
#include "fabric/switch.h"
#include "pcie/bus_master.h"
#include "spec/connectx/command.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/init_segment.h"
#include "util/log.h"

namespace {

using namespace softhca;
using namespace softhca::connectx;
using Entry = spec::connectx::command_queue_entry;
using Block = spec::connectx::command_mailbox_block;
using Init = spec::connectx::init_segment;
using Op = spec::connectx::command_opcode;

void check(bool holds) {
  if (!holds) std::abort();
}

class Script {
 public:
  explicit Script(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return static_cast<std::uint8_t>(value);
  }
  std::uint16_t word() { return static_cast<std::uint16_t>(byte() | byte() << 8); }
  std::uint32_t place() { return word() | std::uint32_t{byte()} << 16; }
  std::span<const std::byte> take(std::size_t size) {
    const auto taken = bytes_.first(std::min(size, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const std::byte> bytes_;
};

/// The guest: memory from bus address 0, so that small numbers are addresses too.
class Guest {
 public:
  static constexpr std::uint64_t kMemorySize = 1u << 20;
  static constexpr std::uint64_t kQueue = 0x1000;
  static constexpr std::uint64_t kChains = 0x2000;  ///< mailboxes of well delivered commands
  static constexpr std::uint64_t kBuffers = 0x40000;
  static constexpr std::size_t kMaxMessage = 8192;

  Guest() : memory_(kMemorySize), port_(fabric_.create_port("fuzz")) {
    DeviceOptions options;
    options.mac = rdma::Mac::from_u64(0x020000000001);
    options.node_guid = 1;
    options.clock = [this] { return now_; };
    device_.emplace(options, *port_);
    check(device_->dma()
              .map(0, kMemorySize, memory_.data(), pcie::DmaAccess::kReadWrite)
              .has_value());
    pcie::set_bus_master(*device_, true);
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
        now_ += std::chrono::microseconds(1ull << (script.byte() % 32));
        break;
    }
    run();
  }

  /// The next driver must find a device that works.
  void finish() {
    device_->reset();
    pcie::set_bus_master(*device_, true);
    start();
  }

 private:
  std::span<std::byte> at(std::uint64_t address, std::size_t size) {
    return std::span(memory_).subspan(address, size);
  }

  void run() {
    for (int i = 0; i < 100000; ++i) {
      const bool at_rest = device_->run(now_) > now_;
      while (fabric_.deliver(1024)) {
      }
      if (at_rest && !fabric_.has_work()) return;
    }
    check(false);
  }

  void write32(std::uint64_t offset, std::uint32_t value) {
    std::array<std::byte, 4> bytes;
    util::store_be32(bytes.data(), value);
    device_->write_bar(0, offset, bytes);
  }

  /// A chain at `address` for what does not fit in the entry.
  std::uint64_t chain(std::uint64_t address, std::span<const std::byte> message,
                      std::uint8_t token) {
    if (message.size() <= 16) return 0;
    auto rest = message.subspan(16);
    for (std::uint32_t number = 0; !rest.empty(); ++number) {
      const auto size = std::min(rest.size(), Block::mailbox_data.kSize);
      const auto here = address + std::uint64_t{number} * 1024;
      const util::MutableView<Block> block(at(here, Block::kSize));
      std::copy_n(rest.begin(), size, block.sub(Block::mailbox_data).begin());
      rest = rest.subspan(size);
      const auto next = rest.empty() ? 0 : here + 1024;
      block.set(Block::next_pointer, next >> Block::next_pointer.kLo);
      block.set(Block::block_number, number);
      block.set(Block::token, token);
    }
    return address;
  }

  void execute(std::span<const std::byte> in, std::size_t out_size) {
    const std::vector<std::byte> out(out_size);
    const std::uint64_t out_chains = kChains + (kMaxMessage / 512 + 1) * 1024;
    const util::MutableView<Entry> entry(at(kQueue, Entry::kSize));
    std::fill(entry.bytes().begin(), entry.bytes().end(), std::byte{0});
    entry.set(Entry::type, 7);
    entry.set(Entry::input_length, static_cast<std::uint32_t>(in.size()));
    entry.set(Entry::output_length, static_cast<std::uint32_t>(out_size));
    entry.set(Entry::input_mailbox_pointer,
              chain(kChains, in, 1) >> Entry::input_mailbox_pointer.kLo);
    entry.set(Entry::output_mailbox_pointer,
              chain(out_chains, out, 1) >> Entry::output_mailbox_pointer.kLo);
    std::copy_n(in.begin(), std::min<std::size_t>(in.size(), 16),
                entry.sub(Entry::command_input_inline_data).begin());
    entry.set(Entry::token, 1);
    entry.set(Entry::ownership, 1);
    write32(Init::command_doorbell_vector.kOffset, 1);
    run();
  }

  static std::vector<CommandSpec> implemented() {
    std::vector<CommandSpec> specs;
    std::ranges::copy_if(command_table(), std::back_inserter(specs),
                         [](const CommandSpec& spec) { return spec.handler != nullptr; });
    return specs;
  }

  /// As a driver's: it must be completed, whatever it says.
  void play_command(Script& script) {
    static const auto table = implemented();
    const auto& spec = table[script.byte() % table.size()];
    const auto op_mod = script.byte();
    const auto size = std::clamp<std::size_t>(script.word(), 8, kMaxMessage);
    std::vector<std::byte> in(std::max<std::size_t>(spec.min_input, 16));
    const auto body = script.take(size);
    in.resize(std::max(in.size(), body.size() + 8));
    set_header(in, spec.opcode, op_mod);
    std::copy(body.begin(), body.end(), in.begin() + 8);
    const auto room = script.byte() * std::size_t{8};
    execute(in, std::max<std::size_t>(spec.min_output, 16) + room);
    const util::View<Entry> entry(at(kQueue, Entry::kSize));
    // A script may have moved the queue away; then the entry is not the device's to complete.
    if (!queue_is_ours_) return;
    check(entry.get(Entry::ownership) == 0);
    using Header = spec::connectx::command_output_header;
    const util::View<Header> out(entry.get(Entry::command_output_inline_data));
    if (entry.get(Entry::status) != 0 || out.get(Header::status) == 0) return;
    check(explain_syndrome(out.get(Header::syndrome)).has_value());
  }

  void play_entry(Script& script) {
    const auto slot = script.byte() % 32;
    const auto bytes = script.take(Entry::kSize);
    const auto to = at(kQueue + slot * Entry::kSize, Entry::kSize);
    std::copy(bytes.begin(), bytes.end(), to.begin());
    const util::MutableView<Entry> entry(to);
    if ((script.byte() & 1) != 0) entry.set(Entry::type, 7);
    entry.set(Entry::ownership, 1);
    write32(Init::command_doorbell_vector.kOffset, 1u << slot);
  }

  void play_memory(Script& script) {
    const auto where = script.place() % kMemorySize;
    const auto bytes = script.take(std::min<std::size_t>(script.byte(), kMemorySize - where));
    std::copy(bytes.begin(), bytes.end(), memory_.begin() + static_cast<std::ptrdiff_t>(where));
  }

  void play_write(Script& script) {
    const auto where = script.place();
    const auto bytes = script.take(1u << script.byte() % 7);
    device_->write_bar(0, where % kBarSize, bytes);
    if (where < kUarPageSize) queue_is_ours_ = false;
  }

  void play_read(Script& script) {
    const auto where = script.place();
    std::array<std::byte, 64> bytes;
    device_->read_bar(0, where % kBarSize, std::span(bytes).first(1u << script.byte() % 7));
  }

  // The driver's start
  // -----------------------------------------------------------------------------

  static void set_header(std::span<std::byte> in, Op opcode, std::uint16_t op_mod) {
    using Header = spec::connectx::command_input_header;
    const util::MutableView<Header> header(in);
    header.set(Header::opcode, static_cast<std::uint16_t>(opcode));
    header.set(Header::op_mod, op_mod);
  }

  template <class In, class Fill>
  void command(Op opcode, std::uint16_t op_mod, std::size_t tail, Fill&& fill) {
    std::vector<std::byte> in(In::kSize + tail);
    set_header(in, opcode, op_mod);
    fill(util::MutableView<In>(in), std::span(in).subspan(In::kSize));
    execute(in, 16);
    using Header = spec::connectx::command_output_header;
    const util::View<Entry> entry(at(kQueue, Entry::kSize));
    check(entry.get(Entry::ownership) == 0 && entry.get(Entry::status) == 0);
    check(util::View<Header>(entry.get(Entry::command_output_inline_data)).get(Header::status) ==
          0);
  }
  template <class In>
  void command(Op opcode) {
    command<In>(opcode, 0, 0, [](auto, auto) {});
  }

  void start() {
    namespace s = spec::connectx;
    write32(Init::cmdq_phy_addr.kOffset, 0);
    write32(Init::nic_interface.kOffset, kQueue);
    queue_is_ours_ = true;
    run();
    command<s::enable_hca_in>(Op::ENABLE_HCA);
    const std::uint32_t pages = PageManager::kBootPages + PageManager::kInitPages;
    command<s::manage_pages_in>(Op::MANAGE_PAGES, 1, pages * 8, [&](auto in, auto tail) {
      in.set(s::manage_pages_in::input_num_entries, pages);
      for (std::uint64_t i = 0; i < pages; ++i) {
        util::store_be64(tail.data() + 8 * i, kMemorySize + 4096 * i);
      }
    });
    command<s::init_hca_in>(Op::INIT_HCA);
    for (const auto opcode :
         {Op::ALLOC_UAR, Op::ALLOC_PD, Op::ALLOC_TRANSPORT_DOMAIN, Op::ALLOC_XRCD}) {
      command<s::nop_in>(opcode);
    }
    command<s::create_eq_in>(Op::CREATE_EQ, 0, 8, [&](auto in, auto tail) {
      in.sub(s::create_eq_in::eq_context_entry).set(s::eq_context::log_eq_size, 6);
      in.sub(s::create_eq_in::eq_context_entry).set(s::eq_context::uar_page, kFirstUar);
      util::store_be64(in.sub(s::create_eq_in::event_bitmask).data(), ~0ull);
      util::store_be64(tail.data(), kBuffers);
    });
    command<s::create_cq_in>(Op::CREATE_CQ, 0, 8, [&](auto in, auto tail) {
      const auto context = in.sub(s::create_cq_in::cq_context_entry);
      context.set(s::cq_context::log_cq_size, 6);
      context.set(s::cq_context::uar_page, kFirstUar);
      context.set(s::cq_context::dbr_addr, kBuffers + 0x2000);
      util::store_be64(tail.data(), kBuffers + 0x1000);
    });
  }

  std::vector<std::byte> memory_;
  util::Time now_{std::chrono::hours(1)};
  fabric::Switch fabric_;
  std::unique_ptr<fabric::Port> port_;
  std::optional<Device> device_;
  bool queue_is_ours_ = true;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool quiet = [] {
    util::set_log_sink([](util::LogLevel, std::string_view) {});
    return true;
  }();
  (void)quiet;
  Guest guest;
  Script script(std::as_bytes(std::span(data, size)));
  while (!script.empty()) guest.play(script);
  guest.finish();
  return 0;
}
