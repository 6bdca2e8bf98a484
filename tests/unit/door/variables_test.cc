// The environment variables of the library: their values, and the values that are reported as
// wrong.
#include "door/variables.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace softhca::door {
namespace {

using Environment = std::map<std::string, std::string>;

Variables variables_of(const Environment& environment) {
  return read_variables([&environment](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(DoorVariables, WithoutThemTheDefaultsApply) {
  for (const auto& all : {variables_of({}), variables_of({{"SOFTHCA_LOG", ""},
                                                          {"SOFTHCA_DOORBELLS", ""},
                                                          {"SOFTHCA_MEMLOCK", ""},
                                                          {"SOFTHCA_LOSS", ""},
                                                          {"SOFTHCA_DEVICES", ""},
                                                          {"SOFTHCA_ADDRESS", ""}})}) {
    EXPECT_EQ(all.log_level, util::LogLevel::kWarning);
    EXPECT_TRUE(all.traps_doorbells);
    EXPECT_FALSE(all.enforces_memlock);
    EXPECT_EQ(all.numbers.count, 1u);
    EXPECT_EQ(all.loss.probability, 0);
    EXPECT_TRUE(all.addresses.empty());
    EXPECT_TRUE(all.control.empty());
    EXPECT_TRUE(all.mistakes.empty());
  }
}

TEST(DoorVariables, HaveTheirValues) {
  const auto all = variables_of({{"SOFTHCA_LOG", "error"},
                                 {"SOFTHCA_DOORBELLS", "poll"},
                                 {"SOFTHCA_MEMLOCK", "enforce"},
                                 {"SOFTHCA_LOSS", "0.25,7"},
                                 {"SOFTHCA_DEVICES", "3"},
                                 {"SOFTHCA_ADDRESS", "198.19.7.1,if:eth0"},
                                 {"SOFTHCA_CONTROL", "/run/x"},
                                 {"SOFTHCA_FAULTS", "/run/y/rules"}});
  EXPECT_EQ(all.log_level, util::LogLevel::kError);
  EXPECT_FALSE(all.traps_doorbells);
  EXPECT_TRUE(all.enforces_memlock);
  EXPECT_EQ(all.loss.probability, 0.25);
  EXPECT_EQ(all.loss.seed, 7u);
  EXPECT_EQ(all.numbers.count, 3u);
  EXPECT_EQ(all.addresses, (std::vector<std::string>{"198.19.7.1", "if:eth0"}));
  EXPECT_EQ(all.control, "/run/x");
  EXPECT_EQ(all.faults, "/run/y/rules");
  EXPECT_TRUE(all.mistakes.empty());
  EXPECT_TRUE(
      variables_of({{"SOFTHCA_DOORBELLS", "trap"}, {"SOFTHCA_MEMLOCK", "warn"}}).mistakes.empty());
}

TEST(DoorVariables, AValueThatIsNotAllowedIsNamedWithThoseThatAre) {
  const auto all = variables_of({{"SOFTHCA_LOG", "verbose"},
                                 {"SOFTHCA_DOORBELLS", "Poll"},
                                 {"SOFTHCA_MEMLOCK", "1"},
                                 {"SOFTHCA_LOSS", "0.5"},
                                 {"SOFTHCA_DEVICES", "many"},
                                 {"SOFTHCA_ADDRESS", "198.19.7.1,eth0"}});
  EXPECT_EQ(
      all.mistakes,
      (std::vector<std::string>{
          "SOFTHCA_LOG=verbose: want debug, info, warning or error",
          "SOFTHCA_DOORBELLS=Poll: want trap or poll", "SOFTHCA_MEMLOCK=1: want warn or enforce",
          "SOFTHCA_LOSS=0.5: want a probability from 0 to 1, a comma and a seed",
          "SOFTHCA_DEVICES=many: want what softhca run has set",
          "SOFTHCA_ADDRESS=198.19.7.1,eth0: want IPv4 addresses or if:NAME, separated by "
          "commas"}));
  EXPECT_EQ(all.log_level, util::LogLevel::kWarning);
  EXPECT_TRUE(all.traps_doorbells);
  EXPECT_FALSE(all.enforces_memlock);
  EXPECT_EQ(all.loss.probability, 0);
  EXPECT_EQ(all.numbers.count, 1u);
}

TEST(DoorVariables, ANameThatIsCloseToOneOfTheirsIsMistyped) {
  const char* const environment[] = {"SOFTHCA_LOGS=debug",  "SOFTHCA_LOG=debug",
                                     "HOME=/root",          "SOFTHCA_WHAT_A_TEST_NEEDS=1",
                                     "SOFTHCA_DOOR=/run/x", nullptr};
  EXPECT_EQ(
      mistyped_names(environment),
      (std::vector<std::string>{"SOFTHCA_LOGS: softhca has no such variable (SOFTHCA_LOG?)"}));
  EXPECT_TRUE(mistyped_names(nullptr).empty());
}

}  // namespace
}  // namespace softhca::door
