// Messages of the command interface: sixteen bytes in the queue entry, the others in a chain of
// mailbox blocks (PRM 7.14.1.1).
//
// The guest owns the entry and the blocks, so every pointer, length and number in them can have any
// value.
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
  /// Limits on lengths. A length below 8 is an error (PRM Table 96). The upper limits are the
  /// device's own: a CREATE_MKEY with 4 Mi inline pages (16 GiB of 4 KiB pages) fits, and no
  /// command's output exceeds 512 KiB.
  static constexpr std::uint32_t kMinLength = 8;
  static constexpr std::uint32_t kMaxInputLength = 32u << 20;
  static constexpr std::uint32_t kMaxOutputLength = 512u << 10;

  explicit CommandMailbox(pcie::DmaSpace& dma) : dma_(dma) {}

  /// Begins to read the message of `entry`. After OK, call receive(). @pre release() has returned
  /// true
  DeliveryStatus start(util::View<QueueEntry> entry);
  /// Reads the whole input and walks the output chain, so that no command is executed whose output
  /// cannot be delivered. Unset if `work` is spent: call it again. After OK, input() and output()
  /// are valid until the next start().
  std::optional<DeliveryStatus> receive(util::WorkBudget& work);
  const CommandInput& input() const { return input_; }
  /// Pads the input with zeros up to `size` bytes.
  void extend_input(std::size_t size) { input_.extend(size); }
  /// The output, of the entry's output_length. It is initially zero.
  std::span<std::byte> output() { return output_; }

  /// Writes the output with signatures: the first bytes to `entry`, the others to the chain. Unset
  /// if `work` is spent: call it again.
  std::optional<DeliveryStatus> send(util::MutableView<QueueEntry> entry, util::WorkBudget& work);

  /// Frees the memory of a long input until `work` is spent. True if done.
  bool release(util::WorkBudget& work) { return input_.release(work); }

 private:
  /// Progress along a chain.
  struct Walk {
    pcie::Iova at = 0;
    std::size_t blocks = 0;  ///< blocks of the message
    std::size_t number = 0;  ///< number of the next block
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
  std::size_t sent_ = 0;  ///< blocks of output_blocks_ already written
};

/// The bitwise complement of the XOR of all bytes. If it replaces a zero byte, the XOR of all bytes
/// is 0xFF (PRM 7.14.1.1.1).
std::uint8_t command_signature(std::span<const std::byte> bytes);

}  // namespace softhca::connectx
