// The memory of the RDMA WRITE that a responder is receiving. Internal.
#pragma once

#include <cstdint>

#include "rdma/memory_key.h"
#include "wire/reth.h"

namespace softhca::rdma {

class WriteTarget {
 public:
  explicit WriteTarget(KeyTable& keys) : keys_(keys) {}

  /// Begins a WRITE. kNone, or why `user` may not write there.
  Reason begin(const wire::Reth& reth, const KeyUser& user) {
    if (reth.dma_length != 0) {
      // IBTA 9.7.4.1: the R_Key of a WRITE of 0 bytes is not checked.
      const auto found = keys_.check(MKey(reth.rkey.value()), user, reth.virtual_address,
                                     reth.dma_length, kRemoteWrite);
      // An absent page is handled by the packet that accesses it.
      if (!found && found.reason != Reason::kPageAbsent) return found.reason;
      key_ = found ? found.key : keys_.find(MKey(reth.rkey.value()));
      generation_ = keys_.generation();
    }
    address_ = reth.virtual_address;
    rkey_ = MKey(reth.rkey.value());
    left_ = reth.dma_length;
    return Reason::kNone;
  }
  /// The key for the next `size` bytes. It is looked up once for a message, unless a key has
  /// changed since, or the key needs a check for each packet. XRC names the PD again in each
  /// packet.
  KeyCheck find(const KeyUser& user, std::uint64_t size) const {
    if (generation_ == keys_.generation() && key_->is_plain() && key_->attributes().pd == user.pd) {
      return {key_, Reason::kNone};
    }
    return keys_.check(rkey_, user, address_, size, kRemoteWrite);
  }
  /// The next `size` bytes are written.
  void advance(std::uint64_t size) {
    address_ += size;
    left_ -= size;
  }
  MKey rkey() const { return rkey_; }
  std::uint64_t address() const { return address_; }  ///< of the next byte
  std::uint64_t left() const { return left_; }        ///< bytes still to come

 private:
  KeyTable& keys_;
  MemoryKey* key_ = nullptr;      ///< as found by the first packet of the message
  std::uint64_t generation_ = 0;  ///< KeyTable::generation() when key_ was found
  std::uint64_t address_ = 0;
  std::uint64_t left_ = 0;
  MKey rkey_;
};

}  // namespace softhca::rdma
