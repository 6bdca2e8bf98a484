// Compression of CQEs (PRM Table 76: cqe_compression_en; mlx5 driver interface: CQE): CQEs that
// differ in little are written together, the first of them as a title, what they differ in as 8
// bytes each.
//
// The title tells how many they are, and stands in the place of the first. The 8 bytes of each, the
// first included, stand in arrays of 8: one in the place behind the title, the others from the
// 8th place on in every 8th. Software owns all these places when it owns the title. None of them is
// beyond the end of the CQ: DPDK's vector receive (drivers/net/mlx5) does not look for them at its
// begin.
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

  /// `cqes_max`: that come together, at most kCqesMax.
  CqeSession(Format format, std::uint32_t cqes_max) : format_(format), cqes_max_(cqes_max) {}

  std::uint32_t count() const { return count_; }
  bool empty() const { return count_ == 0; }
  /// Whether a CQE can stand here at all.
  static bool is_kind(Cqe cqe);
  /// Whether it can stand behind those that are here. @pre !empty(), is_kind(cqe)
  bool takes(Cqe cqe) const;
  /// @pre is_kind(cqe); empty() or takes(cqe)
  void add(Cqe cqe);
  void clear() { count_ = 0; }

  /// What stands in the first place, with the owner bit 0: the CQE itself if it is alone.
  std::array<std::byte, kCqeSize> title() const;
  std::uint32_t arrays() const { return count_ < 2 ? 0 : (count_ + kArray - 1) / kArray; }
  /// @pre index < arrays()
  Cqe array(std::uint32_t index) const {
    return std::span(minis_).subspan(index * kCqeSize).first<kCqeSize>();
  }
  /// In how many places from the title on it stands.
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
