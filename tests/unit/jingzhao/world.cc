#include "jingzhao/world.h"

#include <algorithm>
#include <limits>

#include "util/inspection.h"
#include "util/log.h"

namespace softhca::jingzhao::test {

namespace {
constexpr auto kEverything = std::numeric_limits<std::size_t>::max();
}  // namespace

Node::Node(World& world, unsigned number, DeviceOptions card, const MakeHost& make_host) {
  const auto n = static_cast<std::uint8_t>(number + 1);
  address.mac.bytes = {std::byte{0x02}, std::byte{}, std::byte{},
                       std::byte{},     std::byte{}, std::byte{n}};
  address.ipv4 = 0xC0A80A00u + n;
  const auto name = "jingzhao" + std::to_string(number);
  port = world.switch_.create_port(name);
  card.name = name;
  card.node_guid += std::uint64_t{number} << 8;
  link = std::make_unique<fabric::FaultyLink>(*port, world.faults_, name, number, card.link);
  device = std::make_unique<Device>(std::move(card), *link);
  driver::InProcessHost::Options about{.progress = [&world] { world.progress(); },
                                       .clock = [&world] { return world.now(); },
                                       .on_interrupt = {}};
  host = make_host ? make_host(*device, std::move(about))
                   : std::make_unique<driver::InProcessHost>(*device, std::move(about));
}

World::World(const Options& options) {
  // Tests provoke refusals, and their warnings would hide important output.
  util::set_log_level(util::LogLevel::kError);
  if (options.card.link == wire::Link::kInfiniband) subnet_.emplace(switch_);
  for (unsigned i = 0; i != 2; ++i) {
    nodes_.push_back(std::make_unique<Node>(*this, i, options.card, options.make_host));
  }
}

World::~World() {
  for (auto& node : nodes_) node->hca = nullptr;
  nodes_.clear();
}

const fabric::NetworkFaults::Counters& World::add_fault(std::string_view rule) {
  return *faults_.find(faults_.add(must(fabric::parse_fault(rule))))->counters;
}

void World::open(const jz::Hca::Options& options) {
  a().open(options);
  b().open(options);
  if (!subnet_) return;
  for (auto* node : {&a(), &b()}) {
    jz::PortStatus port;
    run_until([&] { return (port = must(node->hca->query_port())).up(); });
    ASSERT_TRUE(port.up());
    node->address.lid = port.lid;
  }
}

util::Time World::run(util::Time now) {
  auto next = subnet_ ? subnet_->run(now) : util::kNever;
  for (auto& node : nodes_) {
    node->link->handle_timeout(now);
    // Before a device runs: it may free the memory that frames refer to.
    switch_.deliver(kEverything);
    next = std::min({next, node->device->run(now), node->link->next_event()});
    // A delivered frame may create work for a device that has already run.
    if (switch_.has_work()) next = now;
    switch_.deliver(kEverything);
  }
  return next;
}

Side::Side(Node& on, const Options& options) : node(on), memory(options.memory) {
  auto& hca = *node.hca;
  pd = hca.pds().allocate().value();
  key = must(jz::MemoryKey::register_memory(hca, pd, memory, options.access));
  const jz::CompletionQueue::Options cq{.entries = options.cq_entries};
  send_cq = must(jz::CompletionQueue::create(hca, cq));
  receive_cq = must(jz::CompletionQueue::create(hca, cq));
  qp = must(jz::QueuePair::create(hca, {.send_cq = *send_cq,
                                        .receive_cq = *receive_cq,
                                        .type = options.type,
                                        .pd = pd,
                                        .requests = options.requests,
                                        .pieces = options.pieces,
                                        .inline_size = options.inline_size,
                                        .log_message_max = options.log_message_max}));
}

void Side::receive(std::uint64_t id, std::size_t offset, std::size_t length) {
  const auto sge = piece(offset, length);
  ASSERT_EQ(qp->post_receive({.id = id, .pieces = {&sge, 1}}), PostStatus::kOk);
}

void connect(Side& a, Side& b, jz::Connection connection, jz::RemoteAccess access) {
  connection.psn = kPsnA;
  must(a.qp->connect(a.node.address, b.as_remote(kPsnB), connection, access));
  connection.psn = kPsnB;
  must(b.qp->connect(b.node.address, a.as_remote(kPsnA), connection, access));
}

std::vector<Completion> wait(World& world, jz::CompletionQueue& cq, std::size_t count) {
  std::vector<Completion> found;
  world.run_until([&] {
    Completion next;
    while (found.size() < count && cq.poll({&next, 1}) == 1) found.push_back(next);
    return found.size() >= count;
  });
  return found;
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::ranges::equal(a, b);
}

std::string inspect(const Device& device) {
  util::Inspection out("device", {.count = util::Inspection::kCountMax});
  util::WorkBudget work(1'000'000'000);
  while (!out.go_on(work, [&](util::Inspection& to) { device.inspect(to); })) {
    work.grant(1'000'000'000);
  }
  return out.finish();
}

}  // namespace softhca::jingzhao::test
