// The identity and limits of an RSNIC.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "connectx/fake_host.h"
#include "connectx/function/capabilities.h"
#include "connectx/function/limit_table.h"
#include "connectx/function/limits_host.h"
#include "rsnic/csr.h"
#include "rsnic/host_options.h"
#include "rsnic/options.h"
#include "spec/connectx/caps.h"
#include "spec/connectx/dct.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/init_segment.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/vport.h"

namespace softhca::rsnic {
namespace {

namespace s = spec::connectx;
using connectx::FakeHost;
using connectx::HostOptions;
using connectx::LimitsHost;

/// The maximum capabilities of a group, from QUERY_HCA_CAP.
connectx::Reply query(FakeHost& host, s::hca_cap_type group) {
  // op_mod: bits 15:1 are the group; bit 0 is 0 for the maximum.
  return host.call<s::query_hca_cap_out, s::query_hca_cap_in>(
      FakeHost::Opcode::QUERY_HCA_CAP, [](auto) {}, {},
      static_cast<std::uint16_t>(static_cast<unsigned>(group) * 2), 4096);
}

// Table 5-3-2.
TEST(Rsnic, IsAConnectX4LxToItsHost) {
  FakeHost host(host_options());
  const auto word = [&](std::uint32_t offset) {
    std::array<std::byte, 4> bytes;
    host.device.read_config(offset, bytes);
    return util::load_le32(bytes.data());
  };
  EXPECT_EQ(word(0x00), 0x1015'15B3u);
  EXPECT_EQ(word(0x08) >> 8, 0x020000u) << "class code";
  EXPECT_EQ(word(0x10) & 0xF, 0xCu) << "BAR0 has 64 bits and is prefetchable";
  EXPECT_EQ(word(0x2C), 0x0057'15B3u);
}

// 5.2 and table 5-3-2: the list begins at 60h, and its last capability points to 00h.
TEST(Rsnic, HasItsFirstCapabilityAt60h) {
  FakeHost host(host_options());
  const auto byte = [&](std::uint32_t offset) {
    std::array<std::byte, 1> bytes;
    host.device.read_config(offset, bytes);
    return std::to_integer<unsigned>(bytes[0]);
  };
  EXPECT_EQ(byte(0x34), 0x60u);
  std::vector<unsigned> ids;
  for (auto at = byte(0x34); at != 0 && ids.size() < 10; at = byte(at + 1)) ids.push_back(byte(at));
  // PCI Express, MSI-X, vendor specific, Power Management, VPD.
  EXPECT_EQ(ids, (std::vector<unsigned>{0x10, 0x11, 0x09, 0x01, 0x03}));
}

// RSNIC table 5-3-1, read as PRM Table 8: the document prints halves and bytes of words swapped.
TEST(Rsnic, HasTheFirmwareOfTheTrace) {
  FakeHost host(host_options());
  EXPECT_EQ(host.read32(0), 22u << 16 | 14u);
  EXPECT_EQ(host.read32(4), 5u << 16 | 4020u);
  EXPECT_EQ(host.read32(0x14) & 0xFF, 5u << 4 | 6u) << "32 command slots of 64 bytes";
}

// Table 2-1-1, rows 23 and 24; chapter 9.
TEST(Rsnic, HasAsManyObjectsAsTheDocumentSays) {
  struct Row {
    std::string_view capability, command;
    std::uint32_t most;
  };
  // EQ 0 is not available to drivers.
  for (const auto& [capability, command, most] :
       {Row{"log_max_qp", "CREATE_QP", 127}, Row{"log_max_cq", "CREATE_CQ", 256},
        Row{"log_max_mkey", "CREATE_MKEY", 512}, Row{"log_max_eq", "CREATE_EQ", 16}}) {
    LimitsHost host(host_options());
    EXPECT_EQ(host.fill(capability, command, 1000), most) << capability;
    EXPECT_NE(host.end(), LimitsHost::Code::OK);
  }
}

TEST(Rsnic, ReportsNothingThatTheDocumentHasNot) {
  FakeHost host(host_options());
  host.enable();
  const auto reply = query(host, s::hca_cap_type::GENERAL);
  ASSERT_TRUE(reply.ok());
  const auto image = reply.as<s::query_hca_cap_out>().get(s::query_hca_cap_out::capability);
  const util::View<s::hca_cap> caps(image);
  EXPECT_EQ(caps.get(s::hca_cap::umr_modify_entity_size_disabled), 1u);
  EXPECT_EQ(caps.get(s::hca_cap::atomic), 0u);
  EXPECT_EQ(caps.get(s::hca_cap::uc), 0u);
  EXPECT_EQ(caps.get(s::hca_cap::pg), 0u);
  EXPECT_EQ(caps.get(s::hca_cap::log_max_uctx), 0u);
  EXPECT_EQ(caps.get(s::hca_cap::log_max_qp), 7u);
  EXPECT_EQ(caps.get(s::hca_cap::rc), 1u);
  EXPECT_EQ(caps.get(s::hca_cap::dct), 0u);
  for (const auto group : device_options().model.without_groups) {
    const auto none = query(host, group);
    const auto all = none.as<s::query_hca_cap_out>().get(s::query_hca_cap_out::capability);
    EXPECT_TRUE(std::ranges::all_of(all, [](auto byte) { return byte == std::byte{}; }));
  }
}

// Services that are not advertised are refused.
TEST(Rsnic, RefusesServicesThatItDoesNotReport) {
  FakeHost host(host_options());
  host.initialize();
  const auto create = [&](s::service_type service) {
    return host.call<s::create_qp_out, s::create_qp_in>(FakeHost::Opcode::CREATE_QP, [&](auto in) {
      in.sub(s::create_qp_in::qpc).set(s::qpc::st, static_cast<std::uint32_t>(service));
    });
  };
  constexpr std::string_view kRefused = "the card does not have this service";
  EXPECT_EQ(create(s::service_type::UC).reason(), kRefused);
  EXPECT_EQ(create(s::service_type::DCI).reason(), kRefused);
  EXPECT_NE(create(s::service_type::RC).reason(), kRefused) << "but for want of a PD";
  const auto dct =
      host.call<s::create_dct_out, s::create_dct_in>(FakeHost::Opcode::CREATE_DCT, [](auto) {});
  EXPECT_EQ(dct.status(), s::command_status::BAD_OP);
}

// Chapter 1: "RoCE v2".
TEST(Rsnic, HasRoceV2AndNoOtherVersion) {
  FakeHost host(host_options());
  host.initialize();
  const auto reply = query(host, s::hca_cap_type::ROCE);
  const auto image = reply.as<s::query_hca_cap_out>().get(s::query_hca_cap_out::capability);
  EXPECT_EQ(util::View<s::roce_cap>(image).get(s::roce_cap::roce_version), 1u << 2);
  const auto set = [&](s::roce_version version) {
    return host.call<s::set_roce_address_out, s::set_roce_address_in>(
        FakeHost::Opcode::SET_ROCE_ADDRESS, [&](auto in) {
          const auto entry = in.sub(s::set_roce_address_in::roce_address);
          entry.sub(s::roce_address::source_l3_address)[15] = std::byte{1};
          entry.set(s::roce_address::roce_version, static_cast<std::uint32_t>(version));
        });
  };
  EXPECT_TRUE(set(s::roce_version::V2).ok());
  const auto v1 = set(s::roce_version::V1);
  EXPECT_EQ(v1.status(), s::command_status::BAD_PARAM);
  EXPECT_EQ(v1.reason(), "roce_version is none that the card has");
}

// The driver sets the capabilities that the card has reported.
TEST(Rsnic, Has127QpsAfterADriverHasSetItsCapabilities) {
  LimitsHost host(host_options(), [](FakeHost& before) {
    const auto told = query(before, s::hca_cap_type::GENERAL);
    const auto image = told.as<s::query_hca_cap_out>().get(s::query_hca_cap_out::capability);
    const auto reply = before.call<s::set_hca_cap_out, s::set_hca_cap_in>(
        FakeHost::Opcode::SET_HCA_CAP, [&](auto in) {
          std::ranges::copy(image, in.bytes().begin() + s::set_hca_cap_in::capability.kOffset);
        });
    EXPECT_TRUE(reply.ok());
  });
  EXPECT_EQ(host.fill("log_max_qp", "CREATE_QP", 1000), 127u);
}

// A misspelled capability name would be ignored silently.
TEST(Rsnic, EveryCapabilityThatItHasOtherwiseIsOneOfAConnectX) {
  for (const auto& [name, value] : device_options().model.capabilities) {
    EXPECT_EQ(
        std::ranges::count(connectx::capability_table(), name, &connectx::CapabilityInfo::name), 1)
        << name;
  }
}

/// The capabilities in the first column of a table of docs/rsnic-limits.md.
std::set<std::string> capabilities_below(std::string_view heading) {
  std::ifstream page(SOFTHCA_SOURCE_DIR "/docs/rsnic-limits.md");
  std::set<std::string> names;
  bool below = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) below = line == heading;
    if (!below || !line.starts_with("| ")) continue;
    std::istringstream cell(line.substr(2, line.find(" | ", 2) - 2));
    for (std::string name; std::getline(cell >> std::ws, name, ',');) names.insert(name);
  }
  return names;
}

// Table 4-1, in both profiles; they agree on all that it prints.
TEST(Rsnic, EachValueThatIsNotAsPrintedHasAReason) {
  for (const auto profile : {Profile::kDriver, Profile::kDocument}) {
    const auto options = device_options(profile);
    const connectx::Capabilities capabilities(options.limits, options.model);
    const util::View<s::hca_cap> image(capabilities.maximum(s::hca_cap_type::GENERAL));
    const CsrFile file;
    std::set<std::string> bits, others;
    for (const auto& row : csr_table()) {
      if (row.source != CsrSource::kCapability) continue;
      const auto width = row.hi - row.lo + 1u;
      const auto printed = width == 32 ? *row.printed : *row.printed & ((1u << width) - 1);
      // A printed value wider than its field is compared by its low bits.
      if (file.value(row, image) == fmt::format("{:X}h", printed)) continue;
      const bool absent = printed == 1 && file.value(row, image) == "0h";
      (absent ? bits : others).insert(std::string(row.name));
    }
    auto with_reason = capabilities_below("## Printed 1, and 0 here");
    with_reason.erase("bit");
    EXPECT_EQ(bits, with_reason);
    with_reason = capabilities_below("## Printed otherwise");
    with_reason.erase("capability");
    EXPECT_EQ(others, with_reason);
  }
}

}  // namespace
}  // namespace softhca::rsnic
