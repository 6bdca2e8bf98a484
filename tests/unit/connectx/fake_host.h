// The host of a device under test, for unit tests and fuzzers: memory, interrupts, a wire, and the
// first steps of a driver. It accesses the device only as a driver does, through BAR0 and memory:
// every command goes through the command queue, and the whole device runs.
//
// RdmaTestHost adds QPs; EthernetHost adds SQs, RQs and flow tables.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "connectx/cable.h"
#include "connectx/command/command_message.h"
#include "connectx/device.h"
#include "fabric/switch.h"
#include "spec/connectx/cq.h"

namespace softhca::connectx {

class CountingInterrupts final : public pcie::InterruptSink {
 public:
  void raise(std::uint16_t vector) override { ++counts.at(vector); }
  std::array<unsigned, 64> counts{};
};

struct HostOptions {
  static constexpr std::uint64_t kMemoryAt = 0x1'0000'0000;
  static constexpr std::size_t kMemorySize = 24u << 20;

  Model model{};
  Limits limits{};
  QueueNumbers queue_numbers{};
  rdma::Mac mac = rdma::Mac::from_u64(0x020000000001);
  std::uint64_t memory_at = kMemoryAt;    ///< bus address
  std::size_t memory_size = kMemorySize;  ///< bytes
  /// Uses a port of `network` instead of `port`: frames to the device's own address come back.
  bool on_switch = false;
  bool share_doorbells = false;  ///< Device::share_doorbells()
  util::Trace* trace = nullptr;  ///< the device's trace; outlives it
  /// RdmaTestHost: leaves the atomics' mode at its reset value.
  bool big_endian_atomics = false;
};

/// A CQ from its driver's view.
struct HostCq {
  std::uint32_t cqn = 0;
  unsigned log_size = 0;
  std::uint64_t ring = 0;
  std::uint64_t record = 0;
  std::uint32_t consumer = 0;
  unsigned stride = 64;  ///< bytes of an entry; the CQE is the last 64
};

class FakeHost {
 public:
  using Opcode = spec::connectx::command_opcode;
  using Entry = spec::connectx::command_queue_entry;
  using Block = spec::connectx::command_mailbox_block;
  template <class Layout>
  using Fill = std::function<void(util::MutableView<Layout>)>;

  static constexpr std::uint64_t kMemoryAt = HostOptions::kMemoryAt;
  static constexpr std::uint64_t kMemorySize = HostOptions::kMemorySize;
  /// The key of the first create_key(): all memory by bus address, with all rights.
  static constexpr std::uint32_t kKey = 0x1042;

  explicit FakeHost(const HostOptions& options = {});

  // Time
  void advance(util::Duration by) { now += by; }
  /// Runs device and wire for `time`, and at its end until both are idle.
  void run(util::Duration time = {});

  // Registers
  std::uint32_t read32(std::uint64_t offset);
  void write32(std::uint64_t offset, std::uint32_t value);
  void write64(std::uint64_t offset, std::uint64_t value);
  /// Rings the send doorbell of a QP or SQ on the page `uar`.
  void ring_send(std::uint32_t number);
  unsigned interrupts(unsigned vector) const { return interrupts_.counts.at(vector); }

  // Memory
  /// Zeroed memory.
  std::uint64_t allocate(std::size_t size, std::size_t alignment = 4096);
  /// Frees the memory from `iova` on.
  void free_from(std::uint64_t iova) { next_ = iova; }
  std::byte* at(std::uint64_t iova) { return memory_.get() + (iova - options_.memory_at); }
  /// Maps all of the memory for the device, or none of it.
  void map();
  void unmap();
  util::MutableView<Entry> slot(unsigned index);
  util::MutableView<Block> block(std::uint64_t iova) {
    return util::MutableView<Block>(std::span(at(iova), Block::kSize));
  }
  /// The page addresses of a buffer, in the format used at the end of commands.
  static std::vector<std::byte> page_list(std::uint64_t address, std::size_t size);

  // Commands
  /// Writes the command queue's address.
  void start_queue();
  /// Fills a slot: entry, input chain, output chain. Returns the output chain's blocks.
  std::vector<std::uint64_t> prepare(unsigned index, std::span<const std::byte> in,
                                     std::size_t out_size, std::uint8_t token = 0x5A);
  std::vector<std::uint64_t> make_chain(std::size_t bytes, std::uint8_t token);
  void ring_commands(std::uint32_t vector);
  /// The contents of slot `index`.
  Reply collect(unsigned index, std::size_t out_size, std::span<const std::uint64_t> blocks);
  /// A whole command: fills slot 0, rings, runs the device until it returns the slot, collects the
  /// reply. Frames stay in flight.
  Reply execute(std::span<const std::byte> in, std::size_t out_size);
  template <class Out, class In>
  Reply execute(Input<In>& in, std::size_t tail = 0) {
    using Header = spec::connectx::command_input_header;
    util::MutableView<Header>(in.bytes()).set(Header::uid, uid);
    return execute(in.bytes(), Out::kSize + tail);
  }
  /// The same for an input filled by `fill`, followed by a list.
  template <class Out, class In, class FillIn>
  Reply call(Opcode opcode, FillIn&& fill, std::span<const std::byte> tail = {},
             std::uint16_t op_mod = 0, std::size_t out_tail = 0) {
    Input<In> in(opcode, op_mod, tail.size());
    fill(*in);
    std::ranges::copy(tail, in.tail().begin());
    return execute<Out>(in, out_tail);
  }

  // Steps of a driver's start (PRM 8.2). Each includes the previous ones.
  void enable();
  void give_pages(std::uint32_t count);
  void initialize();
  /// The steps of initialize() after ENABLE_HCA.
  void finish_start();

  // Objects. Each call expects success.
  std::uint32_t allocate_uar();
  std::uint32_t allocate_pd();
  std::uint32_t allocate_transport_domain();
  std::uint32_t allocate_xrcd();
  /// Returns the key, not its index.
  std::uint32_t create_key(std::uint32_t pd);
  /// `events`: bit t is event type t, below 64.
  std::uint32_t create_eq(unsigned log_size, std::uint64_t events, unsigned vector);
  /// `fill` may change the context.
  HostCq create_cq(unsigned log_size, std::uint32_t eqn, unsigned stride = 64,
                   const Fill<spec::connectx::cq_context>& fill = {});
  /// The next CQE, or null. The device may overwrite it later.
  const std::byte* poll(HostCq& cq);

  /// Runs the device. Fuzzers replace this to measure the cost of a run.
  std::function<util::Time(pcie::Function&, util::Time)> turn =
      [](pcie::Function& function, util::Time at) { return function.run(at); };
  /// The user context in whose name execute() and call() send commands; 0: the kernel's.
  std::uint16_t uid = 0;
  /// Called with each executed command.
  std::function<void(std::span<const std::byte> in, std::size_t out_size)> on_execute;
  util::Time now{std::chrono::hours(1)};
  Cable port;
  fabric::Switch network;
  std::unique_ptr<fabric::Port> switch_port;  ///< null unless the device is on the switch
  Device device;
  std::uint32_t uar = 0;          ///< the page that EQs, CQs and doorbells use
  std::uint64_t last_buffer = 0;  ///< buffer of the last EQ created

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  HostOptions options_;
  std::unique_ptr<std::byte, Free> memory_;
  std::uint64_t next_ = options_.memory_at;
  std::uint64_t queue_ = 0;
  std::uint64_t page_ =
      0x7'0000'0000;  ///< bus addresses of pages given to the device; need not be mapped
  CountingInterrupts interrupts_;
};

}  // namespace softhca::connectx
