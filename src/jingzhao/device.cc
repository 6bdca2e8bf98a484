#include "jingzhao/device.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "jingzhao/identity.h"
#include "util/bits.h"
#include "util/endian.h"
#include "wire/train.h"

namespace softhca::jingzhao {

using spec::jingzhao::cmd_eqe;
using spec::jingzhao::port_change_subtype;
using spec::jingzhao::reset_register;

namespace {

/// Work (util::WorkBudget) of a command without its mailboxes, and of a reset, or of making objects
/// without their tables and caches.
constexpr std::int64_t kCommandWork = 2'000;
constexpr std::int64_t kResetWork = 50'000;
/// Entries of WRITE_MTT that a mailbox holds.
constexpr std::uint32_t kMttsMax =
    (kMailbox - spec::jingzhao::write_mtt_in::kSize) / spec::jingzhao::mtt_entry_group::kSize * 4;
/// Bytes of a register.
constexpr std::size_t kDword = sizeof(std::uint32_t);
/// Limit on the cost of arriving frames beyond their senders' charges.
constexpr std::int64_t kDebtMax = 500'000;

/// Work of making the tables of objects and all else but the ICM caches.
constexpr std::int64_t work_of(const Tables& tables) {
  constexpr std::int64_t kPointerWork = 2;
  const auto pointers = (std::int64_t{1} << tables.log_qps) + (std::int64_t{1} << tables.log_cqs);
  return kResetWork + pointers * kPointerWork;
}

pcie::ConfigSpace::Identity identity_of(const ProfileRules& rules) {
  return {
      .vendor_id = kVendorId,
      .device_id = rules.device_id,
      .subsystem_vendor_id = kVendorId,
      .subsystem_id = 0x0001,
      .class_code = 0x0C0600,  // InfiniBand controller
      .revision_id = 0,
  };
}

constexpr std::array kBars{
    pcie::Bar{.size = Device::kHcrBarSize, .is_64bit = true},
    pcie::Bar{},
    pcie::Bar{.size = Device::kUarBarSize, .is_64bit = true},
};

pcie::Msix::Layout msix_of(const ProfileRules& rules) {
  return {.vectors = Device::kVectors,
          .bar = Device::kHcrBar,
          .table_offset = rules.msix_table,
          .pba_offset = rules.msix_pba};
}

}  // namespace

Device::Device(DeviceOptions options, fabric::Port& port)
    : Function(options.name, identity_of(rules_of(options.profile)), kBars,
               msix_of(rules_of(options.profile))),
      options_(std::move(options)),
      rules_(rules_of(options_.profile)),
      notes_(options_.name),
      port_(make_port(port)),
      contexts_(dma()),
      memory_(dma()),
      doorbell_pages_(kUarBarSize / DoorbellPages::Page::kSize, std::size_t{1} << rules_.log_cqs) {
  reset_device();
  port_->set_receiver(this);
}

Device::~Device() { port_->set_receiver(nullptr); }

std::unique_ptr<LinkPort> Device::make_port(fabric::Port& wire) {
  if (options_.link == wire::Link::kEthernet) return std::make_unique<EthernetPort>(wire);
  auto made = std::make_unique<InfinibandPort>(wire, options_.name, options_.node_guid,
                                               [this] { handle_link_change(); });
  infiniband_ = made.get();
  return made;
}

// Set-up -----------------------------------------------------------------------------------------

void Device::reset_device() {
  work().charge(kResetWork);
  close();
  contexts_.clear();
  memory_.clear();
  hcr_.reset();
  faults_.reset();
  reset_requested_ = false;
  doorbell_pages_.drop_halves();
}

void Device::init(const Tables& tables) {
  work().charge(work_of(tables));
  making_ = std::make_unique<Objects>(Objects::Parts{.dma = dma(),
                                                     .contexts = contexts_,
                                                     .memory = memory_,
                                                     .interrupts = interrupts(),
                                                     .faults = faults_.hook(),
                                                     .port = *port_,
                                                     .infiniband = infiniband_,
                                                     .notes = notes_,
                                                     .trace = trace(),
                                                     .unloaded = remains_.regions(),
                                                     .cache = options_.icm_cache,
                                                     .rules = rules_},
                                      tables);
}

/// "Destroys the metadata of the ICM": both contexts and mappings.
void Device::close() {
  receiving_ = nullptr;
  if (making_ != nullptr) objects_ = std::move(making_);
  if (objects_ != nullptr) remains_.add(std::move(objects_));
  const auto chunks = contexts_.chunks() + memory_.chunks();
  work().charge(static_cast<std::int64_t>(chunks) * Icm::kChunkWork);
  contexts_.clear();
  memory_.clear();
  doorbell_pages_.drop_arms();
}

void Device::forget_icm(IcmGroup group, std::span<const Icm::Range> ranges) {
  if (!initialized()) return;
  // drop() inspects every entry of these caches.
  constexpr std::int64_t kTables = 3;
  work().charge(kTables * options_.icm_cache);
  if (group == IcmGroup::MEMORY_TABLES) return objects().memory_keys->drop(ranges);
  objects().event_queues->contexts().drop(ranges);
  objects().completion_queues->contexts().drop(ranges);
  objects().queue_pairs->contexts().drop(ranges);
}

void Device::lose_contexts(std::uint64_t virt, std::uint64_t size) {
  if (!initialized()) return;
  auto& made = objects();
  work().charge(std::int64_t{made.queue_pairs->end()} + made.completion_queues->end());
  made.queue_pairs->lose_icm(virt, size);
}

// Registers --------------------------------------------------------------------------------------

std::uint32_t Device::read_dword(std::uint64_t offset) const {
  if (is_hcr(offset)) return hcr_.read(static_cast<std::uint32_t>(offset - rules_.hcr_offset));
  return offset == kResetOffset ? std::uint32_t{reset_requested_} : 0;
}

void Device::read_register(unsigned bar, std::uint64_t offset, std::span<std::byte> out) {
  std::ranges::fill(out, std::byte{0});
  if (bar != kHcrBar) return;  // doorbells are write-only
  if (rules_.reads_finish_commands && hcr_.busy() && !reset_requested_ && is_hcr(offset)) {
    finish_command();
  }
  for (std::size_t i = 0; i != out.size(); ++i) {
    const auto at = offset + i;
    std::array<std::byte, kDword> dword;
    util::store_le32(dword.data(), read_dword(at / kDword * kDword));
    out[i] = dword[at % kDword];
  }
}

void Device::write_hcr_bar(std::uint64_t offset, std::uint32_t value) {
  if (is_hcr(offset)) {
    hcr_.write(static_cast<std::uint32_t>(offset - rules_.hcr_offset), value);
  } else if (offset == kResetOffset) {
    std::array<std::byte, kDword> bytes;
    util::store_le32(bytes.data(), value);
    const util::View<reset_register> view(bytes);
    reset_requested_ = reset_requested_ || view.get(reset_register::reset) != 0;
  }
}

/// Writes to both BARs; doorbells are the most frequent.
void Device::write_register(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) {
  if (bar == kUarBar) [[likely]] {
    if (initialized()) doorbell_pages_.write(*objects_->queue_pairs, offset, in);
    return;
  }
  if (bar == kHcrBar) write_hcr_dwords(offset, in);
}

/// Accepts only whole dwords; two dwords count as two writes, the low one first.
[[gnu::noinline]] void Device::write_hcr_dwords(std::uint64_t offset,
                                                std::span<const std::byte> in) {
  if (offset % kDword != 0 || in.size() % kDword != 0) return;
  for (; !in.empty(); in = in.subspan(kDword), offset += kDword) {
    write_hcr_bar(offset, util::load_le32(in.data()));
  }
}

// Time -------------------------------------------------------------------------------------------

util::Time Device::run_device(util::Time now) {
  notes_.set_time(now);
  if (infiniband_ != nullptr) infiniband_->follow_link();
  if (std::exchange(reset_requested_, false)) {
    const bool commanded = hcr_.busy();
    reset_device();
    if (commanded) hcr_.complete(Status::BAD_SYS_STATE);
  }
  if (!remains_.empty()) [[unlikely]] {
    remains_.clear(work());
    if (!remains_.regions().empty()) return now;
  }
  if (hcr_.busy() && remains_.may_run(hcr_.command().op)) run_command(work());
  if (faults_.breaks()) [[unlikely]]
    faults_.apply_break();
  if (!initialized()) return remains_.empty() && making_ == nullptr ? util::kNever : now;
  auto& made = objects();
  receiving_ = made.memory_keys.get();  // the budget covers the excess cost
  made.memory_keys->settle(work());
  bool again = false;
  if (port_->link_up() != was_up_) [[unlikely]]
    note_link();
  if (doorbell_pages_.has_arms()) again = doorbell_pages_.arm(made, work());
  const auto next = made.queue_pairs->run(now, work());
  charge_memory(*made.memory_keys, work());
  again |= !remains_.empty();
  return again ? now : next;
}

/// Reports a change of the link state. run_device() polls it, because no notification says that the
/// link partner comes or goes.
void Device::note_link() {
  was_up_ = !was_up_;
  using Eqe = EventQueues::Eqe;
  util::Struct<Eqe> event;
  event.set(Eqe::port, 1);
  event.set(Eqe::subtype, static_cast<std::uint32_t>(was_up_ ? port_change_subtype::UP
                                                             : port_change_subtype::DOWN));
  objects().event_queues->post(EventType::PORT_CHANGE, event);
}

/// The subnet manager has changed the port. run_device() detects a change of the link state.
void Device::handle_link_change() {
  if (!initialized()) return;
  auto& queue_pairs = *objects().queue_pairs;
  queue_pairs.take_link_attributes();
  (void)queue_pairs.refresh_pkeys(work());
}

// Frames -----------------------------------------------------------------------------------------

void Device::handle_frame(const wire::Frame& frame) {
  port_->count_received(frame);
  receive(frame);
}

void Device::handle_loopback(const wire::Frame& frame, std::uint32_t) { receive(frame); }

void Device::receive(const wire::Frame& frame) {
  if (receiving_ == nullptr) [[unlikely]]
    return discard(frame);
  auto& keys = *receiving_;
  keys.trim();
  if (frame.packets() == 1 || !keys.table().has_charged()) {
    (void)objects().queue_pairs->handle_frame(frame, noted_time());
  } else {
    wire::for_each_packet(frame, [&](const wire::Frame& packet) {
      (void)objects().queue_pairs->handle_frame(packet, noted_time());
    });
  }
  if (keys.table().work().any()) charge_received(keys);
}

/// Over its work budget: drops the frame, as a NIC with a full buffer does.
[[gnu::noinline]] void Device::discard(const wire::Frame& frame) {
  if (initialized()) port_->count_discarded(frame);
}

[[gnu::noinline]] void Device::charge_received(MemoryKeys& keys) {
  work().charge(keys.table().work().drain());
  if (work().left() < -kDebtMax) receiving_ = nullptr;
}

// Commands ---------------------------------------------------------------------------------------

CommandResult Device::execute(const CommandInfo& info, Command& command, std::span<std::byte> out) {
  if (info.needs_init && !initialized()) {
    return refuse(Status::BAD_PARAM, "3.2.1.3", "INIT_HCA comes first");
  }
  if (command.op_modifier >= 32 || !util::has_bit(info.op_modifiers, command.op_modifier)) {
    return refuse(Status::BAD_PARAM, info.section, "the command has no such op_modifier");
  }
  if (rules_.cuts_mtt_lists && info.op == Opcode::WRITE_MTT) {
    command.in_modifier = std::min(command.in_modifier, kMttsMax);
  }
  std::uint32_t size = 0;
  if (auto known = input_size(info, command, size); !known) return known;
  std::vector<std::byte> mailbox(size);
  if (size != 0) {
    if (command.in_param == 0) {
      return refuse(Status::BAD_PARAM, "3.1.1", "in_param is 0, and the command has a mailbox");
    }
    if (!dma().read(command.in_param, mailbox)) {
      return refuse(Status::BAD_PARAM, "3.1.1", "the input mailbox cannot be read");
    }
  }
  command.in = mailbox;
  command.out = out;
  if (!out.empty() && hcr_.out_param() == 0) {
    return refuse(Status::BAD_PARAM, "3.1.1", "out_param is 0, and the command has a mailbox");
  }
  if (auto done = info.handler(*this, command); !done) return done;
  if (!out.empty() && !dma().write(hcr_.out_param(), out)) {
    return refuse(Status::BAD_PARAM, "3.1.1", "the output mailbox cannot be written");
  }
  return {};
}

/// Executes the command, except that INIT_HCA may not end here. Returns its status.
Status Device::start_command() {
  work().charge(kCommandWork);
  auto command = hcr_.command();
  const auto* info = find_command(command.op);
  if (info == nullptr) {
    notes_.warn("HCR: unknown command {:#x} (JingZhao table 3-2-1)",
                static_cast<unsigned>(command.op));
    return Status::BAD_OP;
  }
  if (const auto status = faults_.injected()) {
    notes_.warn("{}: {}: by a fault rule", info->name, to_string(*status));
    return *status;
  }
  std::vector<std::byte> out(output_size(*info, command));
  if (const auto done = execute(*info, command, out); !done) {
    const auto& refusal = done.error();
    notes_.warn("{}: {}: {} (JingZhao {})", info->name, to_string(refusal.status), refusal.text,
                refusal.section);
    return refusal.status;
  }
  notes_.debug("{} in_modifier {:#x}", info->name, command.in_modifier);
  return Status::OK;
}

/// For a reader that does not wait: ends the pending command within the read, and charges it.
void Device::finish_command() {
  util::WorkBudget all(INT64_MAX);
  if (!remains_.may_run(hcr_.command().op)) remains_.clear(all);
  run_command(all);
  work().charge(all.done());
}

/// Runs the pending command. INIT_HCA goes on until `for_init` is spent, and then again.
void Device::run_command(util::WorkBudget& for_init) {
  if (making_ == nullptr && !faults_.lets_run(hcr_.command().op)) return;
  const auto status = making_ == nullptr ? start_command() : Status::OK;
  if (making_ != nullptr) {
    if (!making_->make_caches(for_init)) return;
    objects_ = std::move(making_);
    receiving_ = objects_->memory_keys.get();
    was_up_ = port_->link_up();
    objects_->queue_pairs->take_link_attributes();
  }
  ++(status == Status::OK ? commands_.executed : commands_.refused);
  hcr_.complete(status);
  faults_.end_command();
  if (!initialized()) return;
  if (hcr_.wants_event()) {
    util::Struct<EventQueues::Eqe> event;
    const util::MutableView<cmd_eqe> view(event.bytes());
    view.set(cmd_eqe::token, hcr_.token());
    view.set(cmd_eqe::status, static_cast<std::uint32_t>(status));
    objects().event_queues->post(EventType::CMD, event);
  }
  // A read of the HCR may have run it, and its reader pays.
  charge_memory(*objects().memory_keys, work());
}

}  // namespace softhca::jingzhao
