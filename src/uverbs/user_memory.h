// The memory of the program that asks, which may name any address: what is not there is EFAULT and
// no crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace softhca::uverbs {

class UserMemory {
 public:
  virtual ~UserMemory() = default;
  /// False: EFAULT.
  virtual bool read(std::uint64_t address, std::span<std::byte> out) const = 0;
  virtual bool write(std::uint64_t address, std::span<const std::byte> in) const = 0;
};

/// Of this process.
class OwnMemory final : public UserMemory {
 public:
  bool read(std::uint64_t address, std::span<std::byte> out) const override;
  bool write(std::uint64_t address, std::span<const std::byte> in) const override;
};

}  // namespace softhca::uverbs
