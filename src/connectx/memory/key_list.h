// The list of a KLM key as its driver wrote it (PRM 6.1.1, Table 37). If a UMR changes a part, the
// whole list is decoded again.
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
  /// The decoded list.
  struct Meaning {
    rdma::MemoryKey::Pieces pieces;
    rdma::MemoryKey::Pattern pattern;
    bool adds_up = true;  ///< false: a strided layout that contradicts itself
  };

  /// Reserves memory, so that writes up to `octwords` do not reallocate.
  void reserve(std::size_t octwords);
  /// Writes octwords from `first` on. Octwords between the old end and `first` become zero.
  void write(std::size_t first, std::span<const std::byte> octwords);
  /// Appends the next octwords of `list`, at most `octwords_max`, with `changed` in place of its
  /// octwords from `first` on. False if there are no more. @pre `list` has not changed since the
  /// first call
  bool append_from(const KeyList& list, std::size_t first, std::span<const std::byte> changed,
                   std::size_t octwords_max);
  std::size_t octwords() const;
  std::span<const std::byte> bytes() const { return bytes_; }
  /// The first two octwords. Bytes past the end of the list are zero.
  std::array<std::byte, 32> first() const;

 private:
  std::vector<std::byte> bytes_;
};

/// Decodes a list with a changed part, in several steps if it is long.
class KeyListReader {
 public:
  /// `changed`: the new octwords from `first` on. They must outlive the reader.
  KeyListReader(std::size_t first, std::span<const std::byte> changed)
      : first_(first), changed_(changed) {}

  /// Decodes at most `octwords_max` more octwords. True if done. @pre `list` has not changed since
  /// the first call
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
  std::size_t next_ = 0;  ///< next octword
  std::size_t end_ = 0;
  bool strided_ = false;
  std::uint64_t turn_bytes_ = 0;  ///< bytes of one turn, from the header of a strided layout
  KeyList::Meaning meaning_;
};

}  // namespace softhca::connectx
