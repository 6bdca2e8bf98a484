// Features that cards of the family lack, with the sections that say so.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "driver/verbs/types.h"

namespace softhca::driver::connectx {

/// A card of the family, by its PCI device ID.
struct CardModel {
  std::uint16_t device_id;
  std::string_view name;
  std::span<const verbs::Limitation> limitations;
};

/// The card for an ID; the ConnectX-4 if the ID is unknown.
const CardModel& card_of(std::uint16_t device_id);

}  // namespace softhca::driver::connectx
