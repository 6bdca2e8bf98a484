#include "neighbours.h"

#include <algorithm>

namespace softhca::neighbours {

std::vector<std::string> Neighbours::devices_and(const std::vector<std::string>& more) {
  std::vector<std::string> out = {"connectx,name=hostile,guest=hostile",
                                  "connectx,name=honest,guest=honest", "connectx,name=third",
                                  "sdxi,name=hostile_mover,guest=hostile,workers=1,contexts=4096",
                                  "sdxi,name=honest_mover,guest=honest,workers=1"};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

std::vector<std::string> Neighbours::options_and(std::vector<std::string> more) const {
  more.emplace_back("--measure-turns");
  if (isolated()) more.emplace_back("--isolate");
  return more;
}

pid_t Neighbours::honest_server() const {
  if (!isolated()) return server_.pid();
  const auto processes = server_.processes();
  for (const auto& [name, process] : processes.items()) {
    if (name.starts_with("honest,")) return process["pid"];
  }
  ADD_FAILURE() << processes;
  return 0;
}

void Neighbours::expect_unharmed(std::uint64_t turn_max_work) {
  EXPECT_TRUE(honest_.advances(3, 20s) && mover_.advances(3, 20s))
      << "an honest client stands still";
  honest_.end();
  mover_.end();
  // Both are clients of one loop, so both wait if the loop is held up. If only one waits, it waited
  // for a processor.
  EXPECT_LT(std::min(honest_.longest_read(), mover_.longest_read()), kWaitMax);
  ASSERT_TRUE(server_.alive());
  const auto processes = server_.processes();
  for (const auto& [name, process] : processes.items()) {
    EXPECT_EQ(process["starts"], 1) << name;
  }
  const auto turns = server_.turns();
  std::printf(
      "  longest turn: %llu units of work; %llu us of a loop's processor time; %llu of %llu "
      "above 2 ms\n",
      static_cast<unsigned long long>(turns.longest_work),
      static_cast<unsigned long long>(turns.longest_ns / 1000),
      static_cast<unsigned long long>(turns.above_2_ms),
      static_cast<unsigned long long>(turns.all));
  EXPECT_GT(turns.longest_work, 0u);
  EXPECT_LE(turns.longest_work, turn_max_work);
  EXPECT_GT(turns.longest_ns, 0u);
  EXPECT_LE(turns.longest_ns, kTurnMaxNs);
  EXPECT_LE(turns.above_2_ms, long_turns_max(turns.all));
  const LoopHca next(hostile(), 9, 4096);  // the device serves the next client
}

}  // namespace softhca::neighbours
