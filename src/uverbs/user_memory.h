// The calling program's memory. The program may pass any address: a missing page is EFAULT, never a
// crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace softhca::uverbs {

class LockedMemory;

class UserMemory {
 public:
  virtual ~UserMemory() = default;
  /// False: EFAULT.
  virtual bool read(std::uint64_t address, std::span<std::byte> out) const = 0;
  virtual bool write(std::uint64_t address, std::span<const std::byte> in) const = 0;
  /// Whether a page of a device file lies in [address, address + size): Linux maps those as memory
  /// of a device, and pins none of them.
  virtual bool has_device_page(std::uint64_t /*address*/, std::uint64_t /*size*/) const {
    return false;
  }
  /// The memory that the process has locked; null: it is not counted.
  virtual LockedMemory* locked() const { return nullptr; }
};

/// The memory of this process.
class OwnMemory : public UserMemory {
 public:
  bool read(std::uint64_t address, std::span<std::byte> out) const override;
  bool write(std::uint64_t address, std::span<const std::byte> in) const override;
};

}  // namespace softhca::uverbs
