#include "strangers.h"

#include <algorithm>
#include <array>

#include "util/log.h"

namespace softhca::bad_network {

using driver::verbs::QpType;

End::End(driver::verbs::Device& device, QpType type)
    : memory(kMemory),
      pd(must(device.allocate_pd())),
      region(must(pd.register_memory(memory, driver::MemoryAccess::all()))),
      cq(must(device.create_cq())),
      qp(must(pd.create_qp({.type = type, .send_cq = cq, .receive_cq = cq}))) {
  driver::test::fill(memory, 1);
}

std::vector<std::byte> Forged::bytes() const {
  wire::Frame frame;
  wire::IbHeader(address).emit(bth, ext, payload.size(), frame);
  EXPECT_TRUE(frame.add_segment(payload));
  std::vector<std::byte> bytes(frame.size());
  frame.copy_to(bytes);
  return bytes;
}

StrangersTest::StrangersTest() { util::set_log_level(util::LogLevel::kError); }

StrangersTest::~StrangersTest() {
  // Before the devices.
  a_.reset();
  b_.reset();
}

void StrangersTest::make(QpType type) {
  a_.reset();
  b_.reset();
  a_.emplace(fleet_.device(0), type);
  b_.emplace(fleet_.device(1), type);
  const driver::verbs::ConnectionOptions options{.qkey = kQkey};
  if (type == QpType::kUd) {
    must(activate(a_->qp, options));
    must(activate(b_->qp, options));
  } else {
    must(connect(a_->qp, b_->qp, options));
  }
  for (unsigned i = 0; i != End::kReceives; ++i) {
    const auto piece = b_->region.piece(End::kReceiveAt + i * End::kReceiveSize, End::kReceiveSize);
    ASSERT_EQ(b_->qp.post_receive({.id = i, .pieces = {&piece, 1}}), driver::PostStatus::kOk);
  }
}

Forged StrangersTest::genuine(wire::Opcode opcode) const {
  const auto from = describe(a_->qp), to = describe(b_->qp);
  Forged forged;
  forged.address.source_mac = from.mac;
  forged.address.destination_mac = to.mac;
  forged.address.source_gid = from.gid;
  forged.address.destination_gid = to.gid;
  forged.address.hop_limit = 64;
  forged.address.udp_source_port = 0xc000;
  forged.bth.opcode = opcode;
  forged.bth.dest_qp = wire::Qpn(to.qpn);
  forged.bth.psn = wire::Psn(from.psn);
  forged.bth.ack_req = true;
  forged.ext.deth = {.qkey = wire::QKey(kQkey), .src_qp = wire::Qpn(from.qpn)};
  const auto key = wire::RKey(b_->region.rkey());
  const auto& info = wire::info(opcode);
  if (!info.has(wire::ExtHeader::kAtomicEth)) forged.payload = driver::test::pattern(64, 7);
  forged.ext.reth = {.virtual_address = b_->region.address(),
                     .rkey = key,
                     .dma_length = static_cast<std::uint32_t>(forged.payload.size())};
  std::uint64_t word = 0;
  std::ranges::copy(std::span(b_->memory).first(sizeof word),
                    std::as_writable_bytes(std::span(&word, 1)).begin());
  forged.ext.atomic = {.virtual_address = b_->region.address(),
                       .rkey = key,
                       .swap_add = 0x0123'4567'89ab'cdef,
                       .compare = word};
  return forged;
}

void StrangersTest::inject(std::vector<std::byte> bytes) {
  fleet_.inject(wire::Frame::from_bytes(bytes));
  run();
}

void StrangersTest::run() {
  fleet_.run_before(fleet_.now() + std::chrono::milliseconds(1), [] { return false; });
}

std::vector<std::byte> StrangersTest::all_memory() const {
  auto all = a_->memory;
  all.insert(all.end(), b_->memory.begin(), b_->memory.end());
  return all;
}

std::size_t StrangersTest::successes() {
  std::size_t count = 0;
  for (auto* end : {&*a_, &*b_}) {
    std::array<driver::Completion, 16> done;
    const auto found = fleet_.poll(end->cq, done);
    count += static_cast<std::size_t>(std::ranges::count(
        std::span(done).first(found), driver::WorkStatus::kSuccess, &driver::Completion::status));
  }
  return count;
}

}  // namespace softhca::bad_network
