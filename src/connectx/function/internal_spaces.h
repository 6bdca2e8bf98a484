// The internal address spaces behind the vendor specific capability
// (src/spec/connectx/gateway.layout): semaphores, and the mailbox of internal commands (ICMD). The
// only internal command accesses the registers of ACCESS_REG. iPXE uses it to set up the port
// before INIT_HCA.
//
// The other spaces are those of a firmware (CR space) and of another driver interface (NODNIC). No
// public document describes them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "connectx/command/command.h"
#include "spec/connectx/opcodes.h"
#include "util/notes.h"

namespace softhca::connectx {

class InternalSpaces {
 public:
  using Space = spec::connectx::gateway_space;
  /// Accesses a register of ACCESS_REG. The status is BAD_OP if there is no such register.
  using AccessRegister =
      std::function<CommandResult(spec::connectx::register_id id, bool write,
                                  std::span<const std::byte> in, std::span<std::byte> out)>;

  // Byte addresses of dwords.
  static constexpr std::uint32_t kSemaphores = 64;
  static constexpr std::uint32_t kIcmdControl = 0x0;
  static constexpr std::uint32_t kIcmdMailboxSize = 0x1000;
  static constexpr std::uint32_t kIcmdMailbox = 0x100000;
  static constexpr std::uint32_t kMailboxBytes = 1024;

  InternalSpaces(util::Notes& notes, AccessRegister access_register)
      : notes_(notes), access_register_(std::move(access_register)) {}

  static bool has(Space space) { return space == Space::SEMAPHORE || space == Space::ICMD; }
  /// Unset if the space has no such address.
  std::optional<std::uint32_t> read(Space space, std::uint32_t address) const;
  /// False if the space has no such address.
  bool write(Space space, std::uint32_t address, std::uint32_t value);
  void reset();

 private:
  using IcmdStatus = spec::connectx::icmd_status;
  using RegisterStatus = spec::connectx::icmd_register_status;

  void write_control(std::uint32_t value);
  IcmdStatus execute(spec::connectx::icmd_opcode opcode);
  IcmdStatus access_register();
  RegisterStatus access_register(std::span<std::byte> message);

  util::Notes& notes_;
  AccessRegister access_register_;
  /// The value that the holder wrote. 0: free.
  std::array<std::uint32_t, kSemaphores> semaphores_{};
  std::uint32_t control_ = 0;
  /// Its dwords are big-endian, as in commands.
  std::array<std::byte, kMailboxBytes> mailbox_{};
};

}  // namespace softhca::connectx
