#include "connectx/function/vendor_capability.h"

#include "util/endian.h"

namespace softhca::connectx {

void VendorCapability::handle_write(std::uint32_t offset, std::size_t size,
                                    std::span<std::byte> capability) {
  const auto touched = [&](std::uint32_t at) { return offset < at + 4 && at < offset + size; };
  if (touched(kControl)) space_ = util::load_le16(&capability[kControl]);
  if (touched(kSemaphore)) {
    const auto wanted = util::load_le32(&capability[kSemaphore]);
    // Whoever finds his own value there after writing it holds it; only 0 takes it away from him.
    if (semaphore_ == 0 || wanted == 0) semaphore_ = wanted;
    if (++counter_ == 0) counter_ = 1;
  }
  show(capability);
}

void VendorCapability::reset(std::span<std::byte> capability) {
  space_ = 0;
  semaphore_ = 0;
  show(capability);
}

void VendorCapability::show(std::span<std::byte> capability) const {
  // Status 0: the space is not supported.
  util::store_le32(&capability[kControl], space_);
  util::store_le32(&capability[kCounter], counter_);
  util::store_le32(&capability[kSemaphore], semaphore_);
  util::store_le32(&capability[kAddress], 0);
  util::store_le32(&capability[kData], 0);
}

}  // namespace softhca::connectx
