// User contexts (CREATE_UCTX, mlx5 driver interface 7.11). The kernel lets a process create and use
// device objects with its own commands (DevX). Such a command carries a uid, the number of the
// process's context. The device ensures that the command uses no objects of other contexts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "connectx/base/limits.h"
#include "connectx/base/numbers.h"
#include "spec/connectx/objects.h"
#include "util/id_allocator.h"

namespace softhca::connectx {

/// Kinds of objects. Kinds of one number space have their owners in common.
using Owned = spec::connectx::object_kind;

class UserContexts {
 public:
  /// The uid of the kernel's own commands, which have no context.
  static constexpr Uid kKernel{0};
  /// The uid of objects that the kernel creates for all contexts (the driver's
  /// MLX5_SHARED_RESOURCE_UID).
  static constexpr Uid kShared{0xFFFF};

  explicit UserContexts(const Limits& limits);

  /// Creates a context. `capabilities`: bits of uctx_cap. Unset if all numbers are in use.
  std::optional<Uid> create(std::uint32_t capabilities);
  bool contains(Uid uid) const {
    return uid.value() < contexts_.size() && contexts_[uid.value()].used;
  }
  /// Number of objects that the context owns. @pre contains(uid)
  std::uint32_t objects(Uid uid) const { return contexts_[uid.value()].objects; }
  /// @pre contains(uid)
  std::uint32_t capabilities(Uid uid) const { return contexts_[uid.value()].capabilities; }
  /// @pre contains(uid) and objects(uid) == 0
  void destroy(Uid uid);
  std::size_t count() const { return count_; }

  /// The owner of an object. kKernel if no context created it, or if there is no such object.
  Uid owner(Owned kind, std::uint32_t number) const;
  /// @pre owner(kind, number) == kKernel
  void set_owner(Owned kind, std::uint32_t number, Uid uid);
  /// The numbers of the context's objects of one kind.
  std::vector<std::uint32_t> owned(Owned kind, Uid uid) const;
  /// Called after the object is destroyed.
  void forget(Owned kind, std::uint32_t number);

 private:
  struct Context {
    bool used = false;
    std::uint32_t capabilities = 0;
    std::uint32_t objects = 0;
  };
  /// Owners are stored in chunks, because growing one array of a million entries would copy it.
  static constexpr std::size_t kChunk = 4096;
  using Chunk = std::array<Uid, kChunk>;

  util::IdAllocator uids_;
  std::vector<Context> contexts_;  ///< by uid
  std::size_t count_ = 0;
  static constexpr std::size_t kKinds = static_cast<std::size_t>(Owned::LATER_OBJECT) + 1;
  /// By number space and number.
  std::array<std::vector<std::unique_ptr<Chunk>>, kKinds> owners_;
};

}  // namespace softhca::connectx
