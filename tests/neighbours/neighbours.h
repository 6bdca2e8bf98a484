// What all tests of hostile neighbours share: a server, an honest client at work on one device, and
// another device for the hostile one.
#pragma once

#include <gtest/gtest.h>

#include <chrono>

#include "honest.h"
#include "loop_hca.h"
#include "server.h"

namespace softhca::neighbours {

using namespace std::chrono_literals;

class Neighbours : public ::testing::Test {
 protected:
  Neighbours() { EXPECT_TRUE(honest_.advances(3, 20s)) << "before anything hostile happens"; }

  std::string hostile() const { return server_.socket(0); }
  /// The honest client goes on, and the server kept its promises. Ends the honest client.
  void expect_unharmed(std::uint64_t turn_max_ns = kTurnMaxNs) {
    const auto* name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    EXPECT_TRUE(honest_.advances(3, 20s)) << "the honest client stands still";
    honest_.end(name);
    ASSERT_TRUE(server_.alive());
    const auto turn = server_.longest_turn_ns();
    std::printf("%s: longest turn %llu us of the loop's processor time\n", name,
                static_cast<unsigned long long>(turn / 1000));
    EXPECT_LE(turn, turn_max_ns);
    const LoopHca next(hostile(), 9, 4096);  // the device serves whoever comes
  }

  Server server_{{"connectx,name=hostile", "connectx,name=honest", "connectx,name=third"}};
  Honest honest_{server_.socket(1), 1};
};

}  // namespace softhca::neighbours
