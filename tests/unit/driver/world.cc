#include "driver/world.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "util/log.h"

namespace softhca::driver::test {

namespace {
constexpr auto kEverything = std::numeric_limits<std::size_t>::max();
}  // namespace

Node::Node(World& world, unsigned number, softhca::connectx::DeviceOptions card) {
  const auto n = static_cast<std::uint8_t>(number + 1);
  mac.bytes = {std::byte{0x02}, std::byte{}, std::byte{}, std::byte{}, std::byte{}, std::byte{n}};
  gid = Gid::from_ipv4(192, 168, 10, n);
  const auto name = "connectx" + std::to_string(number);
  port = world.switch_.create_port(name);
  card.name = name;
  card.mac = mac;
  card.node_guid = 0x025fca0000000000u + n;
  card.clock = [&world] { return world.now(); };
  link = std::make_unique<fabric::FaultyLink>(*port, world.faults_, name, number);
  device = std::make_unique<softhca::connectx::Device>(std::move(card), *link);
  host = std::make_unique<InProcessHost>(
      *device, InProcessHost::Options{.progress = [&world] { world.progress(); },
                                      .clock = [&world] { return world.now(); },
                                      .on_interrupt = {}});
}

void Node::open(const connectx::Hca::Options& options) {
  hca = must(connectx::Hca::open(*host, options));
  must(hca->set_roce_address(0, {.gid = gid, .mac = mac}));
}

World::World(const softhca::connectx::DeviceOptions& card_a,
             const softhca::connectx::DeviceOptions& card_b) {
  // Tests provoke refusals, whose warnings would hide what matters.
  util::set_log_level(util::LogLevel::kError);
  nodes_.push_back(std::make_unique<Node>(*this, 0, card_a));
  nodes_.push_back(std::make_unique<Node>(*this, 1, card_b));
}

World::~World() {
  for (auto& node : nodes_) node->hca = nullptr;
}

void World::close() {
  for (auto& node : nodes_) node->hca = nullptr;
  for (auto& node : nodes_) {
    node->host = nullptr;
    node->device = nullptr;
  }
}

const fabric::NetworkFaults::Counters& World::add_fault(std::string_view rule) {
  return *faults_.find(faults_.add(must(fabric::parse_fault(rule))))->counters;
}

void World::open(const connectx::Hca::Options& options) {
  a().open(options);
  b().open(options);
}

util::Time World::run(util::Time now) {
  const auto before = heap ? heap() : 0;
  auto next = util::kNever;
  for (auto& node : nodes_) {
    node->link->handle_timeout(now);
    // Before a device runs: it may free the memory that frames refer to.
    switch_.deliver(kEverything);
    next = std::min({next, node->device->run(now), node->link->next_event()});
    // A delivered frame may give work to a device that has already run.
    if (switch_.has_work()) next = now;
    switch_.deliver(kEverything);
  }
  if (heap) device_heap_ += heap() - before;
  return next;
}

Endpoint::Endpoint(Node& on, const Options& options) : node(on), memory(options.memory) {
  auto& hca = *node.hca;
  pd = must(connectx::ProtectionDomain::create(hca));
  key = must(connectx::MemoryKey::register_memory(*pd, memory, options.access));
  const connectx::CompletionQueue::Options cq{.entries = options.cq_entries};
  send_cq = must(connectx::CompletionQueue::create(hca, cq));
  receive_cq = must(connectx::CompletionQueue::create(hca, cq));
  qp = must(connectx::QueuePair::create(*pd, {.send_cq = *send_cq,
                                              .receive_cq = *receive_cq,
                                              .send = options.send,
                                              .receive = options.receive}));
}

std::uint64_t Endpoint::address(std::size_t offset) const {
  return reinterpret_cast<std::uintptr_t>(memory.data()) + offset;
}

Sge Endpoint::piece(std::size_t offset, std::size_t length) const {
  return {address(offset), static_cast<std::uint32_t>(length), key->key()};
}

std::span<std::byte> Endpoint::bytes(std::size_t offset, std::size_t length) {
  return std::span(memory).subspan(offset, length);
}

connectx::RemoteQueuePair Endpoint::as_remote(std::uint32_t psn) const {
  return {.qpn = qp->qpn(), .psn = psn, .gid = node.gid, .mac = node.mac};
}

void Endpoint::receive(std::uint64_t id, std::size_t offset, std::size_t length) {
  const auto sge = piece(offset, length);
  ASSERT_EQ(qp->post_receive({.id = id, .pieces = {&sge, 1}}), PostStatus::kOk);
}

void connect(Endpoint& a, Endpoint& b, connectx::Connection connection,
             connectx::RemoteAccess access) {
  connection.psn = kPsnA;
  must(a.qp->connect(b.as_remote(kPsnB), connection, access));
  connection.psn = kPsnB;
  must(b.qp->connect(a.as_remote(kPsnA), connection, access));
}

std::vector<Completion> wait(World& world, connectx::CompletionQueue& cq, std::size_t count) {
  std::vector<Completion> found;
  world.run_until([&] {
    Completion next;
    while (found.size() < count && cq.poll({&next, 1}) == 1) found.push_back(next);
    return found.size() >= count;
  });
  return found;
}

}  // namespace softhca::driver::test
