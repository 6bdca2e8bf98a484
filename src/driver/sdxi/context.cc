#include "driver/sdxi/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "driver/sdxi/function.h"

namespace softhca::driver::sdxi {
namespace {

using spec::cst_blk;
using spec::cxtv;

constexpr std::size_t kPage = 4096;
constexpr auto kStateInterval = std::chrono::milliseconds(100);

/// SDXI 4.4: what the function offers; that the way to memory carries atomics is the host's part.
bool offers(const Capabilities& capabilities, spec::atomic_subtype operation) {
  using enum spec::atomic_subtype;
  const bool minimal =
      operation == DSC_ATM_SWAP || operation == DSC_ATM_UADD || operation == DSC_ATM_CMPSWAP;
  return capabilities.atomics || (minimal && capabilities.minimal_atomics);
}

}  // namespace

util::Result<std::unique_ptr<Context>> Context::create(Function& function,
                                                       std::uint32_t ring_entries) {
  if (ring_entries == 0 || ring_entries > function.capabilities().max_ring_entries) {
    return util::fail(fmt::format("a ring of {} descriptors; the function allows 1 to {}",
                                  ring_entries, function.capabilities().max_ring_entries));
  }
  std::unique_ptr<Context> context(new Context(function));
  auto& host = function.host();
  const auto allocate = [&host](DmaBuffer& buffer, std::size_t size) -> util::Result<void> {
    auto allocated = DmaBuffer::allocate(host, size);
    if (!allocated) return tl::unexpected(allocated.error());
    buffer = std::move(*allocated);
    return {};
  };
  for (const auto& [buffer, size] :
       {std::pair{&context->structures_, kPage},
        std::pair{&context->ring_memory_, std::size_t{ring_entries} * spec::kDescriptorSize},
        std::pair{&context->akeys_, kPage}, std::pair{&context->blocks_, kBlocks * cst_blk::kSize},
        std::pair{&context->pattern_, kPage}}) {
    if (auto ok = allocate(*buffer, size); !ok) return tl::unexpected(ok.error());
  }
  for (std::uint32_t i = kBlocks; i > 0; --i) context->free_blocks_.push_back(i - 1);
  context->akey(kOwnMemory).set(spec::akey_ent::vl, 1);
  context->write_control(ring_entries);
  auto* status = context->structures_.bytes().data() + kStatusAt;
  context->ring_ = Ring(context->ring_memory_.bytes().first(ring_entries * spec::kDescriptorSize),
                        status + spec::cxt_sts::read_index.kOffset,
                        context->structures_.bytes().data() + kWriteIndexAt);
  return context;
}

void Context::write_control(std::uint32_t ring_entries) {
  using ctl = spec::cxt_ctl;
  const util::MutableView<ctl> control(structures_.bytes().subspan(kControlAt));
  spec::set_address(control, ctl::ds_ring_ptr, ring_memory_.iova());
  control.set(ctl::ds_ring_sz, ring_entries);
  spec::set_address(control, ctl::cxt_sts_ptr, structures_.iova(kStatusAt));
  spec::set_address(control, ctl::write_index_ptr, structures_.iova(kWriteIndexAt));
  control.set(ctl::vl, 1);
}

Context::~Context() {
  if (!published_ || function_.withdraw(*this)) return;
  // The function may still work with it: the memory lasts until the function itself has stopped.
  for (auto* buffer : {&structures_, &ring_memory_, &akeys_, &blocks_, &pattern_}) {
    function_.keep(std::move(*buffer));
  }
}

cxtv Context::state() const {
  const auto* byte = structures_.bytes().data() + kStatusAt;
  const auto value = __atomic_load_n(reinterpret_cast<const std::uint8_t*>(byte), __ATOMIC_ACQUIRE);
  util::Struct<spec::cxt_sts> status;
  status.bytes()[0] = std::byte{value};
  return static_cast<cxtv>(status.get(spec::cxt_sts::state));
}

void Context::set_state(cxtv state) {
  util::Struct<spec::cxt_sts> status;
  status.set(spec::cxt_sts::state, static_cast<std::uint32_t>(state));
  auto* byte = structures_.bytes().data() + kStatusAt;
  __atomic_store_n(reinterpret_cast<std::uint8_t*>(byte),
                   static_cast<std::uint8_t>(status.bytes()[0]), __ATOMIC_RELEASE);
}

bool Context::enqueue(std::span<const Descriptor> descriptors) {
  const auto end = ring_.enqueue(descriptors);
  if (!end) return false;
  function_.ring_doorbell(number_, *end);
  return true;
}

util::Result<void> Context::enqueue_patiently(std::span<const Descriptor> descriptors) {
  if (descriptors.size() > ring_.entries()) return util::fail("more descriptors than the ring has");
  auto& host = function_.host();
  const auto until = host.now() + function_.patience();
  while (!enqueue(descriptors)) {
    if (state() != cxtv::CXTV_RUN) return failure();
    if (host.lost()) return util::fail("the SDXI function is gone");
    if (host.now() > until) return util::fail("the SDXI ring stays full");
    host.progress();
  }
  return {};
}

/// SDXI 3.4: error information is there when the context is in CXTV_ERR_FN, not before.
util::Result<void> Context::failure() const {
  auto& host = function_.host();
  const auto until = host.now() + function_.patience();
  while (!has_stopped(state()) && !host.lost() && host.now() <= until) host.progress();
  std::string why;
  if (state() == cxtv::CXTV_ERR_FN) {
    for (const auto& record : function_.take_errors()) why += "; " + record.to_text();
  }
  return util::fail(fmt::format("SDXI context {} is in {}{}", number_, to_string(state()), why));
}

util::Result<Completion> Context::take_block() {
  if (free_blocks_.empty()) return util::fail("too many SDXI completions not waited for");
  const Completion completion(free_blocks_.back());
  free_blocks_.pop_back();
  auto* at = block(completion);
  std::memset(at, 0, cst_blk::kSize);
  util::MutableView<cst_blk>(std::span(at, cst_blk::kSize)).set(cst_blk::signal, 1);
  return completion;
}

std::byte* Context::block(const Completion& completion) const {
  return &blocks_.bytes()[completion.block_ * cst_blk::kSize];
}

util::Result<Completion> Context::submit(std::span<const Descriptor> descriptors,
                                         std::optional<std::uint16_t> interrupt) {
  assert(!descriptors.empty());
  auto completion = take_block();
  if (!completion) return completion;
  std::vector<Descriptor> batch(descriptors.begin(), descriptors.end());
  if (batch.size() > 1) batch.back().fence();
  batch.back().complete_at(blocks_.iova(completion->block_ * cst_blk::kSize));
  // Behind the completion, so that whoever is woken finds it.
  if (interrupt) batch.push_back(Descriptor::interrupt(*interrupt).fence());
  if (auto ok = enqueue_patiently(batch); !ok) {
    free_blocks_.push_back(completion->block_);
    return tl::unexpected(ok.error());
  }
  return completion;
}

bool Context::poll(const Completion& completion) const {
  const auto* signal = reinterpret_cast<const std::uint64_t*>(block(completion));
  return __atomic_load_n(signal, __ATOMIC_ACQUIRE) == 0;
}

util::Result<void> Context::wait(const Completion& completion) {
  return wait(completion, std::nullopt);
}

util::Result<void> Context::wait_interrupt(const Completion& completion, unsigned vector) {
  return wait(completion, std::optional(vector));
}

util::Result<void> Context::wait(const Completion& completion, std::optional<unsigned> vector) {
  auto& host = function_.host();
  const auto until = host.now() + function_.patience();
  while (!poll(completion)) {
    // A descriptor behind one that failed never completes.
    if (state() == cxtv::CXTV_ERR_FN && !poll(completion)) break;
    if (host.lost()) return util::fail("the SDXI function is gone");
    if (host.now() > until) return util::fail("an SDXI descriptor does not complete");
    if (!vector) {
      host.progress();
      continue;
    }
    // The interrupts so far are taken before the block is looked at again: only later ones wake. A
    // context that fails raises none, so its state is looked at now and then.
    (void)host.interrupts(*vector);
    if (poll(completion)) break;
    host.wait_interrupt(*vector, std::min(until, host.now() + kStateInterval));
  }
  const bool ended = poll(completion);
  const util::View<cst_blk> result(std::span<const std::byte>(block(completion), cst_blk::kSize));
  const bool good = ended && result.get(cst_blk::er) == 0;
  free_blocks_.push_back(completion.block_);
  if (good) return {};
  return failure();
}

util::Result<void> Context::wait_interrupt(unsigned vector, std::uint64_t count) {
  auto& host = function_.host();
  const auto until = host.now() + function_.patience();
  while (host.interrupts(vector) < count) {
    if (state() == cxtv::CXTV_ERR_FN) return failure();
    if (host.lost()) return util::fail("the SDXI function is gone");
    if (host.now() > until)
      return util::fail(fmt::format("SDXI interrupt {} does not come", vector));
    host.wait_interrupt(vector, std::min(until, host.now() + kStateInterval));
  }
  return {};
}

util::Result<Completion> Context::copy(Buffer to, Buffer from, std::uint64_t size) {
  if (size == 0) return util::fail("an SDXI copy of 0 bytes");
  // SDXI 5.6: buffers shall not overlap.
  if (to.akey == from.akey && to.at < from.at + size && from.at < to.at + size) {
    return util::fail("source and destination of an SDXI copy overlap");
  }
  const auto largest = function_.capabilities().max_buffer;
  std::vector<Descriptor> parts;
  for (std::uint64_t done = 0; done < size; done += largest) {
    parts.push_back(Descriptor::copy({to.at + done, to.akey}, {from.at + done, from.akey},
                                     std::min(size - done, largest)));
  }
  return submit(parts);
}

util::Result<void> Context::prepare_pattern(std::byte value) {
  const auto page = pattern_.bytes().first(kPage);
  if (page.front() == value && page.back() == value) return {};
  // Earlier fills may still read the page.
  std::array done{Descriptor::nop().fence()};
  const auto completion = submit(done);
  if (!completion) return tl::unexpected(completion.error());
  if (auto ok = wait(*completion); !ok) return ok;
  std::fill(page.begin(), page.end(), value);
  return {};
}

util::Result<Completion> Context::fill(Buffer to, std::byte value, std::uint64_t size) {
  if (size == 0) return util::fail("an SDXI fill of 0 bytes");
  if (auto ok = prepare_pattern(value); !ok) return tl::unexpected(ok.error());
  const Buffer pattern{pattern_.iova(), kOwnMemory};
  const auto pages_max =
      std::min<std::uint64_t>(function_.capabilities().max_buffer / kPage, 1 << 20);
  std::vector<Descriptor> parts;
  while (size > 0) {
    const auto to_page = std::min<std::uint64_t>(size, (kPage - to.at % kPage) % kPage);
    std::uint64_t length = 0;
    if (to_page > 0 || size < kPage) {
      length = to_page > 0 ? to_page : size;
      parts.push_back(Descriptor::copy(to, pattern, length));
    } else {
      const auto pages = std::min(size / kPage, pages_max);
      length = pages * kPage;
      parts.push_back(Descriptor::repeat_copy(to, pattern, 1, static_cast<std::uint32_t>(pages)));
    }
    to.at += length;
    size -= length;
  }
  return submit(parts);
}

util::Result<Completion> Context::atomic(spec::atomic_subtype operation, Buffer at, unsigned size,
                                         std::uint64_t op1, std::uint64_t op2) {
  if ((size != 4 && size != 8) || at.at % size != 0) {
    return util::fail("an SDXI atomic works on 4 or 8 bytes at their own alignment");
  }
  if (!offers(function_.capabilities(), operation)) {
    return util::fail(fmt::format("the SDXI function has no {}", to_string(operation)));
  }
  std::array one{Descriptor::atomic(operation, at, size, op1, op2, structures_.iova(kOldValueAt))};
  return submit(one);
}

std::uint64_t Context::old_value(unsigned size) const {
  const auto value = util::load_le64(structures_.bytes().data() + kOldValueAt);
  return size == 4 ? static_cast<std::uint32_t>(value) : value;
}

util::MutableView<spec::akey_ent> Context::akey(std::size_t index) const {
  return util::MutableView<spec::akey_ent>(
      akeys_.bytes().subspan(index * std::size_t{spec::akey_ent::kSize}));
}

util::Result<std::uint16_t> Context::free_akey() {
  for (std::size_t i = 0; i < spec::key_entries(0); ++i) {
    if (akey(i).get(spec::akey_ent::vl) == 0) return static_cast<std::uint16_t>(i);
  }
  return util::fail("all AKeys of the context are in use");
}

/// SDXI 4.3.1: vl last, then update and synchronize.
util::Result<void> Context::publish_akey(std::uint16_t index) {
  std::array steps{Descriptor::update_akeys(number_, index, index),
                   Descriptor::sync(spec::sync_filter::SYNC_AKEY, number_, number_, index, index)};
  return function_.administer(steps);
}

util::Result<std::uint16_t> Context::reach(std::uint16_t sfunc, std::uint16_t rkey) {
  const auto index = free_akey();
  if (!index) return index;
  const auto entry = akey(*index);
  std::fill(entry.bytes().begin(), entry.bytes().end(), std::byte{0});
  entry.set(spec::akey_ent::tgt_sfunc, sfunc);
  entry.set(spec::akey_ent::rkey, rkey);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  entry.set(spec::akey_ent::vl, 1);
  if (auto ok = publish_akey(*index); !ok) return tl::unexpected(ok.error());
  return index;
}

util::Result<std::uint16_t> Context::use_interrupt(std::uint16_t vector) {
  const auto index = free_akey();
  if (!index) return index;
  const auto entry = akey(*index);
  std::fill(entry.bytes().begin(), entry.bytes().end(), std::byte{0});
  entry.set(spec::akey_ent::iv, 1);
  entry.set(spec::akey_ent::intr_num, vector);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  entry.set(spec::akey_ent::vl, 1);
  if (auto ok = publish_akey(*index); !ok) return tl::unexpected(ok.error());
  return index;
}

util::Result<void> Context::release(std::uint16_t index) {
  akey(index).set(spec::akey_ent::vl, 0);
  return publish_akey(index);
}

util::Result<void> Context::recover() {
  if (state() != cxtv::CXTV_ERR_FN) return {};
  // What was behind the failed descriptor is given up: the ring is emptied, from Read_Index on.
  auto* write_index = reinterpret_cast<std::uint64_t*>(structures_.bytes().data() + kWriteIndexAt);
  std::fill(ring_memory_.bytes().begin(), ring_memory_.bytes().end(), std::byte{0});
  __atomic_store_n(write_index, ring_.read_index(), __ATOMIC_RELEASE);
  set_state(cxtv::CXTV_STOP_SW);
  std::array steps{Descriptor::start(number_, number_)};
  return function_.administer(steps);
}

}  // namespace softhca::driver::sdxi
