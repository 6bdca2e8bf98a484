// Processes of a hub that do anything: they come, talk where nothing is to be said, write into the
// memory of their rings what they like, ring when there is nothing and do not when there is, fill
// the eventfd that wakes them, and go.
//
// Whatever they do, the hub's turns are short, who breaks the rules is put out, and at the end an
// honest pair hears each other through it.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabric/ring_port.h"
#include "fabric/switch.h"
#include "hub/hello.h"
#include "hub/hub.h"
#include "oracle.h"
#include "script.h"
#include "util/log.h"
#include "vfio_user/unix_socket.h"
#include "wire/ethernet.h"

namespace {

using namespace softhca;
using fuzz::check;
using fuzz::Script;
using util::SharedRing;
using vfio_user::UniqueFd;

constexpr std::size_t kCapacity = SharedRing::kCapacityMin;
constexpr std::size_t kDataAt = 4096;
constexpr std::size_t kClientsMax = 6;

/// What a process gets from the hub.
struct Seat {
  UniqueFd socket;
  hub::Hello hello{};
  std::array<UniqueFd, hub::kFds> fds;
};

struct Station final : fabric::Receiver {
  void handle_frame(const wire::Frame& frame) override {
    check(frame.size() != 0 && frame.size() <= SharedRing::kRecordMax);
    frame.copy_to(std::span(bytes).first(frame.size()));
    if (bytes[14] == std::byte{0x5a}) ++marked;
  }
  void handle_loopback(const wire::Frame&, std::uint32_t) override { check(false); }
  std::array<std::byte, SharedRing::kRecordMax> bytes;
  unsigned marked = 0;
};

/// A process that keeps the rules.
class Honest {
 public:
  explicit Honest(Seat seat) : seat_(std::move(seat)) {
    port_ = network_.create_port("station");
    port_->set_receiver(&station);
    link_ = std::make_unique<fabric::RingPort>(network_.create_port("hub"),
                                               *SharedRing::attach(seat_.fds[hub::kOutRing].get()),
                                               *SharedRing::attach(seat_.fds[hub::kInRing].get()));
  }
  std::uint64_t mac() const {
    return wire::MacAddress::from(std::as_bytes(std::span(seat_.hello.mac))).to_u64();
  }
  void send(std::uint64_t to, std::byte mark) {
    wire::Frame frame;
    const auto head = frame.resize_head(60);
    std::ranges::fill(head, std::byte{0});
    wire::Ethernet{wire::MacAddress::from_u64(to), wire::MacAddress::from_u64(mac()),
                   wire::EtherType{0x88b5}}
        .emit(util::MutableView<wire::EthernetLayout>(head.first<14>()));
    head[14] = mark;
    port_->transmit(frame);
    work();
  }
  void work() {
    (void)link_->receive(1000);
    network_.deliver(100'000);
    if (!link_->settle()) return;
    const std::uint64_t one = 1;
    (void)!::write(seat_.fds[hub::kWakeHub].get(), &one, sizeof one);
  }
  bool is_put_out() const {
    char byte;
    return ::recv(seat_.socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }
  Station station;

 private:
  Seat seat_;
  fabric::Switch network_;
  std::unique_ptr<fabric::Port> port_;
  std::unique_ptr<fabric::RingPort> link_;
};

class World {
 public:
  World() {
    util::set_log_sink([](auto, auto) {});
    path_ = "/tmp/softhca-fuzz-XXXXXX";
    check(::mkdtemp(path_.data()) != nullptr);
    loop_ = *util::EventLoop::create();
    hub_ = *hub::Hub::create(
        *loop_, path_ + "/hub",
        {.clients_max = 8, .ring_capacity = kCapacity, .poll = util::Duration::zero()});
    for (int i = 0; i != 2; ++i) honest_.push_back(std::make_unique<Honest>(*join()));
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
    for (int i = 0; i != 50; ++i) {
      run();
      for (const auto& one : honest_) one->work();
    }
    check(hub_->clients() == 2);
    for (const auto& one : honest_) {
      check(!one->is_put_out());
      one->station.marked = 0;
    }
    honest_[0]->send(honest_[1]->mac(), std::byte{0x5a});
    for (int i = 0; i != 10; ++i) {
      run();
      honest_[1]->work();
    }
    check(honest_[1]->station.marked == 1);
  }

 private:
  void run() {
    const fuzz::Turn turn;
    loop_->run_once(util::monotonic_now());
  }

  /// Nothing: the hub has refused it.
  std::optional<Seat> join() {
    Seat seat;
    auto socket = vfio_user::connect_unix(path_ + "/hub", "fuzz");
    check(socket.has_value());
    seat.socket = *std::move(socket);
    for (int i = 0; i != 4; ++i) run();
    iovec bytes{.iov_base = &seat.hello, .iov_len = sizeof seat.hello};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(hub::kFds * sizeof(int))> control;
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const auto size = ::recvmsg(seat.socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (size != sizeof seat.hello) return std::nullopt;
    const auto* const part = CMSG_FIRSTHDR(&message);
    check(part != nullptr && part->cmsg_len == CMSG_LEN(hub::kFds * sizeof(int)));
    for (std::size_t i = 0; i != hub::kFds; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      seat.fds[i].reset(fd);
    }
    return seat;
  }

  /// To an eventfd, which may be full: a process that waits then holds up itself, and so us.
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
    if (action % 16 < 2 && clients_.size() < kClientsMax) {
      if (auto seat = join()) clients_.push_back(*std::move(seat));
      return;
    }
    if (action % 16 == 2) return run();
    if (action % 16 == 3) {
      auto& one = honest_[action >> 4 & 1];
      one->send((action & 0x20) != 0 ? 0xffffffffffff : script.qword() & 0xffffffffffff,
                std::byte{1});
      return;
    }
    if (action % 16 == 4) return honest_[action >> 4 & 1]->work();
    if (clients_.empty()) return;
    const auto which = script.byte() % clients_.size();
    auto& seat = clients_[which];
    const int ring = seat.fds[(action & 0x80) != 0 ? hub::kInRing : hub::kOutRing].get();
    switch (action % 16) {
      case 5:
        clients_.erase(clients_.begin() + static_cast<long>(which));
        return;
      case 6: {
        const auto index = script.qword();
        return poke(ring, (action & 0x40) != 0 ? 64 : 0, std::as_bytes(std::span(&index, 1)));
      }
      case 7: {
        const std::uint64_t index = script.word() * 8u;
        return poke(ring, (action & 0x40) != 0 ? 64 : 0, std::as_bytes(std::span(&index, 1)));
      }
      case 8: {
        const auto bytes = script.take(script.byte());
        return poke(ring, kDataAt + script.word() * 8u % (kCapacity - 256), bytes);
      }
      case 9:
        return write_record(seat, script);
      case 10: {
        const std::uint64_t count = (action & 0x40) != 0 ? script.qword() : 1;
        add(seat.fds[hub::kWakeHub].get(), count);
        return;
      }
      case 11: {
        // Full: who writes to it would wait.
        const std::uint64_t most = ~std::uint64_t{1};
        add(seat.fds[hub::kWakeMe].get(), most);
        return;
      }
      case 12: {
        const auto bytes = script.take(script.byte());
        (void)!::send(seat.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        return;
      }
      case 13:
        (void)!::ftruncate(ring, script.dword());
        return;
      case 14:
        ::shutdown(seat.socket.get(), (action & 0x40) != 0 ? SHUT_WR : SHUT_RDWR);
        return;
      case 15:
        ::fcntl(seat.fds[hub::kWakeMe].get(), F_SETFL, (action & 0x40) != 0 ? 0 : O_NONBLOCK);
        return;
      default:
        return;
    }
  }

  /// A frame of any bytes, as the rules want it.
  void write_record(Seat& seat, Script& script) {
    auto ring = SharedRing::attach(seat.fds[hub::kOutRing].get());
    if (!ring) return;
    util::RingProducer out(*ring);
    const auto bytes = script.take(1 + script.byte());
    const auto room = out.reserve(bytes.empty() ? 1 : bytes.size());
    if (room.empty()) return;
    std::ranges::copy(bytes.first(std::min(bytes.size(), room.size())), room.begin());
    out.publish();
  }

  std::string path_;
  std::unique_ptr<util::EventLoop> loop_;
  std::unique_ptr<hub::Hub> hub_;
  std::vector<std::unique_ptr<Honest>> honest_;
  std::vector<Seat> clients_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::run_input([&] { World().play(Script(data, size)); });
}
