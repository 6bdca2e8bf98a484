// Names and files of `softhca run`: programs that it does not reach, and fabrics.
#include "run/reach.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "run/run_directory.h"
#include "vfio_user/served_function.h"

namespace softhca::run {
namespace {

TEST(Reach, SudoClearsTheEnvironmentAndADirectoryOfThatNameDoesNot) {
  const test::TemporaryDirectory directory;
  const auto program = directory / "sudo";
  const auto folder = directory / "doas";
  std::ofstream(program) << "#!/bin/sh\n";
  std::filesystem::create_directory(folder);
  EXPECT_NE(why_out_of_reach(program).find("it clears the environment"), std::string::npos);
  EXPECT_EQ(why_out_of_reach(folder), "");
  EXPECT_EQ(why_out_of_reach(directory / "missing/sudo"), "");
}

TEST(RunDirectory, TheNameOfAFabricHasNoOtherSigns) {
  const test::TemporaryDirectory directory;
  ASSERT_EQ(::setenv("XDG_RUNTIME_DIR", (directory / "").c_str(), 1), 0);
  for (const auto* good : {"a", "Z9", "job-1_a.b", "12345678901234567890123456789012"}) {
    EXPECT_TRUE(fabric_directories(good)) << good;
  }
  for (const auto* bad : {"", ".hidden", "a/b", "a b", "a:", "a@", "a[", "a`", "a{", "\x7f", "a\n",
                          "123456789012345678901234567890123"}) {
    EXPECT_FALSE(fabric_directories(bad)) << bad;
  }
}

}  // namespace
}  // namespace softhca::run
