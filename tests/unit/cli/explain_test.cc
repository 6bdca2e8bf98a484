// `softhca explain`.
#include "cli/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "connectx/command/command_table.h"
#include "connectx/command/refusals.h"

namespace softhca::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

int run(std::vector<std::string> words) { return run_explain({.words = std::move(words)}); }

// Linux prints this number, so it must not change between versions.
TEST(Explain, ASyndromeFromAGuestsLog) {
  const auto text = explain_command(0x66ce2899);
  ASSERT_TRUE(text);
  EXPECT_EQ(*text,
            "0x66ce2899: a ConnectX command is refused\n"
            "  reason    a direct TIR that hashes\n"
            "  section   PRM Table 45\n"
            "  status    BAD_PARAM (0x03)\n"
            "  commands  CREATE_TIR MODIFY_TIR\n"
            "  checked   src/connectx/ethernet/tir_commands.cc\n"
            "  docs      docs/connectx-commands.md\n");
}

TEST(Explain, ASyndromeFromTheLogOfAnOlderVersion) {
  const auto text = explain_command(0xcc576b3d);
  ASSERT_TRUE(text);
  EXPECT_EQ(*text,
            "0xcc576b3d: a ConnectX command was refused, by an older version\n"
            "  reason    XRC QPs are not implemented\n"
            "  section   mlx5 driver interface 7.2\n"
            "  status    BAD_PARAM (0x03)\n"
            "  commands  CREATE_QP\n"
            "  now       XRC QPs are implemented\n"
            "  docs      docs/connectx-commands.md\n");
}

TEST(Explain, EveryRefusalOfTheSources) {
  EXPECT_GT(connectx::refusals().size(), 250u);
  for (const auto& refusal : connectx::refusals()) {
    const auto text = explain_command(refusal.syndrome);
    ASSERT_TRUE(text);
    EXPECT_THAT(*text,
                AllOf(HasSubstr(std::string(refusal.text)), HasSubstr(std::string(refusal.section)),
                      HasSubstr(std::string(to_string(refusal.status)))));
  }
}

TEST(Explain, ACommandThatTheDeviceDoesNotHave) {
  const auto* spec = connectx::find_command(0x829);
  const auto text = explain_command(spec->refusal().syndrome);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, AllOf(HasSubstr("BAD_OP"), HasSubstr("SET_L2_TABLE_ENTRY\n"),
                           HasSubstr("PRM 12.15.1")));
}

TEST(Explain, NoCommandThatIsMissingHasTheNumberOfAnotherRefusal) {
  for (const auto& spec : connectx::command_table()) {
    if (spec.handler != nullptr) continue;
    const auto meaning = connectx::explain_syndrome(spec.refusal().syndrome);
    ASSERT_TRUE(meaning);
    EXPECT_EQ(meaning->text, spec.words);
  }
}

// One number may have three meanings. The answer labels each.
TEST(Explain, AByteOfAnErrorCqe) {
  const auto flushed = explain_cqe(5);
  ASSERT_TRUE(flushed);
  EXPECT_THAT(*flushed, HasSubstr("0x05 as syndrome: WORK_REQUEST_FLUSHED_ERROR\n"));
  EXPECT_THAT(*flushed, HasSubstr("0x05 as softhca's reason"));
  const auto invalidated = explain_cqe(0x81);
  ASSERT_TRUE(invalidated);
  EXPECT_EQ(*invalidated,
            "0x81 as vendor_err of a ConnectX, with syndrome TRANSPORT_RETRY_COUNTER_EXCEEDED "
            "(0x15)\n"
            "  meaning   the peer did not answer, retry_cnt times\n"
            "  source    NVIDIA/nccl#426, openucx/ucx#6000\n"
            "0x81 as softhca's reason (129): the transport refused, or was refused\n"
            "  reason    the memory key is invalidated\n"
            "  section   IBTA 10.6.3\n");
  const auto other_pd = explain_cqe(130);
  ASSERT_TRUE(other_pd);
  EXPECT_THAT(*other_pd, AllOf(HasSubstr("0x82 as softhca's reason (130)"),
                               HasSubstr("the memory key belongs to another protection domain\n"),
                               HasSubstr("IBTA 10.2.3\n"), Not(HasSubstr("vendor_err"))));
}

TEST(Explain, EachNumberOfTheHardware) {
  for (const auto number : {0x32, 0x51, 0x52, 0x81, 0x88, 0x89, 0x8A, 0x93, 0x99, 0xF9}) {
    const auto text = explain_cqe(static_cast<std::uint32_t>(number));
    ASSERT_TRUE(text) << number;
    EXPECT_THAT(*text, HasSubstr("as vendor_err of a ConnectX")) << number;
  }
}

TEST(Explain, TheDwordOfAnErrorCqeThatLibmlx5Dumps) {
  const auto text = explain_cqe(0xA1008813);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, AllOf(HasSubstr("0x13 as syndrome: REMOTE_ACCESS_ERROR\n"),
                           HasSubstr("0x88 as vendor_err of a ConnectX"),
                           HasSubstr("0xa1 as softhca's reason (161)")));
  const auto hardware = explain_cqe(0x8813);
  ASSERT_TRUE(hardware);
  EXPECT_THAT(*hardware, Not(HasSubstr("softhca's reason")));
}

TEST(Explain, AnSdxiErrorClassWithWhatItIsACaseOf) {
  const auto text = explain_sdxi(0x2360);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, AllOf(HasSubstr("ILLEGAL_PASID\n"),
                           HasSubstr("LIMIT_EXCEEDED (0x2300), LOGICAL (0x2000)\n")));
}

TEST(Explain, NumbersThatMeanNothing) {
  EXPECT_FALSE(explain_command(0));
  EXPECT_FALSE(explain_cqe(0));
  EXPECT_FALSE(explain_cqe(0x103)) << "no syndrome is 3";
  EXPECT_FALSE(explain_sdxi(0x12360));
  EXPECT_FALSE(explain_sdxi(0x2361));
}

TEST(Explain, ExitStatus) {
  const auto known = fmt::format("{:#x}", connectx::refusals().front().syndrome);
  EXPECT_EQ(run({known}), 0);
  EXPECT_EQ(run({"command", known}), 0);
  EXPECT_EQ(run({"cqe", "5"}), 0);
  EXPECT_EQ(run({"sdxi", "0x3400"}), 0);
  EXPECT_EQ(run({"1"}), 1) << "no syndrome";
  EXPECT_EQ(run({"0x"}), 1) << "no number";
  EXPECT_EQ(run({"0x12zz"}), 1) << "no number";
  EXPECT_EQ(run({"0x1cc576b3d"}), 1) << "33 bits";
  EXPECT_EQ(run({"cqe", "5x"}), 1) << "no number";
  EXPECT_EQ(run({"nonsense", "5"}), 1) << "no kind";
}

// Linux and libmlx5 print dwords as 8 digits, without 0x.
TEST(Explain, EightDigitsAreHexadecimalWithout0x) {
  EXPECT_EQ(run({"66ce2899"}), 0);
  EXPECT_EQ(run({"cqe", "a1008813"}), 0);
  EXPECT_EQ(run({"cqe", "00008813"}), 0);
  EXPECT_EQ(run({"cqe", "a100881"}), 1) << "7 digits are decimal";
}

TEST(Explain, WithoutANumberItAsksForOne) {
  const auto says = [](std::vector<std::string> words) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(run(std::move(words)), 1);
    return testing::internal::GetCapturedStderr();
  };
  const std::string which =
      "softhca: explain: which number? softhca explain [command|cqe|sdxi] NUMBER\n";
  EXPECT_EQ(says({}), which);
  EXPECT_EQ(says({"cqe"}), which);
  EXPECT_EQ(says({"cqes", "5"}), "softhca: 'cqes' is not command, cqe or sdxi\n");
}

}  // namespace
}  // namespace softhca::cli
