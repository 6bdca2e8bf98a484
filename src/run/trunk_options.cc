#include "run/trunk_options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "door/tree/tree.h"
#include "os/unique_fd.h"

namespace softhca::run {
namespace {

/// Longer files are no keys.
constexpr std::size_t kKeyFileMax = 4096;

std::string words_path(const std::string& directory) { return directory + "/joined"; }

util::Result<std::string> read_key_file(const std::string& path) {
  const os::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status;
  if (!file || ::fstat(file.get(), &status) != 0) {
    return util::fail_errno(fmt::format("--key-file '{}'", path));
  }
  if (!S_ISREG(status.st_mode)) {
    return util::fail(fmt::format("--key-file '{}': it is no regular file", path));
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    return util::fail(fmt::format("--key-file '{}': it is another user's", path));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return util::fail(fmt::format("--key-file '{}': others may read it: chmod 600", path));
  }
  std::array<char, kKeyFileMax + 1> text;
  const auto size = ::read(file.get(), text.data(), text.size());
  if (size < 0) return util::fail_errno(fmt::format("--key-file '{}'", path));
  if (static_cast<std::size_t>(size) > kKeyFileMax) {
    return util::fail(fmt::format("--key-file '{}': it has more than {} bytes", path, kKeyFileMax));
  }
  std::string_view key(text.data(), static_cast<std::size_t>(size));
  const auto end = key.find_last_not_of(" \t\r\n");
  return std::string(key.substr(0, end == std::string_view::npos ? 0 : end + 1));
}

util::Result<trunk::Key> read_key(const std::string& key_file) {
  std::string secret;
  if (!key_file.empty()) {
    auto read = read_key_file(key_file);
    if (!read) return tl::unexpected(read.error());
    secret = *std::move(read);
  } else if (const char* const value = std::getenv(kKeyVariable); value != nullptr) {
    secret = value;
  } else {
    return util::fail(
        fmt::format("--join and --listen need the key that the hubs share: set {}, or --key-file. "
                    "To make one: head -c 24 /dev/urandom | base64",
                    kKeyVariable));
  }
  if (secret.size() < trunk::kSecretMin) {
    return util::fail(fmt::format("the key of the fabric has {} characters: want {} or more",
                                  secret.size(), trunk::kSecretMin));
  }
  return trunk::key_of(secret);
}

}  // namespace

util::Result<std::optional<TrunkSetup>> TrunkOptions::setup(const std::string& fabric) const {
  if (join.empty() && listen.empty()) {
    if (key_file.empty()) return std::nullopt;
    return util::fail("--key-file: it is of use with --join or --listen only");
  }
  TrunkSetup setup;
  auto key = read_key(key_file);
  if (!key) return tl::unexpected(key.error());
  setup.options.fabric = fabric;
  setup.options.key = *key;
  if (!listen.empty()) {
    auto address = trunk::parse_listen(listen);
    if (!address) return tl::unexpected(address.error());
    setup.options.listen = *address;
    setup.words += fmt::format(" --listen {}", listen);
  }
  for (const auto& name : join) {
    auto address = trunk::resolve(name, trunk::family_of(setup.options.listen));
    if (!address) return tl::unexpected(address.error());
    const bool is_there = std::ranges::any_of(
        setup.options.targets, [&](const auto& target) { return target.address == *address; });
    if (is_there) continue;
    setup.options.targets.push_back({.name = name, .address = *address});
    setup.words += fmt::format(" --join {}", name);
  }
  return setup;
}

util::Result<void> write_trunk_files(const std::string& directory, const TrunkSetup& setup) {
  std::ofstream file(words_path(directory));
  file << setup.words;
  file.close();
  if (!file.good()) return util::fail_errno(words_path(directory));
  return door::write_guid_salt(directory, static_cast<std::uint16_t>(trunk::random_id()));
}

std::string read_trunk_words(const std::string& directory) {
  std::ifstream file(words_path(directory));
  return {std::istreambuf_iterator<char>(file), {}};
}

void add_trunk_options(CLI::App& command, TrunkOptions& options) {
  command
      .add_option("--join", options.join,
                  fmt::format("Join the network with that of another machine, whose hub listens "
                              "there (UDP, port {} by default). May be repeated",
                              trunk::kPort))
      ->type_name("HOST[:PORT]")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      .add_option("--listen", options.listen,
                  "Let hubs of other machines join: listen on this UDP port")
      ->type_name("[ADDRESS:]PORT");
  command
      .add_option(
          "--key-file", options.key_file,
          fmt::format("The file with the key that the hubs share (default: {})", kKeyVariable))
      ->type_name("FILE");
}

}  // namespace softhca::run
