// Messages of the command interface: sixteen bytes in the queue entry, the rest in a chain of
// mailbox blocks (PRM 7.14.1.1).
//
// Entry and blocks are the guest's: every pointer, length and number in them can be anything.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "connectx/command/command_input.h"
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
  /// inline pages (16 GiB of 4 KiB pages) fits; and no command has more to tell than 512 KiB.
  static constexpr std::uint32_t kMinLength = 8;
  static constexpr std::uint32_t kMaxInputLength = 32u << 20;
  static constexpr std::uint32_t kMaxOutputLength = 512u << 10;

  explicit CommandMailbox(pcie::DmaSpace& dma) : dma_(dma) {}

  /// Begins with the message of `entry`. OK: receive() goes on. @pre release() has returned true
  DeliveryStatus start(util::View<QueueEntry> entry);
  /// Reads the whole input, and walks over the output chain, so that nothing is executed whose
  /// answer cannot be delivered. Nothing: `work` is spent, to be called again. After OK what is
  /// below is valid until the next start().
  std::optional<DeliveryStatus> receive(util::WorkBudget& work);
  const CommandInput& input() const { return input_; }
  /// The same with zeros behind it, up to `size` bytes.
  void extend_input(std::size_t size) { input_.extend(size); }
  /// As long as the entry's output_length, zero at first.
  std::span<std::byte> output() { return output_; }

  /// Writes the output: the first bytes to `entry`, the rest to the chain, signed. Nothing: `work`
  /// is spent, to be called again.
  std::optional<DeliveryStatus> send(util::MutableView<QueueEntry> entry, util::WorkBudget& work);

  /// Gives back what a long input took, until `work` is spent. True: it is done.
  bool release(util::WorkBudget& work) { return input_.release(work); }

 private:
  /// The way along a chain.
  struct Walk {
    pcie::Iova at = 0;
    std::size_t blocks = 0;  ///< of the message
    std::size_t number = 0;  ///< of the next one
    bool done() const { return number == blocks; }
  };
  static Walk walk_of(pcie::Iova first, std::size_t length);
  DeliveryStatus read_block();
  DeliveryStatus pass_block();
  bool write_block(pcie::Iova block, std::span<const std::byte> data);

  pcie::DmaSpace& dma_;
  std::uint8_t token_ = 0;
  bool input_unaligned_ = false;
  bool output_unaligned_ = false;
  std::size_t input_length_ = 0;
  std::size_t output_length_ = 0;
  Walk in_;
  Walk out_;
  CommandInput input_;
  std::vector<std::byte> output_;
  std::vector<pcie::Iova> output_blocks_;
  std::size_t sent_ = 0;  ///< of output_blocks_
};

/// The bitwise complement of the XOR of all bytes: written into a zero byte among them it makes
/// their XOR 0xFF (PRM 7.14.1.1.1).
std::uint8_t command_signature(std::span<const std::byte> bytes);

}  // namespace softhca::connectx
