// Memory runs out while a call of the program is served. Each call runs with 0, 48, 96, ... bytes
// that the door can still allocate. A call that has begun succeeds, from the reserve. The next
// call, without a reserve, succeeds or fails with ENOMEM. Once there is memory, everything works.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <link.h>
#include <linux/netlink.h>
#include <malloc.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "loop_qps.h"

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* memory);
}

namespace {

thread_local bool is_short = false;
thread_local std::size_t left = 0;  ///< bytes that the door may allocate while is_short
thread_local bool failed = false;

struct Range {
  std::uintptr_t begin, end;
};
/// The code of the door and of the C++ library, whose allocations count. Only the door uses the C++
/// library meanwhile.
std::array<Range, 16> of_door;
std::size_t of_door_count = 0;

int note_ranges(dl_phdr_info* object, std::size_t, void*) {
  if (std::strstr(object->dlpi_name, "softhca") == nullptr &&
      std::strstr(object->dlpi_name, "libstdc++") == nullptr) {
    return 0;
  }
  for (int i = 0; i != object->dlpi_phnum; ++i) {
    const auto& part = object->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || of_door_count == of_door.size()) continue;
    const auto begin = object->dlpi_addr + part.p_vaddr;
    of_door[of_door_count++] = {begin, begin + part.p_memsz};
  }
  return 0;
}

bool counts(const void* caller) {
  if (!is_short) return false;
  const auto at = reinterpret_cast<std::uintptr_t>(caller);
  for (std::size_t i = 0; i != of_door_count; ++i) {
    if (at >= of_door[i].begin && at < of_door[i].end) return true;
  }
  return false;
}

bool fails(const void* caller, std::size_t size) {
  if (!counts(caller)) return false;
  if (size <= left) {
    left -= size;
    return false;
  }
  failed = true;
  errno = ENOMEM;
  return true;
}

}  // namespace

extern "C" {
void* malloc(std::size_t size) {
  return fails(__builtin_return_address(0), size) ? nullptr : __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  return fails(__builtin_return_address(0), count * size) ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) {
  return fails(__builtin_return_address(0), size) ? nullptr : __libc_realloc(memory, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return fails(__builtin_return_address(0), size) ? nullptr : __libc_memalign(alignment, size);
}
void free(void* memory) {
  if (memory != nullptr && counts(__builtin_return_address(0))) left += malloc_usable_size(memory);
  __libc_free(memory);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  if (fails(__builtin_return_address(0), size)) return ENOMEM;
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
}

namespace {

bool good = true;
unsigned calls_short = 0;

/// Runs `call` with so many bytes. Returns false if they were enough.
template <class Call, class Undo>
bool with_bytes(std::size_t bytes, const char* name, bool may_fail, Call&& call, Undo&& undo) {
  failed = false;
  left = bytes;
  is_short = true;
  const int wrong = call();
  is_short = false;
  calls_short += failed;
  if (wrong == 0) undo();
  // ENOENT: after the failure, a library has looked in another place, too. EOPNOTSUPP: libmlx5 asks
  // for a context of an older interface if the first answer is ENOMEM. That second call can begin
  // if the engine's thread has restored the reserve meanwhile.
  const bool is_of_memory = wrong == ENOMEM || wrong == ENOENT || wrong == EOPNOTSUPP;
  if (wrong != 0 && !(may_fail && is_of_memory)) {
    std::printf("%s, %zu bytes: %s\n", name, bytes, std::strerror(wrong));
    good = false;
  }
  return failed;
}

/// `call` returns 0 or an errno. `undo` undoes it. `may_fail`: the call has no reserve.
template <class Call, class Undo>
void without_memory(const Loop& loop, const char* name, bool may_fail, Call&& call, Undo&& undo) {
  constexpr std::size_t kStep = 48, kMost = 64 << 10;
  for (std::size_t bytes = 0; bytes < kMost; bytes += kStep) {
    // This call has memory, and so restores the reserve.
    ibv_device_attr attributes{};
    expect(ibv_query_device(loop.context, &attributes) == 0, "query");
    if (!with_bytes(bytes, name, may_fail, call, undo)) break;
    // The reserve is used up: no call begins.
    (void)with_bytes(0, name, true, call, undo);
  }
  if (const int wrong = call(); wrong != 0) {
    std::printf("%s, with memory: %s\n", name, std::strerror(wrong));
    good = false;
  } else {
    undo();
  }
}

int errno_of(bool did) { return did ? 0 : errno; }

void make_objects(const Loop& loop) {
  static void* made = nullptr;
  const auto make = [&loop](const char* name, auto&& create, auto&& destroy) {
    without_memory(
        loop, name, false, [&] { return errno_of((made = create()) != nullptr); },
        [&] { expect(destroy() == 0, name); });
  };
  static char* const bytes = memory();
  make(
      "PD", [&] { return ibv_alloc_pd(loop.context); },
      [] { return ibv_dealloc_pd(static_cast<ibv_pd*>(made)); });
  make(
      "MR", [&] { return ibv_reg_mr(loop.pd, bytes, kSize, kAccess); },
      [] { return ibv_dereg_mr(static_cast<ibv_mr*>(made)); });
  make(
      "MW", [&] { return ibv_alloc_mw(loop.pd, IBV_MW_TYPE_2); },
      [] { return ibv_dealloc_mw(static_cast<ibv_mw*>(made)); });
  make(
      "CQ", [&] { return ibv_create_cq(loop.context, 64, nullptr, nullptr, 0); },
      [] { return ibv_destroy_cq(static_cast<ibv_cq*>(made)); });
  make(
      "SRQ",
      [&] {
        ibv_srq_init_attr attributes{};
        attributes.attr = {16, 1, 0};
        return ibv_create_srq(loop.pd, &attributes);
      },
      [] { return ibv_destroy_srq(static_cast<ibv_srq*>(made)); });
  ibv_gid gid;
  expect(ibv_query_gid(loop.context, 1, kGidIndex, &gid) == 0, "GID");
  make(
      "AH",
      [&] {
        ibv_ah_attr attributes{};
        attributes.is_global = 1;
        attributes.port_num = 1;
        attributes.grh.sgid_index = kGidIndex;
        attributes.grh.dgid = gid;
        return ibv_create_ah(loop.pd, &attributes);
      },
      [] { return ibv_destroy_ah(static_cast<ibv_ah*>(made)); });
  const auto create_qp = [&] {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = loop.cq;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {16, 16, 1, 1, 0};
    return ibv_create_qp(loop.pd, &attributes);
  };
  make("QP", create_qp, [] { return ibv_destroy_qp(static_cast<ibv_qp*>(made)); });
  static auto** const list = ibv_get_device_list(nullptr);
  // The first of several calls has used up the reserve.
  without_memory(
      loop, "context", true, [] { return errno_of((made = ibv_open_device(list[0])) != nullptr); },
      [] { expect(ibv_close_device(static_cast<ibv_context*>(made)) == 0, "context"); });
}

/// Each step by itself: once a step has succeeded, it is not repeated.
void change_states(const Loop& loop) {
  ibv_qp* qp = nullptr;
  const auto init = [&] {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    return ibv_modify_qp(qp, &attributes,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  };
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = loop.cq;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {16, 16, 1, 1, 0};
  qp = ibv_create_qp(loop.pd, &attributes);
  expect(qp != nullptr, "QP");
  without_memory(loop, "INIT", false, init, [&] {
    ibv_qp_attr reset{};
    reset.qp_state = IBV_QPS_RESET;
    expect(ibv_modify_qp(qp, &reset, IBV_QP_STATE) == 0, "RESET");
  });
  without_memory(
      loop, "query", false,
      [&] {
        ibv_qp_attr now{};
        return ibv_query_qp(qp, &now, IBV_QP_STATE, &attributes);
      },
      [] {});
  expect(ibv_destroy_qp(qp) == 0, "QP");
}

void look_at_files(const Loop& loop) {
  int file = -1;
  for (const auto* name : {"/sys/class/infiniband/mlx5_0/ports/1/gids/3",
                           "/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data"}) {
    without_memory(
        loop, name, true,
        [&] { return errno_of((file = ::open(name, O_RDONLY | O_CLOEXEC)) >= 0); },
        [&] { ::close(file); });
  }
  without_memory(
      loop, "device file", false,
      [&] { return errno_of((file = ::open("/dev/infiniband/uverbs0", O_RDWR)) >= 0); },
      [&] { ::close(file); });
  const int netlink = ::socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA);
  expect(netlink >= 0, "socket");
  nlmsghdr request{};
  request.nlmsg_len = sizeof request;
  request.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET);
  request.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  without_memory(
      loop, "netlink", true,
      [&] { return errno_of(::send(netlink, &request, sizeof request, 0) > 0); },
      [&] {
        char answer[4096];
        while (::recv(netlink, answer, sizeof answer, MSG_DONTWAIT) > 0) {
        }
      });
}

void connect_nothing(const Loop& loop) {
  rdma_event_channel* channel = nullptr;
  without_memory(
      loop, "channel", true,
      [&] { return errno_of((channel = ::rdma_create_event_channel()) != nullptr); },
      [&] { ::rdma_destroy_event_channel(channel); });
  channel = ::rdma_create_event_channel();
  expect(channel != nullptr, "channel");
  rdma_cm_id* id = nullptr;
  without_memory(
      loop, "identifier", false,
      [&] { return errno_of(::rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0); },
      [&] { ::rdma_destroy_id(id); });
  ::rdma_destroy_event_channel(channel);
}

/// Writes to the program's own memory by RDMA.
int write_once(const Loop& loop) {
  static char* const buffer = memory();
  static ibv_mr* const key = ibv_reg_mr(loop.pd, buffer, kSize, kAccess);
  expect(key != nullptr, "registration");
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(buffer), 8, key->lkey};
  ibv_send_wr work{}, *bad;
  work.sg_list = &piece;
  work.num_sge = 1;
  work.opcode = IBV_WR_RDMA_WRITE;
  work.send_flags = IBV_SEND_SIGNALED;
  work.wr.rdma = {reinterpret_cast<std::uintptr_t>(buffer) + 8, key->rkey};
  expect(ibv_post_send(loop.qp, &work, &bad) == 0, "post");
  ibv_wc completion{};
  while (ibv_poll_cq(loop.cq, 1, &completion) == 0) {
  }
  return completion.status == IBV_WC_SUCCESS ? 0 : EIO;
}

}  // namespace

int main() {
  ::dl_iterate_phdr(note_ranges, nullptr);
  expect(of_door_count != 0, "the door");
  const Loop loop;
  expect(write_once(loop) == 0, "WRITE");
  look_at_files(loop);
  make_objects(loop);
  change_states(loop);
  connect_nothing(loop);
  without_memory(loop, "WRITE", false, [&] { return write_once(loop); }, [] {});
  return good ? 0 : 1;
}
