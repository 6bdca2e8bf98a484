// Who uses an object: a command does not destroy one that is in use.
#pragma once

#include <cassert>
#include <cstdint>
#include <utility>

namespace softhca::hca {

/// The count of an object's users.
class Users {
 public:
  Users() = default;
  Users(const Users&) = delete;
  Users& operator=(const Users&) = delete;
  ~Users() { assert(count_ == 0 && "an object goes before those that use it"); }

  bool any() const { return count_ != 0; }
  std::uint32_t count() const { return count_; }

 private:
  friend class Use;
  std::uint32_t count_ = 0;
};

/// One use, kept by the user as long as it refers to the object.
class Use {
 public:
  Use() = default;
  explicit Use(Users& users) : users_(&users) { ++users.count_; }
  Use(Use&& other) noexcept : users_(std::exchange(other.users_, nullptr)) {}
  /// Ends the use that was kept here, after the other was taken over: a change from an object to
  /// itself never leaves it without users.
  Use& operator=(Use&& other) noexcept {
    Use ended(std::move(*this));
    users_ = std::exchange(other.users_, nullptr);
    return *this;
  }
  ~Use() {
    if (users_ != nullptr) --users_->count_;
  }

 private:
  Users* users_ = nullptr;
};

/// An object that others refer to: a base of its class.
class Used {
 public:
  Use use() { return Use(users_); }
  bool in_use() const { return users_.any(); }
  std::uint32_t users() const { return users_.count(); }

 protected:
  ~Used() = default;

 private:
  Users users_;
};

}  // namespace softhca::hca
