#include "sdxi/device.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>

#include "util/endian.h"

namespace softhca::sdxi {
namespace {

constexpr std::uint32_t kClassCode = 0x120100;  // SDXI 8.1

/// Cost of a reset: contexts, mailboxes and registers.
constexpr std::int64_t kResetWork = 20'000;

/// Trace steps whose SDXI names differ from those of RDMA.
constexpr util::TraceName kTraceNames[] = {
    {util::TraceStep::kSendWqe, "contexts", "descriptor"},
    {util::TraceStep::kKey, "keys", "AKEY_ENT"},
    {util::TraceStep::kCompletion, "completion status blocks", "signal"},
    {util::TraceStep::kEvent, "error log", "record"},
};

constexpr std::uint64_t stride(const DeviceOptions& options) {
  return std::uint64_t{1} << (options.capabilities.db_stride + 12);
}

/// SDXI 9.7: one doorbell section for each context.
std::array<pcie::Bar, pcie::kBarCount> bars(const DeviceOptions& options) {
  std::array<pcie::Bar, pcie::kBarCount> bars{};
  bars[Device::kRegisterBar] = {
      .size = Device::kRegisterBarSize, .is_64bit = true, .prefetchable = true};
  bars[Device::kDoorbellBar] = {
      .size = std::bit_ceil((options.capabilities.max_cxt + std::uint64_t{1}) * stride(options)),
      .is_64bit = true,
      .prefetchable = true};
  return bars;
}

void check(const DeviceOptions& options) {
  [[maybe_unused]] const auto& capabilities = options.capabilities;
  assert(capabilities.db_stride <= 7 && capabilities.max_ds_ring_sz <= 22);
  assert(capabilities.max_buffer <= 11 && capabilities.max_akey_sz <= 8);
  assert(capabilities.max_rkey_sz <= 8 && capabilities.max_errlog_sz <= 9);
  assert(options.vfs <= Device::kVfsMax);
  assert(options.msix_vectors >= 1 && options.msix_vectors <= pcie::Msix::kMaxVectors);
}

}  // namespace

Device::Device(const DeviceOptions& options, FunctionGroup& group)
    : Device(options, group, nullptr) {}

Device::Device(const DeviceOptions& options, FunctionGroup& group, Device& pf)
    : Device(options, group, &pf) {}

Device::Device(const DeviceOptions& options, FunctionGroup& group, Device* pf)
    : Function(options.name,
               {.vendor_id = options.vendor_id,
                .device_id = options.device_id,
                .subsystem_vendor_id = options.vendor_id,
                .subsystem_id = options.device_id,
                .class_code = kClassCode,
                .revision_id = 1},
               bars(options),
               {.vectors = options.msix_vectors,
                .bar = kRegisterBar,
                .table_offset = kMsixTable,
                .pba_offset = kMsixPba}),
      options_(options),
      group_(group),
      pf_(pf),
      sfunc_(options.capabilities.rkey_cap ? group.free_sfunc() : std::uint16_t{0}),
      vf_num_(pf == nullptr ? std::uint16_t{0} : group.next_vf(*pf)),
      registers_(options_.capabilities, sfunc_, pf != nullptr),
      memory_(*this, options_.pasid_spaces, options_.any_pasid),
      own_interrupt_(options_.name, interrupts(), group.faults()),
      log_(options_.name, registers_, memory_, own_interrupt_),
      tables_(registers_, memory_),
      access_keys_(registers_, memory_, interrupts(), group, *this),
      receiver_keys_(registers_, memory_, interrupts(), log_),
      state_(registers_, log_, contexts_, own_interrupt_, group.workers().gate()),
      contexts_({.options = options_,
                 .registers = registers_,
                 .memory = memory_,
                 .tables = tables_,
                 .keys = access_keys_,
                 .interrupts = interrupts(),
                 .log = log_,
                 .self = *this,
                 .pf = pf,
                 .group = group,
                 .faults = group.faults(),
                 .halt = state_,
                 .workers = group.workers()}),
      mailboxes_(*this, pf, vf_num_, options_.vfs, group, own_interrupt_),
      mmio_({.registers = registers_,
             .state = state_,
             .mailboxes = mailboxes_,
             .gate = group.workers().gate(),
             .pf = pf}),
      trace_names_(kTraceNames) {
  check(options_);
  if (options_.msi_vectors != 0) add_msi(options_.msi_vectors);
  config().add_atomic_requester();
  group.workers().start(options_.workers);
  set_threads(group.workers().gate());
  assert(pf == nullptr || vf_num_ < kVfsMax);
  group.join(*this, {.sfunc = sfunc_, .pf = pf, .vf_num = vf_num_});
}

Device::~Device() {
  contexts_.drop_all();
  group_.leave(*this);
}

void Device::read_register(unsigned bar, std::uint64_t offset, std::span<std::byte> out) {
  if (bar == kRegisterBar) return mmio_.read(offset, out);
  // SDXI 9.7: the read value of a doorbell is undefined.
  std::fill(out.begin(), out.end(), std::byte{0});
}

void Device::write_register(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) {
  if (bar == kRegisterBar) return mmio_.write(offset, in);
  // SDXI 9: only aligned 64-bit writes to the first 8 bytes of a section are doorbells.
  if (bar != kDoorbellBar || in.size() != 8 || offset % stride(options_) != 0) return;
  const auto number = offset / stride(options_);
  if (number > options_.capabilities.max_cxt) return;
  contexts_.note_doorbell(static_cast<ContextNumber>(number), util::load_le64(in.data()));
}

void Device::reset_device() {
  work().charge(kResetWork);
  contexts_.drop_all();
  mailboxes_.reset();
  mmio_.reset();
  registers_.reset();
}

util::Time Device::run_device(util::Time now) {
  // In D3hot all state is kept (No_Soft_Reset), and work continues in D0.
  if (!config().in_d0()) return util::kNever;
  log_.set_now(now);
  const bool propagated = mmio_.probe_is_waiting();
  if (propagated) {
    group_.propagate_probe(*this, probe());
    mmio_.probe_has_propagated();
  }
  return state_.run(now, work());
}

Checked<AddressSpace> Device::admit_memory(const RemoteRequest& request) {
  return receiver_keys_.admit_memory(request);
}

Checked<InterruptTarget> Device::admit_interrupt(const RemoteRequest& request) {
  return receiver_keys_.admit_interrupt(request);
}

std::span<std::byte> Device::send_mailbox(std::uint16_t peer) {
  return mailboxes_.send_mailbox(peer);
}

void Device::set_probe(bool probe) { registers_.grp_enum.set(spec::mmio_grp_enum::probe, probe); }

bool Device::probe() const { return registers_.grp_enum.get(spec::mmio_grp_enum::probe) != 0; }

bool Device::probe_busy() const { return registers_.grp_enum.get(spec::mmio_grp_enum::busy) != 0; }

std::uint32_t Device::group_id() const { return registers_.ctl0.get(spec::mmio_ctl0::fn_grp_id); }

}  // namespace softhca::sdxi
