// Files by which the processes of a run see each other's addresses.
#include "door/own_address.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "door/addresses.h"

namespace softhca::door {
namespace {

class OwnAddress : public testing::Test {
 protected:
  OwnAddress() {
    std::string made = testing::TempDir() + "softhca-XXXXXX";
    directory_ = ::mkdtemp(made.data());
  }
  ~OwnAddress() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};

// Every process that starts removes the files of those that have gone.
TEST_F(OwnAddress, AProcessThatStartsAmongOthersIsNeverSeenAsGone) {
  constexpr unsigned kStarts = 150;
  const auto start = [this](unsigned first) {
    unsigned gone = 0;
    for (unsigned number = first; number != first + kStarts; ++number) {
      const auto own = OwnAddresses::take(directory_, number, "");
      gone += is_gone(directory_, own.all().front()) ? 1 : 0;
    }
    return gone;
  };
  unsigned others = 0;
  std::thread other([&] { others = start(20'000); });
  EXPECT_EQ(start(1), 0u);
  other.join();
  EXPECT_EQ(others, 0u);
}

// And each asks again and again whether its peers have gone.
TEST_F(OwnAddress, AnAddressIsTakenWhileOthersLookAtIt) {
  const auto given = driver::Gid::from_ipv4(198, 19, 7, 7);
  std::atomic<bool> done = false;
  std::thread looks([&] {
    while (!done) (void)is_gone(directory_, given);
  });
  unsigned refused = 0;
  for (unsigned i = 0; i != 200; ++i) {
    refused += OwnAddresses::take(directory_, 1, "198.19.7.7").all().front() == given ? 0 : 1;
  }
  done = true;
  looks.join();
  EXPECT_EQ(refused, 0u);
}

// A lock that another process has for a moment, as it looks at the file, is no owner's.
TEST_F(OwnAddress, AProcessThatLooksHoldsNothing) {
  for (const auto* const name : {"address-198.18.0.1", "address-198.19.7.7"}) {
    const auto path = directory_ + "/" + name;
    const vfio_user::UniqueFd looks(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::flock(looks.get(), LOCK_EX), 0);
    const auto own = OwnAddresses::take(directory_, 1, "198.19.7.7");
    EXPECT_EQ(own.all().front(), driver::Gid::from_ipv4(198, 19, 7, 7));
    const auto usual = OwnAddresses::take(directory_, 1, "");
    EXPECT_FALSE(is_gone(directory_, usual.all().front()));
  }
}

TEST_F(OwnAddress, AProcessThatStartsLeavesTheFilesOfLiveOnes) {
  const auto first = OwnAddresses::take(directory_, 1, "");
  {
    const auto second = OwnAddresses::take(directory_, 2, "");
    EXPECT_FALSE(is_gone(directory_, first.all().front()));
    EXPECT_FALSE(is_gone(directory_, second.all().front()));
  }
  const auto third = OwnAddresses::take(directory_, 3, "");
  EXPECT_TRUE(is_gone(directory_, ipv4_gid_of(2)));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/address-198.18.0.2"));
}

TEST_F(OwnAddress, AnAddressIsThatOfTheFirstUntilItHasGone) {
  const auto given = driver::Gid::from_ipv4(198, 19, 7, 7);
  {
    const auto first = OwnAddresses::take(directory_, 1, "198.19.7.7");
    EXPECT_EQ(first.all().front(), given);
    EXPECT_EQ(OwnAddresses::take(directory_, 2, "198.19.7.7").all().front(), ipv4_gid_of(2));
    EXPECT_FALSE(is_gone(directory_, given));
  }
  EXPECT_TRUE(is_gone(directory_, given));
  EXPECT_TRUE(is_gone(directory_, ipv4_gid_of(2)));
  EXPECT_EQ(OwnAddresses::take(directory_, 3, "198.19.7.7").all().front(), given);
}

}  // namespace
}  // namespace softhca::door
