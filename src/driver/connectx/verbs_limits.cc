#include "driver/connectx/verbs_limits.h"

#include <algorithm>
#include <array>

namespace softhca::driver::connectx {

namespace {

using verbs::Feature;
using verbs::Limitation;

constexpr std::string_view kNotHere = "this driver makes none of them yet";

constexpr auto kConnectX4 = std::to_array<Limitation>({
    {Feature::kXrc, kNotHere, "src/driver/README.md"},
});

constexpr auto kRsnic = std::to_array<Limitation>({
    {Feature::kUc, "it is not among what the card supports", "RSNIC-IP Table 2-1-1"},
    {Feature::kXrc, kNotHere, "src/driver/README.md"},
    {Feature::kAtomics, "they are not among what the card supports", "RSNIC-IP Table 2-1-1"},
    {Feature::kRoceV1, "RoCE v2 and no other", "RSNIC-IP chapter 1"},
});

constexpr auto kCards = std::to_array<CardModel>({
    {0x1013, "ConnectX-4", kConnectX4},
    {0x1015, "RSNIC-IP", kRsnic},
});

}  // namespace

const CardModel& card_of(std::uint16_t device_id) {
  const auto* const found = std::ranges::find(kCards, device_id, &CardModel::device_id);
  return found != kCards.end() ? *found : kCards.front();
}

}  // namespace softhca::driver::connectx
