// The objects of one context by handle, and the uses among them. objects.h defines the objects.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "uverbs/request.h"

namespace softhca::uverbs {

enum class Kind : std::uint8_t {
  kPd,
  kMr,
  kMw,
  kCq,
  kQp,
  kSrq,
  kXrcd,
  kAh,
  kUar,
  kDevxObject,
  kFlow,
  kFlowMatcher,
  kCounters,
  kReceiveQueue,
  kReceiveTable,
  kDevxMemory,  // must be last
};

/// An object of a context. Its destructor destroys it in the device unless end() already did.
struct Object {
  explicit Object(Kind the_kind) : kind(the_kind) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  /// Destroys it in the device. Nonzero: a DevX object still needs it, and it stays.
  virtual Errno end() { return 0; }
  /// Whether the program may not destroy it yet.
  virtual bool is_busy() const { return users != 0; }

  const Kind kind;
  unsigned users = 0;     ///< objects that need this one
  std::uint16_t uid = 0;  ///< user context that created it; 0: the kernel's
};

/// Keeps an object from being destroyed.
class Use {
 public:
  Use() = default;
  explicit Use(Object* object) : object_(object) {
    if (object_ != nullptr) ++object_->users;
  }
  Use(Use&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Use& operator=(Use&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Use() {
    if (object_ != nullptr) --object_->users;
  }
  Object* get() const { return object_; }

 private:
  Object* object_ = nullptr;
};

class Objects {
 public:
  std::uint32_t add(std::unique_ptr<Object> object) {
    of_kind(object->kind).insert(object.get());
    objects_.emplace(++last_, std::move(object));
    return last_;
  }
  /// Finds an object, with the errors of Linux (rdma_lookup_get_uobject): ENOENT without an object,
  /// EINVAL if it is of another kind.
  template <class T>
  Errno find(std::int64_t handle, T*& object) const {
    auto* const any = find_any(handle);
    if (any == nullptr) return ENOENT;
    if (any->kind != T::kKind) return EINVAL;
    object = static_cast<T*>(any);
    return 0;
  }
  /// The first object of a kind for which `is_it` holds; null if there is none.
  template <class T, class IsIt>
  T* find_if(IsIt&& is_it) const {
    for (auto* object : by_kind_[static_cast<std::size_t>(T::kKind)]) {
      if (is_it(static_cast<const T&>(*object))) return static_cast<T*>(object);
    }
    return nullptr;
  }
  /// Calls `visit` for all objects of a kind. `visit` must not remove any.
  template <class T, class Visit>
  void for_each(Visit&& visit) {
    for (auto* object : of_kind(T::kKind)) visit(static_cast<T&>(*object));
  }
  /// The object of any kind; null if there is none.
  Object* find_any(std::int64_t handle) const {
    const auto at = objects_.find(static_cast<std::uint32_t>(handle));
    return handle < 0 || at == objects_.end() ? nullptr : at->second.get();
  }
  /// The handles of a kind, in order of creation.
  std::vector<std::uint32_t> handles(Kind kind) const {
    std::vector<std::uint32_t> found;
    for (const auto& [handle, object] : objects_) {
      if (object->kind == kind) found.push_back(handle);
    }
    std::ranges::sort(found);
    return found;
  }
  /// @pre the handle exists
  void remove(std::int64_t handle) {
    const auto at = objects_.find(static_cast<std::uint32_t>(handle));
    assert(at != objects_.end());
    of_kind(at->second->kind).erase(at->second.get());
    objects_.erase(at);
  }
  /// Destroys all objects, users before the used and newest first. Repeats this while it makes
  /// progress, since the device may know of uses that this table does not.
  void clear();

 private:
  static constexpr std::size_t kKinds = static_cast<std::size_t>(Kind::kDevxMemory) + 1;
  std::unordered_set<Object*>& of_kind(Kind kind) {
    return by_kind_[static_cast<std::size_t>(kind)];
  }

  std::uint32_t last_ = 0;
  std::unordered_map<std::uint32_t, std::unique_ptr<Object>> objects_;
  std::array<std::unordered_set<Object*>, kKinds> by_kind_;
};

}  // namespace softhca::uverbs
