// One process with two devices, which write to each other: checks the data, and counts the polls of
// the writer. A poll drives only the devices with pending work, and they must not wait for the
// others.
//   softhca run --devices 2 two_devices [ADDRESS]
// ADDRESS: the second device's. It is resolved before that device is open.
#include <arpa/inet.h>

#include <algorithm>
#include <array>

#include "loop_qps.h"

namespace {

constexpr int kRounds = 500;
constexpr std::size_t kBytes = 8192;
constexpr std::size_t kTarget = kSize / 2;

/// Returns the number of polls until the completion came.
int write(const Side& from, const Side& to, char what) {
  std::fill_n(from.bytes, kBytes, what);
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(from.bytes), kBytes, from.key->lkey};
  ibv_send_wr work{}, *bad;
  work.sg_list = &piece;
  work.num_sge = 1;
  work.opcode = IBV_WR_RDMA_WRITE;
  work.send_flags = IBV_SEND_SIGNALED;
  work.wr.rdma = {reinterpret_cast<std::uintptr_t>(to.bytes) + kTarget, to.key->rkey};
  expect(ibv_post_send(from.qp, &work, &bad) == 0, "post");
  int polls = 1;
  ibv_wc done{};
  while (ibv_poll_cq(from.cq, 1, &done) == 0) ++polls;
  if (done.status != IBV_WC_SUCCESS) {
    std::printf("%s\n", ibv_wc_status_str(done.status));
    std::exit(1);
  }
  const auto* const got = to.bytes + kTarget;
  expect(std::all_of(got, got + kBytes, [&](char one) { return one == what; }), "content");
  return polls;
}

/// Resolves the address of a device that is not open yet.
void reach(ibv_device* device, const char* address) {
  auto* const context = ibv_open_device(device);
  expect(context != nullptr, "open");
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.port_num = 1;
  attributes.grh.sgid_index = kGidIndex;
  auto* const to = attributes.grh.dgid.raw;
  to[10] = to[11] = 0xff;
  expect(::inet_pton(AF_INET, address, to + 12) == 1, "address");
  expect(ibv_create_ah(ibv_alloc_pd(context), &attributes) != nullptr, "no answer");
}

}  // namespace

int main(int words, char** word) {
  stay_on_one_processor();
  int count = 0;
  auto** const list = ibv_get_device_list(&count);
  expect(count >= 2, "two devices");
  if (words > 1) reach(list[0], word[1]);
  const auto one = open_side(list[0]), two = open_side(list[1]);
  connect(one.qp, two.qp->qp_num, two.gid);
  connect(two.qp, one.qp->qp_num, one.gid);
  std::array<int, 2 * kRounds> polls{};
  for (int i = 0; i != kRounds; ++i) {
    polls[2 * i] = write(one, two, static_cast<char>(i));
    polls[2 * i + 1] = write(two, one, static_cast<char>(i + 1));
  }
  std::ranges::sort(polls);
  std::fprintf(stderr, "polls for a completion: %d in half of the rounds\n", polls[kRounds]);
  std::printf("%s\n", polls[kRounds] <= 8 ? "at once" : "late");
  return 0;
}
