// A host for one device under test: memory, interrupts, and the first steps of a driver. It enters
// the device as a driver does, by BAR0 and memory, and by nothing else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "connectx/device.h"
#include "fabric/port.h"
#include "spec/connectx/command.h"
#include "spec/connectx/opcodes.h"
#include "util/endian.h"
#include "util/field.h"

namespace softhca::connectx {

/// A cable that can be pulled; what is sent is counted and dropped.
class FakePort final : public fabric::Port {
 public:
  std::uint64_t transmit(const wire::Frame&) override { return ++transmitted; }
  std::uint64_t loop_back(const wire::Frame&, std::uint32_t) override { return ++transmitted; }
  std::uint64_t released() const override { return transmitted; }
  void set_receiver(fabric::Receiver* to) override { receiver = to; }
  bool link_up() const override { return up; }

  bool up = true;
  std::uint64_t transmitted = 0;
  fabric::Receiver* receiver = nullptr;
};

class CountingInterrupts final : public pcie::InterruptSink {
 public:
  void raise(std::uint16_t vector) override { ++counts.at(vector); }
  std::array<unsigned, 64> counts{};
};

/// A command's input, with its opcode and op_mod filled in.
template <class Layout>
class Input {
 public:
  explicit Input(spec::connectx::command_opcode opcode, std::uint16_t op_mod = 0,
                 std::size_t tail = 0)
      : bytes_(Layout::kSize + tail) {
    using Header = spec::connectx::command_input_header;
    const util::MutableView<Header> header(bytes_);
    header.set(Header::opcode, static_cast<std::uint16_t>(opcode));
    header.set(Header::op_mod, op_mod);
  }
  util::MutableView<Layout> operator*() { return util::MutableView<Layout>(bytes_); }
  /// Arrow for calls like `in->set(...)`.
  struct Arrow {
    util::MutableView<Layout> view;
    util::MutableView<Layout>* operator->() { return &view; }
  };
  Arrow operator->() { return {**this}; }
  std::span<std::byte> tail() { return std::span(bytes_).subspan(Layout::kSize); }
  void set_address(std::size_t index, std::uint64_t address) {
    util::store_be64(tail().data() + 8 * index, address);
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// What came back.
struct Reply {
  bool completed = false;  ///< the device gave the entry back
  spec::connectx::delivery_status delivery{};
  std::vector<std::byte> out;

  spec::connectx::command_status status() const {
    using Header = spec::connectx::command_output_header;
    return static_cast<spec::connectx::command_status>(util::View<Header>(out).get(Header::status));
  }
  std::uint32_t syndrome() const {
    using Header = spec::connectx::command_output_header;
    return util::View<Header>(out).get(Header::syndrome);
  }
  bool ok() const {
    return completed && delivery == spec::connectx::delivery_status::OK &&
           status() == spec::connectx::command_status::OK;
  }
  template <class Layout>
  util::View<Layout> as() const {
    return util::View<Layout>(out);
  }
};

class FakeHost {
 public:
  using Opcode = spec::connectx::command_opcode;
  using Entry = spec::connectx::command_queue_entry;
  using Block = spec::connectx::command_mailbox_block;

  static constexpr std::uint64_t kMemoryAt = 0x1'0000'0000;
  static constexpr std::uint64_t kMemorySize = 24u << 20;

  explicit FakeHost(const Limits& limits = {});
  ~FakeHost();

  Device& device() { return *device_; }
  FakePort& port() { return port_; }
  unsigned interrupts(unsigned vector) const { return interrupts_.counts.at(vector); }
  void advance(util::Duration by) { now_ += by; }
  util::Time now() const { return now_; }
  /// Runs the device until it has nothing to do at this time.
  void run();

  // Registers
  std::uint32_t read32(std::uint64_t offset);
  void write32(std::uint64_t offset, std::uint32_t value);
  void write64(std::uint64_t offset, std::uint64_t value);

  // Memory
  std::uint64_t allocate(std::size_t size, std::size_t alignment = 4096);
  /// Memory from `iova` on may be allocated again.
  void free_from(std::uint64_t iova) { next_ = iova; }
  std::byte* at(std::uint64_t iova) { return memory_.data() + (iova - kMemoryAt); }
  util::MutableView<Entry> slot(unsigned index);
  util::MutableView<Block> block(std::uint64_t iova) {
    return util::MutableView<Block>(std::span(at(iova), Block::kSize));
  }

  // Commands
  /// Writes the command queue's address.
  void start_queue();
  /// Fills a slot: entry, input chain, output chain. Returns the output chain's blocks.
  std::vector<std::uint64_t> prepare(unsigned index, std::span<const std::byte> in,
                                     std::size_t out_size, std::uint8_t token = 0x5A);
  std::vector<std::uint64_t> make_chain(std::size_t bytes, std::uint8_t token);
  void ring(std::uint32_t vector);
  /// What slot `index` holds now.
  Reply collect(unsigned index, std::size_t out_size, std::span<const std::uint64_t> blocks);
  /// All of it: fill slot 0, ring, run, collect.
  Reply execute(std::span<const std::byte> in, std::size_t out_size);
  template <class Out, class In>
  Reply execute(Input<In>& in, std::size_t tail = 0) {
    return execute(in.bytes(), Out::kSize + tail);
  }

  // A driver's start (PRM 8.2). Each includes those before it.
  void enable();
  void give_pages(std::uint32_t count);
  void initialize();
  /// From ENABLE_HCA to the end of initialize().
  void finish_start();
  std::uint32_t allocate_uar();
  std::uint32_t allocate_pd();
  /// `events`: bits of event types below 64.
  std::uint32_t create_eq(unsigned log_size, std::uint64_t events, unsigned vector);
  std::uint32_t create_cq(unsigned log_size, std::uint32_t eqn);

  std::uint32_t uar = 0;          ///< the one that EQs and CQs use
  std::uint64_t last_buffer = 0;  ///< of the last EQ or CQ created
  std::uint64_t last_record = 0;  ///< doorbell record of the last CQ

 private:
  std::vector<std::byte> memory_;
  std::uint64_t next_ = kMemoryAt;
  util::Time now_{std::chrono::hours(1)};
  FakePort port_;
  CountingInterrupts interrupts_;
  std::unique_ptr<Device> device_;
  std::uint64_t queue_ = 0;
};

}  // namespace softhca::connectx
