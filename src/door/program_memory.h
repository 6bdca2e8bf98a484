// The memory of the program, as the calls that name it reach it. Pages of device files are no
// memory that can be registered.
#pragma once

#include <cstdint>

#include "door/memory_map.h"
#include "uverbs/user_memory.h"

namespace softhca::door {

class ProgramMemory final : public uverbs::OwnMemory {
 public:
  /// @pre `is_device_file` lives as long
  explicit ProgramMemory(const IsFile& is_device_file) : is_device_file_(is_device_file) {}

  bool has_device_page(std::uint64_t address, std::uint64_t size) const override {
    return maps_file(address, address + size, is_device_file_);
  }

 private:
  const IsFile& is_device_file_;
};

}  // namespace softhca::door
