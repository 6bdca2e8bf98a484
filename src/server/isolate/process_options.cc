#include "server/isolate/process_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace softhca::server {
namespace {

constexpr const char* kCommand = "device-process";

}  // namespace

std::vector<std::string> to_words(const ProcessOptions& options) {
  std::vector<std::string> words = {kCommand};
  // One word for each option and its value, so that no value is taken for an option.
  const auto add = [&](const char* option, const auto& value) {
    words.push_back(fmt::format("{}={}", option, value));
  };
  for (const auto& device : options.devices) add("--device", device);
  for (const auto place : options.places) add("--place", place);
  for (const auto fd : options.listeners) add("--listener", fd);
  for (const auto fd : options.rings) add("--ring", fd);
  add("--channel", options.channel);
  add("--wake-socket", options.wake_socket);
  for (const auto& fault : options.faults) add("--fault", fault);
  add("--poll-us", options.poll_us);
  if (options.measure_turns) words.emplace_back("--measure-turns");
  if (options.verbose) words.emplace_back("--verbose");
  return words;
}

CLI::App* add_process(CLI::App& app, ProcessOptions& options) {
  auto* command = app.add_subcommand(kCommand, "Started by serve --isolate");
  command->group("");
  command->add_option("--device", options.devices)->required()->allow_extra_args(false);
  command->add_option("--place", options.places)->required()->allow_extra_args(false);
  command->add_option("--listener", options.listeners)->required()->allow_extra_args(false);
  command->add_option("--ring", options.rings)->allow_extra_args(false);
  command->add_option("--channel", options.channel)->required();
  command->add_option("--wake-socket", options.wake_socket)->required();
  command->add_option("--fault", options.faults)->allow_extra_args(false);
  command->add_option("--poll-us", options.poll_us);
  command->add_flag("--measure-turns", options.measure_turns);
  command->add_flag("--verbose", options.verbose);
  return command;
}

}  // namespace softhca::server
