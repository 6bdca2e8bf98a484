// Template of the WQEs of an SQ. Nearly every WQE equals the previous one, except for its index,
// its completion field, its headers and its memory. The template caches the other, decoded fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "connectx/ethernet/eth_send_wqe.h"
#include "connectx/queue/send_control.h"
#include "spec/connectx/wqe.h"
#include "util/field.h"
#include "util/masked_bytes.h"

namespace softhca::connectx {

class EthWqeTemplate {
 public:
  /// The variable parts of a WQE that matches. Such a WQE requests both checksums and no tag.
  struct Content {
    std::span<const std::byte> header;  ///< the first bytes of the frame, in the WQE
    rdma::MKey key;                     ///< key of the remaining bytes
    std::uint64_t address;
    std::uint32_t size;  ///< bytes, not 0
  };

  /// True if there is a template.
  bool is_set() const { return is_set_; }
  void forget() { is_set_ = false; }
  /// Call it after `wqe` was decoded to `decoded`. If the WQE is one basic block, requests both
  /// checksums, and has one data segment that points to memory, remembers it. Else forgets the
  /// template.
  void remember(std::span<const std::byte> wqe, const EthSendWqe& decoded);
  /// Fast path of EthSendWqe::decode() for a WQE that matches the template. Unset if it does not.
  /// `block`: a copy of the WQE.
  std::optional<Content> decode_fast(std::span<const std::byte, kWqeBasicBlock> block) const;

 private:
  using Ctrl = spec::connectx::wqe_ctrl_segment;
  using Eth = spec::connectx::wqe_eth_segment;
  using Pointer = spec::connectx::data_segment_pointer;
  static constexpr std::size_t kFixed = Ctrl::kSize + Eth::kSize;
  static constexpr std::size_t kHeadersOffset = Ctrl::kSize + Eth::inline_headers_offset;

  bool is_set_ = false;
  std::uint8_t header_size_ = 0;
  std::uint8_t data_offset_ = 0;
  /// Control and Eth segment, with a mask of the fields that must not differ.
  util::MaskedBytes<kFixed> fixed_;
};

[[gnu::always_inline]] inline std::optional<EthWqeTemplate::Content> EthWqeTemplate::decode_fast(
    std::span<const std::byte, kWqeBasicBlock> block) const {
  if (!is_set_ || !fixed_.match_all(block.data())) return std::nullopt;
  const util::View<Pointer> data(block.subspan(data_offset_));
  const std::uint32_t size = data.get(Pointer::byte_count);
  if (data.get(Pointer::inline_) != 0 || size == 0) return std::nullopt;
  return Content{.header = block.subspan(kHeadersOffset, header_size_),
                 .key = rdma::MKey(data.get(Pointer::l_key)),
                 .address = data.get(Pointer::local_address),
                 .size = size};
}

}  // namespace softhca::connectx
