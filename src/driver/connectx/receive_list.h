// The scatter list of a receive WQE (PRM 7.4.4.3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "driver/work.h"
#include "spec/connectx/wqe.h"
#include "util/field.h"

namespace softhca::driver::connectx {

/// L_Key of the entry that ends a list with fewer pieces than its WQE has room for.
inline constexpr std::uint32_t kTerminatingKey = 0x100;

/// Writes `pieces` to the start of `list`, which has room for them.
inline void store_receive_list(std::span<std::byte> list, std::span<const Sge> pieces) {
  using Data = softhca::spec::connectx::receive_data_segment;
  auto* at = list.data();
  const auto* const end = at + list.size();
  // Composed in a local copy, so that each byte of the device's memory is written once.
  const auto store = [&](const Sge& piece) {
    util::Struct<Data> data;
    data.set(Data::byte_count, piece.length);
    data.set(Data::l_key, piece.lkey);
    data.set(Data::local_address, piece.address);
    std::memcpy(at, data.bytes().data(), Data::kSize);
    at += Data::kSize;
  };
  for (const auto& piece : pieces) {
    if (piece.length != 0) store(piece);
  }
  if (at != end) store({.address = 0, .length = 0, .lkey = kTerminatingKey});
}

}  // namespace softhca::driver::connectx
