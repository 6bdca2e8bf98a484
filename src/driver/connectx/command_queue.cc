#include "driver/connectx/command_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "driver/host.h"
#include "util/bits.h"

namespace softhca::driver::connectx {

using spec::command_mailbox_block;
using spec::command_opcode;
using spec::command_queue_entry;
using spec::init_segment;

namespace {

constexpr std::uint16_t kCommandInterfaceRevision = 5;
constexpr std::uint8_t kPciTransport = 7;

/// The document's name of a code; its number if it has no name.
template <class Enum>
std::string name_of(Enum value) {
  const auto name = to_string(value);
  return name.empty() ? fmt::format("{:#x}", static_cast<unsigned>(value)) : std::string(name);
}

}  // namespace

CommandQueue::CommandQueue(Host& host, util::Duration patience)
    : host_(host), patience_(patience), init_segment_(host) {}

util::Result<std::unique_ptr<CommandQueue>> CommandQueue::create(Host& host,
                                                                 util::Duration patience) {
  std::unique_ptr<CommandQueue> queue(new CommandQueue(host, patience));
  if (auto ready = queue->hand_over(); !ready) return tl::unexpected(ready.error());
  return queue;
}

util::Result<void> CommandQueue::hand_over() {
  // PRM 8.2, step 1: the revisions of firmware and command interface.
  const auto revision = init_segment_.read(init_segment::cmd_interface_rev);
  if (revision != kCommandInterfaceRevision) {
    return util::fail(fmt::format("command interface revision {}, this driver speaks {} (PRM 8.2)",
                                  revision, kCommandInterfaceRevision));
  }
  // Hardware that is still booting has `initializing` set (mlx5 waits for it, too).
  if (auto ready = wait_until_initialized(); !ready) return ready;
  // Number and stride of the entries, both as powers of two (PRM 4.3).
  const auto log_size = init_segment_.read(init_segment::log_cmdq_size);
  log_stride_ = init_segment_.read(init_segment::log_cmdq_stride);
  const auto stride = std::size_t{1} << log_stride_;
  if (log_size > 5 || stride < command_queue_entry::kSize ||
      (stride << log_size) > Host::kPageSize) {
    return util::fail(fmt::format("command queue of 2^{} entries of 2^{} bytes does not fit a page",
                                  log_size, log_stride_));
  }
  pages_.index = (1u << log_size) - 1;
  auto queue = DmaBuffer::allocate(host_, Host::kPageSize);
  if (!queue) return tl::unexpected(queue.error());
  queue_ = std::move(*queue);

  // PRM 8.2, step 2: the address of the command queue.
  init_segment_.write_command_queue_address(queue_.iova());
  // PRM 8.2, step 3: "Read the initializing field from the initialization segment. Repeat until it
  // is cleared".
  return wait_until_initialized();
}

util::Result<void> CommandQueue::wait_until_initialized() {
  const auto deadline = host_.now() + patience_;
  while (init_segment_.read(init_segment::initializing) != 0) {
    if (host_.lost()) return util::fail(Host::kLost);
    if (host_.now() > deadline) {
      return util::fail("the device does not leave its initialization (PRM 8.2, step 3)");
    }
    host_.progress();
  }
  return {};
}

std::span<std::byte> CommandQueue::entry(const Slot& slot) const {
  return queue_.bytes().subspan(std::size_t{slot.index} << log_stride_, command_queue_entry::kSize);
}

std::span<std::byte> CommandQueue::Chain::block(std::size_t number) const {
  return memory.bytes().subspan(number * kMailboxStride, command_mailbox_block::kSize);
}

std::size_t CommandQueue::blocks_for(std::size_t message_size) {
  if (message_size <= kInlineSize) return 0;
  return (message_size - kInlineSize + kMailboxData - 1) / kMailboxData;
}

util::Result<void> CommandQueue::reserve(Chain& chain, std::size_t message_size) {
  const auto blocks = blocks_for(message_size);
  if (blocks <= chain.blocks) return {};
  auto memory = DmaBuffer::allocate(host_, blocks * kMailboxStride);
  if (!memory) return tl::unexpected(memory.error());
  chain.memory = std::move(*memory);
  chain.blocks = chain.memory.bytes().size() / kMailboxStride;
  return {};
}

void CommandQueue::link(const Chain& chain, std::size_t message_size, std::uint8_t token) {
  const auto blocks = blocks_for(message_size);
  for (std::size_t i = 0; i < blocks; ++i) {
    util::MutableView<command_mailbox_block> block(chain.block(i));
    const auto next = i + 1 < blocks ? chain.memory.iova((i + 1) * kMailboxStride) : 0;
    block.set(command_mailbox_block::next_pointer,
              util::part_of(next, command_mailbox_block::next_pointer));
    block.set(command_mailbox_block::block_number, static_cast<std::uint32_t>(i));
    block.set(command_mailbox_block::token, token);
  }
}

util::Result<void> CommandQueue::execute_bytes(std::span<const std::byte> in,
                                               std::span<std::byte> out) {
  const util::View<spec::command_input_header> header(in);
  const auto opcode = static_cast<command_opcode>(header.get(spec::command_input_header::opcode));
  const auto failed = [&](std::string_view why) {
    return util::fail(fmt::format("{}: {}", name_of(opcode), why));
  };
  if (host_.lost()) return util::fail(Host::kLost);
  if (stalled_) return failed("an earlier command was never completed");

  auto& slot = opcode == command_opcode::MANAGE_PAGES ? pages_ : general_;
  if (auto reserved = reserve(slot.input, in.size()); !reserved) return reserved;
  if (auto reserved = reserve(slot.output, out.size()); !reserved) return reserved;
  write_entry(slot, in, out.size());
  if (auto done = post_and_wait(slot); !done) return failed(done.error().message);
  read_output(slot, out);

  const util::View<spec::command_output_header> reply(out);
  const auto status =
      static_cast<spec::command_status>(reply.get(spec::command_output_header::status));
  if (status == spec::command_status::OK) return {};
  return failed(fmt::format("status {}, syndrome {:#x}", name_of(status),
                            reply.get(spec::command_output_header::syndrome)));
}

void CommandQueue::write_entry(const Slot& slot, std::span<const std::byte> in,
                               std::size_t out_size) {
  // A token is never 0 and changes with each command (PRM Table 96). The device does not check
  // signatures.
  token_ = static_cast<std::uint8_t>(token_ % 255 + 1);
  const util::MutableView<command_queue_entry> e(entry(slot));
  std::ranges::fill(e.bytes(), std::byte{0});
  e.set(command_queue_entry::type, kPciTransport);
  e.set(command_queue_entry::token, token_);
  e.set(command_queue_entry::input_length, static_cast<std::uint32_t>(in.size()));
  e.set(command_queue_entry::output_length, static_cast<std::uint32_t>(out_size));

  const auto first = std::min(in.size(), kInlineSize);
  std::memcpy(e.sub(command_queue_entry::command_input_inline_data).data(), in.data(), first);
  auto rest = in.subspan(first);
  if (!rest.empty()) {
    link(slot.input, in.size(), token_);
    e.set(command_queue_entry::input_mailbox_pointer,
          util::part_of(slot.input.memory.iova(), command_queue_entry::input_mailbox_pointer));
  }
  for (std::size_t block = 0; !rest.empty(); ++block) {
    const auto n = std::min(rest.size(), kMailboxData);
    std::memcpy(slot.input.block(block).data(), rest.data(), n);
    rest = rest.subspan(n);
  }
  if (out_size > kInlineSize) {
    link(slot.output, out_size, token_);
    e.set(command_queue_entry::output_mailbox_pointer,
          util::part_of(slot.output.memory.iova(), command_queue_entry::output_mailbox_pointer));
  }
}

util::Result<void> CommandQueue::post_and_wait(const Slot& slot) {
  const util::MutableView<command_queue_entry> e(entry(slot));
  std::atomic_thread_fence(std::memory_order_release);
  e.set(command_queue_entry::ownership, 1);
  init_segment_.write(init_segment::command_doorbell_vector, 1u << slot.index);

  const auto deadline = host_.now() + patience_;
  while (e.get(command_queue_entry::ownership) != 0) {
    if (host_.lost()) {
      stalled_ = true;
      return util::fail(Host::kLost);
    }
    if (host_.now() > deadline) {
      stalled_ = true;
      return util::fail("no answer from the device");
    }
    host_.progress();
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  const auto delivery = static_cast<spec::delivery_status>(e.get(command_queue_entry::status));
  if (delivery == spec::delivery_status::OK) return {};
  return util::fail("not delivered: " + name_of(delivery));
}

void CommandQueue::read_output(const Slot& slot, std::span<std::byte> out) const {
  const util::View<command_queue_entry> e(entry(slot));
  const auto first = std::min(out.size(), kInlineSize);
  std::memcpy(out.data(), e.get(command_queue_entry::command_output_inline_data).data(), first);
  auto rest = out.subspan(first);
  for (std::size_t block = 0; !rest.empty(); ++block) {
    const auto n = std::min(rest.size(), kMailboxData);
    std::memcpy(rest.data(), slot.output.block(block).data(), n);
    rest = rest.subspan(n);
  }
}

}  // namespace softhca::driver::connectx
