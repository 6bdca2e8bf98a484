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

/// Work (util::WorkBudget) of a command without its mailboxes, and of a reset, or of making all
/// objects without their caches and tables.
constexpr std::int64_t kCommandWork = 2'000;
constexpr std::int64_t kResetWork = 50'000;
/// Entries of WRITE_MTT that a mailbox holds.
constexpr std::uint32_t kMttsMax =
    (kMailbox - spec::jingzhao::write_mtt_in::kSize) / spec::jingzhao::mtt_entry_group::kSize * 4;
/// Bytes of a register.
constexpr std::size_t kDword = sizeof(std::uint32_t);
/// Limit on the cost of arriving frames beyond their senders' charges. One frame may load the
/// largest region.
constexpr std::int64_t kDebtMax = MemoryKeys::kLargestBringWork + 500'000;

/// Work of making the ICM caches, of `cache` entries each, and the tables of objects.
constexpr std::int64_t work_of(const Tables& tables, std::uint32_t cache) {
  constexpr std::int64_t kPointerWork = 2;
  const auto pointers = (std::int64_t{1} << tables.log_qps) + (std::int64_t{1} << tables.log_cqs);
  return cache * kCacheEntryWork + pointers * kPointerWork;
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
  reset_requested_ = false;
  doorbell_pages_.drop_halves();
}

void Device::init(const Tables& tables) {
  const auto cache = options_.icm_cache;
  work().charge(kResetWork + work_of(tables, cache));
  objects_ = std::make_unique<Objects>();
  auto& made = *objects_;
  made.memory_keys = std::make_unique<MemoryKeys>(
      MemoryKeys::Parts{.dma = dma(),
                        .icm = memory_,
                        .notes = notes_,
                        .unloaded = remains_.regions(),
                        .mpt_base = tables.mpt_base,
                        .mtt_base = tables.mtt_base,
                        .log_mpts = tables.log_mpts,
                        .cache = cache,
                        .all_memory_is_physical = rules_.all_memory_is_physical});
  receiving_ = made.memory_keys.get();
  auto& keys = made.memory_keys->table();
  keys.set_trace(trace());
  made.event_queues = std::make_unique<EventQueues>(EventQueues::Parts{.icm = contexts_,
                                                                       .keys = keys,
                                                                       .interrupts = interrupts(),
                                                                       .notes = notes_,
                                                                       .base = tables.eqc_base,
                                                                       .log_count = tables.log_eqs,
                                                                       .cache = cache});
  made.completion_queues =
      std::make_unique<CompletionQueues>(CompletionQueues::Parts{.icm = contexts_,
                                                                 .keys = keys,
                                                                 .event_queues = *made.event_queues,
                                                                 .notes = notes_,
                                                                 .base = tables.cqc_base,
                                                                 .log_count = tables.log_cqs,
                                                                 .cache = cache});
  made.queue_pairs =
      std::make_unique<QueuePairs>(QueuePairs::Parts{.icm = contexts_,
                                                     .keys = keys,
                                                     .event_queues = *made.event_queues,
                                                     .completion_queues = *made.completion_queues,
                                                     .port = *port_,
                                                     .infiniband = infiniband_,
                                                     .notes = notes_,
                                                     .base = tables.qpc_base,
                                                     .log_count = tables.log_qps,
                                                     .cache = cache});
  was_up_ = port_->link_up();
}

/// "Destroys the metadata of the ICM": both contexts and mappings.
void Device::close() {
  receiving_ = nullptr;
  if (objects_ != nullptr) remains_.add(std::move(objects_));
  contexts_.clear();
  memory_.clear();
  doorbell_pages_.drop_arms();
}

void Device::forget_icm(IcmGroup group, std::uint64_t virt, std::uint64_t size) {
  if (!initialized()) return;
  // drop() inspects every entry of these caches.
  constexpr std::int64_t kTables = 3;
  work().charge(kTables * options_.icm_cache);
  if (group == IcmGroup::MEMORY_TABLES) return objects().memory_keys->drop(virt, size);
  objects().event_queues->drop(virt, size);
  objects().completion_queues->drop(virt, size);
  objects().queue_pairs->drop(virt, size);
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
    remains_.clear(work());
    if (remains_.may_run(hcr_.command().op)) run_command();
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
  if (std::exchange(reset_requested_, false)) {
    const bool commanded = hcr_.busy();
    reset_device();
    if (commanded) hcr_.complete(Status::BAD_SYS_STATE);
  }
  if (!remains_.empty()) [[unlikely]] {
    remains_.clear(work());
    if (!remains_.regions().empty()) return now;
  }
  if (hcr_.busy() && remains_.may_run(hcr_.command().op)) run_command();
  if (!initialized()) return remains_.empty() ? util::kNever : now;
  auto& made = objects();
  receiving_ = made.memory_keys.get();  // the budget covers the excess cost
  made.memory_keys->trim();
  bool again = !remains_.empty();
  if (port_->link_up() != was_up_) [[unlikely]]
    note_link();
  if (doorbell_pages_.has_arms()) again = doorbell_pages_.arm(made, work()) || again;
  const auto next = made.queue_pairs->run(now, work());
  charge_memory(made.memory_keys->table(), work());
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
  if (keys.table().has_work()) charge_received(keys);
}

/// Over its work budget: drops the frame, as a NIC with a full buffer does.
[[gnu::noinline]] void Device::discard(const wire::Frame& frame) {
  if (initialized()) port_->count_discarded(frame);
}

[[gnu::noinline]] void Device::charge_received(MemoryKeys& keys) {
  work().charge(keys.table().take_work());
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

void Device::run_command() {
  work().charge(kCommandWork);
  auto command = hcr_.command();
  auto status = Status::OK;
  const auto* info = find_command(command.op);
  if (info == nullptr) {
    status = Status::BAD_OP;
    notes_.warn("HCR: unknown command {:#x} (JingZhao table 3-2-1)",
                static_cast<unsigned>(command.op));
  } else {
    std::vector<std::byte> out(output_size(*info, command));
    if (const auto done = execute(*info, command, out); !done) {
      const auto& refusal = done.error();
      status = refusal.status;
      notes_.warn("{}: {}: {} (JingZhao {})", info->name, to_string(status), refusal.text,
                  refusal.section);
    } else {
      notes_.debug("{} in_modifier {:#x}", info->name, command.in_modifier);
    }
  }
  ++(status == Status::OK ? commands_.executed : commands_.refused);
  hcr_.complete(status);
  if (hcr_.wants_event()) post_command_event(status);
  // A read of the HCR may have run it, and its reader pays.
  if (initialized()) charge_memory(objects().memory_keys->table(), work());
}

void Device::post_command_event(Status status) {
  if (!initialized()) return;
  util::Struct<EventQueues::Eqe> event;
  const util::MutableView<cmd_eqe> view(event.bytes());
  view.set(cmd_eqe::token, hcr_.token());
  view.set(cmd_eqe::status, static_cast<std::uint32_t>(status));
  objects().event_queues->post(EventType::CMD, event);
}

}  // namespace softhca::jingzhao
