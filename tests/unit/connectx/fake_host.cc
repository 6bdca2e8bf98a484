#include "connectx/fake_host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "connectx/command/refusals.h"
#include "pcie/bus_master.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/init_segment.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx {

namespace {

namespace s = spec::connectx;
using Init = s::init_segment;

}  // namespace

FakeHost::FakeHost(const Limits& limits) : memory_(kMemorySize) {
  DeviceOptions options;
  options.limits = limits;
  options.mac = rdma::Mac::from_u64(0x020000000001);
  options.node_guid = 0x0200'00FF'FE00'0001;
  options.clock = [this] { return now_; };
  device_ = std::make_unique<Device>(options, port_);
  EXPECT_TRUE(
      device_->dma().map(kMemoryAt, kMemorySize, memory_.data(), pcie::DmaAccess::kReadWrite));
  pcie::set_bus_master(*device_, true);
  device_->msix().set_sink(&interrupts_, pcie::Masking::kExternal);
  for (std::uint16_t v = 0; v < options.msix_vectors; ++v) {
    device_->msix().set_vector_masked(v, false);
  }
}

FakeHost::~FakeHost() = default;

void FakeHost::run() {
  for (int i = 0; i < 1000; ++i) {
    if (device_->run(now_) > now_) return;
  }
  ADD_FAILURE() << "the device does not come to rest";
}

std::uint32_t FakeHost::read32(std::uint64_t offset) {
  std::array<std::byte, 4> bytes;
  device_->read_bar(0, offset, bytes);
  return util::load_be32(bytes.data());
}

void FakeHost::write32(std::uint64_t offset, std::uint32_t value) {
  std::array<std::byte, 4> bytes;
  util::store_be32(bytes.data(), value);
  device_->write_bar(0, offset, bytes);
}

void FakeHost::write64(std::uint64_t offset, std::uint64_t value) {
  std::array<std::byte, 8> bytes;
  util::store_be64(bytes.data(), value);
  device_->write_bar(0, offset, bytes);
}

std::uint64_t FakeHost::allocate(std::size_t size, std::size_t alignment) {
  next_ = (next_ + alignment - 1) / alignment * alignment;
  const auto result = next_;
  next_ += size;
  EXPECT_LE(next_, kMemoryAt + kMemorySize) << "the test uses more memory than its host has";
  return result;
}

util::MutableView<FakeHost::Entry> FakeHost::slot(unsigned index) {
  return util::MutableView<Entry>(std::span(at(queue_ + index * Entry::kSize), Entry::kSize));
}

void FakeHost::start_queue() {
  queue_ = allocate(4096);
  write32(Init::cmdq_phy_addr.kOffset, static_cast<std::uint32_t>(queue_ >> 32));
  write32(Init::nic_interface.kOffset, static_cast<std::uint32_t>(queue_));
}

std::vector<std::uint64_t> FakeHost::make_chain(std::size_t bytes, std::uint8_t token) {
  const auto count = (bytes + Block::mailbox_data.kSize - 1) / Block::mailbox_data.kSize;
  std::vector<std::uint64_t> blocks;
  for (std::size_t i = 0; i < count; ++i) blocks.push_back(allocate(Block::kSize, 1024));
  for (std::size_t i = 0; i < count; ++i) {
    const auto b = block(blocks[i]);
    std::ranges::fill(b.bytes(), std::byte{0xEE});  // what an earlier command left behind
    const auto next = i + 1 < count ? blocks[i + 1] : 0;
    b.set(Block::next_pointer, next >> Block::next_pointer.kLo);
    b.set(Block::block_number, static_cast<std::uint32_t>(i));
    b.set(Block::token, token);
  }
  return blocks;
}

std::vector<std::uint64_t> FakeHost::prepare(unsigned index, std::span<const std::byte> in,
                                             std::size_t out_size, std::uint8_t token) {
  const auto entry = slot(index);
  std::ranges::fill(entry.bytes(), std::byte{0});
  const auto head = in.first(std::min<std::size_t>(in.size(), 16));
  const auto rest = in.subspan(head.size());
  const auto in_blocks = make_chain(rest.size(), token);
  for (std::size_t i = 0; i < in_blocks.size(); ++i) {
    const auto from = i * Block::mailbox_data.kSize;
    const auto n = std::min(rest.size() - from, Block::mailbox_data.kSize);
    std::memcpy(at(in_blocks[i]), rest.data() + from, n);
  }
  const auto out_blocks = make_chain(out_size > 16 ? out_size - 16 : 0, token);
  entry.set(Entry::type, 7);
  entry.set(Entry::input_length, static_cast<std::uint32_t>(in.size()));
  entry.set(Entry::output_length, static_cast<std::uint32_t>(out_size));
  if (!in_blocks.empty()) {
    entry.set(Entry::input_mailbox_pointer, in_blocks[0] >> Entry::input_mailbox_pointer.kLo);
  }
  if (!out_blocks.empty()) {
    entry.set(Entry::output_mailbox_pointer, out_blocks[0] >> Entry::output_mailbox_pointer.kLo);
  }
  std::ranges::copy(head, entry.sub(Entry::command_input_inline_data).begin());
  std::ranges::fill(entry.sub(Entry::command_output_inline_data), std::byte{0xEE});
  entry.set(Entry::token, token);
  entry.set(Entry::ownership, 1);
  return out_blocks;
}

void FakeHost::ring(std::uint32_t vector) {
  write32(Init::command_doorbell_vector.kOffset, vector);
}

Reply FakeHost::collect(unsigned index, std::size_t out_size,
                        std::span<const std::uint64_t> blocks) {
  const auto entry = slot(index);
  Reply reply;
  reply.completed = entry.get(Entry::ownership) == 0;
  reply.delivery = static_cast<s::delivery_status>(entry.get(Entry::status));
  const auto head = entry.get(Entry::command_output_inline_data);
  reply.out.assign(head.begin(), head.end());
  for (const auto b : blocks) {
    const auto data = block(b).get(Block::mailbox_data);
    reply.out.insert(reply.out.end(), data.begin(), data.end());
  }
  reply.out.resize(std::max<std::size_t>(out_size, 16));
  if (reply.delivery == s::delivery_status::OK && reply.status() != s::command_status::OK) {
    EXPECT_TRUE(explain_syndrome(reply.syndrome())) << "not in the table of refusals";
  }
  return reply;
}

Reply FakeHost::execute(std::span<const std::byte> in, std::size_t out_size) {
  // Mailboxes of earlier commands are not needed any more.
  const auto mark = next_;
  const auto blocks = prepare(0, in, out_size);
  ring(1);
  run();
  auto reply = collect(0, out_size, blocks);
  next_ = mark;
  return reply;
}

void FakeHost::enable() {
  start_queue();
  Input<s::enable_hca_in> in(Opcode::ENABLE_HCA);
  EXPECT_TRUE(execute<s::enable_hca_out>(in).ok());
}

void FakeHost::give_pages(std::uint32_t count) {
  Input<s::manage_pages_in> in(Opcode::MANAGE_PAGES,
                               static_cast<std::uint16_t>(s::manage_pages_op_mod::GIVE), 8 * count);
  in->set(s::manage_pages_in::input_num_entries, count);
  // The device only keeps them: they need not exist.
  static std::uint64_t page = 0x7'0000'0000;
  for (std::uint32_t i = 0; i < count; ++i) in.set_address(i, page += 4096);
  EXPECT_TRUE(execute<s::manage_pages_out>(in).ok());
}

void FakeHost::initialize() {
  enable();
  finish_start();
}

void FakeHost::finish_start() {
  for (const auto stage : {s::query_pages_op_mod::BOOT_PAGES, s::query_pages_op_mod::INIT_PAGES}) {
    Input<s::query_pages_in> in(Opcode::QUERY_PAGES, static_cast<std::uint16_t>(stage));
    const auto reply = execute<s::query_pages_out>(in);
    give_pages(reply.as<s::query_pages_out>().get(s::query_pages_out::num_pages));
  }
  Input<s::init_hca_in> in(Opcode::INIT_HCA);
  EXPECT_TRUE(execute<s::init_hca_out>(in).ok());
  uar = allocate_uar();
}

std::uint32_t FakeHost::allocate_uar() {
  Input<s::alloc_uar_in> in(Opcode::ALLOC_UAR);
  const auto reply = execute<s::alloc_uar_out>(in);
  EXPECT_TRUE(reply.ok());
  return reply.as<s::alloc_uar_out>().get(s::alloc_uar_out::uar);
}

std::uint32_t FakeHost::allocate_pd() {
  Input<s::alloc_pd_in> in(Opcode::ALLOC_PD);
  const auto reply = execute<s::alloc_pd_out>(in);
  EXPECT_TRUE(reply.ok());
  return reply.as<s::alloc_pd_out>().get(s::alloc_pd_out::pd);
}

std::uint32_t FakeHost::create_eq(unsigned log_size, std::uint64_t events, unsigned vector) {
  const auto bytes = std::size_t{64} << log_size;
  const auto pages = (bytes + 4095) / 4096;
  last_buffer = allocate(pages * 4096);
  for (std::size_t i = 0; i < bytes; i += 64) at(last_buffer)[i + 63] = std::byte{1};
  Input<s::create_eq_in> in(Opcode::CREATE_EQ, 0, 8 * pages);
  const auto context = (*in).sub(s::create_eq_in::eq_context_entry);
  context.set(s::eq_context::log_eq_size, log_size);
  context.set(s::eq_context::uar_page, uar);
  context.set(s::eq_context::intr, vector);
  util::store_be64((*in).sub(s::create_eq_in::event_bitmask).data(), events);
  for (std::size_t i = 0; i < pages; ++i) in.set_address(i, last_buffer + i * 4096);
  const auto reply = execute<s::create_eq_out>(in);
  EXPECT_TRUE(reply.ok());
  return reply.as<s::create_eq_out>().get(s::create_eq_out::eq_number);
}

std::uint32_t FakeHost::create_cq(unsigned log_size, std::uint32_t eqn) {
  const auto bytes = std::size_t{64} << log_size;
  const auto pages = (bytes + 4095) / 4096;
  last_buffer = allocate(pages * 4096);
  last_record = allocate(8, 64);
  for (std::size_t i = 0; i < bytes; i += 64) at(last_buffer)[i + 63] = std::byte{0xF1};
  Input<s::create_cq_in> in(Opcode::CREATE_CQ, 0, 8 * pages);
  const auto context = (*in).sub(s::create_cq_in::cq_context_entry);
  context.set(s::cq_context::log_cq_size, log_size);
  context.set(s::cq_context::uar_page, uar);
  context.set(s::cq_context::c_eqn, eqn);
  context.set(s::cq_context::dbr_addr, last_record);
  for (std::size_t i = 0; i < pages; ++i) in.set_address(i, last_buffer + i * 4096);
  const auto reply = execute<s::create_cq_out>(in);
  EXPECT_TRUE(reply.ok());
  return reply.as<s::create_cq_out>().get(s::create_cq_out::cqn);
}

}  // namespace softhca::connectx
