// softhca perf: measurements between two devices of a lab::Lab, and the plot of the results.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "perf/measure.h"
#include "perf/report.h"
#include "perf/watchdog.h"

namespace softhca::perf {
namespace {

using driver::verbs::QpType;
using testing::HasSubstr;

const Continue kOn = [](double) { return true; };

Options options_of(Verb verb, const std::string& a, const std::string& b) {
  Options options;
  options.verb = verb;
  options.ends.devices = {a, b};
  options.messages.iterations = 50;
  return options;
}
std::unique_ptr<Testbed> testbed_of(Options options, bool of_bandwidth, std::uint64_t largest) {
  options.bandwidth = of_bandwidth;
  options.latency = !of_bandwidth;
  auto made = Testbed::create(options, largest, nullptr);
  EXPECT_TRUE(made) << made.error().message;
  return made ? std::move(*made) : nullptr;
}
std::string refusal(const Options& options, std::uint64_t largest) {
  const auto made = Testbed::create(options, largest, nullptr);
  return made ? "" : made.error().message;
}

TEST(PerfTestbed, AnOperationThatOneOfTheDevicesLacksIsRefused) {
  for (const auto& [a, b] : {std::pair("connectx", "rsnic"), std::pair("rsnic", "jingzhao")}) {
    auto options = options_of(Verb::kAtomic, a, b);
    EXPECT_THAT(refusal(options, 8), HasSubstr("RSNIC-IP has no atomics"));
    options = options_of(Verb::kWrite, a, b);
    options.queues.service = QpType::kUc;
    EXPECT_THAT(refusal(options, 8), HasSubstr("RSNIC-IP has no UC"));
  }
}

TEST(PerfTestbed, AnOperationThatTheServiceLacksIsRefused) {
  auto options = options_of(Verb::kSend, "jingzhao", "jingzhao");
  options.queues.service = QpType::kUd;
  options.queues.mtu = 1024;
  EXPECT_EQ(refusal(options, 1024), "");
  EXPECT_THAT(refusal(options, 1025), HasSubstr("one packet: 1024 bytes"));
  options.verb = Verb::kWrite;
  EXPECT_THAT(refusal(options, 8), HasSubstr("UD has SENDs only"));
  options.queues.service = QpType::kUc;
  options.verb = Verb::kRead;
  EXPECT_THAT(refusal(options, 8), HasSubstr("UC has no READs"));
}

TEST(PerfLatency, HasAsManySamplesAsWereAskedFor) {
  for (const auto verb : {Verb::kSend, Verb::kWrite, Verb::kRead, Verb::kAtomic}) {
    const auto testbed = testbed_of(options_of(verb, "jingzhao", "connectx"), false, 8);
    const auto result = measure_latency(*testbed, 8, kOn);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->iterations, 50u);
    EXPECT_GT(result->minimum, 0);
  }
}

TEST(PerfLatency, BytesOfAWriteAreInThePeersMemory) {
  const auto testbed = testbed_of(options_of(Verb::kWrite, "jingzhao", "rsnic"), false, 500);
  std::ranges::fill(testbed->a().memory.first(500), std::byte{0x5A});
  ASSERT_TRUE(measure_latency(*testbed, 500, kOn));
  EXPECT_EQ(testbed->b().target()[498], std::byte{0x5A});
  EXPECT_EQ(testbed->b().target()[500], std::byte{0});
}

TEST(PerfBandwidth, CountsTheMessagesOfBothWays) {
  for (const bool both : {false, true}) {
    auto options = options_of(Verb::kSend, "jingzhao", "connectx");
    options.bidirectional = both;
    options.queues.cq_mod = 7;
    const auto testbed = testbed_of(options, true, 64);
    const auto result = measure_bandwidth(*testbed, 64, kOn);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->iterations, 50u);
    EXPECT_NEAR(result->rate * result->seconds, both ? 100 : 50, 0.01);
    EXPECT_NEAR(result->average, result->rate * 64, 1);
    EXPECT_GE(result->peak, result->average);
  }
}

TEST(PerfBandwidth, EndsWhenItIsAskedTo) {
  auto options = options_of(Verb::kWrite, "jingzhao", "jingzhao");
  options.messages.iterations = std::uint64_t{1} << 40;
  const auto testbed = testbed_of(options, true, 8);
  unsigned asked = 0;
  ASSERT_TRUE(measure_bandwidth(*testbed, 8, [&](double) { return ++asked != 3; }));
  EXPECT_EQ(asked, 3u);
}

TEST(PerfWatchdog, PatienceEndsWhenNothingComes) {
  const auto testbed = testbed_of(options_of(Verb::kWrite, "jingzhao", "jingzhao"), true, 8);
  const util::Time begin{std::chrono::seconds(100)};
  Watchdog watchdog(*testbed);
  EXPECT_TRUE(watchdog.look(begin, 1));
  EXPECT_TRUE(watchdog.look(begin + Watchdog::kPatience, 1));
  EXPECT_FALSE(watchdog.look(begin + 2 * Watchdog::kPatience, 1));
  EXPECT_TRUE(watchdog.look(begin + 2 * Watchdog::kPatience, 2)) << "something has come";
}

/// The coordinates of a line's points.
std::vector<std::pair<double, double>> points_of(const std::string& svg, const std::string& color) {
  std::vector<std::pair<double, double>> points;
  const std::regex circle("<circle cx=\"([0-9.]+)\" cy=\"([0-9.]+)\" r=\"2.5\" fill=\"" + color);
  for (std::sregex_iterator at(svg.begin(), svg.end(), circle), end; at != end; ++at) {
    points.emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
  }
  return points;
}

TEST(PerfPlot, SizesAndValuesStandOnLogarithmicScales) {
  Report report;
  report.options.ends.devices = {"jingzhao", "rsnic"};
  for (const auto& [size, us] : {std::pair(2u, 1.0), {4u, 10.0}, {8u, 100.0}}) {
    report.latencies.push_back({.size = size, .iterations = 9, .typical = us, .p99 = 2 * us});
  }
  const auto svg = to_svg(report);
  EXPECT_THAT(svg, HasSubstr("jingzhao to rsnic"));
  const auto points = points_of(svg, "#1f6fb2");
  ASSERT_EQ(points.size(), 3u);
  EXPECT_NEAR(points[1].first - points[0].first, points[2].first - points[1].first, 0.2);
  EXPECT_GT(points[1].first, points[0].first);
  EXPECT_NEAR(points[1].second - points[0].second, points[2].second - points[1].second, 0.2);
  EXPECT_LT(points[1].second, points[0].second) << "more is higher";
}

}  // namespace
}  // namespace softhca::perf
