// Objects that a program creates by DevX commands, and the memory in which they lie.
#pragma once

#include <cstdint>
#include <vector>

#include "uverbs/devx_commands.h"
#include "uverbs/objects.h"

namespace softhca::uverbs {

/// UMEM: program memory that DevX commands name by a number.
struct DevxMemory : Object {
  static constexpr Kind kKind = Kind::kDevxMemory;
  explicit DevxMemory(Device& the_device) : Object(kKind), device(the_device) {}
  ~DevxMemory() override { (void)end(); }
  Errno end() override;
  Device& device;
  std::uint32_t id = 0;  ///< 0: the device has none
  MemoryRange memory{};
  LockedPages locked;
};

struct DevxObject : Object {
  static constexpr Kind kKind = Kind::kDevxObject;
  explicit DevxObject(Device& the_device) : Object(kKind), device(the_device) {}
  ~DevxObject() override { (void)end(); }
  Errno end() override;
  bool is_queue_pair() const;
  bool is_send_queue() const;
  bool is_completion_queue() const;
  /// Stops polling its doorbell record.
  void stop_doorbells();
  Device& device;
  DevxName name;
  DevxPlace place;
  /// Address of its doorbell record in the program's memory; 0: it is not polled.
  std::uint64_t record = 0;
  std::vector<std::byte> ending;  ///< command that destroys it; empty: already destroyed
};

}  // namespace softhca::uverbs
