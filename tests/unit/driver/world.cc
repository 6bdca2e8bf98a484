#include "driver/world.h"

#include <string>
#include <utility>

namespace softhca::driver::test {

Node::Node(World& world, unsigned number, softhca::connectx::DeviceOptions card) {
  const auto n = static_cast<std::uint8_t>(number + 1);
  mac = Mac::from_u64(0x020000000000u + n);
  gid = Gid::from_ipv4(192, 168, 10, n);
  card.name = "connectx" + std::to_string(number);
  card.mac = mac;
  card.node_guid = 0x025fca0000000000u + n;
  card.clock = [&world] { return world.now(); };
  auto& port = world.create_port(card.name);
  device = std::make_unique<softhca::connectx::Device>(std::move(card), port);
  world.add(*device);
  host = std::make_unique<InProcessHost>(*device, world.host_options());
}

void Node::open(const connectx::Hca::Options& options) {
  hca = must(connectx::Hca::open(*host, options));
  must(hca->set_roce_address(0, {.gid = gid, .mac = mac}));
}

World::World(const softhca::connectx::DeviceOptions& card_a,
             const softhca::connectx::DeviceOptions& card_b)
    // Tests provoke refusals, whose warnings would hide what matters.
    : Network({.virtual_time = true, .log_level = util::LogLevel::kError}) {
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

void World::open(const connectx::Hca::Options& options) {
  a().open(options);
  b().open(options);
}

util::Time World::run(util::Time now) {
  const auto before = heap ? heap() : 0;
  const auto next = Network::run(now);
  if (heap) device_heap_ += heap() - before;
  return next;
}

Endpoint::Endpoint(Node& on, const Options& options) : SideMemory(options.memory), node(on) {
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

Sge Endpoint::piece(std::size_t offset, std::size_t length) const {
  return {address(offset), static_cast<std::uint32_t>(length), key->key()};
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

}  // namespace softhca::driver::test
