// Setup of most cases: an open device, a protection domain, a CQ and memory. QPs of each transport
// are connected to each other or to themselves.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <array>
#include <string>
#include <vector>

#include "harness.h"

namespace oracle {

/// The GID of the first device's IPv4 address, RoCE v2: the same index in the guest and in the run.
inline constexpr int kGidIndex = 3;
inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
inline constexpr std::uint32_t kQKey = 0x11111111;
inline constexpr std::uint32_t kPsn = 0x123;
inline constexpr std::uint64_t kDcKey = 0x1234;

enum class Kind { kRc, kUc, kUd, kXrcSend, kXrcReceive, kRaw, kDci, kDct };
inline constexpr std::array kKinds = {Kind::kRc,         Kind::kUc,  Kind::kUd,  Kind::kXrcSend,
                                      Kind::kXrcReceive, Kind::kRaw, Kind::kDci, Kind::kDct};
const char* kind_name(Kind kind);
const char* state_name(ibv_qp_state state);

ibv_context* open_device(int number = 0);

/// Pages that nothing else uses.
char* pages(std::size_t bytes, int protection = 3);

struct World {
  explicit World(int device = 0, std::size_t bytes = 1 << 20, int cqes = 256);

  ibv_context* context;
  ibv_pd* pd;
  ibv_cq* cq;
  std::size_t size;
  char* bytes;
  ibv_mr* mr;
  ibv_gid gid{};
  // Created on first use.
  ibv_srq* srq();
  ibv_xrcd* xrcd();

 private:
  ibv_srq* srq_ = nullptr;
  ibv_xrcd* xrcd_ = nullptr;
};

/// A QP of the kind, in RESET. Null with errno if there is none.
ibv_qp* create(World& world, Kind kind, ibv_qp_cap cap = {16, 16, 4, 4, 64},
               bool signal_all = false);

/// Working values of all attributes, on `world`'s GID. `peer` 0 makes the QP its own peer.
ibv_qp_attr attributes(const World& world, const ibv_qp* qp, ibv_qp_state to,
                       std::uint32_t peer = 0);
/// The attributes that a transition of the kind requires.
int required(Kind kind, ibv_qp_state from, ibv_qp_state to);
/// Moves a QP from RESET through all states before `to`. 0 or an errno.
int bring(World& world, ibv_qp* qp, Kind kind, ibv_qp_state to, std::uint32_t peer = 0);

/// Two QPs of a kind in RTS, connected to each other.
struct Pair {
  explicit Pair(World& world, Kind kind = Kind::kRc, ibv_qp_cap cap = {16, 16, 4, 4, 64});
  ibv_qp* one;
  ibv_qp* other;
};

/// The next completion, within `seconds`. If there is none, its status is -1.
ibv_wc completion(ibv_cq* cq, int seconds = 10);
/// Status and vendor_err, and all other fields on success. QP numbers are printed as names.
std::string describe(const ibv_wc& wc, const ibv_qp* one = nullptr, const ibv_qp* other = nullptr);

/// Posts one work request of `length` bytes at `from`; wr_id 1. Returns what ibv_post_send does.
struct Work {
  ibv_wr_opcode opcode = IBV_WR_SEND;
  char* from = nullptr;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
  char* to = nullptr;
  std::uint32_t rkey = 0;
  unsigned flags = IBV_SEND_SIGNALED;
  std::uint32_t immediate = 0;
  std::uint64_t compare = 0, swap = 0;
};
int post(ibv_qp* qp, const Work& work);
int post_receive(ibv_qp* qp, char* to, std::uint32_t length, std::uint32_t lkey,
                 std::uint64_t id = 2);

}  // namespace oracle
