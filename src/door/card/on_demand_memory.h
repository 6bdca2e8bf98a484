// The program's memory as on-demand keys reach it: the kernel copies, with the program's own
// rights. If a page is missing or protected, the access fails. No mapping changes, and no fault
// occurs.
#pragma once

#include "pcie/absent_pages.h"
#include "pcie/dma_space.h"
#include "uverbs/device.h"
#include "uverbs/user_memory.h"

namespace softhca::door {

class OnDemandMemory final : public pcie::RemoteMemory {
 public:
  bool dma_read(pcie::Iova from, std::span<std::byte> out) override {
    return is_there(memory_.read(address_of(from), out));
  }
  bool dma_write(pcie::Iova to, std::span<const std::byte> in) override {
    return is_there(memory_.write(address_of(to), in));
  }

 private:
  static std::uint64_t address_of(pcie::Iova iova) {
    return iova - uverbs::Device::on_demand_address(0);
  }

  static bool is_there(bool good) {
    if (!good) pcie::AbsentPages::note();
    return good;
  }

  uverbs::OwnMemory memory_;
};

}  // namespace softhca::door
