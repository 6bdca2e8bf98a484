// Features that devices lack. Each entry names the place in the device's document that says so.
// Tests that need them are skipped. If a device lacks anything else, its tests fail; if it has a
// feature listed here, they fail too. The skipped tests are also listed: a skip that is not listed
// fails, and so does a listed test that is not skipped (suite.cc).
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

/// A test that is skipped if either device lacks a feature.
struct Need {
  std::string_view suite;
  std::string_view test;  ///< empty: the whole suite
  Feature feature;
};

inline constexpr auto kNeeds = std::to_array<Need>({
    {"Events", "AQueueArmedForSolicitedOnesReportsNoOther", Feature::kSolicited},
    {"Events", "AQueuePairWithAnSrqReportsThatItTakesNoMore", Feature::kSharedReceiveQueues},
    {"Operations", "FetchAndAddReturnsWhatWasThere", Feature::kAtomics},
    {"Operations", "CompareAndSwapSwapsOnlyWhatItExpects", Feature::kAtomics},
    {"Uc", "SendsAndWritesArrive", Feature::kUc},
    {"Uc", "ALostMessageIsNotSentAgain", Feature::kUc},
    {"Uc", "AReadEndsInALocalError", Feature::kUc},
    {"Ud", "AGroupReceivesWhatIsSentToIt", Feature::kMulticast},
    {"Srq", "", Feature::kSharedReceiveQueues},
});
/// Number of tests skipped in all: each test above, once for each pair of devices concerned.
inline constexpr std::size_t kSkipped = 67;

}  // namespace softhca::driver::verbs::test
