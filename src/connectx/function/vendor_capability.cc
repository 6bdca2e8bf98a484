#include "connectx/function/vendor_capability.h"

#include "spec/connectx/gateway.h"
#include "util/endian.h"
#include "util/field.h"

namespace softhca::connectx {

namespace {

using GatewayControl = spec::connectx::gateway_control;
using Address = spec::connectx::gateway_address;
using Space = InternalSpaces::Space;

/// The value of a register, with access to its fields.
template <class Layout>
struct Register : util::Struct<Layout> {
  explicit Register(std::uint32_t value = 0) { util::store_be32(this->bytes().data(), value); }
  std::uint32_t value() { return util::load_be32(this->bytes().data()); }
};

}  // namespace

void VendorCapability::handle_write(std::uint32_t offset, std::size_t size,
                                    std::span<std::byte> capability) {
  const auto touched = [&](std::uint32_t at) { return offset < at + 4 && at < offset + size; };
  if (touched(kControl)) select_space(util::load_le32(&capability[kControl]));
  if (touched(kSemaphore)) {
    const auto wanted = util::load_le32(&capability[kSemaphore]);
    // A program holds the semaphore if it reads its own value after writing it. Only 0 releases it.
    if (semaphore_ == 0 || wanted == 0) semaphore_ = wanted;
    if (++counter_ == 0) counter_ = 1;
  }
  if (touched(kData)) data_ = util::load_le32(&capability[kData]);
  if (touched(kAddress)) access(util::load_le32(&capability[kAddress]));
  show(capability);
}

void VendorCapability::reset(std::span<std::byte> capability) {
  control_ = semaphore_ = address_ = data_ = 0;
  spaces_.reset();
  show(capability);
}

void VendorCapability::select_space(std::uint32_t control) {
  const auto space = Register<GatewayControl>(control).get(GatewayControl::space);
  Register<GatewayControl> selected;
  selected.set(GatewayControl::space, space);
  selected.set(GatewayControl::status, InternalSpaces::has(Space(space)) ? 1 : 0);
  control_ = selected.value();
}

/// Completes the access immediately, so that a read never returns the flag as it was written.
void VendorCapability::access(std::uint32_t address) {
  Register<Address> bits(address);
  const auto space = Space(Register<GatewayControl>(control_).get(GatewayControl::space));
  const auto place = bits.get(Address::address);
  const bool write = bits.get(Address::flag) != 0;
  bool done = false;
  if (write) {
    done = spaces_.write(space, place, data_);
  } else {
    const auto value = spaces_.read(space, place);
    done = value.has_value();
    data_ = value.value_or(0);
  }
  bits.set(Address::flag, write ? 0 : 1);
  bits.set(Address::syndrome, done ? 0 : 1);
  address_ = bits.value();
}

void VendorCapability::show(std::span<std::byte> capability) const {
  util::store_le32(&capability[kControl], control_);
  util::store_le32(&capability[kCounter], counter_);
  util::store_le32(&capability[kSemaphore], semaphore_);
  util::store_le32(&capability[kAddress], address_);
  util::store_le32(&capability[kData], data_);
}

}  // namespace softhca::connectx
