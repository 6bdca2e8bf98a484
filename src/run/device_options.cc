#include "run/device_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <net/if.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>

#include "door/tree/tree.h"
#include "run/number_options.h"
#include "util/log.h"
#include "wire/address_text.h"

namespace softhca::run {
namespace {

/// The error in an address for a program; empty if it is valid.
std::string check_address(const std::string& text) {
  constexpr std::string_view kInterface = "if:";
  if (text.starts_with(kInterface)) {
    const auto name = text.substr(kInterface.size());
    return ::if_nametoindex(name.c_str()) != 0 ? "" : name + ": this host has no such interface";
  }
  const auto gid = wire::parse_ipv4(text);
  if (!gid) return text + " is not an IPv4 address";
  const auto part = [&gid](std::size_t at) {
    return std::to_integer<unsigned>(gid->bytes[wire::Gid::kSize - 4 + at]);
  };
  if (part(0) == 0 || part(0) == 127 || part(0) >= 224)
    return text + " is not the address of a host";
  if (part(0) == 198 && part(1) == 18) {
    return text + ": 198.18.0.0/16 is given out by the fabric; 198.19.0.0/16 is free";
  }
  return {};
}

/// Why programs cannot use a model; empty if they can.
std::string check_model(const std::string& name) {
  if (name == "connectx") return {};
  if (name == "rsnic" || name == "jingzhao" || name == "sdxi") {
    return name +
           ": there is no library of rdma-core that this host's programs could use it by; "
           "connectx is the model that has one. A guest has it with softhca serve --device " +
           name;
  }
  return name + ": no model; want connectx";
}

}  // namespace

unsigned DeviceOptions::count() const {
  const auto named = std::max<std::size_t>(models.size(), 1);
  return devices == 0 ? static_cast<unsigned>(named) : devices;
}

std::string DeviceOptions::check() const {
  if (devices != 0 && models.size() > 1 && models.size() != devices) {
    return fmt::format("--devices {}, but --device names {} models", devices, models.size());
  }
  if (models.size() > door::kUverbsCount) {
    return fmt::format("--device: {} models; a program sees {} devices at most", models.size(),
                       door::kUverbsCount);
  }
  if (addresses.size() > count()) {
    return fmt::format("--address: {} addresses, but only {} device{}", addresses.size(), count(),
                       count() == 1 ? "" : "s");
  }
  const std::set<std::string> different(addresses.begin(), addresses.end());
  if (different.size() != addresses.size()) return "--address: the same one twice";
  return {};
}

std::string ShownDevices::word() const {
  if (!host.empty()) return fmt::format("{}+{}-{}", count, host.first_free(), host.mark());
  return count == 1 ? "" : fmt::format("{}", count);
}

std::vector<std::string> ShownDevices::names() const {
  std::vector<std::string> all;
  for (unsigned i = 0; i != count; ++i)
    all.push_back(fmt::format("mlx5_{}", host.first_free() + i));
  return all;
}

util::Result<ShownDevices> DeviceOptions::shown() const {
  ShownDevices shown{.count = count()};
  if (!host_devices) return shown;
  shown.host = door::HostDevices::find();
  const auto first = shown.host.first_free();
  if (shown.host.empty()) {
    util::log(util::LogLevel::kWarning, "--host-devices: this host has no RDMA devices of its own");
  }
  if (first + shown.count > door::kUverbsCount) {
    return util::fail(fmt::format(
        "--host-devices: the numbers of this host's devices go up to {}, and there are {} in all: "
        "too few are left for the {} devices of this run",
        first - 1, door::kUverbsCount, shown.count));
  }
  return shown;
}

std::vector<std::string> DeviceOptions::variables(const ShownDevices& shown) const {
  std::vector<std::string> all;
  if (!addresses.empty()) {
    all.push_back(fmt::format("SOFTHCA_ADDRESS={}", fmt::join(addresses, ",")));
  }
  if (const auto word = shown.word(); !word.empty()) {
    all.push_back(fmt::format("{}={}", door::kDevicesVariable, word));
  }
  if (loss > 0) all.push_back(fmt::format("SOFTHCA_LOSS={},{}", loss, loss_seed));
  return all;
}

void add_device_options(CLI::App& command, DeviceOptions& seen) {
  command
      .add_option("--address", seen.addresses,
                  "IPv4 address of the device; the first process that opens the device gets it. "
                  "if:NAME copies the addresses of a host interface, follows changes, and reaches "
                  "other machines by RoCEv2 on UDP port 4791. With several devices, one address "
                  "for each, separated by commas [198.18.x.y]")
      ->delimiter(',')
      ->type_name("ADDRESS[,ADDRESS]...")
      ->check(check_address);
  command
      .add_option("--devices", seen.devices,
                  "Number of devices: mlx5_0, mlx5_1, ..., each with a port and an address of its "
                  "own [1]")
      ->type_name("N")
      ->transform(whole_number(1, door::kUverbsCount));
  command
      .add_option("--device", seen.models, "Model of each device, separated by commas [connectx]")
      ->delimiter(',')
      ->type_name("MODEL[,MODEL]...")
      ->check(check_model);
  command.add_flag("--host-devices", seen.host_devices,
                   "Also show the RDMA devices that this host has of its own. softhca's are "
                   "numbered after them. Without this option, programs see softhca's only");
  command
      .add_option("--loss", seen.loss,
                  "Probability that a frame is lost on its way from a device to the switch [0]")
      ->type_name("P")
      ->transform(real_number(0, 1));
  command.add_option("--loss-seed", seen.loss_seed, "Seed that selects the lost frames [1]")
      ->type_name("SEED")
      ->transform(whole_number());
}

}  // namespace softhca::run
