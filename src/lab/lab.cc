#include "lab/lab.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "connectx/device.h"
#include "driver/connectx/verbs_device.h"
#include "driver/in_process_host.h"
#include "driver/jingzhao/verbs_device.h"
#include "jingzhao/device.h"
#include "rsnic/options.h"

namespace softhca::lab {

namespace {

/// Attributes of one card.
struct Identity {
  std::string name;
  wire::MacAddress mac;
  std::uint64_t guid;
  std::function<util::Time()> clock;
  wire::Link link;
};

using MakeFunction = std::unique_ptr<pcie::Function> (*)(Identity, fabric::Port&);
using OpenVerbs = util::Result<driver::verbs::Device> (*)(driver::Host&, const driver::Mac&);

struct Model {
  std::string_view name;
  MakeFunction make;
  OpenVerbs open;
  bool has_infiniband = false;
};

std::unique_ptr<pcie::Function> make_connectx(connectx::DeviceOptions card, Identity identity,
                                              fabric::Port& port) {
  card.name = std::move(identity.name);
  card.mac = identity.mac;
  card.node_guid = identity.guid;
  card.clock = std::move(identity.clock);
  return std::make_unique<connectx::Device>(std::move(card), port);
}

util::Result<driver::verbs::Device> open_connectx(driver::Host& host, const driver::Mac&) {
  return driver::connectx::open_verbs(host);
}

std::unique_ptr<pcie::Function> make_jingzhao(Identity identity, fabric::Port& port) {
  jingzhao::DeviceOptions card;
  card.name = std::move(identity.name);
  card.board_id = identity.guid;
  // no format: room for the port GUID, which is one more
  card.node_guid = identity.guid << 8;
  card.link = identity.link;
  return std::make_unique<jingzhao::Device>(std::move(card), port);
}

/// The table of models.
constexpr Model kModels[] = {
    {"connectx",
     [](Identity identity, fabric::Port& port) {
       return make_connectx({}, std::move(identity), port);
     },
     open_connectx},
    {"rsnic",
     [](Identity identity, fabric::Port& port) {
       return make_connectx(rsnic::device_options(), std::move(identity), port);
     },
     open_connectx},
    {"jingzhao", make_jingzhao, driver::jingzhao::open_verbs, true},
};

constexpr auto kNames = [] {
  std::array<std::string_view, std::size(kModels)> names{};
  for (std::size_t i = 0; i != names.size(); ++i) names[i] = kModels[i].name;
  return names;
}();

const Model& find_model(std::string_view name) {
  const auto* const found = std::ranges::find(kModels, name, &Model::name);
  if (found == std::end(kModels)) {
    throw std::runtime_error(
        fmt::format("unknown device '{}': there are {}", name, fmt::join(kNames, ", ")));
  }
  return *found;
}

}  // namespace

std::span<const std::string_view> models() { return kNames; }

bool has_link(std::string_view model, wire::Link link) {
  return link == wire::Link::kEthernet || find_model(model).has_infiniband;
}

Lab::Lab(const std::vector<std::string>& names, const Options& options) : Network(options) {
  for (const auto& name : names) add(name);
}

std::string Lab::port_name(std::size_t index) const {
  return fmt::format("{}{}", name(index), index);
}

void Lab::add(const std::string& name) {
  const auto& model = find_model(name);
  if (!has_link(name, options().link)) {
    throw std::runtime_error(fmt::format("{}: its port is Ethernet, and no other", name));
  }
  const auto number = static_cast<std::uint8_t>(nodes_.size() + 1);
  auto& node = nodes_.emplace_back();
  node.name = name;
  const auto label = port_name(nodes_.size() - 1);
  auto& port = create_port(label);
  const auto mac = wire::MacAddress::from_u64(0x020000000000u + number);
  node.function = model.make({.name = label,
                              .mac = mac,
                              .guid = 0x0200000000000000u + number,
                              .clock = [this] { return now(); },
                              .link = options().link},
                             port);
  Network::add(*node.function);
  node.host = std::make_unique<driver::InProcessHost>(*node.function, host_options());
  auto opened = model.open(*node.host, mac);
  if (!opened) throw std::runtime_error(fmt::format("{}: {}", label, opened.error().message));
  auto& device =
      *devices_.emplace_back(std::make_unique<driver::verbs::Device>(std::move(*opened)));
  const auto up = wait_for_link(device);
  if (!up) throw std::runtime_error(fmt::format("{}: {}", label, up.error().message));
  const auto named = device.set_gid(0, driver::Gid::from_ipv4(10, 0, 0, number));
  if (!named) throw std::runtime_error(fmt::format("{}: {}", label, named.error().message));
}

/// Waits for the link: on InfiniBand the port waits for its subnet manager.
util::Result<void> Lab::wait_for_link(driver::verbs::Device& device) {
  const auto limit = now() + std::chrono::seconds(10);
  while (now() < limit) {
    const auto up = device.link_is_up();
    if (!up) return tl::unexpected(up.error());
    if (*up) return {};
    progress();
  }
  return util::fail("the port does not come up");
}

}  // namespace softhca::lab
