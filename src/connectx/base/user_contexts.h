// User contexts (CREATE_UCTX, mlx5 driver interface 7.11): the kernel lets a process create and use
// device objects with its own commands (DevX). Such a command carries the number of the process's
// context, its uid. The device ensures that the command touches no other context's objects.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "connectx/base/limits.h"
#include "connectx/base/numbers.h"
#include "util/id_allocator.h"

namespace softhca::connectx {

/// Kinds of object that a context can own, one for each number space. QPs, SQs and RQs share a
/// space, and so do SRQs and RMPs.
enum class Owned : std::uint8_t {
  kPd,
  kUar,
  kTransportDomain,
  kXrcd,
  kQCounter,
  kEq,
  kCq,
  kMKey,
  kQueue,
  kSrq,
  kTir,
  kTis,
  kRqt,
  kFlowTable,
  kFlowCounter,
  kUmem,
  kPsv,
};
inline constexpr std::size_t kOwnedKinds = static_cast<std::size_t>(Owned::kPsv) + 1;

class UserContexts {
 public:
  /// The uid of commands without a context: the kernel's own.
  static constexpr Uid kKernel{0};
  /// The uid of objects that the kernel creates for all contexts (the driver's
  /// MLX5_SHARED_RESOURCE_UID).
  static constexpr Uid kShared{0xFFFF};

  explicit UserContexts(const Limits& limits);

  /// A new context. `capabilities`: bits of uctx_cap. Nothing if all numbers are in use.
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

  /// kKernel for an object that no context created, and for a number without an object.
  Uid owner(Owned kind, std::uint32_t number) const;
  /// @pre owner(kind, number) == kKernel
  void set_owner(Owned kind, std::uint32_t number, Uid uid);
  /// The numbers of one kind that the context owns.
  std::vector<std::uint32_t> owned(Owned kind, Uid uid) const;
  /// Called after the object is destroyed.
  void forget(Owned kind, std::uint32_t number);

 private:
  struct Context {
    bool used = false;
    std::uint32_t capabilities = 0;
    std::uint32_t objects = 0;
  };
  /// Owners are stored in chunks: growing one array of a million entries would copy it.
  static constexpr std::size_t kChunk = 4096;
  using Chunk = std::array<Uid, kChunk>;

  util::IdAllocator uids_;
  std::vector<Context> contexts_;  ///< by uid
  std::size_t count_ = 0;
  std::array<std::vector<std::unique_ptr<Chunk>>, kOwnedKinds> owners_;  ///< by number
};

}  // namespace softhca::connectx
