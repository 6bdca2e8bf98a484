// Two processes whose hub does anything. It introduces them to each other, to themselves, twice and
// to unknown processes, by messages with descriptors of all kinds. It sends notes out of order, and
// forwards frames, drops, repeats or delays them. It writes anything into the memory of their rings
// and links. Processes leave in the middle, and others take their place.
//
// Whatever the hub does, their turns are short and never block, and they release all that they were
// given.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "hub/fd_message.h"
#include "hub_member.h"
#include "script.h"

namespace {

using namespace softhca;
using fuzz::check;
using fuzz::HubMember;
using fuzz::Script;
using hub::LinkNote;
using os::SharedRing;
using os::UniqueFd;

constexpr std::size_t kCapacity = SharedRing::kCapacityMin;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kMembers = 2;
/// Links and frames kept for later misuse.
constexpr std::size_t kKept = 16;
/// How many new rings an input may make.
constexpr unsigned kRingsMade = 32;

std::size_t open_files() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

UniqueFd copy_of(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

/// Opens the same file again.
UniqueFd opened_anew(int fd, int flags) {
  const auto path = std::filesystem::path("/proc/self/fd") / std::to_string(fd);
  return UniqueFd(::open(path.c_str(), flags | O_CLOEXEC));
}

UniqueFd memory_file(std::size_t size, int seals) {
  UniqueFd file(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  check(file && ::ftruncate(file.get(), static_cast<off_t>(size)) == 0);
  check(::fcntl(file.get(), F_ADD_SEALS, seals) == 0);
  return file;
}

/// A process, and the hub's side of it.
class Place {
 public:
  explicit Place(unsigned number)
      : mac_(hub::mac_of(number)),
        to_ring_(*SharedRing::create(kCapacity)),
        from_ring_(*SharedRing::create(kCapacity)),
        wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    int ends[2];
    check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    socket_.reset(ends[0]);
    hub::Joined joined;
    joined.number = number;
    joined.mac = mac_;
    joined.out.emplace(*SharedRing::attach(from_ring_.fd()));
    joined.in.emplace(*SharedRing::attach(to_ring_.fd()));
    joined.wake_hub.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    joined.wake_me = copy_of(wake_.get());
    joined.socket.reset(ends[1]);
    member.emplace(std::move(joined));
  }

  int wake() const { return wake_.get(); }
  int socket() const { return socket_.get(); }
  int ring(bool to) const { return to ? to_ring_.fd() : from_ring_.fd(); }
  void shut() { socket_.reset(); }

  void put(std::span<const std::byte> frame) {
    if (frame.empty()) return;
    const auto room = to_.reserve(frame.size());
    if (room.empty()) return;
    std::ranges::copy(frame, room.begin());
    to_.publish();
  }
  std::vector<std::byte> take() {
    const auto record = from_.next();
    std::vector<std::byte> frame(record.begin(), record.end());
    from_.release(from_.position());
    return frame;
  }

  std::optional<HubMember> member;

 private:
  const std::array<std::uint8_t, 6> mac_;
  UniqueFd socket_;
  SharedRing to_ring_, from_ring_;
  UniqueFd wake_;
  os::RingProducer to_{to_ring_};
  os::RingConsumer from_{from_ring_};
};

class World {
 public:
  World() {
    for (unsigned i = 0; i != kMembers; ++i) places_[i] = std::make_unique<Place>(i + 1);
  }

  void play(Script script) {
    while (!script.empty()) step(script);
    for (auto& place : places_) place->shut();
    for (int i = 0; i != 4; ++i) {
      for (auto& place : places_) turn(*place, 1000);
    }
  }

 private:
  static void turn(Place& place, std::size_t frames) {
    const fuzz::Turn turn;
    place.member->turn(frames);
  }

  /// Usually the address of one of the two.
  static wire::MacAddress mac(Script& script) {
    const auto which = script.byte();
    if (which >= 0xf0) return wire::MacAddress::from_u64(script.qword() & 0xffffffffffff);
    const auto bytes = hub::mac_of(which % 4);  // 0 is the hub's number, 3 is unused
    return wire::MacAddress::from(std::as_bytes(std::span(bytes)));
  }

  void say(Place& to, LinkNote::Kind kind, wire::MacAddress from) {
    const auto frame = LinkNote{.to = to.member->mac(), .from = from, .kind = kind}.frame();
    to.put(frame.head());
  }

  static void introduce(const Place& to, wire::MacAddress about, std::span<const int> fds) {
    hub::Introduction introduction;
    std::memcpy(introduction.mac.data(), about.bytes.data(), introduction.mac.size());
    (void)hub::send_message(to.socket(), std::as_bytes(std::span(&introduction, 1)), fds);
  }

  /// Makes a link properly.
  void make_link(std::size_t a, std::size_t b) {
    auto to_b = SharedRing::create(kCapacity), to_a = SharedRing::create(kCapacity);
    check(to_a && to_b);
    const auto tell = [&](Place& whom, const Place& of, int to, int from) {
      introduce(whom, of.member->mac(), std::array{to, from, of.wake()});
      say(whom, LinkNote::Kind::kIntroduced, of.member->mac());
    };
    tell(*places_[a], *places_[b], to_b->fd(), to_a->fd());
    tell(*places_[b], *places_[a], to_a->fd(), to_b->fd());
    keep(copy_of(to_a->fd()));
    keep(copy_of(to_b->fd()));
  }

  void keep(UniqueFd ring) {
    rings_.push_back(std::move(ring));
    if (rings_.size() > kKept) rings_.pop_front();
  }

  /// Some other file, or the right one.
  UniqueFd any_file(Script& script, const Place& place) {
    constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW;
    switch (script.byte() % 16) {
      default:
        return memory_file(kPage + kCapacity, kSealed);
      case 1:
        return memory_file(kPage + kCapacity, 0);
      case 2:
        return memory_file(kPage + kCapacity, F_SEAL_SHRINK);
      case 3:
        return memory_file(kPage + kCapacity, F_SEAL_GROW);
      case 4:
        return memory_file(kPage + kCapacity, kSealed | F_SEAL_WRITE);
      case 5:
        return memory_file(script.dword() % (8 * kCapacity), kSealed);
      case 6:
        return memory_file(std::size_t{1} << (script.byte() % 44), kSealed);
      case 7: {
        // A size that merely overflows.
        const auto size = kPage + (std::size_t{1} << (script.byte() % 63));
        UniqueFd file(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        (void)!::ftruncate(file.get(), static_cast<off_t>(size));
        ::fcntl(file.get(), F_ADD_SEALS, kSealed);
        return file;
      }
      case 8:
        return opened_anew(memory_file(kPage + kCapacity, kSealed).get(), O_RDONLY);
      case 9:
        return copy_of(place.ring(script.byte() % 2 == 0));
      case 10:
        return rings_.empty() ? UniqueFd(::eventfd(0, EFD_CLOEXEC))
                              : copy_of(rings_[script.byte() % rings_.size()].get());
      case 11:
        return copy_of(place.wake());
      case 12:
        return UniqueFd(::eventfd(script.byte(), EFD_CLOEXEC | EFD_NONBLOCK));
      case 13: {
        int ends[2];
        check(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        const UniqueFd read(ends[0]), write(ends[1]);
        return copy_of(script.byte() % 2 == 0 ? read.get() : write.get());
      }
      case 14:
        return copy_of(place.socket());
      case 15:
        return UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC));
    }
  }

  /// A message of some size about some process, with some descriptors.
  void introduce_badly(Script& script, std::size_t which) {
    Place& place = *places_[which];
    hub::Introduction introduction;
    std::memcpy(introduction.mac.data(), mac(script).bytes.data(), introduction.mac.size());
    const auto shape = script.byte();
    const std::size_t size = (shape & 0x80) != 0 ? 1 + script.byte() % 40 : sizeof introduction;
    std::array<std::byte, 40> bytes{};
    std::memcpy(bytes.data(), &introduction, sizeof introduction);
    std::vector<UniqueFd> files;
    const std::size_t count = (shape & 0x40) != 0 ? shape % 5 : std::size_t{hub::kIntroductionFds};
    std::vector<int> fds;
    for (std::size_t i = 0; i != count; ++i) {
      files.push_back(any_file(script, place));
      if (!files.back()) return;
      fds.push_back(files.back().get());
    }
    if (fds.empty()) {
      (void)!::send(place.socket(), bytes.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
      (void)hub::send_message(place.socket(), std::span(bytes).first(size), fds);
    }
    for (std::size_t i = 0; i != std::min<std::size_t>(2, files.size()); ++i) {
      keep(std::move(files[i]));
    }
    if ((shape & 0x20) == 0) say(place, LinkNote::Kind::kIntroduced, place.member->mac());
  }

  void poke(int fd, std::size_t offset, std::span<const std::byte> bytes) {
    (void)!::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
  }

  /// Writes into the memory of a link, or of a ring of the hub.
  void scribble(Script& script, int ring, bool is_index) {
    if (is_index) {
      const auto at = script.byte();
      const std::uint64_t index = (at & 0x80) != 0 ? script.qword() : script.word() * 8u;
      return poke(ring, (at & 0x40) != 0 ? 64 : 0, std::as_bytes(std::span(&index, 1)));
    }
    const std::size_t at = kPage + script.word() * 8u % (kCapacity - 256);
    poke(ring, at, script.take(script.byte()));
  }

  /// Fills an eventfd, which may be full, and may block.
  static void fill(int eventfd, bool waits) {
    const std::uint64_t most = ~std::uint64_t{1};
    ::fcntl(eventfd, F_SETFL, O_NONBLOCK);
    (void)!::write(eventfd, &most, sizeof most);
    if (waits) ::fcntl(eventfd, F_SETFL, 0);
  }

  void step(Script& script) {
    const auto action = script.byte();
    const auto kind = action % 32 % 20;
    // Limits the actions that make rings, because they take longer than all others.
    if ((kind <= 1 || kind == 19) && ++rings_made_ > kRingsMade) return;
    const std::size_t which = action >> 5 & 1;
    auto& place = *places_[which];
    const bool flag = (action & 0x80) != 0;
    switch (kind) {
      case 0:
        return make_link(which, flag ? which : 1 - which);
      case 1:
        return introduce_badly(script, which);
      case 2: {
        const auto note = static_cast<LinkNote::Kind>(script.byte() % 7);
        return say(place, note, mac(script));
      }
      case 3:
      case 4:
        // Forwards what each sends to the other, as a hub does.
        for (auto left = 1 + script.byte() % 32; left != 0; --left) {
          places_[1 - which]->put(place.take());
        }
        return;
      case 5:
        kept_.push_back(place.take());
        if (kept_.size() > kKept) kept_.pop_front();
        return;
      case 6:
        if (!kept_.empty()) place.put(kept_[script.byte() % kept_.size()]);
        return;
      case 7:
        return place.member->send(mac(script).to_u64(), std::byte{1});
      case 8:
        return place.member->send_train(mac(script).to_u64(), script.byte());
      case 9:
      case 10:
        return turn(place, script.byte());
      case 11: {
        const fuzz::Turn turn;
        return place.member->turn_without_delivery(script.byte());
      }
      case 12: {
        const fuzz::Turn turn;
        (void)place.member->link().prepare_to_sleep();
        (void)place.member->link().room(script.dword());
        return;
      }
      case 13:
      case 14:
        if (!rings_.empty()) {
          scribble(script, rings_[script.byte() % rings_.size()].get(), flag);
        }
        return;
      case 15:
        return scribble(script, place.ring((action & 0x40) != 0), flag);
      case 16:
        if (!rings_.empty()) {
          (void)!::ftruncate(rings_[script.byte() % rings_.size()].get(), script.dword());
        }
        return;
      case 17:
        return fill(place.wake(), flag);
      case 18:
        if (flag) {
          ::shutdown(place.socket(), SHUT_RDWR);
        } else {
          const auto bytes = script.take(script.byte());
          (void)!::send(place.socket(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        }
        return;
      case 19:
        // The process leaves at any moment. Its number may be reused right after.
        places_[which].reset();
        places_[which] = std::make_unique<Place>(1 + static_cast<unsigned>(flag ? 2 : which));
        return;
      default:
        return;
    }
  }

  std::array<std::unique_ptr<Place>, kMembers> places_;
  unsigned rings_made_ = 0;
  std::deque<UniqueFd> rings_;
  std::deque<std::vector<std::byte>> kept_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::run_input([&] {
    const auto files = open_files();
    World().play(Script(data, size));
    check(open_files() == files);
  });
}
