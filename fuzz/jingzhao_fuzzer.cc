// Attacks of a hostile driver and a hostile link on a JingZhao HCA: HCR commands with any mailbox,
// bytes written into its ICM, queues and rings without its knowledge, doorbells, frames. The first
// byte connects the two devices by Ethernet or InfiniBand. Afterwards the device must come up
// again.
#include <array>

#include "device_turn.h"
#include "jingzhao/world.h"
#include "script.h"

namespace softhca::fuzz {
namespace {

using jingzhao::Device;
using namespace jingzhao::test;

/// Records the memory that the driver has given to the device.
class OpenHost final : public driver::InProcessHost {
 public:
  using InProcessHost::InProcessHost;
  util::Result<driver::DmaRegion> allocate(std::size_t size) override {
    auto made = InProcessHost::allocate(size);
    if (made) regions.push_back(*made);
    return made;
  }
  void free(const driver::DmaRegion& region) override {
    std::erase_if(regions, [&](const auto& known) { return known.iova == region.iova; });
    InProcessHost::free(region);
  }
  std::vector<driver::DmaRegion> regions;
};

/// A port that sends frames no honest peer would.
class Stranger final : public fabric::Receiver {
 public:
  explicit Stranger(fabric::Switch& network) : port_(network.create_port("stranger")) {
    port_->set_receiver(this);
  }
  ~Stranger() override { port_->set_receiver(nullptr); }
  void handle_frame(const wire::Frame&) override {}
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}
  void send(std::span<const std::byte> bytes, wire::Link link) {
    if (bytes.size() < 8) return;
    auto frame = wire::Frame::from_bytes(bytes, link);
    port_->transmit(frame);
  }

 private:
  std::unique_ptr<fabric::Port> port_;
};

void write_dword(OpenHost& host, unsigned bar, std::uint64_t offset, std::uint32_t value) {
  std::array<std::byte, 4> bytes;
  util::store_le32(bytes.data(), value);
  host.write_bar(bar, offset, bytes);
}

/// A command. Each of its mailboxes is a page of `memory`.
void command(OpenHost& host, const driver::DmaRegion& memory, Script& script) {
  static constexpr std::array<std::uint16_t, 30> kOps = {
      0x003, 0x006, 0x007, 0x008, 0x00d, 0x00f, 0x011, 0x012, 0x013, 0x014,
      0x016, 0x017, 0x019, 0x01a, 0x01b, 0x01c, 0x01d, 0x01e, 0x01f, 0x020,
      0x021, 0x022, 0x023, 0x024, 0x02c, 0x02d, 0x031, 0x038, 0xff9, 0xffa};
  const auto op = script.byte();
  const auto in = op & 0x80 ? script.qword() : memory.iova;
  const auto length = script.below(512);
  std::ranges::copy(script.take(length), memory.bytes.begin());
  const std::uint64_t base = jingzhao::kDocumentRules.hcr_offset;
  write_dword(host, 0, base + 0x00, static_cast<std::uint32_t>(in >> 32));
  write_dword(host, 0, base + 0x04, static_cast<std::uint32_t>(in));
  write_dword(host, 0, base + 0x08, script.dword());
  write_dword(host, 0, base + 0x0c, static_cast<std::uint32_t>((memory.iova + 4096) >> 32));
  write_dword(host, 0, base + 0x10, static_cast<std::uint32_t>(memory.iova + 4096));
  write_dword(host, 0, base + 0x18,
              1u << 23 | (script.byte() & 0x7u) << 12 | kOps[(op & 0x7F) % kOps.size()]);
}

void step(World& world, OpenHost& host, const driver::DmaRegion& memory, Stranger& stranger,
          wire::Link link, Script& script) {
  switch (script.byte() % 6) {
    case 0:
      return command(host, memory, script);
    case 1: {  // rings a doorbell, or arms a queue
      const std::array<std::uint64_t, 4> places = {0x00, 0x04, 0x10, 0x20};
      const auto page = std::uint64_t{script.byte() % 4u} << 12;
      return write_dword(host, 2, page + places[script.byte() % 4], script.dword());
    }
    case 2: {  // writes device memory without a command
      if (host.regions.empty()) return;
      const auto& region =
          host.regions[script.below(static_cast<std::uint32_t>(host.regions.size()))];
      const auto bytes = script.take(script.byte() % 65u);
      const auto at = script.dword() % region.bytes.size();
      const auto count = std::min(bytes.size(), region.bytes.size() - at);
      std::copy_n(bytes.begin(), count, region.bytes.subspan(at).begin());
      return;
    }
    case 3:
      return stranger.send(script.take(script.below(512)), link);
    case 4: {
      const auto before = world.a().device->work_done();
      const Turn turn;
      world.progress();
      check_work(world.a().device->work_done() - before, pcie::Function::kRunWork);
      return;
    }
    default:
      return world.advance(std::chrono::microseconds(script.word()));
  }
}

void play(Script script) {
  const auto link = script.byte() % 2 == 0 ? wire::Link::kEthernet : wire::Link::kInfiniband;
  World world(
      {.card = {.link = link, .icm_cache = 4}, .make_host = [](auto& function, auto options) {
         return std::make_unique<OpenHost>(function, std::move(options));
       }});
  world.open({.log_qps = 4, .log_cqs = 4, .log_mpts = 6, .log_mtts = 10});
  Stranger stranger(world.network());
  auto& host = static_cast<OpenHost&>(*world.a().host);
  const auto memory = host.allocate(8192).value();
  {
    Side::Options small{.memory = 8192, .cq_entries = 16, .requests = 8};
    Side a(world.a(), small), b(world.b(), small);
    connect(a, b, {.ack_timeout = 8});
    b.receive(1, 0, 4096);
    const auto piece = a.piece(0, 4096);
    (void)a.qp->post_send({.id = 1, .pieces = {&piece, 1}});
    for (int steps = 0; steps != 200 && !script.empty(); ++steps) {
      step(world, host, memory, stranger, link, script);
    }
    world.advance(std::chrono::milliseconds(1));
  }
  world.a().hca = nullptr;
  host.free(memory);
  check(
      jz::Hca::open(host, {.log_qps = 4, .log_cqs = 4, .log_mpts = 6, .log_mtts = 10}).has_value());
}

}  // namespace
}  // namespace softhca::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  softhca::fuzz::play(softhca::fuzz::Script(data, size));
  return 0;
}
