#include "jingzhao/authors_driver.h"

#include <algorithm>
#include <array>
#include <bit>

namespace softhca::jingzhao::test {

namespace {

constexpr unsigned kLogEqs = 5;
constexpr std::uint64_t kMtts = 1 << 20;

}  // namespace

// Numbers ----------------------------------------------------------------------------------------

std::uint32_t AuthorsNumbers::take() {
  while (used_.contains(next_)) next_ = index(next_ + 1);
  const auto number = next_;
  used_.insert(number);
  next_ = index(next_ + 1);
  return number | upper_;
}

void AuthorsNumbers::free(std::uint32_t number) {
  constexpr std::uint32_t kNumberMax = (1 << 24) - 1;
  used_.erase(index(number));
  if (counts_on_) upper_ = (upper_ + count_) & kNumberMax;
}

// Set-up -----------------------------------------------------------------------------------------

AuthorsDriver::AuthorsDriver(const AuthorsCard& card)
    : h({.profile = card.profile}),
      card_(card),
      qpns_(card.first_qpn, card.log_qps, card.numbers_count_on),
      cqns_(0, card.log_cqs, card.numbers_count_on),
      keys_(0, card.log_mpts, card.numbers_count_on) {}

hcr_status AuthorsDriver::command_with(command_opcode op, std::uint32_t in_modifier,
                                       std::uint64_t in_param, std::uint8_t op_modifier) {
  const RawHost::Call call{.in_modifier = in_modifier,
                           .op_modifier = op_modifier,
                           .in_param = in_param,
                           .out_param = h.out.iova};
  // It takes bit 15 of the dword for `go`, which belongs to op_modifier and is 0.
  EXPECT_EQ(h.read(card_.hcr + 0x18) & 1u << 15, 0u);
  if (card_.polls_go) return h.command(op, call);
  h.start(static_cast<std::uint32_t>(op), call);
  const auto control = h.read(card_.hcr + 0x18);
  EXPECT_EQ(control & 1u << 23, 0u) << "go";
  return hcr_status(control >> 24);
}

void AuthorsDriver::probe() {
  ASSERT_EQ(h.hcr_at, card_.hcr);
  ASSERT_EQ(driver::read_pci_id(h.host).vendor, 0x10EE);
  ASSERT_EQ(driver::read_pci_id(h.host).device, card_.device_id);
  ASSERT_EQ(command(command_opcode::QUERY_ADAPTER, 0), OK);
  ASSERT_EQ(command(command_opcode::QUERY_DEV_LIM, 0), OK);
  ASSERT_EQ(h.out.bytes[0x0c], std::byte(card_.log_qps));
  ASSERT_EQ(h.out.bytes[0x0d], std::byte(card_.log_cqs));
  ASSERT_EQ(h.out.bytes[0x0f], std::byte(card_.log_mpts));
  place_tables();
  ASSERT_NO_FATAL_FAILURE(init_hca());
  // The first chunk of each table is never given back, and that of the EQs is a page.
  eqc_.chunks[eqc_.base] = {.memory = h.host.allocate(Icm::kPage).value(), .users = 1};
  map(eqc_, eqc_.base, eqc_.chunks[eqc_.base].memory);
  for (auto* table : {&qpc_, &cqc_, &mtt_, &mpt_}) use(*table, 0);
  kernel_cq_ = create_cq(kKernelCqEntries);
}

/// One after another, the largest first, as their entries and sizes are said by QUERY_DEV_LIM.
void AuthorsDriver::place_tables() {
  const auto size_at = [&](std::size_t at) { return util::load_be16(h.out.bytes.data() + at); };
  qpc_ = {.entries = 1u << card_.log_qps, .entry = size_at(0x18)};
  cqc_ = {.entries = 1u << card_.log_cqs, .entry = size_at(0x1a)};
  eqc_ = {.entries = 1u << kLogEqs, .entry = size_at(0x1c)};
  mpt_ = {.entries = 1u << card_.log_mpts, .entry = size_at(0x1e), .group = 2};
  mtt_ = {.entries = kMtts, .entry = std::uint64_t(h.out.bytes[0x15]), .group = 2};
  std::array tables{&qpc_, &cqc_, &eqc_, &mpt_, &mtt_};
  std::ranges::stable_sort(tables, std::greater{},
                           [](const Table* table) { return table->size(); });
  std::uint64_t base = 0;
  for (auto* table : tables) {
    table->base = base;
    base += std::max<std::uint64_t>(table->size(), Icm::kPage);
  }
}

void AuthorsDriver::init_hca() {
  h.clear_mailbox();
  h.put64(0x08, qpc_.base | card_.log_qps);
  h.put64(0x10, cqc_.base | card_.log_cqs);
  h.put64(0x18, eqc_.base | kLogEqs);
  h.put64(0x30, mpt_.base | card_.log_mpts);
  h.put64(0x38, mtt_.base);
  ASSERT_EQ(command(command_opcode::INIT_HCA, 0), OK);
}

void AuthorsDriver::remove() {
  for (auto* table : {&mpt_, &mtt_, &cqc_, &qpc_, &eqc_}) {
    for (const auto& [virt, chunk] : table->chunks) {
      const auto pages = static_cast<std::uint32_t>(chunk.memory.bytes.size() / Icm::kPage);
      EXPECT_EQ(command_with(command_opcode::UNMAP_ICM, pages, virt, table->group), OK);
      h.host.free(chunk.memory);
    }
    table->chunks.clear();
  }
  EXPECT_EQ(command_with(command_opcode::CLOSE_HCA, 0, 0, 0), OK);
  qps_.clear();
  h.host.free(kernel_cq_->ring.region);
  kernel_cq_ = nullptr;
}

// ICM --------------------------------------------------------------------------------------------

/// Chunks are of the largest size that the bus address allows, at most 1 MiB. The first of two
/// entries is in the higher half.
void AuthorsDriver::map(const Table& table, std::uint64_t virt, const driver::DmaRegion& memory) {
  constexpr std::uint64_t kMost = 1 << 20;
  const auto all = memory.iova | memory.bytes.size() | kMost;
  const auto size = all & -all;
  h.clear_mailbox();
  std::uint32_t count = 0;
  for (std::uint64_t at = 0; at != memory.bytes.size(); at += size, ++count) {
    const auto place = (count ^ 1) * std::size_t{16};
    h.put64(place, virt + at);
    h.put64(place + 8, (memory.iova + at) | size / Icm::kPage);
  }
  ASSERT_EQ(command(command_opcode::MAP_ICM, count, table.group), OK);
}

void AuthorsDriver::use(Table& table, std::uint32_t index) {
  const auto virt = table.base + index * table.entry / kIcmChunk * kIcmChunk;
  auto& chunk = table.chunks[virt];
  if (chunk.users++ != 0) return;
  chunk.memory = h.host.allocate(kIcmChunk).value();
  std::ranges::fill(chunk.memory.bytes, std::byte{0});
  map(table, virt, chunk.memory);
}

void AuthorsDriver::release(Table& table, std::uint32_t index) {
  const auto virt = table.base + index * table.entry / kIcmChunk * kIcmChunk;
  auto& chunk = table.chunks[virt];
  if (--chunk.users != 0) return;
  EXPECT_EQ(command_with(command_opcode::UNMAP_ICM, kIcmChunk / Icm::kPage, virt, table.group), OK);
  h.host.free(chunk.memory);
  table.chunks.erase(virt);
}

// Memory -----------------------------------------------------------------------------------------

std::uint32_t AuthorsDriver::take_mtts(std::uint32_t pages) {
  const auto length = std::bit_ceil(pages);
  auto& free = free_mtts_[length];
  if (free.empty()) {
    next_mtt_ = (next_mtt_ + length - 1) / length * length;
    free.insert(std::exchange(next_mtt_, next_mtt_ + length));
  }
  return free.extract(free.begin()).value();
}

/// A mailbox has room for 508 entries. in_modifier is the number of all that are left.
void AuthorsDriver::write_mtt(std::uint32_t first, std::uint64_t page, std::uint64_t step,
                              std::uint32_t count) {
  constexpr std::uint32_t kMost = 508;
  while (count != 0) {
    const auto sent = std::min(count, kMost);
    h.clear_mailbox();
    h.put64(0x18, first);
    for (std::uint32_t i = 0; i != sent; ++i) {
      h.put64(0x20 + (i ^ 3) * std::size_t{8}, page + i * step);
    }
    EXPECT_EQ(command(command_opcode::WRITE_MTT, std::min(count, card_.mtts_announced)), OK);
    first += sent;
    page += sent * step;
    count -= sent;
  }
}

void AuthorsDriver::give_mpt(Memory& memory, std::uint64_t start, std::uint64_t length) {
  memory.key = keys_.take();
  use(mpt_, keys_.index(memory.key));
  util::Struct<mpt_entry> entry;
  entry.set(mpt_entry::sw_owns, 0xF);
  entry.set(mpt_entry::mio, 1);
  entry.set(mpt_entry::region, 1);
  entry.set(mpt_entry::local_write, 1);
  entry.set(mpt_entry::remote_write, 1);
  entry.set(mpt_entry::remote_read, 1);
  entry.set(mpt_entry::physical, memory.pages == 0 && card_.marks_all_memory);
  entry.set(mpt_entry::page_size, Icm::kPage);
  entry.set(mpt_entry::key, memory.key);
  entry.set(mpt_entry::pd, kPd);
  entry.set(mpt_entry::start, start);
  entry.set(mpt_entry::length, length);
  entry.set(mpt_entry::mtt_seg, memory.first_mtt);
  h.put(entry.bytes());
  EXPECT_EQ(command(command_opcode::SW2HW_MPT, keys_.index(memory.key)), OK);
}

/// A list has at most as many entries as a page of addresses.
void AuthorsDriver::write_mtts(std::uint32_t first, std::uint64_t page, std::uint64_t step,
                               std::uint32_t count) {
  constexpr std::uint32_t kList = 512;
  for (std::uint32_t i = 0; i < count; i += kIcmChunk / mtt_.entry) use(mtt_, first + i);
  for (std::uint32_t i = 0; i < count; i += kList) {
    write_mtt(first + i, page + i * step, step, std::min(count - i, kList));
  }
}

AuthorsDriver::Memory AuthorsDriver::register_memory(std::size_t size,
                                                     std::optional<std::uint64_t> start_at) {
  Memory memory{.region = h.host.allocate(size).value()};
  std::ranges::fill(memory.region.bytes, std::byte{0});
  memory.pages = static_cast<std::uint32_t>((size + Icm::kPage - 1) / Icm::kPage);
  memory.first_mtt = take_mtts(memory.pages);
  write_mtts(memory.first_mtt, memory.region.iova, Icm::kPage, memory.pages);
  give_mpt(memory, start_at.value_or(memory.region.iova), size);
  return memory;
}

AuthorsDriver::Memory AuthorsDriver::register_repeated(std::uint64_t page, std::uint32_t pages) {
  Memory memory{.region = h.host.allocate(Icm::kPage).value()};
  memory.pages = pages;
  memory.first_mtt = take_mtts(pages);
  write_mtts(memory.first_mtt, page, 0, pages);
  give_mpt(memory, 0, pages * std::uint64_t{Icm::kPage});
  return memory;
}

std::uint32_t AuthorsDriver::register_all_memory() {
  Memory memory;
  give_mpt(memory, 0, UINT64_MAX);
  return memory.key;
}

void AuthorsDriver::deregister(Memory& memory) {
  const auto index = keys_.index(memory.key);
  EXPECT_EQ(command_with(command_opcode::HW2SW_MPT, index, 0, 0), OK);
  release(mpt_, index);
  keys_.free(memory.key);
  for (std::uint32_t i = 0; i < memory.pages; i += kIcmChunk / mtt_.entry) {
    release(mtt_, memory.first_mtt + i);
  }
  free_mtts_[std::bit_ceil(memory.pages)].insert(memory.first_mtt);
  h.host.free(memory.region);
  memory = {};
}

/// Addresses of queues start at 0, and the region has whole pages.
AuthorsDriver::Memory AuthorsDriver::make_queue(std::size_t size) {
  return register_memory((size + Icm::kPage - 1) / Icm::kPage * Icm::kPage, 0);
}

// Completion queues ------------------------------------------------------------------------------

std::unique_ptr<AuthorsDriver::Cq> AuthorsDriver::create_cq(std::uint32_t entries) {
  auto cq = std::make_unique<Cq>();
  cq->ring = make_queue(entries * cqe::kSize);
  cq->cqn = cqns_.take();
  cq->mask = entries - 1;
  for (std::uint32_t i = 0; i != entries; ++i) give_back(*cq, i);
  use(cqc_, cqns_.index(cq->cqn));
  util::Struct<cq_context> context;
  context.set(cq_context::tr, 1);
  context.set(cq_context::logsize, static_cast<std::uint32_t>(std::countr_zero(entries)));
  context.set(cq_context::pd, kPd);
  context.set(cq_context::lkey, cq->ring.key);
  context.set(cq_context::cqn, cq->cqn);
  h.put(context.bytes().first(64));
  EXPECT_EQ(command(command_opcode::SW2HW_CQ, cq->cqn), OK);
  return cq;
}

/// Unread CQEs are copied to the new ring when the card already uses it.
hcr_status AuthorsDriver::resize(Cq& cq, std::uint32_t entries) {
  Cq resized{.ring = make_queue(entries * cqe::kSize),
             .cqn = cq.cqn,
             .mask = entries - 1,
             .consumer = cq.consumer};
  for (std::uint32_t i = 0; i != entries; ++i) give_back(resized, i);
  h.clear_mailbox();
  h.put32(0, static_cast<std::uint32_t>(std::countr_zero(entries)) << 24);
  h.put32(4, resized.ring.key);
  const auto status = command(command_opcode::RESIZE_CQ, cq.cqn, 1);
  if (status != OK) {
    deregister(resized.ring);
    return status;
  }
  const auto entry = [](Cq& of, std::uint32_t index) {
    return of.ring.region.bytes.subspan((index & of.mask) * cqe::kSize, cqe::kSize);
  };
  for (auto i = cq.consumer; (entry(cq, i)[31] & std::byte{0x80}) == std::byte{0}; ++i) {
    std::ranges::copy(entry(cq, i), entry(resized, i).begin());
  }
  deregister(cq.ring);
  cq = resized;
  return OK;
}

void AuthorsDriver::destroy(Cq& cq) {
  EXPECT_EQ(command_with(command_opcode::HW2SW_CQ, cq.cqn, 0, 0), OK);
  release(cqc_, cqns_.index(cq.cqn));
  cqns_.free(cq.cqn);
  deregister(cq.ring);
}

/// Removes the CQEs of a QP: later ones stay where they are, earlier ones move up.
void AuthorsDriver::clean(Cq& cq, std::uint32_t qpn) {
  const auto entry = [&](std::uint32_t index) {
    return cq.ring.region.bytes.subspan((index & cq.mask) * cqe::kSize, cqe::kSize);
  };
  auto end = cq.consumer;
  while (end - cq.consumer <= cq.mask && util::View<cqe>(entry(end)).get(cqe::owner) == 0) ++end;
  auto to = end;
  for (auto from = end; from != cq.consumer;) {
    if (util::View<cqe>(entry(--from)).get(cqe::my_qpn) == qpn) continue;
    if (--to != from) std::ranges::copy(entry(from), entry(to).begin());
  }
  while (cq.consumer != to) give_back(cq, cq.consumer++);
}

std::optional<AuthorsDriver::Done> AuthorsDriver::poll(Cq& cq) {
  const util::View<cqe> found(
      cq.ring.region.bytes.subspan((cq.consumer & cq.mask) * cqe::kSize, cqe::kSize));
  if (found.get(cqe::owner) != 0) return std::nullopt;
  const auto opcode = found.get(cqe::opcode);
  const bool is_error = opcode == static_cast<std::uint32_t>(wqe_opcode::INVALID) ||
                        opcode == static_cast<std::uint32_t>(wqe_opcode::RECEIVE_ERROR);
  Done done{.of_send = is_error ? opcode == static_cast<std::uint32_t>(wqe_opcode::INVALID)
                                : found.get(cqe::is_send) != 0,
            .opcode = opcode,
            .bytes = found.get(cqe::byte_cnt),
            .immediate = found.get(cqe::imm),
            .source = found.get(cqe::rqpn)};
  if (is_error) done.syndrome = util::View<error_cqe>(found.bytes()).get(error_cqe::syndrome);
  const auto at = found.get(cqe::wqe);
  const auto qp = qps_.find(qpns_.index(found.get(cqe::my_qpn)));
  give_back(cq, cq.consumer++);
  if (qp == qps_.end()) return std::nullopt;
  done.qp = qp->second;
  auto& queue = done.of_send ? done.qp->sends : done.qp->receives;
  const auto slot = at / kSlot;
  if (slot >= queue.slots) {
    ADD_FAILURE() << "a CQE names byte " << at;
    return std::nullopt;
  }
  done.id = queue.ids[slot];
  if (!done.of_send) std::ranges::fill(queue.slot(slot).first(next_unit::kSize), std::byte{0});
  queue.tail +=
      queue.last_done < slot ? slot - queue.last_done : slot + queue.slots - queue.last_done;
  queue.last_done = slot;
  return done;
}

std::vector<AuthorsDriver::Done> AuthorsDriver::wait(Cq& cq, std::size_t count) {
  constexpr unsigned kTurnsMax = 1000;
  std::vector<Done> all;
  for (unsigned turn = 0; turn != kTurnsMax && all.size() < count; ++turn) {
    run();
    while (const auto done = poll(cq)) all.push_back(*done);
  }
  return all;
}

}  // namespace softhca::jingzhao::test
