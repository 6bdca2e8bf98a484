// A bare UDP ping-pong: what the kernel's path alone costs, to compare `softhca run` with.
//
//   udp_ping serve ADDRESS poll|block ROUNDS      answers ROUNDS datagrams
//   udp_ping ask ADDRESS poll|block ROUNDS        sends them, and prints "8 MICROSECONDS"
//
// The time is the median of one way, half a round trip, as ib_send_lat counts. `poll`: receives
// without waiting, in a loop, as a program that polls a CQ. `block`: sleeps in the kernel.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint16_t kPort = 4792;
constexpr std::size_t kMessage = 8;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "udp_ping: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

struct Ends {
  int socket;
  int flags;  ///< of each receive
};

void receive(const Ends& ends, sockaddr_in& from) {
  std::array<char, kMessage> bytes;
  for (;;) {
    socklen_t size = sizeof from;
    const auto got = ::recvfrom(ends.socket, bytes.data(), bytes.size(), ends.flags,
                                reinterpret_cast<sockaddr*>(&from), &size);
    if (got == static_cast<ssize_t>(kMessage)) return;
    if (got >= 0 || errno != EAGAIN) fail("receive");
  }
}

void send(const Ends& ends, const sockaddr_in& to) {
  const std::array<char, kMessage> bytes{};
  if (::sendto(ends.socket, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to),
               sizeof to) != static_cast<ssize_t>(kMessage)) {
    fail("send");
  }
}

}  // namespace

int main(int count, char** words) {
  const auto rounds = count == 5 ? std::strtoul(words[4], nullptr, 10) : 0;
  if (rounds == 0) {
    std::fprintf(stderr, "udp_ping: usage: serve|ask ADDRESS poll|block ROUNDS\n");
    return 2;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  if (::inet_pton(AF_INET, words[2], &address.sin_addr) != 1) fail(words[2]);
  const Ends ends{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0),
                  words[3] == std::string_view("poll") ? MSG_DONTWAIT : 0};
  if (ends.socket < 0) fail("socket");
  sockaddr_in peer{};
  if (words[1] == std::string_view("serve")) {
    if (::bind(ends.socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      fail("bind");
    }
    for (unsigned long i = 0; i != rounds; ++i) {
      receive(ends, peer);
      send(ends, peer);
    }
    return 0;
  }
  std::vector<double> ways;
  for (unsigned long i = 0; i != rounds; ++i) {
    const auto begin = Clock::now();
    send(ends, address);
    receive(ends, peer);
    ways.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / 2);
  }
  std::ranges::nth_element(ways, ways.begin() + static_cast<long>(rounds / 2));
  std::printf("%zu %.2f\n", kMessage, ways[rounds / 2]);
  return 0;
}
