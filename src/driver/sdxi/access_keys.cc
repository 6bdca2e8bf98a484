#include "driver/sdxi/access_keys.h"

#include <algorithm>
#include <array>

#include "driver/sdxi/context.h"
#include "driver/sdxi/function.h"

namespace softhca::driver::sdxi {

util::Result<void> AccessKeys::allocate(Host& host) {
  auto allocated = DmaBuffer::allocate(host, Host::kPageSize);
  if (!allocated) return tl::unexpected(allocated.error());
  memory_ = std::move(*allocated);
  entry(kOwnMemory).set(spec::akey_ent::vl, 1);
  return {};
}

AccessKeys::Entry AccessKeys::entry(std::size_t index) const {
  return Entry(memory_.bytes().subspan(index * std::size_t{spec::akey_ent::kSize}));
}

/// SDXI 4.3.1: set vl last, then update and synchronize.
util::Result<void> AccessKeys::publish(std::uint16_t index) {
  const auto context = context_.number();
  std::array steps{Descriptor::update_akeys(context, index, index),
                   Descriptor::sync(spec::sync_filter::SYNC_AKEY, context, context, index, index)};
  return context_.function().administer(steps);
}

template <class Fill>
util::Result<std::uint16_t> AccessKeys::make(Fill&& fill) {
  std::uint16_t index = 0;
  while (entry(index).get(spec::akey_ent::vl) != 0) {
    if (++index == spec::key_entries(0)) {
      return util::fail("all AKeys of the context are in use");
    }
  }
  const auto made = entry(index);
  std::fill(made.bytes().begin(), made.bytes().end(), std::byte{0});
  fill(made);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  made.set(spec::akey_ent::vl, 1);
  if (auto ok = publish(index); !ok) return tl::unexpected(ok.error());
  return index;
}

util::Result<std::uint16_t> AccessKeys::reach(std::uint16_t sfunc, std::uint16_t rkey) {
  return make([&](Entry made) {
    made.set(spec::akey_ent::tgt_sfunc, sfunc);
    made.set(spec::akey_ent::rkey, rkey);
  });
}

util::Result<std::uint16_t> AccessKeys::use_interrupt(std::uint16_t vector) {
  return make([&](Entry made) {
    made.set(spec::akey_ent::iv, 1);
    made.set(spec::akey_ent::intr_num, vector);
  });
}

util::Result<void> AccessKeys::release(std::uint16_t index) {
  entry(index).set(spec::akey_ent::vl, 0);
  return publish(index);
}

}  // namespace softhca::driver::sdxi
