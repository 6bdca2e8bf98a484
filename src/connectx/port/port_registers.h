// The registers behind ACCESS_REGISTER (PRM 11): the port's speed, MTU, state, counters, its
// module, and a few of the whole device.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "connectx/command/command.h"
#include "spec/connectx/registers.h"
#include "util/clock.h"

namespace softhca::connectx {

class Device;

class PortRegisters {
 public:
  explicit PortRegisters(Device& device);

  /// One access: `in` holds the register as the driver sent it (what it selects by, and what it
  /// writes), `out` receives its content. Both may be shorter than the register.
  CommandResult access(spec::connectx::register_id id, bool write, std::span<const std::byte> in,
                       std::span<std::byte> out);

  /// Up: the driver wants it, and the link has a partner.
  bool oper_up() const;
  bool admin_up() const { return admin_up_; }
  std::uint16_t oper_mtu() const { return mtu_; }

  /// Tells the driver when the link changes. Returns when to look again.
  util::Time run(util::Time now);

 private:
  /// A register being accessed, at its full size.
  struct Access {
    bool write;
    std::span<const std::byte> in;
    std::span<std::byte> out;
  };
  using Handler = CommandResult (PortRegisters::*)(const Access&);
  struct Register {
    spec::connectx::register_id id;
    std::size_t size;  ///< bytes
    Handler handler;
  };
  static std::span<const Register> registers();

  CommandResult pmlp(const Access& access);
  CommandResult pmtu(const Access& access);
  CommandResult ptys(const Access& access);
  CommandResult paos(const Access& access);
  CommandResult pfcc(const Access& access);
  CommandResult ppcnt(const Access& access);
  CommandResult pcmr(const Access& access);
  CommandResult pvlc(const Access& access);
  CommandResult node_desc(const Access& access);
  CommandResult host_endianness(const Access& access);
  CommandResult mcia(const Access& access);
  CommandResult mlcr(const Access& access);

  void post_port_change(bool up);

  Device& device_;
  bool admin_up_ = true;
  bool reported_up_ = false;
  std::uint16_t mtu_;
  std::uint32_t eth_proto_admin_;
  std::uint16_t beacon_duration_ = 0;
  std::array<std::byte, spec::connectx::reg_pfcc::kSize> pfcc_{};
  std::array<std::byte, spec::connectx::reg_node_desc::kSize> node_description_{};
};

/// Fills the counters of one PPCNT group; false if the device does not have the group. Defined in
/// port_counters.cc.
bool fill_port_counters(Device& device, spec::connectx::ppcnt_group group, unsigned priority,
                        std::span<std::byte> counters);

}  // namespace softhca::connectx
