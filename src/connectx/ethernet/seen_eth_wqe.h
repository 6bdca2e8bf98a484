// What is known of the WQEs of an SQ: nearly every one is like the one before it, but for its
// index, what is to be completed, and its headers and memory. What it asks for need not be found
// out again.
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

class SeenEthWqe {
 public:
  /// What stands in such a WQE: a frame with both checksums to be made, and no tag.
  struct Content {
    std::span<const std::byte> header;  ///< in the WQE: the first bytes of the frame
    rdma::MKey key;                     ///< of the others
    std::uint64_t address;
    std::uint32_t size;  ///< bytes, not 0
  };

  /// Whether one is remembered.
  bool usual() const { return usual_; }
  void forget() { usual_ = false; }
  /// After `decoded` was made of `wqe`. Forgets unless the WQE is one basic block, asks for both
  /// checksums, and has one data segment, which points to memory.
  void remember(std::span<const std::byte> wqe, const EthSendWqe& decoded);
  /// What EthSendWqe::decode() finds in a WQE like the one that is remembered. Nothing if there is
  /// more to look at. `block`: copied.
  std::optional<Content> decode(std::span<const std::byte, kWqeBasicBlock> block) const;

 private:
  using Ctrl = spec::connectx::wqe_ctrl_segment;
  using Eth = spec::connectx::wqe_eth_segment;
  using Pointer = spec::connectx::data_segment_pointer;
  static constexpr std::size_t kFixed = Ctrl::kSize + Eth::kSize;
  static constexpr std::size_t kHeadersOffset = Ctrl::kSize + Eth::inline_headers_offset;

  bool usual_ = false;
  std::uint8_t header_size_ = 0;
  std::uint8_t data_offset_ = 0;
  /// Control and Eth segment, but for what differs in WQEs that are alike.
  util::MaskedBytes<kFixed> fixed_;
};

[[gnu::always_inline]] inline std::optional<SeenEthWqe::Content> SeenEthWqe::decode(
    std::span<const std::byte, kWqeBasicBlock> block) const {
  if (!usual_ || !fixed_.match_all(block.data())) return std::nullopt;
  const util::View<Pointer> data(block.subspan(data_offset_));
  const std::uint32_t size = data.get(Pointer::byte_count);
  if (data.get(Pointer::inline_) != 0 || size == 0) return std::nullopt;
  return Content{.header = block.subspan(kHeadersOffset, header_size_),
                 .key = rdma::MKey(data.get(Pointer::l_key)),
                 .address = data.get(Pointer::local_address),
                 .size = size};
}

}  // namespace softhca::connectx
