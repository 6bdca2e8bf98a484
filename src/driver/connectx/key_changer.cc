#include "driver/connectx/key_changer.h"

#include <array>
#include <chrono>
#include <utility>

#include "driver/connectx/queue_sizes.h"
#include "spec/connectx/mkey.h"
#include "util/bits.h"

namespace softhca::driver::connectx {

using spec::wqe_ctrl_segment;

namespace {

using UmrControl = spec::wqe_umr_ctrl_segment;
using Mask = spec::umr_mkey_mask;
using Context = spec::mkey_context;

constexpr std::size_t kListSize = KeyMemory::kPagesMax * spec::mtt_entry::kSize;
constexpr std::size_t kList = wqe_ctrl_segment::kSize + UmrControl::kSize + Context::kSize;
constexpr std::size_t kSize = kList + kListSize;
static_assert(kSize % SendRing::kBlock == 0);
constexpr auto kPatience = std::chrono::seconds(1);

/// Adds new memory to a UMR.
void write_memory(std::span<std::byte, kSize> wqe, const KeyMemory& memory) {
  constexpr std::size_t kOctword = 16;
  const util::MutableView<UmrControl> umr(wqe.subspan(wqe_ctrl_segment::kSize));
  umr.set(UmrControl::translation_octword_actual_size, kListSize / kOctword);
  const auto mask = umr.sub(UmrControl::mkey_ctx_bit_mask);
  mask.set(Mask::start_addr, 1);
  mask.set(Mask::len, 1);
  mask.set(Mask::log_page_size, 1);
  const util::MutableView<Context> key(wqe.subspan(wqe_ctrl_segment::kSize + UmrControl::kSize));
  key.set(Context::start_addr, memory.start);
  key.set(Context::len, memory.length);
  key.set(Context::log_page_size, memory.log_page_size);
  for (std::size_t i = 0; i != memory.page_count; ++i) {
    const util::MutableView<spec::mtt_entry> entry(wqe.subspan(kList + i * spec::mtt_entry::kSize));
    entry.set(spec::mtt_entry::ptag, util::part_of(memory.pages[i], spec::mtt_entry::ptag));
    entry.set(spec::mtt_entry::rd_en, 1);
    entry.set(spec::mtt_entry::wr_en, 1);
  }
}

/// Writes a UMR (PRM Table 33) that changes rights, protection domain and perhaps memory.
std::array<std::byte, kSize> make_umr(const KeyChange& change) {
  std::array<std::byte, kSize> all{};
  const std::span<std::byte, kSize> wqe(all);
  const util::MutableView<wqe_ctrl_segment> control(wqe);
  control.set(wqe_ctrl_segment::opcode, static_cast<std::uint32_t>(spec::wqe_opcode::UMR));
  control.set(wqe_ctrl_segment::ce, static_cast<std::uint32_t>(spec::wqe_completion::CQE));
  control.set(wqe_ctrl_segment::imm, change.key);
  const util::MutableView<UmrControl> umr(wqe.subspan(wqe_ctrl_segment::kSize));
  umr.set(UmrControl::inline_, 1);
  umr.set(UmrControl::check_free, static_cast<std::uint32_t>(spec::umr_check_free::FAIL_IF_FREE));
  const auto mask = umr.sub(UmrControl::mkey_ctx_bit_mask);
  mask.set(Mask::lr, 1);
  mask.set(Mask::lw, 1);
  mask.set(Mask::rr, 1);
  mask.set(Mask::rw, 1);
  mask.set(Mask::a, 1);
  mask.set(Mask::pd, 1);
  const util::MutableView<Context> key(wqe.subspan(wqe_ctrl_segment::kSize + UmrControl::kSize));
  key.set(Context::lr, 1);
  key.set(Context::lw, change.local_write);
  key.set(Context::rr, change.remote_read);
  key.set(Context::rw, change.remote_write);
  key.set(Context::a, change.remote_atomic);
  key.set(Context::pd, change.pd);
  key.set(Context::qpn, kAnyQp);
  key.set(Context::mkey, change.key & Context::mkey.kMax);
  if (change.memory) write_memory(wqe, *change.memory);
  return all;
}

}  // namespace

util::Result<std::unique_ptr<KeyChanger>> KeyChanger::create(ProtectionDomain& pd, Hca& hca) {
  auto cq = CompletionQueue::create(hca);
  if (!cq) return tl::unexpected(cq.error());
  auto qp = QueuePair::create(pd, {.send_cq = **cq,
                                   .receive_cq = **cq,
                                   .send = {.requests = 1, .pieces = kSize / kUnit},
                                   .receive = {.requests = 1, .pieces = 1},
                                   .service = spec::service_type::REG_UMR});
  if (!qp) return tl::unexpected(qp.error());
  // As in Linux; the queue pair sends no packets.
  for (const auto& [from, to] :
       {std::pair(QpState::kReset, QpState::kInit), std::pair(QpState::kInit, QpState::kRtr),
        std::pair(QpState::kRtr, QpState::kRts)}) {
    auto done = (*qp)->modify(from, to, {.path_mtu = 256});
    if (!done) return tl::unexpected(done.error());
  }
  return std::unique_ptr<KeyChanger>(new KeyChanger(hca, *std::move(cq), *std::move(qp)));
}

util::Result<void> KeyChanger::change(const KeyChange& change) {
  auto umr = make_umr(change);
  if (qp_->post_wqe(change.key, umr) != PostStatus::kOk) return util::fail("its queue is full");
  auto& host = hca_.host();
  Completion done;
  for (const auto end = host.now() + kPatience; cq_->poll({&done, 1}) == 0;) {
    if (host.lost() || host.now() > end) return util::fail("it takes too long");
    host.progress();
  }
  if (done.status == WorkStatus::kSuccess) return {};
  return util::fail("the device refuses");
}

}  // namespace softhca::driver::connectx
