// A program for guests: driver/jingzhao on two JingZhao functions of the PCI bus, with operations
// that tests/verbs has in one process.
//
//   jingzhao_guest ADDRESS ADDRESS           messages, memory, atomics, an interrupt, an error
//   jingzhao_guest ADDRESS ADDRESS forever   WRITEs without end; prints a line when they flow
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "driver/jingzhao/verbs_device.h"
#include "driver/verbs/verbs.h"
#include "driver/vfio_host.h"

namespace softhca::driver::verbs {
namespace {

using namespace std::chrono_literals;

[[noreturn]] void end(const std::string& why) {
  fmt::print(stderr, "jingzhao_guest: {}\n", why);
  std::exit(1);
}

template <class T>
T must(util::Result<T> result, const char* what) {
  if (!result) end(fmt::format("{}: {}", what, result.error().message));
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

void expect(bool holds, const char* what) {
  if (!holds) end(what);
}

constexpr std::size_t kSize = 1 << 20;

/// A function with a queue pair.
struct End {
  End(const std::string& address, std::uint8_t number)
      : host(must(VfioHost::open(address), "the function")),
        device(must(jingzhao::open_verbs(*host, mac(number)), "bringing it up")),
        pd(must(device.allocate_pd(), "a PD")),
        region(must(pd.register_memory(memory, MemoryAccess::all()), "memory")),
        cq(must(device.create_cq(), "a CQ")),
        qp(must(pd.create_qp({.send_cq = cq, .receive_cq = cq}), "a QP")) {
    must(device.set_gid(0, Gid::from_ipv4(10, 0, 0, number)), "an address");
    wait_for_link();
  }
  /// On InfiniBand the port first waits for a LID from the subnet manager.
  void wait_for_link() {
    const auto limit = util::monotonic_now() + 20s;
    while (!must(device.link_is_up(), "the state of the port")) {
      expect(util::monotonic_now() < limit, "the port does not come up");
    }
  }
  static Mac mac(std::uint8_t number) {
    Mac mac;
    mac.bytes[0] = std::byte{2};
    mac.bytes[5] = std::byte{number};
    return mac;
  }

  std::span<std::byte> sent() { return std::span(memory).first(kSize); }
  std::span<std::byte> received() { return std::span(memory).subspan(kSize); }
  /// The first `size` bytes of both halves: a guest's processor is too slow for all of them.
  void fill(unsigned seed, std::size_t size) {
    for (std::size_t i = 0; i != size; ++i) {
      memory[i] = static_cast<std::byte>(i * 7 + i / 256 + seed);
      memory[kSize + i] = std::byte{};
    }
  }
  void post(SendRequest request, std::size_t size, End& to) {
    const auto piece = region.piece(request.opcode == SendOpcode::kRdmaRead ? kSize : 0, size);
    request.pieces = {&piece, 1};
    request.remote_address = to.region.address(request.opcode == SendOpcode::kRdmaRead ? 0 : kSize);
    request.rkey = to.region.rkey();
    expect(qp.post_send(request) == PostStatus::kOk, "posting a request");
  }
  void receive(std::size_t size) {
    const auto piece = region.piece(kSize, size);
    expect(qp.post_receive({.pieces = {&piece, 1}}) == PostStatus::kOk, "posting a receive");
  }
  Completion wait() {
    const auto done = must(cq.wait(), "a completion");
    if (done.status != WorkStatus::kSuccess) end(std::string(driver::to_string(done.status)));
    return done;
  }

  std::vector<std::byte> memory = std::vector<std::byte>(2 * kSize);
  std::unique_ptr<Host> host;
  Device device;
  ProtectionDomain pd;
  MemoryRegion region;
  CompletionQueue cq;
  QueuePair qp;
};

/// Messages in both directions, each compared.
void ping_pong(End& a, End& b) {
  unsigned rounds = 0;
  for (std::size_t size = 1; size <= kSize; size = size * 3 + 1) {
    for (auto [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      from->fill(++rounds, size);
      to->fill(0, size);
      to->receive(size);
      from->post({.opcode = SendOpcode::kSendWithImmediate, .immediate = rounds}, size, *to);
      const auto received = to->wait();
      (void)from->wait();
      expect(received.immediate == rounds, "the immediate data differ");
      expect(received.byte_count == size, "the length differs");
      expect(std::ranges::equal(from->sent().first(size), to->received().first(size)),
             "the bytes differ");
    }
  }
  const auto lid = a.device.attributes().lid;
  fmt::print("{} messages, each compared, over {}\n", rounds, lid == 0 ? "Ethernet" : "InfiniBand");
}

/// One side's memory, written, read and changed by atomics of the other side.
void reach_into_memory(End& a, End& b) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{4097}, kSize}) {
    a.fill(1, size);
    b.fill(2, size);
    a.post({.opcode = SendOpcode::kRdmaWrite}, size, b);
    (void)a.wait();
    expect(std::ranges::equal(a.sent().first(size), b.received().first(size)), "a WRITE differs");
    a.post({.opcode = SendOpcode::kRdmaRead}, size, b);
    (void)a.wait();
    expect(std::ranges::equal(a.received().first(size), b.sent().first(size)), "a READ differs");
  }
  std::uint64_t counter = 40;
  std::memcpy(b.received().data(), &counter, sizeof counter);
  for (const std::uint64_t before : {40, 41}) {
    a.post({.opcode = SendOpcode::kFetchAdd, .swap_or_add = 1}, sizeof counter, b);
    (void)a.wait();
    std::memcpy(&counter, a.memory.data(), sizeof counter);
    expect(counter == before, "an atomic's old value differs");
  }
}

/// Sleeps until an MSI-X interrupt, through the guest's kernel.
void sleep_for_an_event(End& a, End& b) {
  b.receive(8);
  b.cq.arm();
  a.post({.opcode = SendOpcode::kSend}, 8, b);
  const auto limit = util::monotonic_now() + 20s;
  std::optional<std::uint32_t> event;
  while (!(event = b.device.poll_completion_event())) {
    expect(util::monotonic_now() < limit, "no interrupt within 20 s");
    b.device.wait_completion_event(util::monotonic_now() + 1s);
  }
  expect(*event == b.cq.number(), "an event of another CQ");
  // The event may be visible in memory before its interrupt has passed the guest's kernel.
  while (b.host->interrupts(1) == 0) {
    expect(util::monotonic_now() < limit, "an event without an interrupt");
  }
  (void)b.wait();
  (void)a.wait();
}

/// Keeps several WRITEs in flight until the process is killed.
[[noreturn]] void write_for_ever(End& a, End& b) {
  constexpr unsigned kUnderway = 4, kFlowing = 16;
  for (unsigned i = 0; i != kUnderway; ++i) a.post({.opcode = SendOpcode::kRdmaWrite}, kSize, b);
  for (unsigned done = 0;;) {
    (void)a.wait();
    a.post({.opcode = SendOpcode::kRdmaWrite}, kSize, b);
    if (done != kFlowing && ++done == kFlowing) {
      fmt::print("WRITEs flow\n");
      std::fflush(stdout);
    }
  }
}

int run(const std::string& first, const std::string& second, bool for_ever) {
  End a(first, 1), b(second, 2);
  must(connect(a.qp, b.qp, {.path_mtu = 4096}), "connecting");
  if (for_ever) write_for_ever(a, b);
  ping_pong(a, b);
  reach_into_memory(a, b);
  sleep_for_an_event(a, b);
  // A refused request ends in the document's syndrome.
  const auto piece = a.region.piece(0, 8);
  expect(a.qp.post_send({.opcode = SendOpcode::kRdmaWrite,
                         .pieces = {&piece, 1},
                         .remote_address = b.region.address(),
                         .rkey = b.region.rkey() ^ 0x10000}) == PostStatus::kOk,
         "posting a request");
  expect(must(a.cq.wait(), "a completion").status == WorkStatus::kRemoteAccess,
         "no error of a wrong key");
  fmt::print("ok\n");
  return 0;
}

}  // namespace
}  // namespace softhca::driver::verbs

int main(int argc, char** argv) {
  const bool for_ever = argc == 4 && std::string_view(argv[3]) == "forever";
  if (argc != 3 && !for_ever) {
    fmt::print(stderr, "usage: jingzhao_guest ADDRESS ADDRESS [forever]\n");
    return 2;
  }
  return softhca::driver::verbs::run(argv[1], argv[2], for_ever);
}
