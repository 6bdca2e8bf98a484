// Reference counts of objects: a command refuses to destroy one that is in use.
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

/// One reference, held by the user as long as it refers to the object.
class Use {
 public:
  Use() = default;
  explicit Use(Users& users) : users_(&users) { ++users.count_; }
  Use(Use&& other) noexcept : users_(std::exchange(other.users_, nullptr)) {}
  /// Takes over `other` before it releases its own use, so that a change from an object to itself
  /// never leaves the object without users.
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

/// Base class of an object that others refer to.
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
