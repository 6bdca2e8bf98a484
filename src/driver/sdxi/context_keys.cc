// The AKeys of a context (SDXI 3.2.5).
#include <algorithm>
#include <array>

#include "driver/sdxi/context.h"
#include "driver/sdxi/function.h"

namespace softhca::driver::sdxi {

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

/// SDXI 4.3.1: set vl last, then update and synchronize.
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

}  // namespace softhca::driver::sdxi
