// What devices cannot do, so that tests are skipped: each with the place in its document that says
// so. A device that lacks anything else fails its tests, and so does one that has meanwhile got
// what stands here. Which tests that are, is listed, too: one that is skipped and does not stand
// here fails, and so does one that stands here and is not skipped (suite.cc).
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "driver/verbs/types.h"

namespace softhca::driver::verbs::test {

struct Skip {
  std::string_view device;
  Feature feature;
  std::string_view section;
};

inline constexpr auto kSkips = std::to_array<Skip>({
    {"connectx", Feature::kXrc, "src/driver/README.md"},
    {"jingzhao", Feature::kXrc, "JingZhao 3.2.6.1"},
    {"jingzhao", Feature::kSharedReceiveQueues, "JingZhao table 3-2-1"},
    {"jingzhao", Feature::kReceiveLimit, "JingZhao table 3-2-1"},
    {"jingzhao", Feature::kMulticast, "JingZhao table 3-2-1"},
    {"jingzhao", Feature::kRoceV1, "JingZhao 3.2.6.1"},
    {"jingzhao", Feature::kSolicited, "JingZhao 3.4"},
    {"rsnic", Feature::kUc, "RSNIC-IP Table 2-1-1"},
    {"rsnic", Feature::kXrc, "src/driver/README.md"},
    {"rsnic", Feature::kAtomics, "RSNIC-IP Table 2-1-1"},
    {"rsnic", Feature::kRoceV1, "RSNIC-IP chapter 1"},
});

/// A test that is skipped where one of both devices lacks a feature.
struct Need {
  std::string_view suite;
  std::string_view test;  ///< empty: all of the suite
  Feature feature;
};

inline constexpr auto kNeeds = std::to_array<Need>({
    {"Events", "AQueueArmedForSolicitedOnesTellsOfNoOther", Feature::kSolicited},
    {"Events", "AQueuePairWithAnSrqTellsThatItTakesNoMore", Feature::kSharedReceiveQueues},
    {"Operations", "FetchAndAddReturnsWhatWasThere", Feature::kAtomics},
    {"Operations", "CompareAndSwapSwapsOnlyWhatItExpects", Feature::kAtomics},
    {"Uc", "SendsAndWritesArrive", Feature::kUc},
    {"Uc", "ALostMessageIsNotSentAgain", Feature::kUc},
    {"Uc", "AReadEndsInALocalError", Feature::kUc},
    {"Ud", "AGroupReceivesWhatIsSentToIt", Feature::kMulticast},
    {"Srq", "", Feature::kSharedReceiveQueues},
});
/// Tests that all of this skips: of each test above, one for each pair of devices that it concerns.
inline constexpr std::size_t kSkipped = 67;

}  // namespace softhca::driver::verbs::test
