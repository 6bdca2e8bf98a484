#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>

#include "cli/serve_command.h"
#include "run/capture.h"

namespace softhca::cli {
namespace {

using testing::HasSubstr;

server::ServeOptions capture_to(const std::string& path, std::uint64_t size, unsigned files) {
  server::ServeOptions options;
  options.pcap = path;
  options.pcap_size = size;
  options.pcap_files = files;
  return options;
}

std::string refusal(const server::ServeOptions& options) {
  const auto made = run::make_capture(options);
  return made ? "made" : made.error().message;
}

TEST(ServeCapture, LimitsThatMakeNoSenseAreRefusedWithWhatIsMissing) {
  EXPECT_THAT(refusal(capture_to("", 1 << 20, 0)), HasSubstr("--pcap FILE is missing"));
  EXPECT_THAT(refusal(capture_to("", 0, 4)), HasSubstr("--pcap FILE is missing"));
  EXPECT_THAT(refusal(capture_to("x", 0, 4)), HasSubstr("--pcap-size 64M"));
  EXPECT_THAT(refusal(capture_to("x", 65535, 0)), HasSubstr("at least 64K"));
  for (const auto files : {1u, 10'001u}) {
    EXPECT_THAT(refusal(capture_to("x", 65536, files)), HasSubstr("want 2 to 10000"));
  }
  EXPECT_FALSE(std::filesystem::exists("x")) << "and nothing is created";
}

TEST(ServeCapture, SizesAreThoseOfTheCommandLine) {
  CLI::App app;
  server::ServeOptions options;
  add_serve(app, options);
  app.parse("serve --device sdxi --socket s --pcap f --pcap-size 64M --pcap-files 4");
  EXPECT_EQ(options.pcap, "f");
  EXPECT_EQ(options.pcap_size, 64u << 20);
  EXPECT_EQ(options.pcap_files, 4u);
}

TEST(ServeCapture, WithoutLimitsThereIsOneFileOfItsName) {
  EXPECT_EQ(*run::make_capture({}), nullptr);
  const auto path =
      std::filesystem::temp_directory_path() / ("serve_capture_test." + std::to_string(::getpid()));
  {
    const auto made = run::make_capture(capture_to(path, 0, 0));
    ASSERT_TRUE(made);
    EXPECT_NE(*made, nullptr);
  }
  EXPECT_TRUE(std::filesystem::remove(path));
  {
    const auto made = run::make_capture(capture_to(path, 65536, 2));
    ASSERT_TRUE(made);
  }
  EXPECT_TRUE(std::filesystem::remove(path.string() + "0"));
}

}  // namespace
}  // namespace softhca::cli
