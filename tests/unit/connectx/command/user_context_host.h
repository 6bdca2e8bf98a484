// Contexts of processes, for DevX tests: the kernel makes them, then commands carry their uid.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "connectx/fake_host.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx {

/// Makes the host's commands carry `uid` during this object's lifetime.
class As {
 public:
  As(FakeHost& host, std::uint16_t uid) : host_(host), before_(host.uid) { host.uid = uid; }
  As(const As&) = delete;
  As& operator=(const As&) = delete;
  ~As() { host_.uid = before_; }

 private:
  FakeHost& host_;
  std::uint16_t before_;
};

inline Reply try_create_uctx(FakeHost& host, std::uint32_t capabilities) {
  using In = spec::connectx::create_uctx_in;
  return host.call<spec::connectx::create_uctx_out, In>(
      FakeHost::Opcode::CREATE_UCTX,
      [&](auto in) { in.sub(In::uctx).set(spec::connectx::uctx::cap, capabilities); });
}

/// Expects success.
inline std::uint16_t create_uctx(FakeHost& host, std::uint32_t capabilities = 0) {
  using Out = spec::connectx::create_uctx_out;
  const auto reply = try_create_uctx(host, capabilities);
  EXPECT_TRUE(reply) << reply.reason();
  return static_cast<std::uint16_t>(reply.as<Out>().get(Out::uid));
}

inline spec::connectx::command_status destroy_uctx(FakeHost& host, std::uint16_t uid) {
  using In = spec::connectx::destroy_uctx_in;
  return host
      .call<spec::connectx::destroy_uctx_out, In>(FakeHost::Opcode::DESTROY_UCTX,
                                                  [&](auto in) { in.set(In::uid, uid); })
      .status();
}

/// A set of Q counters that `uid` allocates. Expects success.
inline std::uint32_t allocate_q_counter(FakeHost& host, std::uint16_t uid) {
  using Out = spec::connectx::alloc_q_counter_out;
  const As as(host, uid);
  const auto reply = host.call<Out, spec::connectx::alloc_q_counter_in>(
      FakeHost::Opcode::ALLOC_Q_COUNTER, [](auto) {});
  EXPECT_TRUE(reply) << reply.reason();
  return reply.as<Out>().get(Out::counter_set_id);
}

}  // namespace softhca::connectx
