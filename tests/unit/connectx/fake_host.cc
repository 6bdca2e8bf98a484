#include "connectx/fake_host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "connectx/base/user_contexts.h"
#include "connectx/command/refusals.h"
#include "pcie/bus_master.h"
#include "spec/connectx/cqe.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/init_segment.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/wqe.h"

namespace softhca::connectx {

namespace {

namespace s = spec::connectx;
using Init = s::init_segment;

}  // namespace

std::string Reply::reason() const {
  const auto meaning = explain_syndrome(syndrome());
  return meaning ? std::string(meaning->text) : std::string();
}

FakeHost::FakeHost(const HostOptions& options)
    : switch_port(options.on_switch ? network.create_port("host") : nullptr),
      device({.model = options.model,
              .mac = options.mac,
              .node_guid = 0x0200'00FF'FE00'0001,
              .limits = options.limits,
              .queue_numbers = options.queue_numbers,
              .clock = [this] { return now; }},
             switch_port ? *switch_port : port),
      options_(options),
      memory_(static_cast<std::byte*>(std::calloc(options.memory_size, 1))) {
  if (options.trace != nullptr) device.set_trace(*options.trace);
  if (options.share_doorbells && !device.share_doorbells()) std::abort();
  map();
  pcie::set_bus_master(device, true);
  device.msix().set_sink(&interrupts_, pcie::Masking::kExternal);
  for (std::uint16_t v = 0; v < device.options().msix_vectors; ++v) {
    device.msix().set_vector_masked(v, false);
  }
}

void FakeHost::run(util::Duration time) {
  const auto end = now + time;
  for (int rounds = 0; rounds < 100000; ++rounds) {
    const auto next = turn(device, now);
    const bool frames = network.has_work();
    network.deliver(1024);
    if (frames || next <= now) continue;
    if (now >= end) return;
    now = std::min(next, end);
  }
  ADD_FAILURE() << "device and wire do not come to rest";
}

std::uint32_t FakeHost::read32(std::uint64_t offset) {
  std::array<std::byte, 4> bytes;
  device.read_bar(0, offset, bytes);
  return util::load_be32(bytes.data());
}

void FakeHost::write32(std::uint64_t offset, std::uint32_t value) {
  std::array<std::byte, 4> bytes;
  util::store_be32(bytes.data(), value);
  device.write_bar(0, offset, bytes);
}

void FakeHost::write64(std::uint64_t offset, std::uint64_t value) {
  std::array<std::byte, 8> bytes;
  util::store_be64(bytes.data(), value);
  device.write_bar(0, offset, bytes);
}

void FakeHost::ring_send(std::uint32_t number) {
  constexpr auto kDoorbell = s::uar_page::db_blueflame_buffer0_even.kOffset;
  util::Struct<s::send_doorbell_register> doorbell;
  doorbell.set(s::send_doorbell_register::sq_number, number);
  device.write_bar(0, uar * kUarPageSize + kDoorbell, doorbell.bytes());
}

std::uint64_t FakeHost::allocate(std::size_t size, std::size_t alignment) {
  const auto result = (next_ + alignment - 1) / alignment * alignment;
  next_ = result + size;
  if (next_ > options_.memory_at + options_.memory_size) {
    ADD_FAILURE() << "the test uses more memory than its host has";
    std::abort();
  }
  std::memset(at(result), 0, size);
  return result;
}

void FakeHost::map() {
  EXPECT_TRUE(device.dma().map(options_.memory_at, options_.memory_size, memory_.get(),
                               pcie::DmaAccess::kReadWrite));
}

void FakeHost::unmap() {
  EXPECT_TRUE(device.dma().unmap(options_.memory_at, options_.memory_size));
}

util::MutableView<FakeHost::Entry> FakeHost::slot(unsigned index) {
  return util::MutableView<Entry>(std::span(at(queue_ + index * Entry::kSize), Entry::kSize));
}

std::vector<std::byte> FakeHost::page_list(std::uint64_t address, std::size_t size) {
  std::vector<std::byte> list((size + 4095) / 4096 * 8);
  for (std::size_t i = 0; i < list.size() / 8; ++i) {
    util::store_be64(list.data() + 8 * i, address + 4096 * i);
  }
  return list;
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
    std::ranges::fill(b.bytes(), std::byte{0xEE});  // stale bytes of an earlier command
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

void FakeHost::ring_commands(std::uint32_t vector) {
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
  if (reply.completed && reply.delivery == s::delivery_status::OK &&
      reply.status() != s::command_status::OK) {
    EXPECT_TRUE(explain_syndrome(reply.syndrome())) << "not in the table of refusals";
  }
  return reply;
}

Reply FakeHost::execute(std::span<const std::byte> in, std::size_t out_size) {
  if (on_execute) on_execute(in, out_size);
  // Mailboxes of earlier commands are no longer needed.
  const auto mark = next_;
  const auto blocks = prepare(0, in, out_size);
  ring_commands(1);
  for (int i = 0; i < 1000 && slot(0).get(Entry::ownership) != 0; ++i) {
    (void)turn(device, now);
  }
  auto reply = collect(0, out_size, blocks);
  next_ = mark;
  return reply;
}

void FakeHost::enable() {
  start_queue();
  EXPECT_TRUE((call<s::enable_hca_out, s::enable_hca_in>(Opcode::ENABLE_HCA, [](auto) {})));
}

void FakeHost::give_pages(std::uint32_t count) {
  Input<s::manage_pages_in> in(Opcode::MANAGE_PAGES,
                               static_cast<std::uint16_t>(s::manage_pages_op_mod::GIVE), 8 * count);
  in->set(s::manage_pages_in::input_num_entries, count);
  for (std::uint32_t i = 0; i < count; ++i) in.set_address(i, page_ += 4096);
  EXPECT_TRUE(execute<s::manage_pages_out>(in).ok());
}

void FakeHost::initialize() {
  enable();
  finish_start();
}

void FakeHost::finish_start() {
  using Pages = s::query_pages_out;
  for (const auto stage : {s::query_pages_op_mod::BOOT_PAGES, s::query_pages_op_mod::INIT_PAGES}) {
    const auto reply = call<Pages, s::query_pages_in>(
        Opcode::QUERY_PAGES, [](auto) {}, {}, static_cast<std::uint16_t>(stage));
    give_pages(reply.as<Pages>().get(Pages::num_pages));
  }
  EXPECT_TRUE((call<s::init_hca_out, s::init_hca_in>(Opcode::INIT_HCA, [](auto) {})));
  uar = allocate_uar();
}

std::uint32_t FakeHost::allocate_uar() {
  const auto reply = call<s::alloc_uar_out, s::alloc_uar_in>(Opcode::ALLOC_UAR, [](auto) {});
  EXPECT_TRUE(reply) << reply.reason();
  return reply.as<s::alloc_uar_out>().get(s::alloc_uar_out::uar);
}

std::uint32_t FakeHost::allocate_pd() {
  const auto reply = call<s::alloc_pd_out, s::alloc_pd_in>(Opcode::ALLOC_PD, [](auto) {});
  EXPECT_TRUE(reply) << reply.reason();
  return reply.as<s::alloc_pd_out>().get(s::alloc_pd_out::pd);
}

std::uint32_t FakeHost::allocate_transport_domain() {
  using Out = s::alloc_transport_domain_out;
  const auto reply =
      call<Out, s::alloc_transport_domain_in>(Opcode::ALLOC_TRANSPORT_DOMAIN, [](auto) {});
  EXPECT_TRUE(reply) << reply.reason();
  return reply.as<Out>().get(Out::transport_domain);
}

std::uint32_t FakeHost::allocate_xrcd() {
  const auto reply = call<s::alloc_xrcd_out, s::alloc_xrcd_in>(Opcode::ALLOC_XRCD, [](auto) {});
  EXPECT_TRUE(reply) << reply.reason();
  return reply.as<s::alloc_xrcd_out>().get(s::alloc_xrcd_out::xrcd);
}

std::uint32_t FakeHost::create_key(std::uint32_t pd) {
  using Context = s::mkey_context;
  using Out = s::create_mkey_out;
  constexpr std::uint32_t kAnyQpn = 0xFFFFFF;
  const auto reply = call<Out, s::create_mkey_in>(Opcode::CREATE_MKEY, [&](auto in) {
    const auto context = in.sub(s::create_mkey_in::mkey_context);
    context.set(Context::access_mode, static_cast<std::uint32_t>(s::mkey_access_mode::PA));
    context.set(Context::length64, 1);
    context.set(Context::lr, 1);
    context.set(Context::lw, 1);
    context.set(Context::rr, 1);
    context.set(Context::rw, 1);
    context.set(Context::a, 1);
    context.set(Context::qpn, kAnyQpn);
    context.set(Context::mkey, kKey & 0xFF);
    context.set(Context::pd, pd);
  });
  EXPECT_TRUE(reply) << reply.reason();
  return reply.as<Out>().get(Out::mkey_index) << 8 | (kKey & 0xFF);
}

std::uint32_t FakeHost::create_eq(unsigned log_size, std::uint64_t events, unsigned vector) {
  const auto bytes = std::size_t{64} << log_size;
  last_buffer = allocate(bytes);
  for (std::size_t i = 0; i < bytes; i += 64) at(last_buffer)[i + 63] = std::byte{1};
  // Uses the shared context as the driver does, so that contexts of processes may use the EQ.
  const auto before = std::exchange(uid, UserContexts::kShared.value());
  const auto reply = call<s::create_eq_out, s::create_eq_in>(
      Opcode::CREATE_EQ,
      [&](auto in) {
        const auto context = in.sub(s::create_eq_in::eq_context_entry);
        context.set(s::eq_context::log_eq_size, log_size);
        context.set(s::eq_context::uar_page, uar);
        context.set(s::eq_context::intr, vector);
        util::store_be64(in.sub(s::create_eq_in::event_bitmask).data(), events);
      },
      page_list(last_buffer, bytes));
  uid = before;
  EXPECT_TRUE(reply) << reply.reason();
  return reply.as<s::create_eq_out>().get(s::create_eq_out::eq_number);
}

HostCq FakeHost::create_cq(unsigned log_size, std::uint32_t eqn, unsigned stride,
                           const Fill<s::cq_context>& fill) {
  const auto bytes = std::size_t{stride} << log_size;
  HostCq cq{
      .log_size = log_size, .ring = allocate(bytes), .record = allocate(8, 64), .stride = stride};
  // Marks entries that the device has not written yet, as software does.
  for (std::size_t i = stride; i <= bytes; i += stride) at(cq.ring)[i - 1] = std::byte{0xF1};
  const auto reply = call<s::create_cq_out, s::create_cq_in>(
      Opcode::CREATE_CQ,
      [&](auto in) {
        const auto context = in.sub(s::create_cq_in::cq_context_entry);
        context.set(s::cq_context::log_cq_size, log_size);
        context.set(s::cq_context::cqe_sz, stride == 64 ? 0 : 1);
        context.set(s::cq_context::uar_page, uar);
        context.set(s::cq_context::c_eqn, eqn);
        context.set(s::cq_context::dbr_addr, cq.record);
        if (fill) fill(context);
      },
      page_list(cq.ring, bytes));
  EXPECT_TRUE(reply) << reply.reason();
  cq.cqn = reply.as<s::create_cq_out>().get(s::create_cq_out::cqn);
  return cq;
}

const std::byte* FakeHost::poll(HostCq& cq) {
  const auto size = 1u << cq.log_size;
  const auto index = cq.consumer & (size - 1);
  const auto* entry = at(cq.ring + std::uint64_t{cq.stride} * (index + 1) - 64);
  const util::View<s::cqe64> cqe(std::span(entry, 64));
  const bool lap = (cq.consumer & size) != 0;
  if (cqe.get(s::cqe64::opcode) == static_cast<std::uint8_t>(s::cqe_opcode::INVALID) ||
      (cqe.get(s::cqe64::owner) != 0) != lap) {
    return nullptr;
  }
  ++cq.consumer;
  util::store_be32(at(cq.record), cq.consumer & 0xFFFFFF);
  return entry;
}

}  // namespace softhca::connectx
