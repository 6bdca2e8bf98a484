#include "ethernet/large_send.h"

#include <algorithm>
#include <cassert>

#include "ethernet/checksum_offload.h"
#include "ethernet/segmentation.h"

namespace softhca::ethernet {
namespace {

/// Bits of Frame::Train::part_options.
constexpr std::uint8_t kL3Checksum = 1;
constexpr std::uint8_t kL4Checksum = 2;

void part(const wire::Frame& train, unsigned index, unsigned count, wire::Frame& out) {
  const auto& all = train.train();
  const auto head = train.head();
  out.clear();
  out.set_link(train.link());
  std::ranges::copy(head, out.resize_head(head.size()).begin());
  train.for_each_piece(head.size() + std::size_t{index} * all.payload,
                       std::size_t{count} * all.payload, [&](std::span<const std::byte> piece) {
                         const bool fits = out.add_segment(piece);
                         assert(fits);
                         (void)fits;
                       });
  if (count != 1) {
    auto rest = all;
    rest.packets = static_cast<std::uint16_t>(count);
    out.set_train(rest);
  }
  const auto packet = classify(out);
  if (index != 0) advance_headers(out.mutable_head(), packet, index, all.payload);
  if (count != 1) return;
  if ((all.part_options & kL4Checksum) != 0) insert_l4_checksum(out, packet);
  if ((all.part_options & kL3Checksum) != 0) insert_l3_checksum(out, packet);
}

}  // namespace

void make_train(wire::Frame& frame, unsigned packets, std::size_t payload,
                LargeSendChecksums checksums) {
  assert(packets > 1);
  wire::Frame::Train train{.packets = static_cast<std::uint16_t>(packets),
                           .payload = static_cast<std::uint16_t>(payload),
                           .part = part};
  if (checksums.l3) train.part_options |= kL3Checksum;
  if (checksums.l4) train.part_options |= kL4Checksum;
  frame.set_train(train);
}

}  // namespace softhca::ethernet
