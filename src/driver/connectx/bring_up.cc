// The bring-up and teardown of a ConnectX: the sequences of PRM 8.2 and 8.3, in their order and
// with their step numbers (the list of 8.2, counted from 1). CommandQueue::create does steps 1 to
// 3.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "driver/connectx/hca.h"
#include "driver/pci.h"
#include "spec/connectx/registers.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/vport.h"
#include "util/bits.h"
#include "util/log.h"

namespace softhca::driver::connectx {

using spec::command_opcode;
using spec::hca_cap;
using spec::hca_cap_type;

namespace {

constexpr std::uint32_t kIssi1 = 1u << 1;

/// Calls `next` unless an earlier step failed.
template <class Next>
void then(util::Result<void>& so_far, Next&& next) {
  if (so_far) so_far = next();
}

}  // namespace

util::Result<std::unique_ptr<Hca>> Hca::open(Host& host, const Options& options) {
  std::unique_ptr<Hca> hca(new Hca(host, options));
  if (auto up = hca->bring_up(); !up) return tl::unexpected(up.error());
  return hca;
}

Hca::~Hca() {
  if (const auto closed = close(); !closed) {
    util::log(util::LogLevel::kWarning, "ConnectX: {}", closed.error().message);
  }
}

util::Result<void> Hca::bring_up() {
  // PRM 8.1.2, note: "The driver should ensure that the Bus Master bit in the Command Register is
  // set in the PCI configuration header of the HCA prior to executing further commands".
  enable_bus_master(host_);
  closed_ = false;
  // Steps 1 to 3: initialization segment.
  auto commands = CommandQueue::create(host_, options_.patience);
  if (!commands) return tl::unexpected(commands.error());
  commands_ = std::move(*commands);
  pages_ = std::make_unique<Pages>(host_, *commands_);
  auto& segment = commands_->init_segment();
  firmware_version_ = fmt::format("{}.{}.{}", segment.read(spec::init_segment::fw_rev_major),
                                  segment.read(spec::init_segment::fw_rev_minor),
                                  segment.read(spec::init_segment::fw_rev_subminor));
  util::Result<void> up;
  then(up, [&] { return enable(); });
  then(up, [&] { return configure(); });
  then(up, [&] { return initialize(); });
  then(up, [&] { return create_doorbells_and_events(); });
  then(up, [&] { return start_port(); });
  return up;
}

util::Result<void> Hca::enable() {
  // Step 4: ENABLE_HCA.
  if (auto done = commands_->run(Request<spec::enable_hca_in>(command_opcode::ENABLE_HCA)); !done) {
    return done;
  }
  stage_ = Stage::kEnabled;
  // Steps 5 and 6: QUERY_ISSI, SET_ISSI.
  if (auto done = select_issi(); !done) return done;
  // Steps 7 and 8: QUERY_PAGES, MANAGE_PAGES for boot pages.
  return pages_->give_for(spec::query_pages_op_mod::BOOT_PAGES);
}

util::Result<void> Hca::select_issi() {
  const auto out = commands_->execute<spec::query_issi_out>(
      Request<spec::query_issi_in>(command_opcode::QUERY_ISSI));
  if (!out) return tl::unexpected(out.error());
  const auto supported = out->get(spec::query_issi_out::supported_issi);
  if ((util::load_be32(supported.last<4>().data()) & kIssi1) == 0) {
    return util::fail("the device does not offer ISSI 1 (PRM 7.1)");
  }
  Request<spec::set_issi_in> in(command_opcode::SET_ISSI);
  in.set(spec::set_issi_in::current_issi, 1);
  return commands_->run(in);
}

util::Result<void> Hca::configure() {
  // Not in the manual's list: before anything else, the device must be given the host's byte order.
  auto done = set_host_endianness();
  // Steps 9 and 10: QUERY_HCA_CAP, SET_HCA_CAP.
  then(done, [&] { return set_general_capabilities(); });
  then(done, [&] { return set_atomic_capabilities(); });
  return done;
}

template <class Register>
util::Result<void> Hca::access(spec::register_id id, spec::access_register_op_mod direction,
                               util::Struct<Register>& content) {
  Request<spec::access_register_in> in(command_opcode::ACCESS_REG, Register::kSize);
  in.set(spec::access_register_in::op_mod, static_cast<std::uint16_t>(direction));
  in.set(spec::access_register_in::register_id, static_cast<std::uint16_t>(id));
  std::ranges::copy(content.bytes(), in.all().begin() + spec::access_register_in::kSize);
  const auto out = commands_->execute<spec::access_register_out>(in, Register::kSize);
  if (!out) return tl::unexpected(out.error());
  std::ranges::copy(out->all().subspan(spec::access_register_out::kSize, Register::kSize),
                    content.bytes().begin());
  return {};
}

util::Result<void> Hca::set_host_endianness() {
  // The register's 16 bytes are all 0: little-endian.
  util::Struct<spec::reg_host_endianness> content;
  return access(spec::register_id::HOST_ENDIANNESS, spec::access_register_op_mod::WRITE, content);
}

/// PRM 11.1.1: the port drops packets longer than its MTU, which initially is that of Ethernet.
/// Paths of 4096 bytes need more.
util::Result<void> Hca::raise_port_mtu() {
  using R = spec::reg_pmtu;
  util::Struct<R> content;
  content.set(R::local_port, 1);
  auto done = access(spec::register_id::PMTU, spec::access_register_op_mod::READ, content);
  if (!done) return done;
  content.set(R::admin_mtu, content.get(R::max_mtu));
  return access(spec::register_id::PMTU, spec::access_register_op_mod::WRITE, content);
}

util::Result<void> Hca::query_capabilities(hca_cap_type type, std::span<std::byte> out) {
  Request<spec::query_hca_cap_in> in(command_opcode::QUERY_HCA_CAP);
  in.set(spec::query_hca_cap_in::op_mod,
         util::joined(static_cast<std::uint32_t>(type), spec::hca_cap_op_mod::mode,
                      static_cast<std::uint32_t>(spec::hca_cap_mode::CURRENT)));
  const auto reply = commands_->execute<spec::query_hca_cap_out>(in);
  if (!reply) return tl::unexpected(reply.error());
  std::ranges::copy(reply->get(spec::query_hca_cap_out::capability), out.begin());
  return {};
}

util::Result<void> Hca::set_capabilities(hca_cap_type type, std::span<const std::byte> image) {
  Request<spec::set_hca_cap_in> in(command_opcode::SET_HCA_CAP);
  in.set(spec::set_hca_cap_in::op_mod,
         util::joined(static_cast<std::uint32_t>(type), spec::hca_cap_op_mod::mode, 0));
  std::ranges::copy(image, in.sub(spec::set_hca_cap_in::capability).begin());
  return commands_->run(in);
}

util::Result<void> Hca::set_general_capabilities() {
  capabilities_.resize(hca_cap::kSize);
  if (auto done = query_capabilities(hca_cap_type::GENERAL, capabilities_); !done) return done;
  const util::MutableView<hca_cap> general(capabilities_);
  if (general.get(hca_cap::roce) == 0 || general.get(hca_cap::rc) == 0) {
    return util::fail("the device does not do RoCE (HCA_CAP.roce, HCA_CAP.rc)");
  }
  if (general.get(hca_cap::cqe_version) == 0) {
    return util::fail("this driver needs completions with a user index (HCA_CAP.cqe_version 1)");
  }
  general.set(hca_cap::cmdif_checksum, 0);   // this driver neither generates nor checks signatures
  general.set(hca_cap::log_uar_page_sz, 0);  // doorbell pages of 4 KiB
  if (auto done = set_capabilities(hca_cap_type::GENERAL, capabilities_); !done) return done;
  return query_capabilities(hca_cap_type::GENERAL, capabilities_);
}

util::Result<void> Hca::set_atomic_capabilities() {
  using spec::atomic_cap;
  if (capabilities().get(hca_cap::atomic) == 0) return {};
  std::vector<std::byte> current(hca_cap::kSize);
  if (auto done = query_capabilities(hca_cap_type::ATOMIC, current); !done) return done;
  const util::MutableView<atomic_cap> atomic(current);
  if (atomic.get(atomic_cap::supported_atomic_req_8B_endianness_mode_1) != 0) {
    // Mode 1: the old value is written in the program's byte order. All other fields are 0, as in
    // mlx5.
    std::vector<std::byte> image(hca_cap::kSize);
    util::MutableView<atomic_cap>(image).set(atomic_cap::atomic_req_8B_endianness_mode, 1);
    if (auto done = set_capabilities(hca_cap_type::ATOMIC, image); !done) return done;
    if (auto done = query_capabilities(hca_cap_type::ATOMIC, current); !done) return done;
  }
  atomics_in_host_order_ = atomic.get(atomic_cap::atomic_req_8B_endianness_mode) == 1;
  return {};
}

util::Result<void> Hca::initialize() {
  // Steps 11 and 12: QUERY_PAGES, MANAGE_PAGES for init pages.
  if (auto done = pages_->give_for(spec::query_pages_op_mod::INIT_PAGES); !done) return done;
  // Step 13: INIT_HCA.
  if (auto done = commands_->run(Request<spec::init_hca_in>(command_opcode::INIT_HCA)); !done) {
    return done;
  }
  stage_ = Stage::kInitialized;
  // Step 14: SET_DRIVER_VERSION, "only in case HCA_CAP.driver_version==1".
  if (capabilities().get(hca_cap::driver_version) == 0) return {};
  constexpr std::string_view kVersion = "Linux,softhca,0.2.0";
  Request<spec::set_driver_version_in> in(command_opcode::SET_DRIVER_VERSION);
  std::ranges::copy(std::as_bytes(std::span(kVersion)),
                    in.sub(spec::set_driver_version_in::driver_version).begin());
  return commands_->run(in);
}

util::Result<void> Hca::create_doorbells_and_events() {
  // Doorbells need a UAR, and event queues need interrupts: the manual's list presupposes both.
  const auto uar = commands_->execute<spec::alloc_uar_out>(
      Request<spec::alloc_uar_in>(command_opcode::ALLOC_UAR));
  if (!uar) return tl::unexpected(uar.error());
  uar_ = uar->get(spec::alloc_uar_out::uar);
  has_uar_ = true;
  if (auto done = host_.enable_interrupts(1 + options_.completion_vectors); !done) return done;

  // Step 15: CREATE_EQ, "Map PAGE_REQUEST event to it".
  using enum spec::event_type;
  EventQueue::Options asynchronous{
      .vector = 0,
      .log_size = 10,
      .events = {COMMUNICATION_ESTABLISHED, SQ_DRAINED, CQ_ERROR, LOCAL_WQ_CATASTROPHIC_ERROR,
                 PAGE_REQUEST, INVALID_REQUEST_LOCAL_WQ_ERROR, LOCAL_ACCESS_VIOLATION_WQ_ERROR,
                 LAST_WQE_REACHED, LOCAL_SRQ_CATASTROPHIC_ERROR, SRQ_LIMIT, DCT_DRAINED,
                 DCT_ACCESS_KEY_VIOLATION},
      .uar = uar_};
  if (options_.port_events) asynchronous.events.push_back(PORT_STATE_CHANGE);
  auto events = EventQueue::create(host_, *commands_, asynchronous);
  if (!events) return tl::unexpected(events.error());
  events_ = std::move(*events);
  events_->arm();
  for (unsigned i = 0; i < options_.completion_vectors; ++i) {
    auto queue = EventQueue::create(
        host_, *commands_,
        {.vector = 1 + i, .log_size = 11, .events = {}, .uar = uar_, .for_processes = true});
    if (!queue) return tl::unexpected(queue.error());
    (*queue)->arm();
    completion_events_.push_back(std::move(*queue));
  }
  return {};
}

util::Result<void> Hca::start_port() {
  // Step 16: QUERY_VPORT_STATE. A port whose link is down is no error: the link may come up later.
  if (auto up = link_is_up(); !up) return tl::unexpected(up.error());
  if (auto raised = raise_port_mtu(); !raised) return raised;
  // Step 17: QUERY_VPORT_CONTEXT, for the permanent MAC address.
  const auto out = commands_->execute<spec::query_nic_vport_context_out>(
      Request<spec::query_nic_vport_context_in>(command_opcode::QUERY_NIC_VPORT_CONTEXT));
  if (!out) return tl::unexpected(out.error());
  const auto address = out->get(spec::query_nic_vport_context_out::nic_vport_context)
                           .get(spec::nic_vport_context::permanent_address);
  std::ranges::copy(address.get(spec::mac_address::mac_addr), mac_.bytes.begin());
  // Step 18: MODIFY_VPORT_CONTEXT. The current MAC remains the permanent one; RoCE is enabled.
  Request<spec::modify_nic_vport_context_in> in(command_opcode::MODIFY_NIC_VPORT_CONTEXT);
  in.sub(spec::modify_nic_vport_context_in::field_select)
      .set(spec::modify_nic_vport_field_select::roce_en, 1);
  in.sub(spec::modify_nic_vport_context_in::nic_vport_context)
      .set(spec::nic_vport_context::roce_en, 1);
  return commands_->run(in);
}

util::Result<void> Hca::close() {
  util::Result<void> result;
  if (std::exchange(closed_, true)) return result;
  const auto also = [&](util::Result<void> done) {
    const bool good = done.has_value();
    if (!good && result) result = std::move(done);
    return good;
  };
  // PRM 8.3, step 1: "destroy all resources".
  for (auto& queue : completion_events_) also(queue->destroy());
  completion_events_.clear();
  // Step 2: "Unmap the EQ that the PAGE request events are mapped to and destroy the EQ".
  if (events_ != nullptr) also(events_->destroy());
  events_ = nullptr;
  host_.disable_interrupts();
  if (std::exchange(has_uar_, false)) {
    Request<spec::dealloc_uar_in> in(command_opcode::DEALLOC_UAR);
    in.set(spec::dealloc_uar_in::uar, uar_);
    also(commands_->run(in));
  }
  const auto stage = std::exchange(stage_, Stage::kOff);
  if (stage == Stage::kInitialized) {
    // Step 3: TEARDOWN_HCA, profile 0: graceful.
    also(commands_->run(Request<spec::teardown_hca_in>(command_opcode::TEARDOWN_HCA)));
  }
  if (stage != Stage::kOff) {
    // Step 4: MANAGE_PAGES in a loop.
    also(pages_->reclaim_all());
    // Step 5: DISABLE_HCA.
    also(commands_->run(Request<spec::disable_hca_in>(command_opcode::DISABLE_HCA)));
  }
  disable_bus_master(host_);
  return result;
}

}  // namespace softhca::driver::connectx
