// Moves data between the two sides of a signature key (block_signature.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rdma/block_signature.h"
#include "rdma/memory_key.h"

namespace softhca::rdma {

/// One access. Its memory is a few checksums, whatever its length.
class SignatureMover {
 public:
  /// @pre the key has a signature, and check() has passed for the range
  SignatureMover(KeyTable& keys, MemoryKey& key);

  // On false, KeyTable::fault() gives the reason and there is no effect. Exception: with
  // Reason::kSignatureMismatch the whole access was done.

  /// Reads the wire bytes of the key from `offset` on.
  bool read(std::uint64_t offset, std::span<std::byte> out);
  /// Takes the wire bytes of the key from `offset` on.
  bool write(std::uint64_t offset, std::span<const std::byte> in);

 private:
  const SignatureValues::Value* value_of(const BlockFormat& format) const;
  bool find_values();
  bool read_some(std::span<std::byte>& out);
  bool write_some(std::span<const std::byte>& in);
  bool finish();
  bool undo();
  bool seek(std::uint64_t offset, bool reads);
  bool add_stored(const BlockFormat& format, const SignatureValues::Value& value,
                  std::uint64_t first, std::uint64_t end, std::uint32_t& sum);
  void go_on(std::size_t bytes);
  bool end_memory_block(bool reads);
  bool end_wire_block_of_read();
  bool end_protection_of_write();
  bool read_protection(std::uint64_t block, Protection& found);
  bool write_protection(const Protection& protection, std::uint64_t block);
  std::uint64_t bytes_to_boundary(std::size_t limit) const;
  std::uint32_t seed(const BlockFormat& format, const SignatureValues::Value& value,
                     std::uint64_t block) const;
  void add_data(std::span<const std::byte> bytes);
  Protection merge(const Protection& made, const Protection& passed) const;
  void check(SignatureSide side, std::uint64_t block, const Protection& found,
             const Protection& wanted);

  KeyTable& keys_;
  MemoryKey& key_;
  BlockSignature& signature_;
  const SignatureRules& rules_;
  const SignatureValues::Value* memory_value_ = nullptr;
  const SignatureValues::Value* wire_value_ = nullptr;
  BlockSignature::Progress now_;
  SignaturePlace place_{};
  Protection stored_;  ///< protection of the last memory block
  bool mismatch_ = false;
};

}  // namespace softhca::rdma
