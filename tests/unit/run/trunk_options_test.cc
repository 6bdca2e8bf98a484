// --join, --listen, and the key of a fabric of several machines.
#include "run/trunk_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "trunk/two_families.h"

namespace softhca::run {
namespace {

using testing::HasSubstr;

constexpr const char* kSecret = "a key that both machines share";

class TrunkOptionsTest : public testing::Test {
 protected:
  TrunkOptionsTest() {
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    ::unsetenv(kKeyVariable);
    options_.listen = "127.0.0.1:24791";
  }
  ~TrunkOptionsTest() override {
    ::unsetenv(kKeyVariable);
    std::filesystem::remove_all(directory_);
  }
  std::string key_file(const std::string& text, ::mode_t mode) {
    auto path = directory_ / "key";
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }
  std::string refusal() const {
    const auto setup = options_.setup("default");
    return setup ? "" : setup.error().message;
  }

  std::filesystem::path directory_;
  TrunkOptions options_;
};

TEST_F(TrunkOptionsTest, WithoutOptionsThereIsNoTrunk) {
  options_ = {};
  const auto setup = options_.setup("default");
  ASSERT_TRUE(setup);
  EXPECT_FALSE(*setup);
}

TEST_F(TrunkOptionsTest, ATrunkNeedsAKey) {
  EXPECT_THAT(refusal(), HasSubstr("set SOFTHCA_FABRIC_KEY, or --key-file"));
  ::setenv(kKeyVariable, kSecret, 1);
  EXPECT_EQ(refusal(), "");
  ::setenv(kKeyVariable, "fifteen letters", 1);
  EXPECT_THAT(refusal(), HasSubstr("has 15 characters: want 16 or more"));
}

TEST_F(TrunkOptionsTest, AFileHasTheSameKeyAsTheVariable) {
  ::setenv(kKeyVariable, kSecret, 1);
  const auto by_variable = options_.setup("default").value().value().options.key;
  ::setenv(kKeyVariable, "another key, as long as it", 1);
  options_.key_file = key_file(std::string(kSecret) + "\n", 0600);
  EXPECT_EQ(options_.setup("default").value().value().options.key, by_variable);
}

TEST_F(TrunkOptionsTest, AFileThatOthersMayReadIsRefused) {
  for (const ::mode_t mode : {0640, 0604, 0620, 0610}) {
    options_.key_file = key_file(kSecret, mode);
    EXPECT_THAT(refusal(), HasSubstr("others may read it: chmod 600")) << mode;
  }
  options_.key_file = directory_;
  EXPECT_THAT(refusal(), HasSubstr("it is no regular file"));
  options_.key_file = directory_ / "none";
  EXPECT_THAT(refusal(), HasSubstr("No such file"));
}

TEST_F(TrunkOptionsTest, AFileThatIsTooLongIsRefused) {
  options_.key_file = key_file(std::string(4096, 'k'), 0600);
  EXPECT_EQ(refusal(), "");
  options_.key_file = key_file(std::string(4097, 'k'), 0600);
  EXPECT_THAT(refusal(), HasSubstr("it has more than 4096 bytes"));
}

TEST_F(TrunkOptionsTest, AKeyFileAloneIsOfNoUse) {
  options_ = {};
  options_.key_file = key_file(kSecret, 0600);
  EXPECT_THAT(refusal(), HasSubstr("of use with --join or --listen only"));
}

TEST_F(TrunkOptionsTest, HubsToJoinAreKnownByAddressAndName) {
  ::setenv(kKeyVariable, kSecret, 1);
  options_.join = {"127.0.0.1", "127.0.0.2:7"};
  const auto setup = options_.setup("default").value().value();
  ASSERT_EQ(setup.options.targets.size(), 2u);
  EXPECT_EQ(setup.options.targets[1].name, "127.0.0.2:7");
  EXPECT_EQ(to_text(setup.options.targets[1].address), "127.0.0.2:7");
  EXPECT_EQ(setup.words, " --listen 127.0.0.1:24791 --join 127.0.0.1 --join 127.0.0.2:7");
  ASSERT_TRUE(write_trunk_files(directory_, setup));
  EXPECT_EQ(read_trunk_words(directory_), setup.words);
}

TEST_F(TrunkOptionsTest, AHubIsJoinedOnce) {
  ::setenv(kKeyVariable, kSecret, 1);
  options_.join = {"127.0.0.1", "127.0.0.1:24791", "127.0.0.1:7"};
  const auto setup = options_.setup("default").value().value();
  ASSERT_EQ(setup.options.targets.size(), 2u);
  EXPECT_EQ(setup.words, " --listen 127.0.0.1:24791 --join 127.0.0.1 --join 127.0.0.1:7");
}

TEST_F(TrunkOptionsTest, AHubToJoinIsTakenAtAnAddressOfTheFamilyOfListen) {
  ::setenv(kKeyVariable, kSecret, 1);
  options_.join = {trunk::kTwoFamilies};
  for (const auto* const address : {"127.0.0.1:24791", "[::1]:24791"}) {
    options_.listen = address;
    const auto setup = options_.setup("default").value().value();
    ASSERT_EQ(setup.options.targets.size(), 1u);
    EXPECT_EQ(to_text(setup.options.targets[0].address), address);
  }
}

}  // namespace
}  // namespace softhca::run
