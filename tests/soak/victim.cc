#include "victim.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <random>
#include <thread>
#include <vector>

#include "loop_hca.h"
#include "server/served_test.h"
#include "vfio_user/client.h"

namespace softhca::soak {
namespace {

using namespace std::chrono_literals;
using namespace vfio_user::protocol;
using Random = std::mt19937_64;
using os::UniqueFd;
using vfio_user::Client;

constexpr std::uint64_t kPage = 4096;

void write_by_rdma(const std::string& socket) {
  neighbours::LoopHca loop(socket, 2, 1 << 20);
  std::vector<neighbours::LoopPair> pairs;
  for (int i = 0; i < 3; ++i) pairs.push_back(loop.make_pair());
  const auto piece = loop.piece(0, 1 << 18);
  for (;;) {
    for (auto& pair : pairs) {
      (void)pair.from->post_send({.opcode = driver::SendOpcode::kRdmaWrite,
                                  .pieces = {&piece, 1},
                                  .remote_address = loop.iova(1 << 19),
                                  .rkey = loop.key()});
    }
    std::array<driver::Completion, 64> done;
    (void)loop.cq().poll(done);
  }
}

void copy_by_sdxi(const std::string& socket, Random& random) {
  server::Mover mover(socket);
  auto from = mover.memory(std::byte{7}, 1 << 20), to = mover.memory(std::byte{0}, 1 << 20);
  for (;;) {
    const auto done = mover.context->copy({to.iova()}, {from.iova()}, 1 + random() % (1 << 20));
    if (done && random() % 2 == 0) (void)mover.context->wait(*done);
  }
}

Client connect(const std::string& socket) {
  auto client = neighbours::must(Client::connect(socket, {.timeout = 20s, .pump = {}}));
  (void)neighbours::must(client.negotiate());
  return client;
}

UniqueFd memory_file() {
  UniqueFd file(::memfd_create("soak", MFD_CLOEXEC));
  if (::ftruncate(file.get(), 256 * kPage) != 0) throw std::runtime_error("ftruncate");
  return file;
}

void map_and_unmap(const std::string& socket, Random& random) {
  auto client = connect(socket);
  const auto file = memory_file();
  for (;;) {
    const auto address = random() % 1024 * kPage;
    const auto size = (1 + random() % 64) * kPage;
    if (random() % 4 == 0) {
      (void)client.unmap_dma(address, 16 * size);
    } else if (random() % 64 == 0) {
      const DmaUnmap all{.argsz = sizeof all, .flags = kDmaUnmapAll, .address = 0, .size = 0};
      (void)client.call(Command::kDmaUnmap, all);
    } else {
      (void)client.map_dma(address, size, random() % 16 == 0 ? -1 : file.get(), 0);
    }
  }
}

void send_halves(const std::string& socket, Random& random) {
  auto client = connect(socket);
  const auto file = memory_file();
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const std::array fds{file.get(), event.get(), file.get()};
  for (int i = 0; i < 20; ++i) {
    (void)client.map_dma(static_cast<std::uint64_t>(i) * kPage, kPage, file.get(), 0);
  }
  const Header head{.message_id = 1,
                    .command = static_cast<std::uint16_t>(
                        random() % 2 == 0 ? Command::kDmaMap : Command::kDeviceSetIrqs),
                    .message_size = static_cast<std::uint32_t>(sizeof head + 32 + random() % 4096),
                    .flags = 0,
                    .error = 0};
  std::vector<std::byte> bytes(sizeof head + random() % 32);
  std::memcpy(bytes.data(), &head, sizeof head);
  (void)client.send_raw(bytes, std::span(fds).first(random() % 4));
  for (;;) {
    std::this_thread::sleep_for(200us);
    if (random() % 8 == 0) (void)client.send_raw(std::span(bytes).first(1), {});
  }
}

void set_interrupts(const std::string& socket, Random& random) {
  auto client = connect(socket);
  std::vector<UniqueFd> events;
  std::vector<int> fds;
  for (int i = 0; i < 8; ++i) {
    events.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    fds.push_back(events.back().get());
  }
  for (;;) {
    const auto first = static_cast<std::uint32_t>(random() % 24);
    switch (random() % 8) {
      case 0:
        (void)client.set_irqs(kIrqSetDataNone | kIrqSetActionTrigger, kMsixIrqIndex, 0, 0);
        break;
      case 1:
        (void)client.reset();
        break;
      case 2:
        (void)client.set_irqs(kIrqSetDataNone | kIrqSetActionTrigger, kMsixIrqIndex, first, 8);
        break;
      default:
        (void)client.set_irqs(kIrqSetDataEventfd | kIrqSetActionTrigger, kMsixIrqIndex, first, 8,
                              {}, fds);
    }
  }
}

void work_on(const std::string& socket, Work work, Random& random) {
  switch (work) {
    case Work::kRdmaWrites:
      return write_by_rdma(socket);
    case Work::kSdxiCopies:
      return copy_by_sdxi(socket, random);
    case Work::kMaps:
      return map_and_unmap(socket, random);
    case Work::kHalfMessages:
      return send_halves(socket, random);
    case Work::kInterrupts:
      return set_interrupts(socket, random);
  }
}

}  // namespace

Victim::Victim(std::string socket, Work work, std::uint64_t seed) {
  const auto parent = ::getpid();
  pid_ = ::fork();
  if (pid_ != 0) return;
  // The child uses only these values, because the parent's threads do not exist in it.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  try {
    Random random(seed);
    work_on(socket, work, random);
  } catch (const std::exception&) {
    // The server was killed, or is not up yet.
  }
  ::_exit(1);
}

Victim::~Victim() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

}  // namespace softhca::soak
