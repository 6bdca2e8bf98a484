// Messages of the command interface: sixteen bytes in the queue entry, the rest in a chain of
// mailbox blocks (PRM 7.14.1.1).
//
// Entry and blocks are the guest's: every pointer, length and number in them can be anything.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pcie/dma_space.h"
#include "spec/connectx/command.h"
#include "spec/connectx/opcodes.h"
#include "util/field.h"

namespace softhca::connectx {

using DeliveryStatus = spec::connectx::delivery_status;
using QueueEntry = spec::connectx::command_queue_entry;

class CommandMailbox {
 public:
  static constexpr std::size_t kInline = 16;
  /// PRM Table 96: a length below 8 is an error. The upper limits are ours: a CREATE_MKEY with 4 Mi
  /// inline pages (16 GiB of 4 KiB pages) fits; and a MANAGE_PAGES that takes 65534 pages, which is
  /// no more than others can wait for, since an output is written in one turn of the loop.
  static constexpr std::uint32_t kMinLength = 8;
  static constexpr std::uint32_t kMaxInputLength = 32u << 20;
  static constexpr std::uint32_t kMaxOutputLength = 512u << 10;

  explicit CommandMailbox(pcie::DmaSpace& dma) : dma_(dma) {}

  /// Reads the whole input, and walks over the output chain, so that nothing is executed whose
  /// answer cannot be delivered. After OK the spans below are valid until the next call.
  DeliveryStatus receive(util::View<QueueEntry> entry);
  std::span<const std::byte> input() const { return input_; }
  /// As long as the entry's output_length, zero at first.
  std::span<std::byte> output() { return output_; }

  /// Bytes of the last message that receive() has read or walked over, to whatever end.
  std::size_t size() const { return size_; }

  /// Writes the output: the first bytes to `entry`, the rest to the chain, signed.
  DeliveryStatus send(util::MutableView<QueueEntry> entry);

 private:
  DeliveryStatus read_input(util::View<QueueEntry> entry);
  DeliveryStatus walk_output(util::View<QueueEntry> entry);
  bool write_block(pcie::Iova block, std::span<const std::byte> data);

  pcie::DmaSpace& dma_;
  std::size_t size_ = 0;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
  std::vector<pcie::Iova> output_blocks_;
};

/// The bitwise complement of the XOR of all bytes: written into a zero byte among them it makes
/// their XOR 0xFF (PRM 7.14.1.1.1).
std::uint8_t command_signature(std::span<const std::byte> bytes);

}  // namespace softhca::connectx
