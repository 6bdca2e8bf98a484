#include "lab/lab.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>

#include "connectx/device.h"
#include "driver/connectx/verbs_device.h"
#include "driver/in_process_host.h"
#include "driver/jingzhao/verbs_device.h"
#include "jingzhao/device.h"
#include "rsnic/options.h"

namespace softhca::lab {

namespace {

constexpr auto kEverything = std::numeric_limits<std::size_t>::max();
/// Time step for a waiting driver when nothing else happens, so that its patience ends.
constexpr auto kIdleStep = std::chrono::microseconds(100);

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

Lab::Lab(const std::vector<std::string>& names, const Options& options) : options_(options) {
  util::set_log_level(options.log_level);
  if (options.link == wire::Link::kInfiniband) subnet_.emplace(switch_);
  for (const auto& name : names) add(name);
}

Lab::~Lab() {
  // Drivers first, because they run all devices while they wait.
  for (auto& node : nodes_) node->device = nullptr;
  for (auto& node : nodes_) {
    node->host = nullptr;
    node->function = nullptr;
  }
  nodes_.clear();  // destroys the ports before the switch that they belong to is replaced
}

void Lab::add(const std::string& name) {
  const auto& model = find_model(name);
  if (!has_link(name, options_.link)) {
    throw std::runtime_error(fmt::format("{}: its port is Ethernet, and no other", name));
  }
  const auto number = static_cast<std::uint8_t>(nodes_.size() + 1);
  auto node = std::make_unique<Node>();
  node->name = name;
  const auto label = fmt::format("{}{}", name, nodes_.size());
  node->port = switch_.create_port(label);
  fabric::Port* port = node->port.get();
  if (options_.virtual_time) {
    node->link =
        std::make_unique<fabric::FaultyLink>(*port, faults_, label, nodes_.size(), options_.link);
    port = node->link.get();
  }
  const auto mac = wire::MacAddress::from_u64(0x020000000000u + number);
  node->function = model.make({.name = label,
                               .mac = mac,
                               .guid = 0x0200000000000000u + number,
                               .clock = [this] { return now(); },
                               .link = options_.link},
                              *port);
  driver::InProcessHost::Options host;
  host.progress = [this] { progress(); };
  host.clock = [this] { return now(); };
  node->host = std::make_unique<driver::InProcessHost>(*node->function, std::move(host));
  nodes_.push_back(std::move(node));
  auto& made = *nodes_.back();
  auto device = model.open(*made.host, mac);
  if (!device) throw std::runtime_error(fmt::format("{}: {}", label, device.error().message));
  made.device = std::make_unique<driver::verbs::Device>(std::move(*device));
  const auto up = wait_for_link(made);
  if (!up) throw std::runtime_error(fmt::format("{}: {}", label, up.error().message));
  const auto named = made.device->set_gid(0, driver::Gid::from_ipv4(10, 0, 0, number));
  if (!named) throw std::runtime_error(fmt::format("{}: {}", label, named.error().message));
}

/// Waits for the link: on InfiniBand the port waits for its subnet manager.
util::Result<void> Lab::wait_for_link(Node& node) {
  const auto limit = now() + std::chrono::seconds(10);
  while (now() < limit) {
    const auto up = node.device->link_is_up();
    if (!up) return tl::unexpected(up.error());
    if (*up) return {};
    progress();
  }
  return util::fail("the port does not come up");
}

bool Lab::pass() {
  const auto time = now();
  auto next = subnet_ ? subnet_->run(time) : util::kNever;
  for (auto& node : nodes_) {
    node->function->note_time(time);
    if (node->link) node->link->handle_timeout(time);
  }
  // Before any device runs: it may free the memory that frames refer to, and a frame that came
  // after its run would wait for the next event.
  switch_.deliver(kEverything);
  for (auto& node : nodes_) {
    next = std::min(next, node->function->run(time));
    // A delivered frame may make work for a device that has already run.
    if (switch_.has_work()) next = time;
    switch_.deliver(kEverything);
  }
  for (const auto& node : nodes_) {
    if (node->link) next = std::min(next, node->link->next_event());
  }
  next_ = next;
  return next_ <= time;
}

void Lab::progress() {
  if (!pass() && options_.virtual_time) now_ = std::min(next_, now_ + kIdleStep);
}

bool Lab::run_until(const std::function<bool()>& done) {
  const auto limit = now_ + std::chrono::minutes(1);
  while (!done()) {
    if (pass()) continue;
    if (done()) return true;
    if (next_ == util::kNever || now_ > limit) return false;
    now_ = next_;
  }
  return true;
}

void Lab::advance(util::Duration duration) {
  const auto end = now_ + duration;
  while (pass() || next_ <= end) now_ = std::max(now_, next_);
  now_ = end;
}

}  // namespace softhca::lab
