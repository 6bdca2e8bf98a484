#include "driver/sdxi/function.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "driver/pci.h"
#include "driver/sdxi/context.h"
#include "driver/sdxi/word.h"
#include "util/bits.h"

namespace softhca::driver::sdxi {
namespace {

using reg = spec::mmio_register;
using spec::fn_gsr;
using spec::fn_gsv;

constexpr unsigned kDoorbellBar = 2;
constexpr std::uint32_t kAdminRing = 64;

/// Writes the word with vl last, after the others are visible (SDXI 4.3.1).
void make_valid(const auto& entry, auto vl) {
  auto* word = reinterpret_cast<std::uint64_t*>(entry.bytes().data());
  std::array<std::byte, 8> copy;
  std::copy_n(entry.bytes().begin(), 8, copy.begin());
  util::store_le64(copy.data(), util::load_le64(copy.data()) | util::in_place(vl, 1));
  __atomic_store_n(word, util::load_le64(copy.data()), __ATOMIC_RELEASE);
}

}  // namespace

std::uint64_t Function::read(reg name) {
  std::array<std::byte, 8> bytes;
  host_.read_bar(kRegisterBar, static_cast<std::uint64_t>(name), bytes);
  return util::load_le64(bytes.data());
}

void Function::write(reg name, std::uint64_t value) {
  std::array<std::byte, 8> bytes;
  util::store_le64(bytes.data(), value);
  host_.write_bar(kRegisterBar, static_cast<std::uint64_t>(name), bytes);
}

void Function::ring_doorbell(std::uint16_t number, std::uint64_t value) {
  std::array<std::byte, 8> bytes;
  util::store_le64(bytes.data(), value);
  host_.write_bar(kDoorbellBar, number * capabilities_.doorbell_stride, bytes);
}

fn_gsv Function::state() {
  return static_cast<fn_gsv>(
      Word<spec::mmio_sts0>(read(reg::MMIO_STS0)).get(spec::mmio_sts0::fn_gsv));
}

void Function::request(fn_gsr value) {
  Word<spec::mmio_ctl0> ctl0(read(reg::MMIO_CTL0));
  ctl0.set(spec::mmio_ctl0::fn_gsr, static_cast<std::uint32_t>(value));
  write(reg::MMIO_CTL0, ctl0.value());
}

util::Result<void> Function::wait_for(fn_gsv wanted) {
  const auto until = host_.now() + options_.patience;
  for (;;) {
    const auto now_is = state();
    if (now_is == wanted) return {};
    if (host_.lost()) return util::fail(Host::kLost);
    if (now_is == fn_gsv::GSV_ERROR || host_.now() > until) {
      return util::fail(fmt::format("the SDXI function is in {} instead of {}", to_string(now_is),
                                    to_string(wanted)));
    }
    host_.progress();
  }
}

/// Brings the function to GSV_STOP from any state (SDXI 4.1.9).
util::Result<void> Function::stop() {
  if (state() == fn_gsv::GSV_ACTIVE) request(fn_gsr::GSRV_STOP_SF);
  if (state() != fn_gsv::GSV_ERROR) {
    if (const auto stopped = wait_for(fn_gsv::GSV_STOP)) return {};
    if (state() == fn_gsv::GSV_STOPG_SF) request(fn_gsr::GSRV_STOP_HD);
    if (const auto stopped = wait_for(fn_gsv::GSV_STOP)) return {};
  }
  request(fn_gsr::GSRV_RESET);
  return wait_for(fn_gsv::GSV_STOP);
}

util::Result<std::unique_ptr<Function>> Function::bring_up(Host& host, const Options& options) {
  std::unique_ptr<Function> function(new Function(host, options));
  enable_bus_master(host);
  if (auto ok = host.enable_interrupts(options.interrupt_vectors); !ok) {
    return tl::unexpected(ok.error());
  }
  // SDXI 4.1.8, in its order; step 8 may be anywhere before step 9. Mailboxes (step 5) raise no
  // interrupts until the class Mailboxes enables them.
  if (auto ok = function->stop(); !ok) return tl::unexpected(ok.error());
  if (auto ok = function->read_capabilities(); !ok) return tl::unexpected(ok.error());
  auto& can = function->capabilities_;
  if (can.minimal_atomics && !enable_atomic_requests(host)) {
    can.atomics = can.minimal_atomics =
        false;  // SDXI 8.4: the function may not send atomic requests
  }
  if (auto ok = function->make_tables(); !ok) return tl::unexpected(ok.error());
  function->write(reg::MMIO_MB_CTL, 0);
  if (auto ok = function->make_error_log(); !ok) return tl::unexpected(ok.error());
  if (auto ok = function->activate(); !ok) return tl::unexpected(ok.error());
  return function;
}

/// Step 1: capabilities, and the limits and groups that contexts may use.
util::Result<void> Function::read_capabilities() {
  const Word<spec::mmio_version> version(read(reg::MMIO_VERSION));
  if (version.get(spec::mmio_version::major) == 0) {
    return util::fail("this is not an SDXI function: its MMIO_VERSION is 0");
  }
  if (version.get(spec::mmio_version::major) != 1) {
    return util::fail(fmt::format("SDXI version {} is not known, only 1",
                                  version.get(spec::mmio_version::major)));
  }
  using cap0 = spec::mmio_cap0;
  using cap1 = spec::mmio_cap1;
  const Word<cap0> c0(read(reg::MMIO_CAP0));
  const Word<cap1> c1(read(reg::MMIO_CAP1));
  const auto groups = c1.get(cap1::opb_000_cap);
  const auto has = [groups](spec::op_grp group) {
    return util::has_bit(groups, static_cast<unsigned>(group));
  };
  capabilities_ = {
      .sfunc = static_cast<std::uint16_t>(c0.get(cap0::sfunc)),
      .virtual_function = c0.get(cap0::vf) != 0,
      .max_context = static_cast<std::uint16_t>(c1.get(cap1::max_cxt)),
      .max_ring_entries = spec::ring_entries_max(c0.get(cap0::max_ds_ring_sz)),
      .max_buffer = spec::buffer_bytes(c1.get(cap1::max_buffer)),
      .doorbell_stride = std::uint64_t{1} << (c0.get(cap0::db_stride) + 12),
      .cross_function = c1.get(cap1::rkey_cap) != 0,
      .atomics = has(spec::op_grp::FULL_ATOMIC),
      .minimal_atomics = has(spec::op_grp::FULL_ATOMIC) || has(spec::op_grp::MINIMAL_ATOMIC),
      .interrupts = has(spec::op_grp::INTERRUPT),
      .atomic_completion =
          c0.get(cap0::cs_cap) != static_cast<std::uint32_t>(spec::cs_cap::CS_NON_ATOMIC)};
  Word<spec::mmio_ctl2> ctl2;
  ctl2.set(spec::mmio_ctl2::max_buffer, c1.get(cap1::max_buffer));
  ctl2.set(spec::mmio_ctl2::max_akey_sz, c1.get(cap1::max_akey_sz));
  ctl2.set(spec::mmio_ctl2::max_cxt, c1.get(cap1::max_cxt));
  ctl2.set(spec::mmio_ctl2::opb_000_avl, groups);
  write(reg::MMIO_CTL2, ctl2.value());
  context_used_.assign(capabilities_.max_context + std::size_t{1}, false);
  return {};
}

/// Steps 2 and 3, and the RKey table.
util::Result<void> Function::make_tables() {
  auto level2 = DmaBuffer::allocate(host_, spec::table_bytes(0));
  if (!level2) return tl::unexpected(level2.error());
  level2_ = std::move(*level2);
  level1_.resize(capabilities_.max_context / spec::kContextsPerL1 + 1);
  Word<spec::mmio_cxt_l2> cxt_l2;
  spec::set_address(cxt_l2, spec::mmio_cxt_l2::lv02_ptr, level2_.iova());
  write(reg::MMIO_CXT_L2, cxt_l2.value());

  write(reg::MMIO_RKEY, 0);
  if (!capabilities_.cross_function) return {};
  auto rkeys = DmaBuffer::allocate(host_, spec::table_bytes(options_.rkeys_power));
  if (!rkeys) return tl::unexpected(rkeys.error());
  rkeys_ = std::move(*rkeys);
  Word<spec::mmio_rkey> rkey;
  spec::set_address(rkey, spec::mmio_rkey::ptr, rkeys_.iova());
  rkey.set(spec::mmio_rkey::sz, options_.rkeys_power);
  rkey.set(spec::mmio_rkey::en, 1);
  write(reg::MMIO_RKEY, rkey.value());
  return {};
}

/// Steps 4, 9 and 10.
util::Result<void> Function::activate() {
  auto admin = Context::create(*this, kAdminRing);
  if (!admin) return tl::unexpected(admin.error());
  admin_ = std::move(*admin);
  admin_->set_state(spec::cxtv::CXTV_RUN);
  const auto number = publish(admin_->control_block(), admin_->akeys().memory().iova());
  if (!number) return tl::unexpected(number.error());
  request(fn_gsr::GSRV_ACTIVE);
  if (auto ok = wait_for(fn_gsv::GSV_ACTIVE); !ok) return ok;
  ring_doorbell(0, 0);
  return {};
}

Function::~Function() {
  if (admin_ == nullptr) return;
  // The administrative context stops last, together with the function (SDXI 3.5).
  (void)stop();
  disable_bus_master(host_);
}

util::Result<util::MutableView<spec::cxt_l1_ent>> Function::level1_entry(std::uint16_t number) {
  auto& table = level1_[number / spec::kContextsPerL1];
  if (table.bytes().empty()) {
    auto allocated = DmaBuffer::allocate(host_, spec::table_bytes(0));
    if (!allocated) return tl::unexpected(allocated.error());
    table = std::move(*allocated);
    const auto at = number / spec::kContextsPerL1 * spec::cxt_l2_ent::kSize;
    const util::MutableView<spec::cxt_l2_ent> entry(level2_.bytes().subspan(at));
    spec::set_address(entry, spec::cxt_l2_ent::lv01_ptr, table.iova());
    make_valid(entry, spec::cxt_l2_ent::vl);
  }
  const auto at = number % spec::kContextsPerL1 * spec::cxt_l1_ent::kSize;
  return util::MutableView<spec::cxt_l1_ent>(table.bytes().subspan(at));
}

util::Result<std::uint16_t> Function::publish(std::uint64_t control_block, std::uint64_t akeys) {
  using ent = spec::cxt_l1_ent;
  const auto free = std::find(context_used_.begin(), context_used_.end(), false);
  if (free == context_used_.end()) return util::fail("all SDXI contexts are in use");
  const auto number = static_cast<std::uint16_t>(free - context_used_.begin());
  auto entry = level1_entry(number);
  if (!entry) return tl::unexpected(entry.error());
  std::fill(entry->bytes().begin(), entry->bytes().end(), std::byte{0});
  const Word<spec::mmio_ctl2> ctl2(read(reg::MMIO_CTL2));
  spec::set_address(*entry, ent::cxt_ctl_ptr, control_block);
  spec::set_address(*entry, ent::akey_ptr, akeys);
  entry->set(ent::max_buffer, ctl2.get(spec::mmio_ctl2::max_buffer));
  entry->set(ent::opb_000_enb, ctl2.get(spec::mmio_ctl2::opb_000_avl));
  entry->set(ent::ka, 1);
  make_valid(*entry, ent::vl);
  *free = true;
  return number;
}

util::Result<std::unique_ptr<Context>> Function::make_context(std::uint32_t ring_entries) {
  auto context = Context::create(*this, ring_entries);
  if (!context) return context;
  const auto number = publish((*context)->control_block(), (*context)->akeys().memory().iova());
  if (!number) return tl::unexpected(number.error());
  (*context)->set_number(*number);
  // SDXI 4.3.1: update, synchronize, then start.
  std::array steps{Descriptor::update_contexts(spec::tgt_pcd::UPD_L2, *number / 128 * 128,
                                               std::min<std::uint16_t>(*number / 128 * 128 + 127,
                                                                       capabilities_.max_context)),
                   Descriptor::sync(spec::sync_filter::SYNC_CXT, *number, *number),
                   Descriptor::start(*number, *number)};
  if (auto ok = administer(steps); !ok) return tl::unexpected(ok.error());
  return context;
}

/// SDXI 6.6.4: the descriptor only begins a stop; the state shows its end. If a soft stop takes too
/// long, a hard one follows. A DSC_SYNC.STOP between them would defeat it.
util::Result<void> Function::stop_context(const Context& context) {
  const auto number = context.number();
  for (const bool hard : {false, true}) {
    std::array stop{Descriptor::stop(number, number, hard)};
    if (auto ok = administer(stop); !ok) return ok;
    for (const auto until = host_.now() + options_.patience; host_.now() <= until;) {
      if (has_stopped(context.state())) return {};
      if (host_.lost()) return util::fail(Host::kLost);
      host_.progress();
    }
  }
  return util::fail(fmt::format("SDXI context {} does not stop", number));
}

/// SDXI 4.3.1.2: stop, invalidate, update.
util::Result<void> Function::withdraw(const Context& context) {
  const auto number = context.number();
  if (auto stopped = stop_context(context); !stopped) return stopped;
  auto entry = level1_entry(number);
  if (!entry) return tl::unexpected(entry.error());
  entry->set(spec::cxt_l1_ent::vl, 0);
  std::array update{Descriptor::update_contexts(spec::tgt_pcd::UPD_L1, number, number),
                    Descriptor::sync(spec::sync_filter::SYNC_CXT, number, number)};
  if (auto updated = administer(update); !updated) return updated;
  context_used_[number] = false;
  return {};
}

util::Result<void> Function::stop_contexts_of_vf(std::uint16_t vf_num, std::uint16_t first,
                                                 std::uint16_t last, bool hard) {
  std::array steps{Descriptor::stop(first, last, hard).on_vf(vf_num),
                   Descriptor::sync(spec::sync_filter::SYNC_STOP, first, last).on_vf(vf_num)};
  return administer(steps);
}

util::Result<void> Function::start_contexts_of_vf(std::uint16_t vf_num, std::uint16_t first,
                                                  std::uint16_t last) {
  std::array steps{Descriptor::start(first, last).on_vf(vf_num)};
  return administer(steps);
}

util::Result<void> Function::administer(std::span<Descriptor> descriptors) {
  const auto done = admin_->submit(descriptors);
  if (!done) return tl::unexpected(done.error());
  return admin_->wait(*done);
}

util::Result<std::uint16_t> Function::grant(std::uint16_t requester) {
  using ent = spec::rkey_ent;
  if (!capabilities_.cross_function) return util::fail("the function has no RKey capability");
  for (std::uint32_t i = 0; i < spec::key_entries(options_.rkeys_power); ++i) {
    const util::MutableView<ent> entry(rkeys_.bytes().subspan(i * ent::kSize));
    if (entry.get(ent::vl) != 0) continue;
    entry.set(ent::req_sfunc, requester);
    make_valid(entry, ent::vl);
    const auto rkey = static_cast<std::uint16_t>(i);
    std::array steps{Descriptor::update_rkeys(rkey, rkey),
                     Descriptor::sync(spec::sync_filter::SYNC_RKEY, 0, 0, rkey, rkey)};
    if (auto ok = administer(steps); !ok) return tl::unexpected(ok.error());
    return rkey;
  }
  return util::fail("all RKeys are in use");
}

util::Result<void> Function::revoke(std::uint16_t rkey) {
  using ent = spec::rkey_ent;
  const util::MutableView<ent> entry(rkeys_.bytes().subspan(rkey * std::size_t{ent::kSize}));
  entry.set(ent::vl, 0);
  std::array steps{Descriptor::update_rkeys(rkey, rkey),
                   Descriptor::sync(spec::sync_filter::SYNC_RKEY, 0, 0, rkey, rkey)};
  return administer(steps);
}

}  // namespace softhca::driver::sdxi
