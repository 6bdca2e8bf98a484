// The CSR tables: as printed, and with the values of the commands that the card has answered.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "connectx/fake_host.h"
#include "connectx/function/capabilities.h"
#include "rsnic/csr_inspect.h"
#include "rsnic/options.h"
#include "rsnic/sizing.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/hca.h"
#include "util/inspected.h"

namespace softhca::rsnic {
namespace {

namespace s = spec::connectx;
using connectx::FakeHost;
using Opcode = FakeHost::Opcode;
using ::testing::HasSubstr;
using ::testing::Not;

connectx::HostOptions host_options() {
  const auto options = device_options();
  return {.model = options.model, .limits = options.limits};
}

/// The line of a row in the report.
std::string line_of(const std::string& report, const std::string& place) {
  const auto at = report.find("  " + place + " ");
  return at == std::string::npos ? std::string() : report.substr(at, report.find('\n', at) - at);
}

// 4.1: "00h" to "1E4h", 32 bits each.
TEST(Csr, RowsOfOneOffsetDoNotOverlap) {
  std::set<std::pair<unsigned, unsigned>> bits;
  for (const auto& row : csr_table()) {
    for (unsigned bit = row.lo; row.size == 0 && bit <= row.hi; ++bit) {
      // Bit 32 and above: the dword at the offset is the high one.
      const auto dword = row.hi > 31 ? row.offset + (bit > 31 ? 0 : 4) : row.offset;
      EXPECT_TRUE(bits.emplace(dword, bit % 32).second) << row.place();
    }
  }
}

TEST(Csr, EveryRowHasTheBitsOfItsCommand) {
  for (const auto& row : csr_table()) {
    CsrFile file;
    std::array<std::byte, 4096> general{};
    std::array<std::byte, 0x140> ones{}, zeros{};
    std::ranges::fill(ones, std::byte{0xFF});
    const util::View<s::hca_cap> view(general);
    if (row.source == CsrSource::kCapability) {
      EXPECT_EQ(file.value(row, view), "0h") << row.place();
      std::ranges::fill(general, std::byte{0xFF});
    } else {
      EXPECT_EQ(file.value(row, view), std::nullopt) << row.place();
      const bool input = row.source == CsrSource::kInput;
      file.note(row.command, input ? zeros : ones, input ? ones : zeros);
      if (row.size == 0) {
        EXPECT_EQ(file.value(row, view), input ? "0h" : file.value(row, view));
      }
      file.note(row.command, input ? ones : zeros, input ? zeros : ones);
    }
    if (row.size != 0) {
      std::string all;
      for (unsigned i = 0; i != row.size; ++i) all += "FF";
      EXPECT_EQ(file.value(row, view), all + "h") << row.place();
      continue;
    }
    // As many ones as both places have bits.
    const auto width = std::min(row.hi - row.lo, row.source_hi - row.source_lo) + 1;
    const auto value = width == 64 ? UINT64_MAX : (std::uint64_t{1} << width) - 1;
    EXPECT_EQ(file.value(row, view), fmt::format("{:X}h", value)) << row.place();
  }
}

TEST(Csr, HoldsWhatTheCardHasAnswered) {
  FakeHost host(host_options());
  host.initialize();
  const auto report = [&] { return csr_report(softhca::test::inspected(host.device)); };
  EXPECT_THAT(line_of(report(), "00h 31:27 log_max_cq_sz"),
              HasSubstr("printed 16h        live 16h"));
  EXPECT_THAT(line_of(report(), "00h 17:12 log_max_mkey"), HasSubstr("printed 98h        live 9h"));
  EXPECT_THAT(line_of(report(), "1C0h 31:8 cqn"), HasSubstr("live -"));
  const auto eqn = host.create_eq(4, 0, 0);
  host.create_cq(4, eqn);
  const auto cq = host.create_cq(5, eqn);
  EXPECT_THAT(line_of(report(), "1C0h 31:8 cqn"), HasSubstr(fmt::format("live {:X}h", cq.cqn)));
  EXPECT_THAT(line_of(report(), "1C8h 16:12 log_cq_size"), HasSubstr("live -"));
  const auto reply = host.call<s::query_cq_out, s::query_cq_in>(
      Opcode::QUERY_CQ, [&](auto in) { in.set(s::query_cq_in::cqn, cq.cqn); });
  ASSERT_TRUE(reply.ok());
  EXPECT_THAT(line_of(report(), "1C8h 16:12 log_cq_size"), HasSubstr("live 5h"));
  EXPECT_THAT(line_of(report(), "1CCh 7:0 c_eqn"), HasSubstr(fmt::format("live {:X}h", eqn)));
  EXPECT_THAT(line_of(report(), "1E0h 63:0 dbr_addr"),
              HasSubstr(fmt::format("live {:X}h", cq.record)));
}

// 4.1.5: SET_HCA_CAP modifies table 4-1.
TEST(Csr, HasTheCapabilitiesThatTheDriverChose) {
  FakeHost host(host_options());
  host.enable();
  using In = s::set_hca_cap_in;
  connectx::Input<In> in(Opcode::SET_HCA_CAP);
  std::ranges::copy(host.device.capabilities().maximum(s::hca_cap_type::GENERAL),
                    in->sub(In::capability).begin());
  util::MutableView<s::hca_cap>(in->sub(In::capability)).set(s::hca_cap::cmdif_checksum, 0);
  ASSERT_TRUE(host.execute<s::set_hca_cap_out>(in).ok());
  const auto report = csr_report(softhca::test::inspected(host.device));
  EXPECT_THAT(line_of(report, "08h 18:17 cmdif_checksum"), HasSubstr("printed 1h         live 0h"));
}

// 4.1.8: "OS,driver,version".
TEST(Csr, ShowsTheDriverVersionAsText) {
  FakeHost host(host_options());
  host.initialize();
  using In = s::set_driver_version_in;
  constexpr std::string_view kVersion = "Linux,mlx5_core,6.012.000000";
  const auto reply =
      host.call<s::set_driver_version_out, In>(Opcode::SET_DRIVER_VERSION, [&](auto in) {
        std::ranges::copy(std::as_bytes(std::span(kVersion)), in.sub(In::driver_version).begin());
      });
  ASSERT_TRUE(reply.ok());
  const auto report = csr_report(softhca::test::inspected(host.device));
  EXPECT_THAT(line_of(report, "144h 64 bytes driver version"), HasSubstr(std::string(kVersion)));
}

TEST(Csr, ForgetsCommandsWithTheReset) {
  FakeHost host(host_options());
  host.initialize();
  host.create_eq(4, 0, 0);
  const auto eq_number = [&] {
    return line_of(csr_report(softhca::test::inspected(host.device)), "1ACh 31:24 eq_number");
  };
  EXPECT_THAT(eq_number(), Not(HasSubstr("live -")));
  host.device.reset();
  EXPECT_THAT(eq_number(), HasSubstr("live -"));
}

TEST(Csr, IsNoPartOfAConnectX) {
  FakeHost host;
  host.initialize();
  EXPECT_EQ(csr_report(softhca::test::inspected(host.device)), "");
}

// Chapter 9. With the document's own numbers of objects its factors make what it prints, but for
// 132 KB, 50 KB and 29.5 MB.
TEST(Sizing, HasTheDocumentsResultsForTheDocumentsNumbers) {
  auto limits = device_options().limits;
  limits.log_max_qp = 8;
  constexpr std::array kBytes{"16 MB", "32 KB", "4 MB", "128 KB", "64 KB",
                              "64 KB", "4 KB",  "8 MB", "1 MB",   "29.29 MB"};
  const auto rows = sizing(limits);
  ASSERT_EQ(rows.size(), kBytes.size());
  for (std::size_t i = 0; i != rows.size(); ++i) {
    EXPECT_EQ(show_bytes(rows[i].model), kBytes[i]) << rows[i].name;
    EXPECT_EQ(show_bytes(rows[i].correct), kBytes[i]) << rows[i].name;
  }
}

TEST(Sizing, IsThatOfTheCardsLimits) {
  const auto rows = sizing(device_options().limits);
  ASSERT_EQ(rows.size(), 10u);
  EXPECT_EQ(show_bytes(rows[0].model), "8 MB") << "places for 127 QPs, not for 256";
  EXPECT_EQ(show_bytes(rows[0].correct), "16 MB");
  EXPECT_EQ(show_bytes(rows[3].correct), "128 KB");
  EXPECT_EQ(show_bytes(rows[9].correct), "29.29 MB");
  EXPECT_EQ(rows[3].printed, "132KB");
}

}  // namespace
}  // namespace softhca::rsnic
