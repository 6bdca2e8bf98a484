// The pieces of an indirect key, given all together.
#pragma once

#include <cstdint>
#include <vector>

#include "rdma/work_request.h"

namespace softhca::rdma {

/// Levels of indirect keys that an access may pass.
inline constexpr unsigned kIndirectDepthMax = 3;
/// Work (util::WorkBudget) of a piece, and the most for all pieces that hold one byte.
inline constexpr std::int64_t kPieceWork = 70;
inline constexpr std::int64_t kByteWorkMax = kIndirectDepthMax * kPieceWork;

/// The pieces, and the end offset of each.
struct KeyPieces {
  std::vector<Sge> list;
  std::vector<std::uint64_t> ends;

  /// @pre piece.length != 0
  void add(const Sge& piece) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + piece.length);
    list.push_back(piece);
  }
};

/// A strided layout: the pieces repeat, each displaced by its stride on every turn.
struct KeyPattern {
  std::uint32_t turns = 0;             ///< 0: one pass over the pieces, without strides
  std::vector<std::uint32_t> strides;  ///< bytes by which each piece moves per turn
};

}  // namespace softhca::rdma
