// The list of a KLM key as its driver wrote it (PRM 6.1.1, Table 37): a UMR changes a part of
// it, and what the whole of it means is found out anew.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rdma/memory_key.h"
#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

class KeyList {
 public:
  /// The pieces that a list stands for.
  struct Meaning {
    std::vector<rdma::Sge> pieces;
    rdma::MemoryKey::Pattern pattern;
    bool adds_up = true;  ///< false: a strided layout that contradicts itself
  };

  /// Writes octwords from `first` on; those between the end and it are zero.
  void write(std::size_t first, std::span<const std::byte> octwords);
  std::size_t octwords() const;
  std::span<const std::byte> bytes() const { return bytes_; }
  /// The first two octwords, zero behind the end.
  std::array<std::byte, 32> first() const;
  Meaning meaning() const;

 private:
  Meaning strided() const;

  std::vector<std::byte> bytes_;
};

}  // namespace softhca::connectx
