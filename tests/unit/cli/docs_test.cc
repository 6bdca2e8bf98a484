// `softhca docs`: the tables printed in docs/ match the program's own.
#include "cli/docs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "cli/rsnic_commands.h"
#include "fabric/fault_table.h"
#include "hca/fault_kinds.h"
#include "rsnic/command_sequence.h"
#include "rsnic/csr.h"
#include "server/hca_functions.h"
#include "server/sdxi_keys.h"

namespace softhca::cli {
namespace {

using ::testing::HasSubstr;

std::string page(const char* name) {
  std::ifstream file(std::string(SOFTHCA_SOURCE_DIR) + "/docs/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Docs, ThePageOfTheCommandsIsNotStale) {
  EXPECT_THAT(
      page("connectx-commands.md"),
      HasSubstr("<!-- generated: commands -->\n" + commands_page() + "<!-- end of generated -->\n"))
      << "make docs";
}

TEST(Docs, ThePageOfTheLimitsIsNotStale) {
  EXPECT_THAT(page("connectx-limits.md"), HasSubstr("<!-- generated: limits -->\n" + limits_page() +
                                                    "<!-- end of generated -->\n"))
      << "make docs";
}

TEST(Docs, TheTablesOfTheRsnicAreNotStale) {
  EXPECT_THAT(page("rsnic-csr.md"),
              HasSubstr("<!-- generated: csr -->\n" + csr_page() + "<!-- end of generated -->\n"))
      << "make docs";
  EXPECT_THAT(page("rsnic.md"), HasSubstr("<!-- generated: sizing -->\n" + sizing_page() +
                                          "<!-- end of generated -->\n"))
      << "make docs";
}

TEST(Docs, TheLimitsOfTheRsnicAreNotStale) {
  EXPECT_THAT(page("rsnic-limits.md"),
              HasSubstr("<!-- generated: rsnic-limits -->\n" + rsnic_limits_page() +
                        "<!-- end of generated -->\n"))
      << "make docs";
}

TEST(Docs, TheKeysOfSdxiAreNotStale) {
  EXPECT_THAT(page("sdxi.md"), HasSubstr("<!-- generated: sdxi-keys -->\n" +
                                         server::sdxi_keys_page() + "<!-- end of generated -->\n"))
      << "make docs";
}

TEST(Docs, ThePageOfTheFaultsOfHcasIsNotStale) {
  EXPECT_THAT(page("faults-hca.md"), HasSubstr("<!-- generated: faults-hca -->\n" +
                                               hca::fault_table() + "<!-- end of generated -->\n"))
      << "make docs";
}

TEST(Docs, TheFaultsOfAJingzhaoAreNotStale) {
  EXPECT_THAT(page("faults-hca.md"),
              HasSubstr("<!-- generated: faults-jingzhao -->\n" + server::jingzhao_faults_page() +
                        "<!-- end of generated -->\n"))
      << "make docs";
}

TEST(Docs, TheFaultsOfTheNetworkAreNotStale) {
  EXPECT_THAT(page("faults.md"),
              HasSubstr("<!-- generated: network-faults -->\n" + fabric::network_faults_page() +
                        "<!-- end of generated -->\n"))
      << "make docs";
}

// Checks the commands of table 4-15 and of the CSR tables of 4.1.
TEST(Docs, EveryCommandOfTheRsnicsDocumentHasARow) {
  const auto commands = page("rsnic-commands.md");
  const auto expect_row = [&](spec::connectx::command_opcode opcode) {
    EXPECT_THAT(commands, HasSubstr(fmt::format("| {:X}h | {} |", static_cast<unsigned>(opcode),
                                                to_string(opcode))));
  };
  for (const auto& printed : rsnic::printed_commands()) expect_row(printed.opcode);
  for (const auto& row : rsnic::csr_table()) expect_row(row.command);
}

TEST(Docs, AnUnknownPageIsAnError) {
  EXPECT_EQ(run_docs({.page = "commands"}), 0);
  EXPECT_EQ(run_docs({.page = "nonsense"}), 1);
}

}  // namespace
}  // namespace softhca::cli
