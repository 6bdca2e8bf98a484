// Compression of CQEs (PRM Table 76: cqe_compression_en; mlx5 driver interface 8.7). Similar
// consecutive CQEs are written together: a title, and an 8-byte entry for each CQE, the first one
// included.
//
// The title is the first CQE, with the number of CQEs in it. It is in place 0. The entries are in
// arrays of 8: the first array is in place 1, the others in places 8, 16, 24 and so on. Software
// owns all these places when it owns the title. No array wraps around the end of the CQ, because
// DPDK's vector receive (drivers/net/mlx5) does not look for arrays at the start.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

/// Receive CQEs that wait to be written together.
class CqeSession {
 public:
  using Format = spec::connectx::mini_cqe_format;
  static constexpr std::size_t kCqeSize = 64;
  static constexpr std::uint32_t kCqesMax = 64;  ///< capability cqe_compression_max_num
  using Cqe = std::span<const std::byte, kCqeSize>;

  /// `cqes_max`: limit on the CQEs of a session, at most kCqesMax.
  CqeSession(Format format, std::uint32_t cqes_max) : format_(format), cqes_max_(cqes_max) {}

  std::uint32_t count() const { return count_; }
  bool empty() const { return count_ == 0; }
  /// True if CQEs of this kind can be compressed.
  static bool is_kind(Cqe cqe);
  /// True if the session has room for the CQE and the CQE is similar. @pre !empty(), is_kind(cqe)
  bool takes(Cqe cqe) const;
  /// @pre is_kind(cqe); empty() or takes(cqe)
  void add(Cqe cqe);
  void clear() { count_ = 0; }

  /// The CQE for place 0, with owner bit 0. A single CQE is not changed to a title.
  std::array<std::byte, kCqeSize> title() const;
  std::uint32_t arrays() const { return count_ < 2 ? 0 : (count_ + kArray - 1) / kArray; }
  /// @pre index < arrays()
  Cqe array(std::uint32_t index) const {
    return std::span(minis_).subspan(index * kCqeSize).first<kCqeSize>();
  }
  /// Place of array `index`: its offset from the title in CQ entries.
  static std::uint32_t place(std::uint32_t index) { return index == 0 ? 1 : index * kArray; }

 private:
  static constexpr std::uint32_t kMiniSize = 8;
  static constexpr std::uint32_t kArray = kCqeSize / kMiniSize;

  Format format_;
  std::uint32_t cqes_max_;
  std::uint32_t count_ = 0;
  std::array<std::byte, kCqeSize> first_{};
  std::array<std::byte, std::size_t{kCqesMax} * kMiniSize> minis_{};
};

}  // namespace softhca::connectx
