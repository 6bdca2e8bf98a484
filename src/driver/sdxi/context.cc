#include "driver/sdxi/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "driver/sdxi/function.h"

namespace softhca::driver::sdxi {
namespace {

using spec::cxtv;

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
        std::pair{&context->akeys_, Host::kPageSize},
        std::pair{&context->pattern_, Host::kPageSize}}) {
    if (auto ok = allocate(*buffer, size); !ok) return tl::unexpected(ok.error());
  }
  if (auto ok = context->blocks_.allocate(host); !ok) return tl::unexpected(ok.error());
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
  // The function may still access the memory, so it is kept until the function itself has stopped.
  for (auto* buffer : {&structures_, &ring_memory_, &akeys_, &blocks_.memory(), &pattern_}) {
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
