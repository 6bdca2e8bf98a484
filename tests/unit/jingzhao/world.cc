#include "jingzhao/world.h"

#include <algorithm>
#include <utility>

#include "util/inspection.h"

namespace softhca::jingzhao::test {

Node::Node(World& world, unsigned number, DeviceOptions card, const MakeHost& make_host) {
  const auto n = static_cast<std::uint8_t>(number + 1);
  address.mac = driver::Mac::from_u64(0x020000000000u + n);
  address.ipv4 = 0xC0A80A00u + n;
  card.name = "jingzhao" + std::to_string(number);
  card.node_guid += std::uint64_t{number} << 8;
  auto& port = world.create_port(card.name);
  device = std::make_unique<Device>(std::move(card), port);
  world.add(*device);
  host = make_host ? make_host(*device, world.host_options())
                   : std::make_unique<driver::InProcessHost>(*device, world.host_options());
}

World::World(const Options& options)
    // Tests provoke refusals, and their warnings would hide important output.
    : Network(
          {.virtual_time = true, .link = options.card.link, .log_level = util::LogLevel::kError}) {
  for (unsigned i = 0; i != 2; ++i) {
    nodes_.push_back(std::make_unique<Node>(*this, i, options.card, options.make_host));
  }
}

World::~World() {
  for (auto& node : nodes_) node->hca = nullptr;
}

void World::open(const jz::Hca::Options& options) {
  a().open(options);
  b().open(options);
  if (subnet() == nullptr) return;
  for (auto* node : {&a(), &b()}) {
    jz::PortStatus port;
    run_until([&] { return (port = must(node->hca->query_port())).up(); });
    ASSERT_TRUE(port.up());
    node->address.lid = port.lid;
  }
}

Side::Side(Node& on, const Options& options) : SideMemory(options.memory), node(on) {
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
