// The set of the library's own files, which any thread may query.
#include "os/known_files.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace softhca::os {
namespace {

// Like the library's, the sets are never destroyed.

TEST(KnownFiles, AreFoundByDeviceAndInode) {
  static KnownFiles files;
  EXPECT_EQ(files.find(1, 2), std::nullopt);
  files.add(1, 2, 7);
  files.add(1, 3, 8);
  EXPECT_EQ(files.find(1, 2), 7U);
  EXPECT_EQ(files.find(1, 3), 8U);
  EXPECT_EQ(files.find(2, 2), std::nullopt);
}

TEST(KnownFiles, GoOneByOne) {
  static KnownFiles files;
  files.add(1, 2, 7);
  files.add(2, 2, 8);
  files.remove(1, 2);
  EXPECT_EQ(files.find(1, 2), std::nullopt);
  EXPECT_EQ(files.find(2, 2), 8U);
  files.add(1, 9, 9);
  EXPECT_EQ(files.find(1, 9), 9U);
  files.remove_if([](auto, auto inode) { return inode == 9; });
  EXPECT_EQ(files.find(1, 9), std::nullopt);
  EXPECT_EQ(files.find(2, 2), 8U);
}

TEST(KnownFiles, AReaderNeverFindsTheNumberOfAnotherFile) {
  static KnownFiles files;
  std::atomic<bool> ends = false;
  std::thread writer([&] {
    for (ino_t i = 1; !ends; i = i % 1000 + 1) {
      files.add(i, i, static_cast<unsigned>(i));
      files.remove(i, i);
    }
  });
  for (int i = 0; i != 100'000; ++i) {
    const auto inode = static_cast<ino_t>(i % 1000 + 1);
    const auto found = files.find(inode, inode);
    if (found) {
      EXPECT_EQ(*found, inode);
    }
  }
  ends = true;
  writer.join();
}

}  // namespace
}  // namespace softhca::os
