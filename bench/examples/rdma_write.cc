// Moves bytes from one software ConnectX to another in this process with an RDMA WRITE.
#include <cstdio>
#include <cstring>

#include "connectx/device.h"
#include "driver/connectx/memory_key.h"
#include "driver/connectx/queue_pair.h"
#include "driver/in_process_host.h"
#include "fabric/switch.h"

using namespace softhca::driver;
using namespace softhca::driver::connectx;

/// The driver on one card, and the objects of one connection. value() throws if a step fails.
struct Side {
  Side(softhca::pcie::Function& card, std::function<void()> progress, std::uint8_t number)
      : host(card, {.progress = std::move(progress)}),
        gid(Gid::from_ipv4(10, 0, 0, number)),
        hca(Hca::open(host).value()),  // brings the card up: all of PRM 8.2
        pd(ProtectionDomain::create(*hca).value()),
        key(MemoryKey::register_memory(*pd, memory, {.remote_write = true}).value()),
        cq(CompletionQueue::create(*hca).value()),
        qp(QueuePair::create(*pd, {.send_cq = *cq, .receive_cq = *cq}).value()) {}
  RemoteQueuePair name() const { return {qp->qpn(), 0, gid, hca->mac()}; }
  bool connect(const Side& peer) {  // sets its address; RESET -> INIT -> RTR -> RTS
    return hca->set_roce_address(0, {gid, hca->mac()}) && qp->connect(peer.name(), {});
  }
  std::array<std::byte, 4096> memory{};
  InProcessHost host;
  Gid gid;
  std::unique_ptr<Hca> hca;
  std::unique_ptr<ProtectionDomain> pd;
  std::unique_ptr<MemoryKey> key;
  std::unique_ptr<CompletionQueue> cq;
  std::unique_ptr<QueuePair> qp;
};

int main() {
  softhca::fabric::Switch network;
  const auto port1 = network.create_port("1"), port2 = network.create_port("2");
  softhca::connectx::Device card1({.mac = {std::byte{2}, {}, {}, {}, {}, std::byte{1}}}, *port1);
  softhca::connectx::Device card2({.mac = {std::byte{2}, {}, {}, {}, {}, std::byte{2}}}, *port2);
  const auto progress = [&] {  // hardware needs no such call
    for (auto* card : {&card1, &card2})
      card->run(softhca::util::monotonic_now()), network.deliver(1000);
  };
  Side a(card1, progress, 1), b(card2, progress, 2);
  if (!a.connect(b) || !b.connect(a)) return 1;

  std::strcpy(reinterpret_cast<char*>(a.memory.data()), "these bytes crossed the wire");
  const Sge from{reinterpret_cast<std::uintptr_t>(a.memory.data()), 64, a.key->key()};
  const auto to = reinterpret_cast<std::uintptr_t>(b.memory.data());
  const SendRequest write{0, SendOpcode::kRdmaWrite, {&from, 1}, {}, to, b.key->key()};
  if (a.qp->post_send(write) != PostStatus::kOk) return 1;
  Completion done;
  while (a.cq->poll({&done, 1}) == 0) {
  }
  std::printf("%s: %s\n", to_string(done.status).data(), reinterpret_cast<char*>(b.memory.data()));
  return done.status == WorkStatus::kSuccess ? 0 : 1;
}
