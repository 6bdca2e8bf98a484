// The numbers that options take: values without a sign, beyond a range, or with a rest are refused.
#include "run/number_options.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/control_commands.h"
#include "cli/env_command.h"
#include "cli/perf_command.h"
#include "cli/run_command.h"
#include "cli/sdxi_copy.h"
#include "cli/serve_command.h"
#include "server/serve.h"

namespace softhca::cli {
namespace {

using run::real_number;
using run::whole_number;

using Words = std::vector<std::string>;

/// Why `words` are refused; empty: they are not.
std::string why_refused(CLI::App& app, Words words) {
  std::ranges::reverse(words);  // the order in which CLI11 takes them
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return {};
}

template <class Options>
std::string why_refused(CLI::App* (*add)(CLI::App&, Options&), Words words) {
  CLI::App app;
  Options options;
  add(app, options);
  return why_refused(app, std::move(words));
}

/// Values that are no number of any option.
constexpr const char* kNoNumbers[] = {"-3",  "",    "3x",   " 3",
                                      "3 ",  "0x",  "0x1g", "-0x3",
                                      "3.5", "nan", "1e1",  "99999999999999999999999"};

TEST(NumberOptions, AWholeNumberHasNoSignNoRestAndItsRange) {
  const auto read = [](std::string text, std::uint64_t least, std::uint64_t most) {
    const auto why = whole_number(least, most)(text);
    return why.empty() ? text : why;
  };
  for (const auto* text : kNoNumbers) {
    EXPECT_EQ(read(text, 0, 9), "'" + std::string(text) + "' is no whole number from 0 to 9");
  }
  EXPECT_EQ(read("9", 0, 9), "9");
  EXPECT_EQ(read("10", 0, 9), "'10' is no whole number from 0 to 9");
  EXPECT_EQ(read("0", 1, 9), "'0' is no whole number from 1 to 9");
  EXPECT_EQ(read("010", 0, 99), "10") << "not octal";
  EXPECT_EQ(read("0x1F", 0, 99), "31");
  EXPECT_EQ(read("18446744073709551615", 0, UINT64_MAX), "18446744073709551615");
  EXPECT_NE(read("18446744073709551616", 0, UINT64_MAX).find("is no whole number"),
            std::string::npos);
}

TEST(NumberOptions, APartIsANumberOfItsRange) {
  const auto why = [](std::string text) { return real_number(0, 1)(text); };
  for (const auto* text : {"0", "1", "0.25", "1e-3"}) EXPECT_EQ(why(text), "") << text;
  for (const auto* text : {"nan", "-nan", "inf", "-0.1", "1.1", "", "0.1x", "0,1", "half"}) {
    EXPECT_EQ(why(text), "'" + std::string(text) + "' is no number from 0 to 1");
  }
}

TEST(NumberOptions, EachCommandRefusesWhatIsNoNumber) {
  const auto serve_with = [](const std::string& option, const std::string& value) {
    return why_refused(add_serve, {"serve", "--device", "sdxi", "--socket", "s", option, value});
  };
  for (const std::string bad : kNoNumbers) {
    for (const auto* option : {"--loss-seed", "--devices"}) {
      EXPECT_NE(why_refused(add_run, {"run", option, bad}), "") << option << bad;
      EXPECT_NE(why_refused(add_env, {"env", option, bad}), "") << option << bad;
    }
    EXPECT_NE(why_refused(add_env, {"env", "--owner", bad}), "") << bad;
    for (const auto* option : {"--loss-seed", "--poll-us", "--pcap-files"}) {
      EXPECT_NE(serve_with(option, bad), "") << option << bad;
    }
    for (const auto* option : {"--from", "--count"}) {
      EXPECT_NE(why_refused(add_inspect, {"inspect", "c", option, bad}), "") << option << bad;
    }
    for (const auto* option : {"-n", "-t", "-r", "-Q", "-o", "-I", "-u", "-p", "-m"}) {
      EXPECT_NE(why_refused(add_perf, {"perf", "send", option, bad}), "") << option << bad;
    }
    EXPECT_NE(why_refused(add_sdxi_copy, {"copy", "a", "b", "--blocks", bad}), "") << bad;
  }
  for (const auto* part : {"nan", "-1", "2", ""}) {
    EXPECT_NE(why_refused(add_run, {"run", "--loss", part}), "") << part;
    EXPECT_NE(serve_with("--loss", part), "") << part;
  }
  for (const auto* size : {"-5", "-5K", "", "64Mx", "nan", "99999999999999999999999"}) {
    EXPECT_NE(serve_with("--pcap-size", size), "") << size;
  }
  EXPECT_NE(why_refused(add_perf, {"perf", "send", "-D", "nan"}), "");
  EXPECT_EQ(why_refused(add_run, {"run", "--loss", "0.1", "--loss-seed", "0", "--devices", "32"}),
            "");
  EXPECT_EQ(why_refused(add_inspect, {"inspect", "c", "--from", "0x1a40", "--count", "256"}), "");
}

TEST(NumberOptions, ASocketModeIsOctalPermissions) {
  for (const std::string mode : {"", "-1", "0860", "0660x", "1777", "77777777777777777777777"}) {
    server::ServeOptions options;
    options.devices = {"sdxi"};
    options.sockets = {"/nonexistent/s"};
    options.socket_mode = mode;
    const auto done = server::serve(options);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().message,
              "--socket-mode " + mode + ": want octal permissions, e.g. 0660");
  }
}

}  // namespace
}  // namespace softhca::cli
