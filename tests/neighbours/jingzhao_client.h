// A guest with a JingZhao HCA, and attacks on it that several tests use.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "driver/jingzhao/completion_queue.h"
#include "driver/jingzhao/hca.h"
#include "driver/vfio_user_host.h"
#include "loop_hca.h"
#include "spec/jingzhao/context.h"

namespace softhca::neighbours {

namespace jz = driver::jingzhao;

struct JingzhaoClient {
  /// On a busy machine a command takes long.
  static constexpr jz::Hca::Options kDefaults{.patience = std::chrono::seconds(20)};

  explicit JingzhaoClient(const std::string& socket, const jz::Hca::Options& options = kDefaults)
      : host(must(driver::VfioUserHost::connect(socket, {.timeout = std::chrono::seconds(30)}))),
        hca(must(jz::Hca::open(*host, options))),
        cq(must(jz::CompletionQueue::create(*hca))) {}
  ~JingzhaoClient() {
    using enum spec::jingzhao::command_opcode;
    constexpr std::uint8_t kNoMailbox = 3;
    for (const auto qpn : bare_qpns) {
      (void)hca->run({.op = ERR2RST_QPEE, .in_modifier = qpn, .op_modifier = kNoMailbox});
    }
  }
  JingzhaoClient(const JingzhaoClient&) = delete;
  JingzhaoClient& operator=(const JingzhaoClient&) = delete;

  /// Makes queue pairs in INIT, which have no memory.
  void make_bare_queue_pairs(unsigned count) {
    using Context = spec::jingzhao::qp_context;
    for (unsigned i = 0; i != count; ++i) {
      const auto qpn = hca->qpns().allocate().value();
      util::Struct<Context> context;
      context.set(Context::state, static_cast<std::uint32_t>(spec::jingzhao::qp_state::INIT));
      context.set(Context::type, static_cast<std::uint32_t>(spec::jingzhao::qp_type::UD));
      context.set(Context::local_qpn, qpn);
      context.set(Context::port, 1);
      context.set(Context::cqn_snd, cq->cqn());
      context.set(Context::cqn_rcv, cq->cqn());
      must(hca->run({.op = spec::jingzhao::command_opcode::RST2INIT_QPEE,
                     .in_modifier = qpn,
                     .in = context.bytes()}));
      bare_qpns.push_back(qpn);
    }
  }

  std::unique_ptr<driver::VfioUserHost> host;
  std::unique_ptr<jz::Hca> hca;
  std::unique_ptr<jz::CompletionQueue> cq;
  std::vector<std::uint32_t> bare_qpns;
};

}  // namespace softhca::neighbours
