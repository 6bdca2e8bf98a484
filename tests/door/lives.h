// The cases of lives.cc: situations that long-running programs get into. Each case prints its
// observations; lives.py has the expected output.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "loop_qps.h"

namespace lives {

struct Case {
  const char* name;
  int (*run)();
};

std::span<const Case> ends();       ///< lives_ends.cc: how processes end
std::span<const Case> pages();      ///< lives_pages.cc: protections of memory that a device uses
std::span<const Case> signals();    ///< lives_signals.cc: handlers of the program
std::span<const Case> files();      ///< lives_files.cc: descriptors
std::span<const Case> limits();     ///< lives_limits.cc: processes with few rights
std::span<const Case> meanwhile();  ///< lives_meanwhile.cc: other calls during a long one
std::span<const Case> held();       ///< lives_held.cc: threads stopped in the middle of a call
std::span<const Case> tree();       ///< lives_tree.cc: files of the tree

/// Prints whether a call has succeeded.
inline void tell(const char* what, long result) {
  std::printf("%s: %s\n", what, result >= 0 ? "ok" : std::strerror(errno));
}

inline ibv_device* first() {
  auto** const list = ibv_get_device_list(nullptr);
  expect(list != nullptr && list[0] != nullptr, "no device");
  return list[0];
}

inline ibv_context* open_first() { return ibv_open_device(first()); }

inline ibv_context* open_devx() {
  mlx5dv_context_attr devx{};
  devx.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
  auto* const context = mlx5dv_open_device(first(), &devx);
  expect(context != nullptr, "open");
  return context;
}

/// Posts one operation of a queue pair of `loop` on `size` bytes of its peer's memory.
inline void post(const Loop& loop, ibv_wr_opcode verb, char* local, std::uint32_t lkey,
                 const void* remote, std::uint32_t rkey, std::uint32_t size = 8) {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(local), size, lkey};
  ibv_send_wr work{};
  work.sg_list = &piece;
  work.num_sge = 1;
  work.opcode = verb;
  work.send_flags = IBV_SEND_SIGNALED;
  work.wr.rdma = {reinterpret_cast<std::uintptr_t>(remote), rkey};
  if (verb == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    work.wr.atomic = {reinterpret_cast<std::uintptr_t>(remote), 5, 0, rkey};
  }
  ibv_send_wr* bad;
  expect(ibv_post_send(loop.qp, &work, &bad) == 0, "post");
}

/// The same, and how it ends.
inline const char* access(const Loop& loop, ibv_wr_opcode verb, char* local, std::uint32_t lkey,
                          const void* remote, std::uint32_t rkey, std::uint32_t size = 8) {
  post(loop, verb, local, lkey, remote, rkey, size);
  ibv_wc completion{};
  while (ibv_poll_cq(loop.cq, 1, &completion) == 0) {
  }
  return ibv_wc_status_str(completion.status);
}

/// An address that no process has.
inline ibv_ah_attr unknown_address() {
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.port_num = 1;
  attributes.grh.sgid_index = kGidIndex;
  attributes.grh.dgid.raw[10] = attributes.grh.dgid.raw[11] = 0xff;
  const std::uint8_t unknown[] = {10, 99, 99, 99};
  std::memcpy(&attributes.grh.dgid.raw[12], unknown, 4);
  return attributes;
}

}  // namespace lives
