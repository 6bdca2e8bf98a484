#include "driver/sdxi/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>

#include "driver/sdxi/function.h"

namespace softhca::driver::sdxi {
namespace {

using spec::cxtv;

constexpr auto kStateInterval = std::chrono::milliseconds(100);

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
       {std::pair{&context->structures_, Host::kPageSize},
        std::pair{&context->ring_memory_, std::size_t{ring_entries} * spec::kDescriptorSize},
        std::pair{&context->pattern_, Host::kPageSize}}) {
    if (auto ok = allocate(*buffer, size); !ok) return tl::unexpected(ok.error());
  }
  if (auto ok = context->akeys_.allocate(host); !ok) return tl::unexpected(ok.error());
  if (auto ok = context->blocks_.allocate(host); !ok) return tl::unexpected(ok.error());
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
  // The function may still access the memory, so it is kept until the function itself has stopped.
  for (auto* buffer :
       {&structures_, &ring_memory_, &akeys_.memory(), &blocks_.memory(), &pattern_}) {
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

// Work (SDXI 5.2, 4.4) ------------------------------------------------------------------------

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
    if (host.lost()) return util::fail(Host::kLost);
    if (host.now() > until) return util::fail("the SDXI ring stays full");
    host.progress();
  }
  return {};
}

/// SDXI 3.4: error information is available once the context is in CXTV_ERR_FN, not before.
util::Result<void> Context::failure() const {
  auto& host = function_.host();
  const auto until = host.now() + function_.patience();
  while (!has_stopped(state()) && !host.lost() && host.now() <= until) host.progress();
  std::string why;
  if (state() == cxtv::CXTV_ERR_FN) {
    for (const auto& record : function_.take_errors_of(number_)) why += "; " + record.to_text();
  }
  return util::fail(fmt::format("SDXI context {} is in {}{}", number_, to_string(state()), why));
}

util::Result<Completion> Context::submit(std::span<const Descriptor> descriptors,
                                         std::optional<std::uint16_t> interrupt) {
  assert(!descriptors.empty());
  function_.look_at_errors();
  auto completion = blocks_.take();
  if (!completion) return completion;
  std::vector<Descriptor> batch(descriptors.begin(), descriptors.end());
  if (batch.size() > 1) batch.back().fence();
  batch.back().complete_at(blocks_.iova(*completion));
  // After the completion, so that the woken program finds it.
  if (interrupt) batch.push_back(Descriptor::interrupt(*interrupt).fence());
  if (auto ok = enqueue_patiently(batch); !ok) {
    blocks_.give_back(*completion);
    return tl::unexpected(ok.error());
  }
  return completion;
}

util::Result<void> Context::wait(const Completion& completion) {
  return wait(completion, std::nullopt);
}

util::Result<void> Context::wait_interrupt(const Completion& completion, unsigned vector) {
  return wait(completion, std::optional(vector));
}

util::Result<void> Context::wait(const Completion& completion, std::optional<unsigned> vector) {
  auto& host = function_.host();
  function_.look_at_errors();
  const auto until = host.now() + function_.patience();
  while (!poll(completion)) {
    // Descriptors behind a failed one never complete.
    if (state() == cxtv::CXTV_ERR_FN && !poll(completion)) break;
    if (host.lost()) return util::fail(Host::kLost);
    if (host.now() > until) return util::fail("an SDXI descriptor does not complete");
    if (!vector) {
      host.progress();
      continue;
    }
    // Consumes earlier interrupts before the block is polled again, so that only later ones wake. A
    // context that fails raises none, so its state is polled from time to time.
    (void)host.interrupts(*vector);
    if (poll(completion)) break;
    host.wait_interrupt(*vector, std::min(until, host.now() + kStateInterval));
  }
  if (blocks_.given_up(completion)) {
    return util::fail("the SDXI descriptor was given up when its context recovered");
  }
  const bool good = poll(completion) && !blocks_.failed(completion);
  blocks_.give_back(completion);
  if (good) return {};
  return failure();
}

util::Result<void> Context::wait_interrupt(unsigned vector, std::uint64_t count) {
  auto& host = function_.host();
  const auto until = host.now() + function_.patience();
  while (host.interrupts(vector) < count) {
    if (state() == cxtv::CXTV_ERR_FN) return failure();
    if (host.lost()) return util::fail(Host::kLost);
    if (host.now() > until)
      return util::fail(fmt::format("SDXI interrupt {} does not come", vector));
    host.wait_interrupt(vector, std::min(until, host.now() + kStateInterval));
  }
  return {};
}

util::Result<void> Context::recover() {
  if (state() != cxtv::CXTV_ERR_FN) return {};
  // Descriptors behind the failed one are given up: the ring is emptied from Read_Index on.
  auto* write_index = reinterpret_cast<std::uint64_t*>(structures_.bytes().data() + kWriteIndexAt);
  std::fill(ring_memory_.bytes().begin(), ring_memory_.bytes().end(), std::byte{0});
  __atomic_store_n(write_index, ring_.read_index(), __ATOMIC_RELEASE);
  blocks_.give_up();
  set_state(cxtv::CXTV_STOP_SW);
  // SDXI 4.3.1.2 steps 5 and 6: ring and CXT_STS belong to level LVL_CXT_CTL.
  std::array steps{Descriptor::update_contexts(spec::tgt_pcd::UPD_CTL, number_, number_),
                   Descriptor::sync(spec::sync_filter::SYNC_CXT, number_, number_),
                   Descriptor::start(number_, number_)};
  return function_.administer(steps);
}

}  // namespace softhca::driver::sdxi
