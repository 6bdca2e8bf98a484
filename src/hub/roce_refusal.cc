#include "hub/roce_refusal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "wire/address_text.h"

namespace softhca::hub {
namespace {

using Why = RoceRefusal::Kind;

/// The address as proc_net_udp prints it: 32-bit words in host byte order, in hexadecimal.
std::string hexadecimal(std::span<const std::byte> address) {
  std::string text;
  for (std::size_t i = 0; i != address.size(); i += sizeof(std::uint32_t)) {
    std::uint32_t word = 0;
    std::memcpy(&word, address.data() + i, sizeof word);
    text += fmt::format("{:08X}", word);
  }
  return text;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < line.size();) {
    const auto begin = line.find_first_not_of(' ', at);
    if (begin == std::string_view::npos) break;
    const auto end = std::min(line.find(' ', begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    at = end;
  }
  return words;
}

std::string read_file(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

RoceRefusal find_holder(std::string_view table, const wire::Gid& address, std::uint16_t port,
                        bool has_rxe) {
  constexpr std::size_t kLocal = 1, kUser = 7;  // the words of a line: sl local_address ... uid
  const auto bytes = std::span<const std::byte>(address.bytes);
  const auto own = hexadecimal(address.is_ipv4() ? bytes.subspan(12) : bytes);
  const auto any = std::string(own.size(), '0');
  const auto end = fmt::format(":{:04X}", port);
  RoceRefusal refusal{.kind = Why::kPortTaken, .error = EADDRINUSE, .holder = ::geteuid()};
  while (!table.empty()) {
    const auto line = table.substr(0, table.find('\n'));
    table.remove_prefix(std::min(line.size() + 1, table.size()));
    const auto words = words_of(line);
    if (words.size() <= kUser) continue;
    const bool holds = words[kLocal] == own + end || words[kLocal] == any + end;
    if (!holds) continue;
    const auto user = words[kUser];
    (void)std::from_chars(user.data(), user.data() + user.size(), refusal.holder);
    if (refusal.holder == 0 && has_rxe) refusal.kind = Why::kPortTakenByRxe;
  }
  return refusal;
}

RoceRefusal find_holder(const wire::Gid& address, std::uint16_t port) {
  const bool has_rxe = ::access("/sys/module/rdma_rxe", F_OK) == 0;
  if (address.is_ipv4()) {
    const auto found = find_holder(read_file("/proc/net/udp"), address, port, has_rxe);
    if (found.holder != ::geteuid() || found.kind == Why::kPortTakenByRxe) return found;
  }
  // A socket of any IPv6 address takes the port of IPv4 as well.
  return find_holder(read_file("/proc/net/udp6"), address.is_ipv4() ? wire::Gid{} : address, port,
                     has_rxe);
}

std::string RoceRefusal::explain(const wire::Gid& address) const {
  const auto where = text_of(address);
  switch (kind) {
    case Why::kNone:
      return "";
    case Why::kPortTaken:
      if (holder == ::geteuid()) {
        return fmt::format(
            "UDP port 4791 of {} is taken by another process of yours (ss -ulpn 'sport = 4791'): "
            "runs that share an address must be on one fabric (--fabric)",
            where);
      }
      return fmt::format(
          "UDP port 4791 of {} is taken by a process of user {}: one user at a time can have "
          "RoCEv2 "
          "at an address",
          where, holder);
    case Why::kPortTakenByRxe:
      return fmt::format(
          "UDP port 4791 of {} is taken by the kernel's soft-RoCE: remove its devices (rdma link "
          "delete NAME) or the module (modprobe -r rdma_rxe)",
          where);
    case Why::kNoSuchAddress:
      return fmt::format(
          "{} is no address of this machine where the hub runs: the interface has gone or lost it "
          "(ip addr), or the hub was started in another network namespace (then use --private)",
          where);
    case Why::kUnfit:
      return fmt::format("{} is not the address of one machine", where);
    case Why::kTooManyProcesses:
      return "255 processes of this network share addresses of the machine, or have just ended: "
             "wait "
             "ten seconds, or run some of them without --address if:NAME";
    case Why::kTooManyAddresses:
      return fmt::format(
          "the hub has too many addresses to take {} as well: give the programs fewer (--address)",
          where);
    case Why::kSpoiled:
      return fmt::format(
          "a process that had {} before has changed its socket so that no other can have it: end "
          "all programs of the fabric, and start again",
          where);
    case Why::kFailed:
      break;
  }
  return fmt::format("no RoCEv2 socket at {}: {}", where, std::strerror(error));
}

}  // namespace softhca::hub
