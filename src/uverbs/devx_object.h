// What a program has made by commands of its own (DevX), and the memory that it lies in.
#pragma once

#include <cstdint>
#include <vector>

#include "uverbs/devx_commands.h"
#include "uverbs/objects.h"

namespace softhca::uverbs {

/// Memory of the program that its commands name by a number (UMEM).
struct DevxMemory : Object {
  static constexpr Kind kKind = Kind::kDevxMemory;
  explicit DevxMemory(Device& the_device) : Object(kKind), device(the_device) {}
  ~DevxMemory() override { (void)end(); }
  Errno end() override;
  Device& device;
  std::uint32_t id = 0;  ///< 0: it has none
  MemoryRange memory{};
};

struct DevxObject : Object {
  static constexpr Kind kKind = Kind::kDevxObject;
  explicit DevxObject(Device& the_device) : Object(kKind), device(the_device) {}
  ~DevxObject() override { (void)end(); }
  Errno end() override;
  bool is_queue_pair() const;
  bool is_send_queue() const;
  bool is_completion_queue() const;
  /// Its doorbell record is not looked at any more.
  void stop_doorbells();
  Device& device;
  DevxName name;
  DevxPlace place;
  /// Address of its doorbell record in the program's memory; 0: nobody looks at it.
  std::uint64_t record = 0;
  std::vector<std::byte> ending;  ///< the command that destroys it; none: it is gone
};

}  // namespace softhca::uverbs
