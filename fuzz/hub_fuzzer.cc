// Processes of a hub that do anything. They join, send where no message is expected, write anything
// into the memory of their rings, ring without cause or not at all, fill the eventfd that wakes
// them, and leave. They ask for links, and do the same with the rings and the eventfd that they
// share with an honest process.
//
// Whatever they do, turns of the hub and of honest processes are short, and the hub drops a process
// that breaks the rules. At the end, an honest pair exchanges frames, through the hub or their own
// link.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hub/fd_message.h"
#include "hub/hello.h"
#include "hub/hub.h"
#include "hub/link_note.h"
#include "hub_member.h"
#include "oracle.h"
#include "os/unix_socket.h"
#include "script.h"
#include "util/log.h"
#include "wire/ethernet.h"

namespace {

using namespace softhca;
using fuzz::check;
using fuzz::HubMember;
using fuzz::Script;
using os::SharedRing;
using os::UniqueFd;

constexpr std::size_t kCapacity = SharedRing::kCapacityMin;
constexpr std::size_t kDataAt = 4096;
constexpr std::size_t kClientsMax = 6;

/// The descriptors that a process receives with an introduction.
struct Link {
  std::array<UniqueFd, hub::kIntroductionFds> fds;
};

/// The socket, address and descriptors that a process receives from the hub.
struct Seat {
  UniqueFd socket;
  hub::Hello hello{};
  std::array<UniqueFd, hub::kFds> fds;
  std::vector<Link> links;

  wire::MacAddress mac() const {
    return wire::MacAddress::from(std::as_bytes(std::span(hello.mac)));
  }
};

class World {
 public:
  World() {
    util::set_log_sink([](auto, auto) {});
    path_ = "/tmp/softhca-fuzz-XXXXXX";
    check(::mkdtemp(path_.data()) != nullptr);
    loop_ = *os::EventLoop::create();
    hub_ = *hub::Hub::create(*loop_, path_ + "/hub",
                             {.clients_max = 8,
                              .ring_capacity = kCapacity,
                              .link_capacity = kCapacity,
                              .poll = util::Duration::zero()});
    for (int i = 0; i != 2; ++i) honest_.push_back(join_honestly());
  }
  ~World() {
    honest_.clear();
    clients_.clear();
    hub_.reset();
    loop_.reset();
    std::filesystem::remove_all(path_);
  }

  void play(Script script) {
    while (!script.empty()) step(script);
    clients_.clear();
    // A process's last frames wait for room like all others, and the hub checks for room only now
    // and then.
    const auto latest = util::monotonic_now() + std::chrono::seconds(2);
    for (int i = 0; i < 50 || (hub_->clients() != 2 && util::monotonic_now() < latest); ++i) {
      run();
      for (const auto& one : honest_) turn(*one);
    }
    check(hub_->clients() == 2);
    auto& to = *honest_[1];
    to.station.marked = 0;
    // Another process may have sent with this address, and switches send frames to where the
    // address last appeared.
    to.send(0xffffffffffff, std::byte{1});
    turn(to);
    run();
    // A link whose kSwitched note went to that process may be full, and is read only after a while.
    unsigned sent = 0;
    for (int i = 0; i < 10 || (to.station.marked == 0 && util::monotonic_now() < latest); ++i) {
      if (to.station.marked == 0) {
        honest_[0]->send(to.mac().to_u64(), std::byte{0x5a});
        ++sent;
      }
      turn(*honest_[0]);
      run();
      turn(to);
    }
    check(to.station.marked >= 1 && to.station.marked <= sent);
  }

 private:
  void run() {
    const fuzz::Turn turn;
    loop_->run_once(util::monotonic_now());
  }

  static void turn(HubMember& member) {
    const fuzz::Turn turn;
    member.turn(1000);
  }

  std::unique_ptr<HubMember> join_honestly() {
    auto seat = *join();
    hub::Joined joined;
    joined.number = seat.hello.number;
    joined.mac = seat.hello.mac;
    joined.out.emplace(*SharedRing::attach(seat.fds[hub::kOutRing].get()));
    joined.in.emplace(*SharedRing::attach(seat.fds[hub::kInRing].get()));
    joined.wake_hub = std::move(seat.fds[hub::kWakeHub]);
    joined.wake_me = std::move(seat.fds[hub::kWakeMe]);
    joined.socket = std::move(seat.socket);
    return std::make_unique<HubMember>(std::move(joined));
  }

  /// Nothing if the hub refuses.
  std::optional<Seat> join() {
    Seat seat;
    auto socket = os::connect_unix(path_ + "/hub", "fuzz");
    check(socket.has_value());
    seat.socket = *std::move(socket);
    for (int i = 0; i != 4; ++i) run();
    const auto received =
        hub::receive_message(seat.socket.get(), std::as_writable_bytes(std::span(&seat.hello, 1)),
                             seat.fds, MSG_DONTWAIT);
    if (received != hub::Received::kMessage) return std::nullopt;
    return seat;
  }

  /// Adds to an eventfd that may be full. A process that blocks there stalls only itself, but here
  /// the fuzzer would block.
  static void add(int eventfd, std::uint64_t count) {
    const int flags = ::fcntl(eventfd, F_GETFL);
    ::fcntl(eventfd, F_SETFL, flags | O_NONBLOCK);
    (void)!::write(eventfd, &count, sizeof count);
    ::fcntl(eventfd, F_SETFL, flags);
  }

  void poke(int fd, std::size_t offset, std::span<const std::byte> bytes) {
    (void)!::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
  }

  void step(Script& script) {
    const auto action = script.byte();
    const auto kind = action % 32;
    auto& one = *honest_[action >> 5 & 1];
    switch (kind) {
      case 0:
      case 1:
        if (clients_.size() == kClientsMax) return;
        if (auto seat = join()) clients_.push_back(*std::move(seat));
        return;
      case 2:
        return run();
      case 3:
        one.send((action & 0x40) != 0 ? 0xffffffffffff : script.qword() & 0xffffffffffff,
                 std::byte{1});
        return turn(one);
      case 4:
        return turn(one);
      case 5:
        // Enough for a link, if the other process wants one too.
        for (auto left = script.byte() % 32; left != 0; --left) {
          one.send(address(script.byte()).to_u64(), std::byte{1});
        }
        return turn(one);
      case 6:
        one.send_train(address(script.byte()).to_u64(), script.byte());
        return turn(one);
      case 7: {
        const fuzz::Turn turn;
        (void)one.link().prepare_to_sleep();
        (void)one.link().room(script.dword());
        return;
      }
      default:
        break;
    }
    if (clients_.empty()) return;
    const auto which = script.byte() % clients_.size();
    if (kind == 8) {
      clients_.erase(clients_.begin() + static_cast<long>(which));
    } else if (kind < 18) {
      misbehave(script, action, clients_[which]);
    } else {
      misuse_link(script, action, clients_[which]);
    }
  }

  /// Misuses what it got from the hub.
  void misbehave(Script& script, unsigned action, Seat& seat) {
    const int ring = seat.fds[(action & 0x80) != 0 ? hub::kInRing : hub::kOutRing].get();
    switch (action % 32) {
      case 9:
      case 10:
        return poke_index(script, action % 32 == 9, ring, (action & 0x40) != 0);
      case 11:
        return poke_data(script, ring);
      case 12: {
        const auto bytes = script.take(1 + script.byte());
        return write_record(ring, bytes, 0);
      }
      case 13: {
        const std::uint64_t count = (action & 0x40) != 0 ? script.qword() : 1;
        add(seat.fds[hub::kWakeHub].get(), count);
        return;
      }
      case 14: {
        // Full: a writer would block.
        const std::uint64_t most = ~std::uint64_t{1};
        add(seat.fds[hub::kWakeMe].get(), most);
        ::fcntl(seat.fds[hub::kWakeMe].get(), F_SETFL, (action & 0x40) != 0 ? 0 : O_NONBLOCK);
        return;
      }
      case 15:
        return talk(script, action, seat);
      case 16:
        (void)!::ftruncate(ring, script.dword());
        return;
      case 17:
        ::shutdown(seat.socket.get(), (action & 0x40) != 0 ? SHUT_WR : SHUT_RDWR);
        return;
      default:
        return;
    }
  }

  /// Asks for links, and misuses them.
  void misuse_link(Script& script, unsigned action, Seat& seat) {
    switch (action % 32) {
      case 18:
      case 19:
      case 20: {
        // A note in its own or another process's name.
        const auto kind = static_cast<hub::LinkNote::Kind>(script.byte() % 7);
        const auto to = address(script.byte());
        const auto from = (action & 0x40) != 0 ? address(script.byte()) : seat.mac();
        const auto frame = hub::LinkNote{.to = to, .from = from, .kind = kind}.frame();
        return write_record(seat.fds[hub::kOutRing].get(), frame.head(), 0);
      }
      case 21:
      case 22: {
        // Many frames to one process.
        std::array<std::byte, 60> frame{};
        const auto to = address(script.byte()), from = seat.mac();
        std::memcpy(frame.data(), to.bytes.data(), to.bytes.size());
        std::memcpy(frame.data() + 6, from.bytes.data(), from.bytes.size());
        for (auto left = script.byte() % 32; left != 0; --left) {
          write_record(seat.fds[hub::kOutRing].get(), frame, 0);
        }
        add(seat.fds[hub::kWakeHub].get(), 1);
        return;
      }
      case 23:
      case 24: {
        Link link;
        hub::Introduction introduction;
        const auto received = hub::receive_message(
            seat.socket.get(), std::as_writable_bytes(std::span(&introduction, 1)), link.fds,
            MSG_DONTWAIT);
        if (received == hub::Received::kMessage) seat.links.push_back(std::move(link));
        return;
      }
      default:
        break;
    }
    if (seat.links.empty()) return;
    const auto& link = seat.links[script.byte() % seat.links.size()];
    const int ring = link.fds[(action & 0x80) != 0 ? hub::kRingFromIt : hub::kRingToIt].get();
    switch (action % 32) {
      case 25:
      case 26:
        return poke_index(script, action % 32 == 25, ring, (action & 0x40) != 0);
      case 27:
        return poke_data(script, ring);
      case 28:
      case 29: {
        const auto note = script.dword();
        const auto bytes = script.take(1 + script.byte());
        return write_record(ring, bytes, note);
      }
      case 30: {
        // The eventfd that wakes the honest process: full, empty, or blocking.
        const int wake = link.fds[hub::kWakeIt].get();
        add(wake, (action & 0x40) != 0 ? ~std::uint64_t{1} : 1);
        ::fcntl(wake, F_SETFL, (action & 0x80) != 0 ? 0 : O_NONBLOCK);
        return;
      }
      default:
        (void)!::ftruncate(ring, script.dword());
        return;
    }
  }

  /// The address of an honest process, of another one, or of none.
  wire::MacAddress address(unsigned which) const {
    which %= 8;
    if (which < honest_.size()) return honest_[which]->mac();
    if (which - 2 < clients_.size()) return clients_[which - 2].mac();
    const auto bytes = hub::mac_of(0);
    return wire::MacAddress::from(std::as_bytes(std::span(bytes)));
  }

  void poke_index(Script& script, bool far, int ring, bool read) {
    const std::uint64_t index = far ? script.qword() : script.word() * 8u;
    poke(ring, read ? 64 : 0, std::as_bytes(std::span(&index, 1)));
  }

  void poke_data(Script& script, int ring) {
    const auto bytes = script.take(script.byte());
    poke(ring, kDataAt + script.word() * 8u % (kCapacity - 256), bytes);
  }

  /// Sends on the socket, where no message is expected, with unwanted descriptors.
  static void talk(Script& script, unsigned action, const Seat& seat) {
    const auto bytes = script.take(script.byte());
    if ((action & 0x40) != 0 && !bytes.empty()) {
      const std::array fds = {seat.socket.get(), seat.fds[hub::kInRing].get(),
                              seat.fds[hub::kWakeMe].get()};
      (void)hub::send_message(seat.socket.get(), bytes, fds);
    } else {
      (void)!::send(seat.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  }

  /// A well-formed record of any bytes, behind those that its producer has published.
  static void write_record(int fd, std::span<const std::byte> bytes, std::uint32_t note) {
    if (bytes.empty()) return;
    std::uint64_t written = 0;
    if (::pread(fd, &written, sizeof written, 0) != sizeof written) return;
    const std::array head = {static_cast<std::uint32_t>(bytes.size()), note};
    // Bytes at the end of the ring are also mapped at its start: such a record is cut off.
    const auto at = static_cast<off_t>(kDataAt + written % kCapacity);
    (void)!::pwrite(fd, head.data(), sizeof head, at);
    (void)!::pwrite(fd, bytes.data(), bytes.size(), at + static_cast<off_t>(sizeof head));
    written += sizeof head + (bytes.size() + 7) / 8 * 8;
    (void)!::pwrite(fd, &written, sizeof written, 0);
  }

  std::string path_;
  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<hub::Hub> hub_;
  std::vector<std::unique_ptr<HubMember>> honest_;
  std::vector<Seat> clients_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::run_input([&] { World().play(Script(data, size)); });
}
