// softhca perf: the statistics of the samples, and the names of functions. tests/cli/perf.py checks
// that it measures at all.
#include <gtest/gtest.h>

#include <numeric>

#include "perf/function.h"
#include "perf/measure.h"
#include "perf/report.h"

namespace softhca::perf {
namespace {

TEST(PerfStatistics, PercentilesAreSamplesAndNotInBetween) {
  std::vector<double> samples(1000);
  std::iota(samples.rbegin(), samples.rend(), 1.0);  // 1000 down to 1
  const auto result = summarize(64, samples);
  EXPECT_EQ(result.size, 64u);
  EXPECT_EQ(result.iterations, 1000u);
  EXPECT_EQ(result.minimum, 1);
  EXPECT_EQ(result.maximum, 1000);
  EXPECT_EQ(result.typical, 500);
  EXPECT_EQ(result.p90, 900);
  EXPECT_EQ(result.p99, 990);
  EXPECT_EQ(result.p999, 999);
  EXPECT_EQ(result.average, 500.5);
  EXPECT_NEAR(result.deviation, 288.675, 0.001);
}

TEST(PerfStatistics, ARankThatIsNoWholeNumberIsTheNextSample) {
  std::vector<double> samples{7, 6, 5, 4, 3, 2, 1};
  const auto result = summarize(2, samples);
  EXPECT_EQ(result.typical, 4);  // median is 3.5
  EXPECT_EQ(result.p90, 7);      // p90 is 6.3
}

TEST(PerfStatistics, OneSampleIsAllPercentiles) {
  std::vector<double> samples{3};
  const auto result = summarize(2, samples);
  EXPECT_EQ(result.p999, 3);
  EXPECT_EQ(result.typical, 3);
  EXPECT_EQ(result.deviation, 0);
}

TEST(PerfStatistics, NoSampleIsNoResult) {
  std::vector<double> samples;
  EXPECT_EQ(summarize(2, samples).iterations, 0u);
}

TEST(PerfSizes, AreThoseOfTheTest) {
  Options options;
  EXPECT_EQ(sizes_of(options, true), std::vector<std::uint64_t>{65536});
  EXPECT_EQ(sizes_of(options, false), std::vector<std::uint64_t>{2});
  options.messages.size = 100;
  EXPECT_EQ(sizes_of(options, false), std::vector<std::uint64_t>{100});
  options.messages.all_sizes = true;
  const auto all = sizes_of(options, true);
  EXPECT_EQ(all.front(), 2u);
  EXPECT_EQ(all.back(), std::uint64_t{8} << 20);
  options.queues.service = driver::verbs::QpType::kUd;
  EXPECT_EQ(sizes_of(options, true).back(), 4096u);
}

TEST(PerfFunction, ANameWithoutAColonIsASocketInTheCurrentDirectory) {
  const auto why = [](const std::string& where) {
    const auto function = open_function(where);
    return function ? "it is there" : function.error().message;
  };
  EXPECT_NE(why("no_socket").find("connect to 'no_socket'"), std::string::npos) << why("no_socket");
  EXPECT_NE(why("./no:socket").find("connect to './no:socket'"), std::string::npos);
  EXPECT_NE(why("ff:1f.7").find("no PCI function 0000:ff:1f.7"), std::string::npos)
      << why("ff:1f.7");
  EXPECT_NE(why("ffff:ff:1f.7").find("no PCI function ffff:ff:1f.7"), std::string::npos);
}

TEST(PerfReport, BandwidthIsInMebibytesOrGigabits) {
  Options options;
  const Bandwidth result{.size = 1024,
                         .iterations = 5,
                         .seconds = 1,
                         .average = 1 << 20,
                         .peak = 3 << 20,
                         .rate = 2e6};
  EXPECT_NE(row(options, result).find(" 1.00 "), std::string::npos) << row(options, result);
  EXPECT_NE(row(options, result).find("3.00"), std::string::npos);
  EXPECT_NE(row(options, result).find("2.000000"), std::string::npos);
  options.output.gbits = true;
  EXPECT_NE(row(options, result).find("0.01"), std::string::npos) << row(options, result);
}

}  // namespace
}  // namespace softhca::perf
