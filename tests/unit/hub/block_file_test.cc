// Which process has each block of QP numbers, as processes read it.
#include "hub/block_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace softhca::hub {
namespace {

TEST(BlockFileTest, ProcessesReadWhatTheHubWrites) {
  std::string made = testing::TempDir() + "softhca-XXXXXX";
  const std::string directory = ::mkdtemp(made.data());
  EXPECT_EQ(process_of_block(directory, 7), std::nullopt) << "no file";
  EXPECT_EQ(station_of(directory), 0u);
  auto file = BlockFile::create(directory).value();
  EXPECT_EQ(process_of_block(directory, 7), 0u);
  EXPECT_EQ(process_of_block(directory, 255), 0u);
  file.set(0, 0xfffe);
  file.set(7, 0x1234);
  file.set(255, 3);
  EXPECT_EQ(station_of(directory), 0xfffeu);
  EXPECT_EQ(process_of_block(directory, 7), 0x1234u);
  EXPECT_EQ(process_of_block(directory, 255), 3u);
  file.set(7, 0);
  EXPECT_EQ(process_of_block(directory, 7), 0u);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace softhca::hub
