// The CSR tables: as printed, and filled from the commands that the card has answered.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "connectx/fake_host.h"
#include "connectx/function/capabilities.h"
#include "rsnic/csr_inspect.h"
#include "rsnic/host_options.h"
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

/// The report's line for the row at `place`.
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

/// A row of csr_document.inc.
struct DocumentRow {
  std::string_view section;
  unsigned offset, hi, lo;
  std::string_view name;
  std::optional<std::uint32_t> printed;
  CsrSource source;
  unsigned at, source_hi, source_lo;
};

std::span<const DocumentRow> document_rows() {
  using enum CsrSource;
  constexpr std::optional<std::uint32_t> kNone;
  static constexpr DocumentRow kRows[] = {
#include "rsnic/csr_document.inc"
  };
  return kRows;
}

std::uint64_t ones(unsigned width) {
  return width == 64 ? UINT64_MAX : (std::uint64_t{1} << width) - 1;
}

/// The source that a row names: a message, or the general capabilities.
class Message {
 public:
  explicit Message(std::byte background) { bytes_.fill(background); }
  void put(unsigned at, unsigned hi, unsigned lo, std::uint64_t value) {
    auto* const to = bytes_.data() + at;
    const auto field = ones(hi - lo + 1) << lo;
    if (hi > 31) {
      util::store_be64(to, (util::load_be64(to) & ~field) | (value << lo & field));
    } else {
      const auto word = (util::load_be32(to) & ~field) | (value << lo & field);
      util::store_be32(to, static_cast<std::uint32_t>(word));
    }
  }
  std::span<std::byte> bytes() { return bytes_; }

 private:
  std::array<std::byte, s::hca_cap::kSize> bytes_;
};

/// The value that a row shows if `message` is all that the card has exchanged.
std::optional<std::string> shown(const CsrRow& row, CsrSource source, Message& message) {
  CsrFile file;
  Message other(std::byte{0x5A});
  const auto said = message.bytes().first(0x140), unsaid = other.bytes().first(0x140);
  const bool of_input = source == CsrSource::kInput;
  if (source == CsrSource::kCapability) {
    return file.value(row, util::View<s::hca_cap>(message.bytes()));
  }
  EXPECT_EQ(file.value(row, util::View<s::hca_cap>(other.bytes())), std::nullopt) << row.place();
  file.note(row.command, of_input ? said : unsaid, of_input ? unsaid : said);
  return file.value(row, util::View<s::hca_cap>(other.bytes()));
}

// 4.1.1 to 4.1.20: position, name and default value are as printed. The shown value is that of the
// manual's field.
TEST(Csr, EveryRowIsAsPrintedAndShowsItsFieldOfTheManual) {
  const auto rows = document_rows();
  std::size_t next = 0;
  for (const auto& row : csr_table()) {
    if (row.size != 0) continue;
    ASSERT_LT(next, rows.size()) << row.place();
    const auto& want = rows[next++];
    EXPECT_EQ(row.section, want.section) << row.place();
    EXPECT_EQ(row.offset, want.offset) << row.place();
    EXPECT_EQ(row.hi, want.hi) << row.place();
    EXPECT_EQ(row.lo, want.lo) << row.place();
    EXPECT_EQ(row.name, want.name) << row.place();
    EXPECT_EQ(row.printed, want.printed) << row.place();
    for (const auto background : {std::byte{0}, std::byte{0xFF}}) {
      Message message(background);
      const auto value = (next * 0x9E3779B97F4A7C15u) | 1;
      message.put(want.at, want.source_hi, want.source_lo, value);
      // Compares the bits that both fields have.
      const auto width = std::min(want.hi - want.lo, want.source_hi - want.source_lo) + 1;
      EXPECT_EQ(shown(row, want.source, message), fmt::format("{:X}h", value & ones(width)))
          << row.place();
    }
  }
  EXPECT_EQ(next, rows.size());
}

TEST(Csr, EveryRowOfBytesShowsThoseOfItsMessage) {
  struct Text {
    unsigned offset, size;
    std::string_view name;
    CsrSource source;
    unsigned at;
  };
  using enum CsrSource;
  constexpr Text kTexts[] = {
      {0x30, 16, "vsd_contd_psid", kOutput, 0x100}, {0x40, 208, "vsd", kOutput, 0x30},
      {0x118, 8, "pas[0]", kOutput, 0x10},          {0x120, 8, "pas[1]", kOutput, 0x18},
      {0x12C, 20, "supported_issi", kOutput, 0x5C}, {0x144, 64, "driver version", kInput, 0x10},
      {0x22C, 8, "pas[]", kInput, 0x110},           {0x32C, 8, "pas[]", kInput, 0x110},
  };
  const auto* want = std::begin(kTexts);
  for (const auto& row : csr_table()) {
    if (row.size == 0) continue;
    ASSERT_NE(want, std::end(kTexts)) << row.place();
    EXPECT_EQ(row.offset, want->offset);
    EXPECT_EQ(row.size, want->size) << row.place();
    EXPECT_EQ(row.name, want->name);
    Message message(std::byte{0});
    std::string expected;
    for (unsigned i = 0; i != want->size; ++i) {
      message.bytes()[want->at + i] = static_cast<std::byte>(0x80 + i % 100);
      expected += fmt::format("{:02X}", 0x80 + i % 100);
    }
    EXPECT_EQ(shown(row, want->source, message), expected + "h") << row.place();
    ++want;
  }
  EXPECT_EQ(want, std::end(kTexts));
}

// 4.1.4: op_mod 1 is "SW gives pages to HCA", so the page addresses are in the input.
TEST(Csr, ShowsThePagesThatSoftwareGives) {
  const auto row = std::ranges::find(csr_table(), "pas[0]", &CsrRow::name);
  ASSERT_NE(row, csr_table().end());
  Message in(std::byte{0}), out(std::byte{0});
  in.put(0x10, 63, 0, 0x1234567890);
  out.put(0x10, 63, 0, 0xABCDEF0000);
  const auto shown = [&](std::uint32_t op_mod) {
    CsrFile file;
    in.put(4, 15, 0, op_mod);
    file.note(row->command, in.bytes().first(0x140), out.bytes().first(0x140));
    return file.value(*row, util::View<s::hca_cap>(out.bytes()));
  };
  EXPECT_EQ(shown(1), "0000001234567890h");
  EXPECT_EQ(shown(2), "000000ABCDEFh");
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
  std::ranges::copy(host.device.driver().capabilities().maximum(s::hca_cap_type::GENERAL),
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

// Chapter 9. With the document's object counts, its factors give its printed results, except for
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
