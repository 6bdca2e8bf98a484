#include "connectx/command/command_mailbox.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "util/bits.h"
#include "util/endian.h"

namespace softhca::connectx {

namespace {

using MailboxBlock = spec::connectx::command_mailbox_block;
constexpr std::size_t kBlockData = MailboxBlock::mailbox_data.kSize;
/// Offset of the part of a block that ctrl_signature covers.
constexpr std::size_t kControlAt = kBlockData;
/// Bytes of output memory that are kept between commands. That of larger outputs, which are rare,
/// is freed.
constexpr std::size_t kKeptOutput = 64 << 10;
/// Cost of reading, checking or writing a block (util::WorkBudget).
constexpr std::int64_t kBlockWork = 250;

/// The fields that are checked in every block of a chain.
struct BlockControl {
  pcie::Iova next;
  std::uint32_t number;
  std::uint8_t token;
};

BlockControl control_of(util::View<MailboxBlock> block) {
  return {.next = util::in_place(MailboxBlock::next_pointer, block.get(MailboxBlock::next_pointer)),
          .number = block.get(MailboxBlock::block_number),
          .token = static_cast<std::uint8_t>(block.get(MailboxBlock::token))};
}

DeliveryStatus check(const BlockControl& control, std::size_t number, std::uint8_t token) {
  if (control.number != number) return DeliveryStatus::BAD_BLOCK_NUMBER;
  // Token 0 is also valid: the user-space driver always uses it.
  if (control.token != token) return DeliveryStatus::TOKEN_ERR;
  return DeliveryStatus::OK;
}

std::size_t blocks_for(std::size_t length) {
  const auto rest = length > CommandMailbox::kInline ? length - CommandMailbox::kInline : 0;
  return (rest + kBlockData - 1) / kBlockData;
}

}  // namespace

std::uint8_t command_signature(std::span<const std::byte> bytes) {
  std::uint64_t words = 0;
  for (; bytes.size() >= sizeof words; bytes = bytes.subspan(sizeof words)) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof word);
    words ^= word;
  }
  auto sum = std::byte{0};
  for (const auto byte : bytes) sum ^= byte;
  for (const auto byte : std::as_bytes(std::span(&words, 1))) sum ^= byte;
  return std::to_integer<std::uint8_t>(~sum);
}

CommandMailbox::Walk CommandMailbox::walk_of(pcie::Iova first, std::size_t length) {
  return {.at = first, .blocks = blocks_for(length)};
}

DeliveryStatus CommandMailbox::start(util::View<QueueEntry> entry) {
  // PRM Table 96 reports a wrong type as "0x10 - bad command type".
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
  token_ = static_cast<std::uint8_t>(entry.get(QueueEntry::token));
  input_unaligned_ = entry.get(QueueEntry::input_mailbox_pointer_low) != 0;
  output_unaligned_ = entry.get(QueueEntry::output_mailbox_pointer_low) != 0;
  input_length_ = input_length;
  in_ = walk_of(util::in_place(QueueEntry::input_mailbox_pointer,
                               entry.get(QueueEntry::input_mailbox_pointer)),
                input_length);
  out_ = walk_of(util::in_place(QueueEntry::output_mailbox_pointer,
                                entry.get(QueueEntry::output_mailbox_pointer)),
                 output_length);
  input_.start(input_length);
  const auto first = entry.get(QueueEntry::command_input_inline_data);
  input_.append(std::span<const std::byte>(first).first(std::min(input_length_, kInline)));
  output_length_ = output_length;
  output_.clear();
  if (output_.capacity() > kKeptOutput) std::vector<std::byte>().swap(output_);
  output_.reserve(output_length);
  output_.resize(std::min<std::size_t>(output_length, kInline));
  output_blocks_.clear();
  sent_ = 0;
  return DeliveryStatus::OK;
}

std::optional<DeliveryStatus> CommandMailbox::receive(util::WorkBudget& work) {
  // Walk each chain only to the end of the message. The chain may be longer, with blocks of an
  // earlier command. If it is a loop, the check of block numbers ends the walk.
  while (!in_.done() || !out_.done()) {
    if (work.spent()) return std::nullopt;
    work.charge(kBlockWork);
    const auto status = in_.done() ? pass_block() : read_block();
    if (status != DeliveryStatus::OK) return status;
    work.charge(pcie::RemoteAccesses::take_work());
  }
  return DeliveryStatus::OK;
}

DeliveryStatus CommandMailbox::read_block() {
  if (in_.number == 0 && input_unaligned_) return DeliveryStatus::BAD_INPUT_POINTER;
  std::array<std::byte, MailboxBlock::kSize> block;
  if (in_.at == 0 || !dma_.read(in_.at, block)) return DeliveryStatus::BAD_INPUT_POINTER;
  const auto control = control_of(util::View<MailboxBlock>(block));
  if (const auto status = check(control, in_.number, token_); status != DeliveryStatus::OK) {
    return status;
  }
  input_.append(std::span(block).first(std::min(input_length_ - input_.size(), kBlockData)));
  ++in_.number;
  in_.at = control.next;
  return DeliveryStatus::OK;
}

DeliveryStatus CommandMailbox::pass_block() {
  if (out_.number == 0 && output_unaligned_) return DeliveryStatus::BAD_OUTPUT_POINTER;
  std::array<std::byte, MailboxBlock::kSize> block{};
  const auto tail = std::span(block).subspan(kControlAt);
  if (out_.at == 0 || !dma_.read(out_.at + kControlAt, tail)) {
    return DeliveryStatus::BAD_OUTPUT_POINTER;
  }
  const auto control = control_of(util::View<MailboxBlock>(block));
  if (const auto status = check(control, out_.number, token_); status != DeliveryStatus::OK) {
    return status;
  }
  output_blocks_.push_back(out_.at);
  output_.resize(std::min(output_.size() + kBlockData, output_length_));
  ++out_.number;
  out_.at = control.next;
  return DeliveryStatus::OK;
}

bool CommandMailbox::write_block(pcie::Iova at, std::span<const std::byte> data) {
  std::array<std::byte, MailboxBlock::kSize> bytes;
  if (!dma_.read(at, bytes)) return false;
  std::copy(data.begin(), data.end(), bytes.begin());
  const util::MutableView<MailboxBlock> block(bytes);
  block.set(MailboxBlock::ctrl_signature, 0);
  block.set(MailboxBlock::signature, 0);
  block.set(MailboxBlock::ctrl_signature, command_signature(std::span(bytes).subspan(kControlAt)));
  block.set(MailboxBlock::signature, command_signature(bytes));
  // Write only the data and the signatures. The driver owns the fields between them.
  const auto signatures = std::span(bytes).last(2);
  return dma_.write(at, data) &&
         dma_.write(at + MailboxBlock::kSize - signatures.size(), signatures);
}

std::optional<DeliveryStatus> CommandMailbox::send(util::MutableView<QueueEntry> entry,
                                                   util::WorkBudget& work) {
  const std::span<const std::byte> output = output_;
  const auto head = output.first(std::min(output.size(), kInline));
  const auto to = entry.sub(QueueEntry::command_output_inline_data);
  std::copy(head.begin(), head.end(), to.begin());
  for (; sent_ != output_blocks_.size(); ++sent_) {
    if (work.spent()) return std::nullopt;
    work.charge(kBlockWork);
    const auto rest = output.subspan(kInline + sent_ * kBlockData);
    const auto data = rest.first(std::min(rest.size(), kBlockData));
    if (!write_block(output_blocks_[sent_], data)) return DeliveryStatus::BAD_OUTPUT_POINTER;
    work.charge(pcie::RemoteAccesses::take_work());
  }
  return DeliveryStatus::OK;
}

}  // namespace softhca::connectx
