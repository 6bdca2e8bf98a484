// The context that GET_CONTEXT makes, and what belongs to it in the device (Linux:
// mlx5_ib_ucontext).
#pragma once

#include <cstdint>

#include "uverbs/device.h"

namespace softhca::uverbs {

class UserContext {
 public:
  explicit UserContext(Device& device) : device_(device) {}
  ~UserContext();
  UserContext(const UserContext&) = delete;
  UserContext& operator=(const UserContext&) = delete;

  /// Whether GET_CONTEXT has succeeded.
  bool exists() const { return exists_; }
  void set_exists(bool exists) { exists_ = exists; }

  /// Creates the user context for DevX commands. False: the device has none left.
  bool make_uid();
  void end_uid();
  /// User context (DevX); 0: none.
  std::uint16_t uid() const { return uid_; }
  /// Its transport domain, made when first needed. 0: the device has none left.
  std::uint32_t transport_domain();

 private:
  Device& device_;
  bool exists_ = false;
  std::uint16_t uid_ = 0;
  std::uint32_t transport_domain_ = 0;  ///< 0: not needed yet
};

}  // namespace softhca::uverbs
