#include "connectx/command/command_mailbox.h"

#include <algorithm>
#include <array>

#include "util/endian.h"

namespace softhca::connectx {

namespace {

using Block = spec::connectx::command_mailbox_block;
constexpr std::size_t kBlockData = Block::mailbox_data.kSize;
/// The part behind the data that ctrl_signature covers.
constexpr std::size_t kControlAt = kBlockData;
/// Kept between commands; larger messages are rare and give their memory back.
constexpr std::size_t kKeptCapacity = 64 << 10;

/// Next pointer, number and token: what must be right in every block of a chain.
struct BlockControl {
  pcie::Iova next;
  std::uint32_t number;
  std::uint8_t token;
};

BlockControl control_of(util::View<Block> block) {
  return {.next = block.get(Block::next_pointer) << Block::next_pointer.kLo,
          .number = block.get(Block::block_number),
          .token = static_cast<std::uint8_t>(block.get(Block::token))};
}

DeliveryStatus check(const BlockControl& control, std::size_t number, std::uint8_t token) {
  if (control.number != number) return DeliveryStatus::BAD_BLOCK_NUMBER;
  // Token 0 is a token like any other: the user-space driver uses no other.
  if (control.token != token) return DeliveryStatus::TOKEN_ERR;
  return DeliveryStatus::OK;
}

std::size_t blocks_for(std::size_t length) {
  const auto rest = length > CommandMailbox::kInline ? length - CommandMailbox::kInline : 0;
  return (rest + kBlockData - 1) / kBlockData;
}

void release_if_large(std::vector<std::byte>& buffer) {
  if (buffer.capacity() > kKeptCapacity) std::vector<std::byte>().swap(buffer);
}

}  // namespace

std::uint8_t command_signature(std::span<const std::byte> bytes) {
  auto sum = std::byte{0};
  for (const auto byte : bytes) sum ^= byte;
  return std::to_integer<std::uint8_t>(~sum);
}

DeliveryStatus CommandMailbox::receive(util::View<QueueEntry> entry) {
  size_ = 0;
  // PRM Table 96: "0x10 - bad command type".
  constexpr std::uint32_t kPciTransport = 7;
  if (entry.get(QueueEntry::type) != kPciTransport) return DeliveryStatus::BAD_COMMAND_DESCRIPTOR;
  const auto input_length = entry.get(QueueEntry::input_length);
  const auto output_length = entry.get(QueueEntry::output_length);
  if (input_length < kMinLength || input_length > kMaxInputLength) {
    return DeliveryStatus::INPUT_LEN_ERR;
  }
  if (output_length < kMinLength || output_length > kMaxOutputLength) {
    return DeliveryStatus::OUTPUT_LEN_ERR;
  }
  size_ = std::size_t{input_length} + output_length;
  if (const auto status = read_input(entry); status != DeliveryStatus::OK) return status;
  return walk_output(entry);
}

DeliveryStatus CommandMailbox::read_input(util::View<QueueEntry> entry) {
  const std::size_t length = entry.get(QueueEntry::input_length);
  const auto token = static_cast<std::uint8_t>(entry.get(QueueEntry::token));
  const auto first = entry.get(QueueEntry::command_input_inline_data);
  release_if_large(input_);
  input_.assign(first.begin(),
                first.begin() + static_cast<std::ptrdiff_t>(std::min(length, kInline)));

  // Follow the chain only as far as the message goes: the chain may be longer, and what is behind
  // the message is left from an earlier one. The block number ends a loop.
  auto at = entry.get(QueueEntry::input_mailbox_pointer) << QueueEntry::input_mailbox_pointer.kLo;
  std::array<std::byte, Block::kSize> block{};
  for (std::size_t number = 0; number < blocks_for(length); ++number) {
    if (number == 0 && entry.get(QueueEntry::input_mailbox_pointer_low) != 0) {
      return DeliveryStatus::BAD_INPUT_POINTER;
    }
    if (at == 0 || !dma_.read(at, block)) return DeliveryStatus::BAD_INPUT_POINTER;
    const auto control = control_of(util::View<Block>(block));
    if (const auto status = check(control, number, token); status != DeliveryStatus::OK) {
      return status;
    }
    const auto take = std::min(length - input_.size(), kBlockData);
    input_.insert(input_.end(), block.begin(), block.begin() + static_cast<std::ptrdiff_t>(take));
    at = control.next;
  }
  return DeliveryStatus::OK;
}

DeliveryStatus CommandMailbox::walk_output(util::View<QueueEntry> entry) {
  const std::size_t length = entry.get(QueueEntry::output_length);
  const auto token = static_cast<std::uint8_t>(entry.get(QueueEntry::token));
  output_blocks_.clear();
  auto at = entry.get(QueueEntry::output_mailbox_pointer) << QueueEntry::output_mailbox_pointer.kLo;
  std::array<std::byte, Block::kSize> block{};
  for (std::size_t number = 0; number < blocks_for(length); ++number) {
    if (number == 0 && entry.get(QueueEntry::output_mailbox_pointer_low) != 0) {
      return DeliveryStatus::BAD_OUTPUT_POINTER;
    }
    const auto tail = std::span(block).subspan(kControlAt);
    if (at == 0 || !dma_.read(at + kControlAt, tail)) return DeliveryStatus::BAD_OUTPUT_POINTER;
    const auto control = control_of(util::View<Block>(block));
    if (const auto status = check(control, number, token); status != DeliveryStatus::OK) {
      return status;
    }
    output_blocks_.push_back(at);
    at = control.next;
  }
  release_if_large(output_);
  output_.assign(length, std::byte{0});
  return DeliveryStatus::OK;
}

bool CommandMailbox::write_block(pcie::Iova at, std::span<const std::byte> data) {
  std::array<std::byte, Block::kSize> bytes;
  if (!dma_.read(at, bytes)) return false;
  std::copy(data.begin(), data.end(), bytes.begin());
  const util::MutableView<Block> block(bytes);
  block.set(Block::ctrl_signature, 0);
  block.set(Block::signature, 0);
  block.set(Block::ctrl_signature, command_signature(std::span(bytes).subspan(kControlAt)));
  block.set(Block::signature, command_signature(bytes));
  // Nothing between the data and the signatures is ours to write.
  const auto signatures = std::span(bytes).last(2);
  return dma_.write(at, data) && dma_.write(at + Block::kSize - signatures.size(), signatures);
}

DeliveryStatus CommandMailbox::send(util::MutableView<QueueEntry> entry) {
  const std::span<const std::byte> output = output_;
  const auto head = output.first(std::min(output.size(), kInline));
  const auto to = entry.sub(QueueEntry::command_output_inline_data);
  std::copy(head.begin(), head.end(), to.begin());
  auto rest = output.subspan(head.size());
  for (const auto block : output_blocks_) {
    const auto data = rest.first(std::min(rest.size(), kBlockData));
    if (!write_block(block, data)) return DeliveryStatus::BAD_OUTPUT_POINTER;
    rest = rest.subspan(data.size());
  }
  return DeliveryStatus::OK;
}

}  // namespace softhca::connectx
