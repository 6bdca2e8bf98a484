// The page with the clock's parameters, as libmlx5 reads it (mlx5dv_get_clock_info,
// mlx5dv_ts_to_ns).
#include "uverbs/clock_page.h"

#include <gtest/gtest.h>
#include <rdma/mlx5-abi.h>

#include <chrono>

#include "uverbs/program.h"

namespace softhca::uverbs {
namespace {

/// set_command(MLX5_IB_MMAP_CLOCK_INFO) of the library, in pages.
constexpr std::uint64_t kOffset = 0x700 * 4096;

mlx5_ib_clock_info page_of(Program& program) {
  mlx5_ib_clock_info info{};
  const auto& bytes = program.stored.at(kOffset);
  EXPECT_EQ(bytes.size(), sizeof info);
  std::memcpy(&info, bytes.data(), std::min(bytes.size(), sizeof info));
  return info;
}

std::uint64_t timer_of(Program& program) {
  std::array<std::byte, 8> bytes{};
  program.device().hca().host().read_bar(0, 0x1000, bytes);
  return util::load_be64(bytes.data());
}

/// mlx5dv_ts_to_ns().
std::uint64_t nanoseconds_of(const mlx5_ib_clock_info& info, std::uint64_t stamp) {
  const auto delta = (stamp - info.cycles) & info.mask;
  if (delta > info.mask / 2) {
    return info.nsec -
           ((((info.cycles - stamp) & info.mask) * info.mult - info.frac) >> info.shift);
  }
  return info.nsec + ((delta * info.mult + info.frac) >> info.shift);
}

TEST(ClockPage, IsReportedWithTheContext) {
  Program program;
  const auto file = program.open_file();
  mlx5_ib_alloc_ucontext_req_v2 in{};
  in.max_cqe_version = 1;
  in.lib_caps = MLX5_LIB_CAP_DYN_UAR;
  mlx5_ib_alloc_ucontext_resp out{};
  ASSERT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT)
                .in(UVERBS_ATTR_UHW_IN, in)
                .out(UVERBS_ATTR_UHW_OUT, out)
                .on(*file),
            0);
  EXPECT_EQ(out.clock_info_versions, 1u << MLX5_IB_CLOCK_INFO_V1);
  EXPECT_EQ(page_of(program).sign % 2, 0u) << "odd: it is just changing";
}

TEST(ClockPage, MakesNanosecondsOfTimeStamps) {
  using namespace std::chrono;
  Program program;
  program.context().publish_clock();
  const auto info = page_of(program);
  for (int i = 0; i != 3; ++i) {
    program.now += milliseconds(10);
    program.turn();
    const auto now = program.now.time_since_epoch();
    const auto told = nanoseconds(nanoseconds_of(info, timer_of(program)));
    EXPECT_LT(abs(now - told), nanoseconds(7) * 2) << "two ticks";
  }
  // Half an hour of ticks of 6.4 ns, before and after the reference.
  constexpr std::uint64_t kTicks = 1800ull * 156'250'000, kNs = 1800'000'000'000;
  EXPECT_NEAR(static_cast<double>(nanoseconds_of(info, info.cycles + kTicks) - info.nsec), kNs,
              1e6);
  EXPECT_NEAR(static_cast<double>(info.nsec - nanoseconds_of(info, info.cycles - kTicks)), kNs,
              1e6);
}

TEST(ClockPage, AnotherTimeIsAnotherSign) {
  Program program;
  program.context().publish_clock();
  const auto before = page_of(program);
  program.now += std::chrono::seconds(5);
  program.context().publish_clock();
  const auto after = page_of(program);
  EXPECT_NE(after.sign, before.sign);
  EXPECT_EQ(after.nsec - before.nsec, 5'000'000'000u);
}

}  // namespace
}  // namespace softhca::uverbs
