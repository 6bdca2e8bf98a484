// The README's claims about the device, and the gaps that the driver reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "driver/jingzhao/verbs_device.h"
#include "jingzhao/world.h"

namespace softhca::jingzhao::test {
namespace {

using driver::verbs::Feature;
using ::testing::HasSubstr;
using ::testing::Not;

/// The cells of the row `name` in the README's table of what works.
std::vector<std::string> row_of(const std::string& name) {
  std::ifstream readme(SOFTHCA_SOURCE_DIR "/README.md");
  for (std::string line; std::getline(readme, line);) {
    if (!line.starts_with("| " + name)) continue;
    std::vector<std::string> cells;
    for (std::size_t at = 1; at < line.size();) {
      const auto end = line.find('|', at);
      cells.push_back(line.substr(at, end - at));
      at = end + 1;
    }
    return cells;
  }
  return {};
}

TEST(JingzhaoReadme, ClaimsNothingThatTheDriverLacks) {
  const std::map<Feature, std::string> words{
      {Feature::kXrc, "XRC"},          {Feature::kSharedReceiveQueues, "SRQ"},
      {Feature::kReceiveLimit, "SRQ"}, {Feature::kMulticast, "multicast"},
      {Feature::kRoceV1, "RoCE v1"},   {Feature::kSolicited, "solicited"}};
  World world;
  const auto device = must(jz::open_verbs(*world.a().host, world.a().address.mac));
  const auto row = row_of("JingZhao HCA");
  ASSERT_EQ(row.size(), 3u);
  for (const auto& limitation : device.attributes().limitations) {
    ASSERT_TRUE(words.contains(limitation.feature)) << limitation.words;
    const auto& word = words.at(limitation.feature);
    EXPECT_THAT(row[1], Not(HasSubstr(word)));
    EXPECT_THAT(row[2], HasSubstr(word));
  }
}

}  // namespace
}  // namespace softhca::jingzhao::test
