// Match fields of flows (PRM 7.11.2.1): the fields of a packet in the layout of fte_match_param, so
// that matching is a masked comparison of bytes.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "ethernet/packet_info.h"
#include "spec/connectx/flow_table.h"
#include "util/field.h"

namespace softhca::connectx {

/// The beginning of a fte_match_param: outer_headers and misc_parameters. Only these are compared.
class MatchKey {
 public:
  static constexpr std::size_t kSize = 0x80;
  static constexpr std::size_t kWords = kSize / 8;

  MatchKey() = default;
  /// @pre bytes.size() >= kSize
  static MatchKey from_bytes(std::span<const std::byte> bytes) {
    MatchKey key;
    std::memcpy(key.words_.data(), bytes.data(), kSize);
    return key;
  }

  std::span<std::byte, kSize> bytes() {
    return std::span<std::byte, kSize>(reinterpret_cast<std::byte*>(words_.data()), kSize);
  }
  std::span<const std::byte, kSize> bytes() const {
    return std::span<const std::byte, kSize>(reinterpret_cast<const std::byte*>(words_.data()),
                                             kSize);
  }
  util::MutableView<spec::connectx::fte_match_set_lyr_2_4> outer() {
    return util::MutableView<spec::connectx::fte_match_set_lyr_2_4>(bytes());
  }
  util::MutableView<spec::connectx::fte_match_set_misc> misc() {
    return util::MutableView<spec::connectx::fte_match_set_misc>(
        bytes().subspan(spec::connectx::fte_match_param::misc_parameters.kOffset));
  }

  MatchKey masked(const MatchKey& mask) const {
    MatchKey result;
    for (std::size_t i = 0; i < kWords; ++i) result.words_[i] = words_[i] & mask.words_[i];
    return result;
  }
  /// True if all bits that are set are also set in `other`.
  bool within(const MatchKey& other) const { return masked(other) == *this; }
  std::uint64_t word(std::size_t i) const { return words_[i]; }
  friend bool operator==(const MatchKey&, const MatchKey&) = default;
  /// An arbitrary order for lookups.
  friend std::strong_ordering operator<=>(const MatchKey&, const MatchKey&) = default;

 private:
  std::array<std::uint64_t, kWords> words_{};
};

MatchKey match_key_of(const ethernet::PacketInfo& packet);

/// If `packet` is priority-tagged, returns its fields as those of an untagged packet. PRM
/// 7.11.3.10.1: a flow that matches both the tag and the VID to 0 is for untagged and for
/// priority-tagged packets. Unset for other packets.
std::optional<MatchKey> without_priority_tag(const MatchKey& packet);
/// True if a group with these criteria may contain such flows.
bool compares_tag_and_vid(const MatchKey& criteria);
bool compares_tcp_flags(const MatchKey& criteria);

/// All bits that the criteria of a flow group may set: the fields that match_key_of() fills in.
const MatchKey& matchable_fields();

}  // namespace softhca::connectx
