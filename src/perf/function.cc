#include "perf/function.h"

#include <fmt/format.h>

#include <filesystem>
#include <random>
#include <system_error>
#include <thread>

#include "driver/connectx/verbs_device.h"
#include "driver/jingzhao/verbs_device.h"
#include "driver/pci.h"
#include "driver/vfio_host.h"
#include "driver/vfio_user_host.h"
#include "jingzhao/identity.h"

namespace softhca::perf {

namespace verbs = driver::verbs;

namespace {

/// A PCI address has a colon (0000:01:00.0, 01:00.0). A socket's path may have one as well.
bool is_socket(const std::string& where) {
  std::error_code ignored;
  return where.find('/') != std::string::npos || where.find(':') == std::string::npos ||
         std::filesystem::is_socket(where, ignored);
}

util::Result<std::unique_ptr<driver::Host>> open_host(const std::string& where) {
  if (is_socket(where)) {
    auto host = driver::VfioUserHost::connect(where, {});
    if (!host) return tl::unexpected(host.error());
    return std::move(*host);
  }
  auto host = driver::VfioHost::open(where);
  if (!host) return tl::unexpected(host.error());
  return std::move(*host);
}

/// A locally administered address for an HCA without one (JingZhao). It is random, and so most
/// likely unique.
driver::Mac random_mac() {
  std::random_device random;
  driver::Mac mac;
  mac.bytes[0] = std::byte{2};
  for (std::size_t i = 1; i != mac.bytes.size(); ++i) {
    mac.bytes[i] = static_cast<std::byte>(random());
  }
  return mac;
}

util::Result<verbs::Device> open_connectx(driver::Host& host) {
  return driver::connectx::open_verbs(host);
}
util::Result<verbs::Device> open_jingzhao(driver::Host& host) {
  return driver::jingzhao::open_verbs(host, random_mac());
}

struct Known {
  std::uint16_t vendor;
  std::uint16_t device;
  const char* model;
  util::Result<verbs::Device> (*open)(driver::Host&);
};
constexpr Known kKnown[] = {
    {0x15b3, 0x1013, "connectx", open_connectx},
    {0x15b3, 0x1015, "rsnic", open_connectx},
    {jingzhao::kVendorId, jingzhao::kDeviceId, "jingzhao", open_jingzhao},
    {jingzhao::kVendorId, jingzhao::kDriversDeviceId, "jingzhao", open_jingzhao},
};

util::Result<verbs::Device> open_verbs(driver::Host& host, std::string& model) {
  const auto id = driver::read_pci_id(host);
  for (const auto& known : kKnown) {
    if (id.vendor != known.vendor || id.device != known.device) continue;
    model = known.model;
    return known.open(host);
  }
  return util::fail(
      fmt::format("{:04x}:{:04x} is no HCA that there is a driver for here", id.vendor, id.device));
}

util::Result<void> wait_for_link(verbs::Device& device) {
  using namespace std::chrono_literals;
  const auto limit = util::monotonic_now() + 20s;
  for (;;) {
    const auto up = device.link_is_up();
    if (!up) return tl::unexpected(up.error());
    if (*up) return {};
    if (util::monotonic_now() > limit) return util::fail("the port does not come up");
    device.host().progress();
    std::this_thread::sleep_for(10ms);
  }
}

}  // namespace

util::Result<Function> open_function(const std::string& where) {
  const auto failed = [&](const util::Error& error) {
    return util::fail(fmt::format("{}: {}", where, error.message));
  };
  Function function;
  auto host = open_host(where);
  if (!host) return failed(host.error());
  function.host = std::move(*host);
  auto device = open_verbs(*function.host, function.model);
  if (!device) return failed(device.error());
  function.device = std::make_unique<verbs::Device>(std::move(*device));
  if (auto up = wait_for_link(*function.device); !up) return failed(up.error());
  // The IP address takes the last three bytes of the MAC, so distinct MACs yield distinct
  // addresses.
  const auto& mac = function.device->attributes().mac.bytes;
  const auto octet = [&](std::size_t i) { return static_cast<std::uint8_t>(mac[i]); };
  const auto named =
      function.device->set_gid(0, driver::Gid::from_ipv4(10, octet(3), octet(4), octet(5)));
  if (!named) return failed(named.error());
  return function;
}

}  // namespace softhca::perf
