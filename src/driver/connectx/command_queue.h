// The command queue (PRM 7.14): runs one command at a time, and polls its ownership bit.
//
// Slot 0 takes all commands but MANAGE_PAGES, which uses the last slot, so that the driver can give
// pages while another command waits for them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "driver/connectx/init_segment.h"
#include "driver/connectx/message.h"
#include "driver/dma_memory.h"
#include "spec/connectx/command.h"
#include "util/result.h"

namespace softhca::driver::connectx {

class CommandQueue {
 public:
  /// Gives the device its queue (PRM 8.2, steps 1 to 3). `patience` is the time limit of each step
  /// and command.
  static util::Result<std::unique_ptr<CommandQueue>> create(Host& host, util::Duration patience);

  /// Executes a command and returns its output, with `tail` bytes behind the structure. An error
  /// names the command, its status and its syndrome.
  template <class Out, class In>
  util::Result<Message<Out>> execute(const Request<In>& in, std::size_t tail = 0) {
    Message<Out> out(tail);
    if (auto done = execute_bytes(in.all(), out.all()); !done) return tl::unexpected(done.error());
    return out;
  }
  /// The same for commands that output only a status.
  template <class In>
  util::Result<void> run(const Request<In>& in) {
    Message<spec::command_output_header> out(kInlineSize - spec::command_output_header::kSize);
    return execute_bytes(in.all(), out.all());
  }
  util::Result<void> execute_bytes(std::span<const std::byte> in, std::span<std::byte> out);

  InitSegment& init_segment() { return init_segment_; }

 private:
  /// Bytes of input and output that are in the entry itself.
  static constexpr std::size_t kInlineSize = 16;
  static constexpr std::size_t kMailboxData = 512;
  /// Blocks are 1 KiB-aligned (PRM Table 98).
  static constexpr std::size_t kMailboxStride = 1024;

  /// A chain of mailbox blocks, extended when a message needs more.
  struct Chain {
    DmaBuffer memory;
    std::size_t blocks = 0;
    std::span<std::byte> block(std::size_t number) const;
  };

  struct Slot {
    unsigned index = 0;
    Chain input;
    Chain output;
  };

  CommandQueue(Host& host, util::Duration patience);
  util::Result<void> hand_over();
  util::Result<void> wait_until_initialized();
  /// Mailbox blocks for the bytes that do not fit into the entry.
  static std::size_t blocks_for(std::size_t message_size);
  util::Result<void> reserve(Chain& chain, std::size_t message_size);
  /// Links as many blocks as the message needs.
  static void link(const Chain& chain, std::size_t message_size, std::uint8_t token);
  std::span<std::byte> entry(const Slot& slot) const;
  void write_entry(const Slot& slot, std::span<const std::byte> in, std::size_t out_size);
  util::Result<void> post_and_wait(const Slot& slot);
  void read_output(const Slot& slot, std::span<std::byte> out) const;

  Host& host_;
  util::Duration patience_;
  InitSegment init_segment_;
  DmaBuffer queue_;
  unsigned log_stride_ = 0;
  std::uint8_t token_ = 0;
  bool stalled_ = false;  ///< a command did not complete: the device still owns its slot
  Slot general_;
  Slot pages_;
};

}  // namespace softhca::driver::connectx
