#include "connectx/device.h"

#include <algorithm>
#include <array>
#include <utility>

#include "connectx/base/resources.h"
#include "connectx/command/command_interface.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/event/completion_queue.h"
#include "connectx/event/event_queue.h"
#include "connectx/function/pages.h"
#include "connectx/function/product_data.h"
#include "connectx/memory/memory_keys.h"
#include "connectx/port/network_port.h"
#include "connectx/port/port_registers.h"
#include "connectx/port/vport.h"
#include "connectx/qp/rdma.h"
#include "connectx/queue/blue_flame.h"
#include "connectx/queue/shared_doorbells.h"
#include "connectx/queue/user_memory.h"
#include "rdma/engine.h"
#include "wire/train.h"

namespace softhca::connectx {

namespace {

constexpr unsigned kBar = 0;

/// Limit on the cost of arriving frames beyond their senders' charges.
constexpr std::int64_t kDebtMax = 500'000;
/// Cost of creating all objects.
constexpr std::int64_t kResetWork = 20'000;
/// Cost of a register access through configuration space.
constexpr std::int64_t kRegisterWork = 500;
constexpr Refusal kNoSuchRegister{
    .status = Status::BAD_OP, .syndrome = 0, .text = "unknown register", .section = "PRM 12.4.1"};

pcie::ConfigSpace::Identity identity(const Model& model) {
  return {
      .vendor_id = kVendorId,
      .device_id = model.device_id,
      .subsystem_vendor_id = kVendorId,
      .subsystem_id = model.subsystem_id,
      .class_code = 0x020000,  // Ethernet controller: udev and systemd name it as such
      .revision_id = 0,
  };
}

constexpr std::array kBars{pcie::Bar{.size = kBarSize, .is_64bit = true, .prefetchable = true}};

DeviceOptions with_fitting_limits(DeviceOptions options) {
  options.limits = Resources::fit(options.limits, options.queue_numbers);
  return options;
}

pcie::Msix::Layout msix_layout(std::uint16_t vectors) {
  static_assert(pcie::Msix::kTableEntrySize * 256 <= kUarPageSize);
  return {.vectors = std::clamp<std::uint16_t>(vectors, 1, 256),
          .bar = kBar,
          .table_offset = kMsixOffset,
          .pba_offset = kMsixOffset + static_cast<std::uint32_t>(kUarPageSize)};
}

}  // namespace

const std::int64_t Device::kPacketWork = rdma::Engine::kStepWork;

Device::Device(DeviceOptions options, fabric::Port& port)
    : Function(options.name, identity(options.model), kBars, msix_layout(options.msix_vectors)),
      options_(with_fitting_limits(std::move(options))),
      notes_(options_.name),
      internal_spaces_(notes_,
                       [this](auto id, bool write, auto in, auto out) -> CommandResult {
                         if (!PortRegisters::has(id)) return tl::unexpected(kNoSuchRegister);
                         work().charge(kRegisterWork);
                         attention_ = true;
                         return driver_.port_registers().access(id, write, in, out, this->now());
                       }),
      companion_(options_.model.make_companion == nullptr ? nullptr
                                                          : options_.model.make_companion()),
      port_(&port),
      driver_({.model = options_.model,
               .clock = options_.clock,
               .dma = dma(),
               .msix = msix(),
               .work = work(),
               .notes = notes_,
               .health = health_},
              options_.limits, [this](const Limits& limits) { return make_objects(limits); }),
      doorbells_(work(), attention_,
                 Resources::queue_numbers(options_.limits, options_.queue_numbers)) {
  note_time(options_.clock());
  config().add_vital_product_data(product_data(options_.model, options_.node_guid));
  config().add_vendor_specific(VendorCapability::kLength, vendor_capability_);
  config().begin_list_with(options_.model.first_capability);
  reset_device();
  port_->set_receiver(this);
}

Device::~Device() { port_->set_receiver(nullptr); }

util::Result<void> Device::share_doorbells() {
  auto made = SharedDoorbells::create();
  if (!made) return tl::unexpected(made.error());
  shared_doorbells_ = std::move(*made);
  driver_.set_shared_doorbells(*shared_doorbells_);
  reset_device();
  return {};
}

void Device::set_ack_patience(unsigned timeouts) {
  driver_.rdma().transport().set_ack_patience(timeouts);
}

std::optional<pcie::SharedBarMemory> Device::shared_memory(unsigned bar) const {
  if (bar != kBar || shared_doorbells_ == nullptr) return std::nullopt;
  return shared_doorbells_->memory();
}

/// Recreates all parts, with the trace.
void Device::trace_device(util::Trace& trace) {
  if (companion_ != nullptr) trace.set_modules(companion_->trace_modules());
  port_->set_receiver(nullptr);
  trace_port_ = std::make_unique<fabric::TracePort>(*port_, trace);
  port_ = trace_port_.get();
  reset_device();
  port_->set_receiver(this);
}

void Device::reset_device() {
  work().charge(kResetWork);
  attention_ = true;
  driver_.reset();
  if (shared_doorbells_ != nullptr) shared_doorbells_->clear_all();
  if (companion_ != nullptr) companion_->handle_reset();
  commands_ = std::make_unique<CommandInterface>(*this);
}

void Device::invalidate_flows() {
  driver_.ethernet().invalidate_flows();
  driver_.objects().blue_flame->forget();
}

void Device::look_for_sniffers() {
  driver_.ethernet().look_for_transmit_tables();
  sniffs_received_ = driver_.ethernet().sniffs_received();
  auto& port = driver_.network_port();
  const bool sniffs_sent = driver_.ethernet().sniffs_sent();
  if (sniffs_sent == port.has_sniffer()) return;
  const auto sniff = [this](const wire::Frame& frame) {
    driver_.ethernet().sniff_sent(frame, noted_time());
  };
  port.set_sniffer(sniffs_sent ? NetworkPort::Sniffer(sniff) : NetworkPort::Sniffer());
}

/// Makes the objects of a driver, and connects the device to them.
std::unique_ptr<Objects> Device::make_objects(const Limits& limits) {
  auto objects = std::make_unique<Objects>();
  auto& made = *objects;
  made.resources = std::make_unique<Resources>(limits, options_.model, shared_doorbells_ != nullptr,
                                               options_.queue_numbers);
  made.user_memories = std::make_unique<UserMemories>(made.resources->translations(), limits);
  made.event_queues = std::make_unique<EventQueues>(msix(), limits, health_, notes_);
  made.event_queues->set_trace(trace());
  made.event_queues->set_faults(faults_.hook());
  made.completion_queues = std::make_unique<CompletionQueues>(*made.event_queues, limits);
  made.memory_keys =
      std::make_unique<MemoryKeys>(dma(), *made.resources, *made.user_memories, limits);
  made.memory_keys->table().set_trace(trace());
  made.network_port = std::make_unique<NetworkPort>(*port_);
  made.vport =
      std::make_unique<Vport>(options_.mac, options_.node_guid, *made.network_port, limits);
  made.port_registers = std::make_unique<PortRegisters>(
      PortRegisters::Parts{*made.network_port, *made.event_queues}, now());
  made.blue_flame = std::make_unique<BlueFlame>();
  made.rdma = std::make_unique<Rdma>(
      Rdma::Parts{.limits = limits,
                  .model = options_.model,
                  .resources = *made.resources,
                  .event_queues = *made.event_queues,
                  .completion_queues = *made.completion_queues,
                  .memory_keys = *made.memory_keys,
                  .port = *made.network_port,
                  .blue_flame = *made.blue_flame,
                  .shared_doorbells = shared_doorbells_.get(),
                  .mapper = {dma(), made.resources->translations(), *made.user_memories, work()},
                  .notes = notes_,
                  .trace = trace(),
                  .ack_timeout_min = options_.ack_timeout_min});
  made.ethernet = std::make_unique<Ethernet>(
      Ethernet::Parts{.limits = limits,
                      .resources = *made.resources,
                      .event_queues = *made.event_queues,
                      .keys = made.memory_keys->table(),
                      .blue_flame = *made.blue_flame,
                      .shared_doorbells = shared_doorbells_.get(),
                      .port = *made.network_port,
                      .notes = notes_,
                      .multi_packet_sends = options_.model.multi_packet_sends});
  sniffs_received_ = false;
  doorbells_.connect(made, shared_doorbells_.get(), trace());
  return objects;
}

util::Time Device::run_device(util::Time now) {
  overdrawn_ = false;
  doorbells_.forget_last();
  notes_.set_time(now);
  const auto next_look = shared_doorbells_ == nullptr ? util::kNever : doorbells_.poll(now);
  if (attention_ || now >= quiet_until_) return std::min(run_all(now), next_look);
  driver_.completion_queues().run(now, work());
  const auto next = std::min(driver_.rdma().run(now, work()), others_next_);
  work().charge(pcie::RemoteAccesses::take_work());
  return std::min({next, driver_.completion_queues().next_event(), next_look});
}

void Device::run_commands(util::Time now) {
  note_time(now);
  // A command may reset the queue that rang last.
  doorbells_.forget_last();
  notes_.set_time(now);
  work().grant(kRunWork);
  if (commands().run(work())) attention_ = true;
  if (faults_.breaks()) return faults_.apply_break();
  driver_.rdma().run_key_changes(now, work());
  driver_.completion_queues().run(now, work());
  work().charge(pcie::RemoteAccesses::take_work());
}

[[gnu::noinline]] util::Time Device::run_all(util::Time now) {
  attention_ = false;
  driver_.ethernet().report_released(now);
  driver_.completion_queues().run(now, work());
  const bool more_commands = commands().run(work());
  if (faults_.breaks()) faults_.apply_break();
  const bool more_doorbells = doorbells_.run_sends();
  others_next_ = driver_.port_registers().run(now);
  if (driver_.state() == HcaState::kInitialized) {
    others_next_ = std::min(others_next_, driver_.pages().run(now, driver_.event_queues()));
  }
  auto next = rdma_first_ ? driver_.rdma().run(now, work()) : util::kNever;
  others_next_ = std::min(others_next_, driver_.ethernet().run(now, work()));
  if (!rdma_first_) next = driver_.rdma().run(now, work());
  driver_.objects().blue_flame->forget();
  work().charge(pcie::RemoteAccesses::take_work());
  // If the first one has used up the budget, the other one runs first in the next turn.
  if (work().spent()) rdma_first_ = !rdma_first_;
  // Computed last, because the parts that ran may have held back events.
  next = std::min({next, others_next_, driver_.completion_queues().next_event()});
  // The link must be polled, but only in turns that happen anyway.
  quiet_until_ = std::min(others_next_, driver_.port_registers().next_look());
  attention_ = attention_ || more_commands || more_doorbells;
  return more_commands || more_doorbells ? now : next;
}

/// Charges the receiver's work beyond the sender's charge for a frame. RDMA and Ethernet both
/// record such work in the table of memory keys.
void Device::charge_noted() {
  auto& keys = driver_.memory_keys().table();
  if (!keys.work().any()) return;
  work().charge(keys.work().drain());
  overdrawn_ = work().left() < -kDebtMax;
}

void Device::handle_frame(const wire::Frame& frame) {
  if (frame.packets() == 1) {
    // Fast path of receive(): nearly every packet is counted like the previous one. If the sender
    // wrote RDMA headers, the frame has their values.
    const auto service = frame.has_values() ? Service::kRdma : Service::kEthernet;
    if (overdrawn_ || sniffs_received_ || !driver_.network_port().can_count_fast(frame, service)) {
      return receive(frame);
    }
    const bool taken =
        service == Service::kEthernet
            ? driver_.ethernet().handle_frame_fast(frame, noted_time())
            : driver_.vport().roce_enabled() && driver_.rdma().handle_frame(frame, noted_time());
    if (!taken) return receive(frame);
    if (service == Service::kEthernet) attention_ = true;
    driver_.network_port().count_fast(service);
    return charge_noted();
  }
  if (takes_whole(frame)) {
    (void)driver_.network_port().accept(frame);
    driver_.network_port().count_received(frame, Service::kRdma);
    return charge_noted();
  }
  wire::for_each_packet(frame, [this](const wire::Frame& packet) { receive(packet); });
}

/// Receives a train of the InfiniBand transport as a whole, if it is for a QP of this device. False
/// for trains of a large send (LSO), whose packets go to receive WQEs one by one.
bool Device::takes_whole(const wire::Frame& train) {
  return train.train().part == nullptr && !overdrawn_ && !sniffs_received_ &&
         driver_.network_port().passes(train) && driver_.vport().roce_enabled() &&
         !driver_.memory_keys().table().has_charged() &&
         driver_.rdma().handle_frame(train, noted_time());
}

[[gnu::noinline]] void Device::receive(const wire::Frame& frame) {
  // The noted time is exact enough: frames arrive in the turn of the loop in which run() was
  // called. Reading the clock for each would cost a tenth of the time of a packet.
  if (!driver_.network_port().accept(frame)) return;
  attention_ = true;
  // Over its work budget: drop the frame, as a NIC with a full buffer does.
  if (overdrawn_) return driver_.network_port().count_discard(priority_of(frame));
  if (sniffs_received_) driver_.ethernet().sniff_received(frame, noted_time());
  if (frame.headers() == nullptr && driver_.ethernet().handle_frame_fast(frame, noted_time())) {
    driver_.network_port().count_received(frame, Service::kEthernet);
  } else if (driver_.vport().roce_enabled() && driver_.rdma().handle_frame(frame, noted_time())) {
    driver_.network_port().count_received(frame, Service::kRdma);
  } else {
    driver_.network_port().count_received(frame, Service::kEthernet);
    driver_.ethernet().handle_frame(frame, noted_time());
  }
  charge_noted();
}

void Device::handle_loopback(const wire::Frame& frame, std::uint32_t domain) {
  if (!driver_.network_port().state().vport_is_up()) return;
  attention_ = true;
  if (frame.packets() == 1) return receive_looped(frame, TransportDomain(domain));
  if (takes_whole(frame)) {
    driver_.network_port().count_looped(frame, Service::kRdma);
    return charge_noted();
  }
  wire::for_each_packet(
      frame, [&](const wire::Frame& packet) { receive_looped(packet, TransportDomain(domain)); });
}

void Device::receive_looped(const wire::Frame& frame, TransportDomain domain) {
  if (overdrawn_) return driver_.network_port().count_discard(priority_of(frame));
  if (sniffs_received_) driver_.ethernet().sniff_received(frame, noted_time());
  if (driver_.vport().roce_enabled() && driver_.rdma().handle_frame(frame, noted_time())) {
    driver_.network_port().count_looped(frame, Service::kRdma);
  } else if (driver_.ethernet().handle_loopback(frame, domain, noted_time())) {
    driver_.network_port().count_looped(frame, Service::kEthernet);
  }
  charge_noted();
}

void Device::read_register(unsigned bar, std::uint64_t offset, std::span<std::byte> out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  if (bar != kBar || offset >= InitSegment::kSize) return;  // doorbell pages are write-only
  const auto length = std::min<std::uint64_t>(out.size(), InitSegment::kSize - offset);
  commands().read_init_segment(offset, out.first(length));
}

inline void Device::write_page(std::uint64_t offset, std::span<const std::byte> in) {
  doorbells_.write(UarPage(static_cast<std::uint32_t>(offset / kUarPageSize)),
                   static_cast<std::uint32_t>(offset % kUarPageSize), in);
}

void Device::write_register(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) {
  if (bar != kBar) return;
  // Fast path for doorbells.
  if (offset < InitSegment::kSize) return write_first_pages(offset, in);
  write_page(offset, in);
}

[[gnu::noinline]] void Device::write_first_pages(std::uint64_t offset,
                                                 std::span<const std::byte> in) {
  attention_ = true;
  commands().write_init_segment(offset, in);
  if (offset / kUarPageSize >= options_.model.first_uar) write_page(offset, in);
}

}  // namespace softhca::connectx
