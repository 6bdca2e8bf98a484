// Access to the program's memory for the calls that name it. Pages of device files cannot be
// registered.
#pragma once

#include <cstdint>

#include "door/memory/memory_map.h"
#include "uverbs/locked_memory.h"
#include "uverbs/user_memory.h"

namespace softhca::door {

class ProgramMemory final : public uverbs::OwnMemory {
 public:
  /// @pre `is_device_file` and `locked` live as long
  ProgramMemory(const IsFile& is_device_file, uverbs::LockedMemory& locked)
      : is_device_file_(is_device_file), locked_(locked) {}

  bool has_device_page(std::uint64_t address, std::uint64_t size) const override {
    return maps_file(address, address + size, is_device_file_);
  }
  uverbs::LockedMemory* locked() const override { return &locked_; }

 private:
  const IsFile& is_device_file_;
  uverbs::LockedMemory& locked_;
};

}  // namespace softhca::door
