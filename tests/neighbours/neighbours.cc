#include "neighbours.h"

namespace softhca::neighbours {

std::vector<std::string> Neighbours::options() const {
  std::vector<std::string> out = {"--measure-turns"};
  if (isolated()) out.emplace_back("--isolate");
  return out;
}

void Neighbours::expect_unharmed() {
  EXPECT_TRUE(honest_.advances(3, 20s) && mover_.advances(3, 20s))
      << "an honest client stands still";
  honest_.end();
  mover_.end();
  ASSERT_TRUE(server_.alive());
  const auto processes = server_.processes();
  for (const auto& [name, process] : processes.items()) {
    EXPECT_EQ(process["starts"], 1) << name;
  }
  const auto turn = server_.longest_turn();
  std::printf("  longest turn: %llu units of work; %llu us of a loop's processor time\n",
              static_cast<unsigned long long>(turn.work),
              static_cast<unsigned long long>(turn.ns / 1000));
  EXPECT_GT(turn.work, 0u);
  EXPECT_LE(turn.work, kTurnMaxWork);
  EXPECT_GT(turn.ns, 0u);
  EXPECT_LE(turn.ns, kTurnMaxNs);
  const LoopHca next(hostile(), 9, 4096);  // the device serves whoever comes
}

}  // namespace softhca::neighbours
