// Clients of a server with a process for each guest: an HCA with a queue pair.
#pragma once

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "driver/connectx/completion_queue.h"
#include "driver/connectx/hca.h"
#include "driver/connectx/protection_domain.h"
#include "driver/connectx/queue_pair.h"
#include "driver/dma_memory.h"
#include "driver/vfio_user_host.h"
#include "spec/connectx/mkey.h"

namespace softhca::cli {

template <class T>
T must(util::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}
inline void must(const util::Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

/// Tries until the server is there.
inline std::unique_ptr<driver::VfioUserHost> connect_host(const std::string& path) {
  using namespace std::chrono_literals;
  for (int i = 0;; ++i) {
    auto host = driver::VfioUserHost::connect(path, {.timeout = 20s});
    if (host || i == 1000) return must(std::move(host));
    std::this_thread::sleep_for(10ms);
  }
}

/// A guest with one HCA and one queue pair.
struct HcaClient {
  static constexpr std::size_t kMemory = 256 << 10;

  /// `number` makes its address.
  HcaClient(const std::string& path, std::uint8_t number)
      : host(connect_host(path)),
        hca(must(driver::connectx::Hca::open(*host, {.patience = std::chrono::seconds(3)}))),
        gid(driver::Gid::from_ipv4(10, 0, 0, number)),
        memory(must(driver::DmaBuffer::allocate(*host, kMemory))),
        pd(must(driver::connectx::ProtectionDomain::create(*hca))),
        cq(must(driver::connectx::CompletionQueue::create(*hca))),
        qp(must(driver::connectx::QueuePair::create(*pd, {.send_cq = *cq, .receive_cq = *cq}))) {
    must(hca->set_roce_address(0, {.gid = gid, .mac = hca->mac()}));
    make_key();
  }
  ~HcaClient() { destroy_key(); }
  HcaClient(const HcaClient&) = delete;
  HcaClient& operator=(const HcaClient&) = delete;

  void connect(const HcaClient& peer) {
    must(qp->connect({.qpn = peer.qp->qpn(), .psn = 0, .gid = peer.gid, .mac = peer.hca->mac()},
                     {.path_mtu = 4096}));
  }

  /// Writes `size` bytes from the start of our memory to the start of the peer's, and waits.
  driver::WorkStatus write(const HcaClient& peer, std::size_t size, util::Duration patience) {
    const driver::Sge piece{memory.iova(), static_cast<std::uint32_t>(size), key};
    const auto posted = qp->post_send({.id = 1,
                                       .opcode = driver::SendOpcode::kRdmaWrite,
                                       .pieces = {&piece, 1},
                                       .remote_address = peer.memory.iova(),
                                       .rkey = peer.key});
    if (posted != driver::PostStatus::kOk) throw std::runtime_error("post_send");
    driver::Completion done;
    for (const auto end = util::monotonic_now() + patience; cq->poll({&done, 1}) == 0;) {
      if (host->lost()) throw std::runtime_error("the server has gone");
      if (util::monotonic_now() > end) throw std::runtime_error("no completion");
      std::this_thread::yield();
    }
    return done.status;
  }

  std::unique_ptr<driver::VfioUserHost> host;
  std::unique_ptr<driver::connectx::Hca> hca;
  driver::Gid gid;
  driver::DmaBuffer memory;
  std::unique_ptr<driver::connectx::ProtectionDomain> pd;
  std::unique_ptr<driver::connectx::CompletionQueue> cq;
  std::unique_ptr<driver::connectx::QueuePair> qp;
  std::uint32_t key = 0;

 private:
  /// For all bus addresses, which peers may write and read (PRM 6.4.1, mode PA).
  void make_key() {
    using spec::connectx::create_mkey_in, spec::connectx::mkey_context;
    driver::connectx::Request<create_mkey_in> in(spec::connectx::command_opcode::CREATE_MKEY);
    const auto context = in.sub(create_mkey_in::mkey_context);
    const auto variant = hca->next_key_variant();
    context.set(mkey_context::lr, 1);
    context.set(mkey_context::lw, 1);
    context.set(mkey_context::rr, 1);
    context.set(mkey_context::rw, 1);
    context.set(mkey_context::pd, pd->pd());
    context.set(mkey_context::qpn, 0xffffff);
    context.set(mkey_context::mkey, variant);
    context.set(mkey_context::access_mode,
                static_cast<std::uint32_t>(spec::connectx::mkey_access_mode::PA));
    context.set(mkey_context::length64, 1);
    const auto out = must(hca->commands().execute<spec::connectx::create_mkey_out>(in));
    key = out.get(spec::connectx::create_mkey_out::mkey_index) << 8 | variant;
  }
  void destroy_key() {
    if (key == 0 || host->lost()) return;
    using spec::connectx::destroy_mkey_in;
    driver::connectx::Request<destroy_mkey_in> in(spec::connectx::command_opcode::DESTROY_MKEY);
    in.set(destroy_mkey_in::mkey_index, key >> 8);
    (void)hca->commands().run(in);
  }
};

}  // namespace softhca::cli
