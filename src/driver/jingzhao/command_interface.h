// The driver's side of the HCR (JingZhao 3.1.1): one command at a time, polled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "driver/dma_memory.h"
#include "driver/host.h"
#include "spec/jingzhao/command.h"
#include "spec/jingzhao/registers.h"
#include "util/field.h"

namespace softhca::driver::jingzhao {

namespace spec = softhca::spec::jingzhao;

/// BARs, and offsets in BAR 0. On a card for the author's driver, which its device ID identifies,
/// the HCR has another offset (docs/jingzhao.md).
inline constexpr unsigned kHcrBar = 0;
inline constexpr unsigned kUarBar = 2;
inline constexpr std::uint64_t kHcrOffset = 0x80000;
inline constexpr std::uint64_t kHcrOffsetOfAuthorsCard = 0;
inline constexpr std::uint16_t kAuthorsCard = 0x7028;
inline constexpr std::uint64_t kResetOffset = 0xF0010;

struct Request {
  spec::command_opcode op{};
  std::uint32_t in_modifier = 0;
  std::uint8_t op_modifier = 0;
  std::uint64_t in_param = 0;  ///< the input of a command that takes a value instead of a mailbox
  std::span<const std::byte> in = {};  ///< mailbox, at most 4096 bytes
  std::span<std::byte> out = {};       ///< mailbox, at most 4096 bytes
};

class CommandInterface {
 public:
  static constexpr std::size_t kMailbox = 4096;

  static util::Result<std::unique_ptr<CommandInterface>> create(Host& host,
                                                                util::Duration patience);

  /// Resets the device and waits for the end of the reset.
  util::Result<void> reset();
  /// Executes the command. An error names the command and its status.
  util::Result<void> run(const Request& request);

 private:
  CommandInterface(Host& host, util::Duration patience) : host_(host), patience_(patience) {}
  std::uint32_t read(std::uint64_t offset);
  void write(std::uint64_t offset, std::uint32_t value);
  void start(const Request& request);
  template <class Done>
  bool wait(Done&& done);

  Host& host_;
  util::Duration patience_;
  std::uint64_t hcr_ = kHcrOffset;
  DmaBuffer in_;
  DmaBuffer out_;
  bool stalled_ = false;
};

}  // namespace softhca::driver::jingzhao
