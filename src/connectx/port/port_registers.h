// The registers behind ACCESS_REGISTER (PRM 11): speed, MTU, state and counters of the port, its
// module, and a few of the whole device.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "connectx/command/command.h"
#include "connectx/port/port_counters.h"
#include "spec/connectx/registers.h"
#include "util/clock.h"

namespace softhca::connectx {

class EventQueues;
class NetworkPort;

class PortRegisters {
 public:
  /// The objects that the registers read and change. They must outlive the registers.
  struct Parts {
    NetworkPort& port;
    EventQueues& event_queues;
  };

  PortRegisters(const Parts& parts, util::Time now);

  static bool has(spec::connectx::register_id id);
  /// Handles an access. `in`: the register as the driver sent it, with selectors and values to
  /// write. `out` receives its content. Both may be shorter than the register.
  CommandResult access(spec::connectx::register_id id, bool write, std::span<const std::byte> in,
                       std::span<std::byte> out, util::Time now);

  /// Polls the link. If the port, or the vport on it, has gone up or down, posts an event to the
  /// driver. Returns when to call again.
  util::Time run(util::Time now);
  /// Time from which the next run() polls the link.
  util::Time next_look() const { return next_look_; }

 private:
  /// A register being accessed, at its full size.
  struct Access {
    bool write;
    std::span<const std::byte> in;
    std::span<std::byte> out;
    util::Time now;
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
  std::uint16_t beacon_remain(util::Time now) const;

  NetworkPort& port_;
  EventQueues& event_queues_;
  PortCounters counters_;
  bool reported_up_ = false;
  util::Time next_look_{};
  std::uint32_t eth_proto_admin_;
  std::uint16_t beacon_duration_ = 0;  ///< seconds
  util::Time beacon_end_{};
  std::array<std::byte, spec::connectx::reg_pfcc::kSize> pfcc_{};
  std::array<std::byte, spec::connectx::reg_node_desc::kSize> node_description_{};
};

}  // namespace softhca::connectx
