#include "connectx/port/local_addresses.h"

namespace softhca::connectx {

void LocalAddresses::set_vport(std::span<const wire::MacAddress> addresses) {
  vport_.assign(addresses.begin(), addresses.end());
  update();
}

void LocalAddresses::set_roce(std::span<const wire::MacAddress> addresses) {
  roce_.assign(addresses.begin(), addresses.end());
  update();
}

void LocalAddresses::update() {
  all_ = vport_;
  all_.insert(all_.end(), roce_.begin(), roce_.end());
  std::ranges::sort(all_);
  filter_ = 0;
  for (const auto& address : all_) filter_ |= filter_bit(address);
}

}  // namespace softhca::connectx
