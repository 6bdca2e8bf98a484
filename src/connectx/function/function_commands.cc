// A driver's start-up and teardown (PRM 8.2, 8.3, 12.3.6 to 12.3.12): ENABLE_HCA to TEARDOWN_HCA,
// ISSI, NOP.

#include <algorithm>
#include <string>

#include "connectx/command/command_interface.h"
#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/function/capabilities.h"
#include "connectx/function/pages.h"
#include "connectx/port/network_port.h"
#include "spec/connectx/hca.h"
#include "util/bits.h"

namespace softhca::connectx {

namespace {

/// The interface steps of QUERY_ISSI, one bit each (PRM 5.4). The manual describes step 1.
constexpr std::uint32_t kSupportedIssi = 1u << 0 | 1u << 1;

}  // namespace

CommandResult enable_hca(DriverState& driver, const Command& command) {
  using In = spec::connectx::enable_hca_in;
  if (command.input<In>().get(In::function_id) != 0) {
    return refuse(Status::BAD_PARAM, "PRM 12.3.8", "the device has function 0 only");
  }
  driver.set_state(HcaState::kEnabled);
  return {};
}

CommandResult disable_hca(DriverState& driver, const Command& command) {
  using In = spec::connectx::disable_hca_in;
  if (command.input<In>().get(In::function_id) != 0) {
    return refuse(Status::BAD_PARAM, "PRM 12.3.9", "the device has function 0 only");
  }
  driver.forget();
  return {};
}

CommandResult init_hca(DriverState& driver, const Command&) {
  if (driver.pages().missing_for_init() != 0) {
    return refuse(Status::BAD_SYS_STATE, "PRM 12.3.6", "boot and init pages are missing");
  }
  driver.set_state(HcaState::kInitialized);
  return {};
}

CommandResult teardown_hca(DriverState& driver, const Command& command) {
  using In = spec::connectx::teardown_hca_in;
  using Profile = spec::connectx::teardown_profile;
  const auto profile = static_cast<Profile>(command.input<In>().get(In::profile));
  switch (profile) {
    case Profile::GRACEFUL_CLOSE:
    case Profile::FORCE_CLOSE:
      driver.drop_objects();
      driver.set_state(HcaState::kEnabled);
      // A panic close also takes the ports down. For the next driver they are up again.
      if (profile == Profile::FORCE_CLOSE) {
        driver.network_port().state().set_admin_status(PortState::AdminStatus::DOWN);
      }
      return {};
    case Profile::PREPARE_FAST_TEARDOWN:
      // The driver completes this teardown by writing nic_interface = 1. State 0 in the output says
      // that the device is ready.
      return {};
  }
  return refuse(Status::BAD_PARAM, "PRM 12.3.7", "unknown profile");
}

CommandResult query_issi(DriverState& driver, const Command& command) {
  using Out = spec::connectx::query_issi_out;
  const auto out = command.output<Out>();
  out.set(Out::current_issi, driver.issi());
  const auto supported = out.sub(Out::supported_issi);
  util::store_be32(supported.last(sizeof kSupportedIssi).data(), kSupportedIssi);
  return {};
}

CommandResult set_issi(DriverState& driver, const Command& command) {
  using In = spec::connectx::set_issi_in;
  const auto issi = command.input<In>().get(In::current_issi);
  if (issi >= 32 || !util::has_bit(kSupportedIssi, issi)) {
    return refuse(Status::BAD_PARAM, "PRM 12.3.11", "this ISSI is not in supported_issi");
  }
  driver.set_issi(static_cast<std::uint16_t>(issi));
  return {};
}

CommandResult set_driver_version(DriverState& driver, const Command& command) {
  using In = spec::connectx::set_driver_version_in;
  const auto bytes = command.input<In>().get(In::driver_version);
  std::string text;
  for (const auto byte : bytes) {
    const auto c = static_cast<char>(byte);
    if (c == '\0') break;
    text += c >= ' ' && c <= '~' ? c : '?';
  }
  driver.notes().info("the driver is {}", text);
  return {};
}

/// The output is all zeros, since a function with one port has no LAG. UCX sends this command
/// without checking lag_master.
CommandResult query_lag(DriverState&, const Command&) { return {}; }

CommandResult nop(DriverState&, const Command&) { return {}; }

}  // namespace softhca::connectx
