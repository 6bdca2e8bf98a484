// Compression of CQEs (PRM Table 76: cqe_compression_en; mlx5 driver interface 8.7): consecutive
// CQEs that differ only a little are written together. The first one becomes the title, and each
// CQE has an 8-byte entry for its differences.
//
// The title holds the number of CQEs and takes the place of the first. The entries, including the
// first CQE's, are in arrays of 8. The first array is in the place after the title, the others in
// every 8th place, starting with the 8th. Software owns all these places when it owns the title. No
// array wraps around the end of the CQ: DPDK's vector receive (drivers/net/mlx5) does not look for
// arrays at the start.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

/// CQEs of receives that wait to be written together.
class CqeSession {
 public:
  using Format = spec::connectx::mini_cqe_format;
  static constexpr std::size_t kCqeSize = 64;
  static constexpr std::uint32_t kCqesMax = 64;  ///< capability cqe_compression_max_num
  using Cqe = std::span<const std::byte, kCqeSize>;

  /// `cqes_max`: maximum CQEs of a session, at most kCqesMax.
  CqeSession(Format format, std::uint32_t cqes_max) : format_(format), cqes_max_(cqes_max) {}

  std::uint32_t count() const { return count_; }
  bool empty() const { return count_ == 0; }
  /// Whether a CQE can be compressed at all.
  static bool is_kind(Cqe cqe);
  /// Whether it can be added to the CQEs in the session. @pre !empty(), is_kind(cqe)
  bool takes(Cqe cqe) const;
  /// @pre is_kind(cqe); empty() or takes(cqe)
  void add(Cqe cqe);
  void clear() { count_ = 0; }

  /// The CQE for the first place, with owner bit 0. If it is the only one, it is unchanged.
  std::array<std::byte, kCqeSize> title() const;
  std::uint32_t arrays() const { return count_ < 2 ? 0 : (count_ + kArray - 1) / kArray; }
  /// @pre index < arrays()
  Cqe array(std::uint32_t index) const {
    return std::span(minis_).subspan(index * kCqeSize).first<kCqeSize>();
  }
  /// Offset of array `index` from the title, in CQ entries.
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
