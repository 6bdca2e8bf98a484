// Receive WQEs with signatures, as drivers write them (PRM Table 23).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spec/connectx/wqe.h"
#include "util/endian.h"
#include "util/field.h"

namespace softhca::connectx::test {

/// Writes one piece of a scatter list to `at`. Length 0 and key 0x100 end the list.
inline void put_piece(std::byte* at, std::uint32_t length, std::uint32_t key,
                      std::uint64_t address) {
  util::store_be32(at, length);
  util::store_be32(at + 4, key);
  util::store_be64(at + 8, address);
}

/// Signs a WQE whose signature is 0. `wqe`: the part that the signature covers.
inline void sign_receive(std::span<std::byte> wqe, std::uint32_t queue_number,
                         std::uint16_t wqe_index) {
  std::uint32_t sum = 0xFF;
  for (const auto byte : wqe) sum ^= std::to_integer<std::uint32_t>(byte);
  for (unsigned shift = 0; shift != 32; shift += 8) sum ^= queue_number >> shift & 0xFF;
  sum ^= (wqe_index >> 8u) ^ (wqe_index & 0xFFu);
  using Entry = spec::connectx::rq_signature_entry;
  util::MutableView<Entry>(wqe.first(Entry::kSize)).set(Entry::signature, sum);
}

}  // namespace softhca::connectx::test
