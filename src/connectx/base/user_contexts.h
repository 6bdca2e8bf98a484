// User contexts (CREATE_UCTX, mlx5 driver interface): the kernel lets a process make and use
// objects of the device by commands of its own (DevX). Such a command carries the number of the
// process's context, its uid, and the device sees that it touches nothing of another's.
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

/// What a context can own: a number space each. QPs, SQs and RQs have one space, so have SRQs and
/// RMPs.
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
  /// Of commands that no context has: the kernel's own.
  static constexpr Uid kKernel{0};
  /// Of what the kernel makes for all contexts (the driver's MLX5_SHARED_RESOURCE_UID).
  static constexpr Uid kShared{0xFFFF};

  explicit UserContexts(const Limits& limits);

  /// A new context. `capabilities`: bits of uctx_cap. Nothing if all numbers are in use.
  std::optional<Uid> create(std::uint32_t capabilities);
  bool contains(Uid uid) const {
    return uid.value() < contexts_.size() && contexts_[uid.value()].used;
  }
  /// Objects of the context. @pre contains(uid)
  std::uint32_t objects(Uid uid) const { return contexts_[uid.value()].objects; }
  /// @pre contains(uid)
  std::uint32_t capabilities(Uid uid) const { return contexts_[uid.value()].capabilities; }
  /// @pre contains(uid) and objects(uid) == 0
  void destroy(Uid uid);
  std::size_t count() const { return count_; }

  /// kKernel for an object that nobody else made, and for a number that no object has.
  Uid owner(Owned kind, std::uint32_t number) const;
  /// @pre owner(kind, number) == kKernel
  void set_owner(Owned kind, std::uint32_t number, Uid uid);
  /// The numbers of one kind that the context has.
  std::vector<std::uint32_t> owned(Owned kind, Uid uid) const;
  /// When the object is gone.
  void forget(Owned kind, std::uint32_t number);

 private:
  struct Context {
    bool used = false;
    std::uint32_t capabilities = 0;
    std::uint32_t objects = 0;
  };
  /// Owners lie in chunks, since an array of a million would move when it grows.
  static constexpr std::size_t kChunk = 4096;
  using Chunk = std::array<Uid, kChunk>;

  util::IdAllocator uids_;
  std::vector<Context> contexts_;  ///< by uid
  std::size_t count_ = 0;
  std::array<std::vector<std::unique_ptr<Chunk>>, kOwnedKinds> owners_;  ///< by number
};

}  // namespace softhca::connectx
