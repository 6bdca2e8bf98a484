// The send WQEs of a queue pair (JingZhao 3.4).
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "driver/jingzhao/queue_pair.h"
#include "util/bits.h"
#include "util/copy_short.h"

namespace softhca::driver::jingzhao {

using spec::atomic_unit;
using spec::data_unit;
using spec::inline_unit;
using spec::next_unit;
using spec::raddr_unit;
using spec::ud_unit;
using spec::wqe_opcode;

namespace {

constexpr std::uint32_t kAtomicSize = 8;

/// The start of a WQE: its opcode, and the units before the data.
struct Form {
  wqe_opcode opcode;
  bool has_raddr = false;
  bool is_atomic = false;
  bool takes_data = false;  ///< the device writes to its pieces
};

/// Indexed by SendOpcode.
constexpr Form kForms[] = {
    {.opcode = wqe_opcode::SEND},
    {.opcode = wqe_opcode::SEND_IMM},
    {.opcode = wqe_opcode::RDMA_WRITE, .has_raddr = true},
    {.opcode = wqe_opcode::RDMA_WRITE_IMM, .has_raddr = true},
    {.opcode = wqe_opcode::RDMA_READ, .has_raddr = true, .takes_data = true},
    {.opcode = wqe_opcode::ATOMIC_CS, .has_raddr = true, .is_atomic = true, .takes_data = true},
    {.opcode = wqe_opcode::ATOMIC_FA, .has_raddr = true, .is_atomic = true, .takes_data = true},
};
static_assert(std::size(kForms) == static_cast<std::size_t>(SendOpcode::kFetchAdd) + 1);

/// Appends units to a WQE.
class Units {
 public:
  explicit Units(std::span<std::byte> slot) : slot_(slot) {}
  /// The unit is zeroed.
  template <class Layout>
  util::MutableView<Layout> add() {
    const auto at = take(Layout::kSize);
    std::memset(at.data(), 0, Layout::kSize);
    return util::MutableView<Layout>(at);
  }
  std::span<std::byte> take(std::size_t size) {
    const auto at = slot_.subspan(used_, size);
    used_ += size;
    return at;
  }
  std::uint32_t count() const { return static_cast<std::uint32_t>((used_ + kUnit - 1) / kUnit); }

 private:
  std::span<std::byte> slot_;
  std::size_t used_ = 0;
};

void add_payload(Units& units, const SendRequest& request) {
  if (!request.inline_data.empty()) {
    const auto at = units.take(inline_unit::kSize + request.inline_data.size());
    const util::MutableView<inline_unit> unit(at);
    unit.set(inline_unit::is_inline, 1);
    unit.set(inline_unit::length, static_cast<std::uint32_t>(request.inline_data.size()));
    util::copy_short(at.data() + inline_unit::data_offset, request.inline_data.data(),
                     request.inline_data.size());
    return;
  }
  for (const auto& piece : request.pieces) {
    if (piece.length == 0) continue;
    const auto unit = units.add<data_unit>();
    unit.set(data_unit::byte_cnt, piece.length);
    unit.set(data_unit::lkey, piece.lkey);
    unit.set(data_unit::addr, piece.address);
  }
}

void add_destination(Units& units, const Endpoint& from, const Datagram& datagram) {
  const auto unit = units.add<ud_unit>();
  unit.set(ud_unit::port, 1);
  unit.set(ud_unit::dqpn, datagram.qpn);
  unit.set(ud_unit::qkey, datagram.qkey);
  if (from.lid != 0) {
    unit.set(ud_unit::slid_smac, from.lid);
    unit.set(ud_unit::dlid_dmac, datagram.to.lid);
    return;
  }
  const auto source = from.mac.to_u64(), destination = datagram.to.mac.to_u64();
  unit.set(ud_unit::smac_h, static_cast<std::uint32_t>(source >> 16));  // no format: splits it
  unit.set(ud_unit::slid_smac, static_cast<std::uint32_t>(source & ud_unit::slid_smac.kMax));
  unit.set(ud_unit::dmac_h, static_cast<std::uint32_t>(destination >> 16));  // no format: splits it
  unit.set(ud_unit::dlid_dmac, static_cast<std::uint32_t>(destination & ud_unit::dlid_dmac.kMax));
  unit.set(ud_unit::sip, from.ipv4);
  unit.set(ud_unit::dip, datagram.to.ipv4);
}

}  // namespace

[[gnu::always_inline]] inline PostStatus QueuePair::write_wqe(const SendRequest& request,
                                                              const Datagram* datagram,
                                                              Written& written) {
  if (!takes_sends_) return PostStatus::kWrongState;
  if (request.pieces.size() > options_.pieces) return PostStatus::kTooManyPieces;
  if (request.inline_data.size() > options_.inline_size) return PostStatus::kInlineTooLong;
  const auto& form = kForms[static_cast<std::size_t>(request.opcode)];
  if (form.takes_data && !request.inline_data.empty()) return PostStatus::kBadRequest;
  if (form.is_atomic && (request.pieces.size() != 1 || request.pieces[0].length != kAtomicSize)) {
    return PostStatus::kBadRequest;
  }
  if ((options_.type == spec::qp_type::UD) != (datagram != nullptr)) return PostStatus::kBadRequest;
  if (sends_.outstanding() == sends_.requests.size()) return PostStatus::kQueueFull;
  const auto index = sends_.producer++;
  sends_.requests[index & sends_.mask()] = {request.id, request.signaled};
  Units units(send_slot(index));
  units.add<next_unit>().set(next_unit::imm_data, request.immediate);
  if (datagram != nullptr) {
    add_destination(units, here_, *datagram);
  } else if (form.has_raddr) {
    const auto unit = units.add<raddr_unit>();
    unit.set(raddr_unit::raddr, request.remote_address);
    unit.set(raddr_unit::rkey, request.rkey);
  }
  if (form.is_atomic) {
    const auto unit = units.add<atomic_unit>();
    unit.set(atomic_unit::swap_add, request.swap_or_add);
    unit.set(atomic_unit::cmp, request.compare);
  }
  add_payload(units, request);
  written = {form.opcode, units.count(), request.fence};
  return PostStatus::kOk;
}

/// Describes the next WQE in the WQE before it.
void QueuePair::link(std::uint32_t before, const Written& next) {
  const util::MutableView<next_unit> unit(send_slot(before));
  unit.set(next_unit::nop, static_cast<std::uint32_t>(next.opcode));
  unit.set(next_unit::nda, static_cast<std::uint32_t>(sends_.place(before + 1) / kUnit));
  unit.set(next_unit::f, next.fence);
  unit.set(next_unit::nds, next.units);
}

/// Rings the doorbell, which describes the first WQE of a chain.
[[gnu::always_inline]] inline void QueuePair::ring(std::uint32_t first, const Written& wqe) {
  const auto place = static_cast<std::uint32_t>(sends_.place(first) / kUnit);
  using uar = spec::uar_page;
  const auto low = util::in_place(uar::sq_head, place) | util::in_place(uar::f, wqe.fence) |
                   util::in_place(uar::opcode, static_cast<std::uint32_t>(wqe.opcode));
  const auto high = util::in_place(uar::qpn, qpn_) | util::in_place(uar::size0, wqe.units);
  // One store, so that the device reads it whole.
  std::array<std::byte, sizeof(std::uint64_t)> bytes;
  util::store_le64(bytes.data(), std::uint64_t{high} << 32 | low);  // no format: joins
  std::atomic_thread_fence(std::memory_order_release);
  hca_.host().write_bar(kUarBar, hca_.uar(), bytes);
}

PostStatus QueuePair::post_send(const SendRequest& request) {
  auto status = PostStatus::kOk;
  post_send({&request, 1}, status);
  return status;
}

PostStatus QueuePair::post_send(const SendRequest& request, const Datagram& datagram) {
  const auto first = sends_.producer;
  Written written;
  const auto status = write_wqe(request, &datagram, written);
  if (status == PostStatus::kOk) ring(first, written);
  return status;
}

std::size_t QueuePair::post_send(std::span<const SendRequest> requests, PostStatus& status) {
  if (requests.size() != 1) return post_chain(requests, status);
  const auto first = sends_.producer;
  Written written;
  status = write_wqe(requests[0], nullptr, written);
  if (status != PostStatus::kOk) [[unlikely]]
    return 0;
  ring(first, written);
  return 1;
}

[[gnu::noinline]] std::size_t QueuePair::post_chain(std::span<const SendRequest> requests,
                                                    PostStatus& status) {
  const auto first = sends_.producer;
  std::size_t posted = 0;
  Written head, written;
  status = PostStatus::kOk;
  for (const auto& request : requests) {
    status = write_wqe(request, nullptr, written);
    if (status != PostStatus::kOk) break;
    if (posted == 0) head = written;
    if (posted != 0) link(first + static_cast<std::uint32_t>(posted) - 1, written);
    ++posted;
  }
  if (posted == 0) return 0;
  ring(first, head);
  return posted;
}

}  // namespace softhca::driver::jingzhao
