// The list of a KLM key as its driver wrote it (PRM 6.1.1, Table 37): a UMR changes a part of
// it, and what the whole of it means is found out anew.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "rdma/memory_key.h"
#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

class KeyList {
 public:
  /// The pieces that a list stands for.
  struct Meaning {
    rdma::MemoryKey::Pieces pieces;
    rdma::MemoryKey::Pattern pattern;
    bool adds_up = true;  ///< false: a strided layout that contradicts itself
  };

  /// Room for so many, which writing does not move.
  void reserve(std::size_t octwords);
  /// Writes octwords from `first` on; those between the end and it are zero.
  void write(std::size_t first, std::span<const std::byte> octwords);
  /// The next ones, at most `octwords_max`, of a list in which `changed` stands from `first` on.
  /// False: there are none. @pre `list` is as it was at the first call
  bool append_from(const KeyList& list, std::size_t first, std::span<const std::byte> changed,
                   std::size_t octwords_max);
  std::size_t octwords() const;
  std::span<const std::byte> bytes() const { return bytes_; }
  /// The first two octwords, zero behind the end.
  std::array<std::byte, 32> first() const;

 private:
  std::vector<std::byte> bytes_;
};

/// Finds out, in as many steps as it takes, what a list means in which a part is to change.
class KeyListReader {
 public:
  /// `changed`: the octwords from `first` on, which outlive this.
  KeyListReader(std::size_t first, std::span<const std::byte> changed)
      : first_(first), changed_(changed) {}

  /// Some more of it. True: that was all. @pre `list` is as it was at the first call
  bool read(const KeyList& list, std::size_t octwords_max);
  /// @pre read() has returned true
  KeyList::Meaning take_meaning() { return std::move(meaning_); }

 private:
  bool begin(const KeyList& list);
  std::span<const std::byte> octword(const KeyList& list, std::size_t number) const;
  void add_key(std::span<const std::byte> octword);
  void add_strided(std::span<const std::byte> octword);

  std::size_t first_;
  std::span<const std::byte> changed_;
  std::size_t next_ = 0;  ///< octword
  std::size_t end_ = 0;
  bool strided_ = false;
  std::uint64_t told_ = 0;  ///< by the header of a strided layout: bytes of one turn
  KeyList::Meaning meaning_;
};

}  // namespace softhca::connectx
