// The pieces of other keys that an indirect key is made of, as they are told all at once.
#pragma once

#include <cstdint>
#include <vector>

#include "rdma/work_request.h"

namespace softhca::rdma {

/// The pieces, and the offset of the end of each.
struct KeyPieces {
  std::vector<Sge> list;
  std::vector<std::uint64_t> ends;

  /// @pre piece.length != 0
  void add(const Sge& piece) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + piece.length);
    list.push_back(piece);
  }
};

/// Pieces that are gone through again and again, each further on every time (strided layouts).
struct KeyPattern {
  std::uint32_t turns = 0;             ///< 0: the pieces are gone through once
  std::vector<std::uint32_t> strides;  ///< bytes that a piece moves on each turn; one for each
};

}  // namespace softhca::rdma
