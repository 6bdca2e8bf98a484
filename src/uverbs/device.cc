#include "uverbs/device.h"

#include <algorithm>
#include <utility>

#include "spec/connectx/caps.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/resources.h"
#include "util/bits.h"
#include "util/log.h"
#include "uverbs/abi.h"
#include "uverbs/device_command.h"

namespace softhca::uverbs {

namespace {

/// RFC 1112 6.4 and RFC 2464 7: a prefix, then the last bytes of the group's address.
driver::Mac group_mac(const driver::Gid& group) {
  const auto* end = group.bytes.data() + 12;
  if (!group.is_ipv4()) {
    return {{std::byte{0x33}, std::byte{0x33}, end[0], end[1], end[2], end[3]}};
  }
  return {{std::byte{0x01}, std::byte{0x00}, std::byte{0x5e}, end[1] & std::byte{0x7f}, end[2],
           end[3]}};
}

}  // namespace

GidUse::GidUse(Device& device, std::size_t index) : device_(&device), index_(index) {
  ++device_->gid_users_[index_];
}

GidUse::~GidUse() {
  if (device_ == nullptr) return;
  const auto at = device_->gid_users_.find(index_);
  if (--at->second == 0) device_->gid_users_.erase(at);
}

Device::Device(driver::connectx::Hca& hca, Options options)
    : hca_(hca), options_(std::move(options)), records_(hca.host()) {
  using enum spec::flow_table_type;
  for (const auto table : {NIC_RX, NIC_TX, SNIFFER_RX, SNIFFER_TX}) {
    flows_.try_emplace(table, hca, table);
  }
}

util::Result<std::unique_ptr<Device>> Device::create(driver::connectx::Hca& hca, Options options) {
  std::unique_ptr<Device> device(new Device(hca, std::move(options)));
  if (auto good = device->set_up(); !good) return tl::unexpected(good.error());
  return device;
}

util::Result<void> Device::set_up() {
  for (std::size_t i = 0; i != options_.gids.size(); ++i) {
    if (auto set = set_gid(i, options_.gids[i]); !set) return set;
  }
  using Out = spec::alloc_q_counter_out;
  const Command<spec::alloc_q_counter_in> in(spec::command_opcode::ALLOC_Q_COUNTER);
  const auto made = commands().execute<Out>(in);
  if (!made) return tl::unexpected(made.error());
  counter_set_ = static_cast<std::uint8_t>(made->get(Out::counter_set_id));
  return query_ethernet();
}

util::Result<void> Device::query_ethernet() {
  using In = spec::query_hca_cap_in;
  using Out = spec::query_hca_cap_out;
  using Caps = spec::eth_offload_cap;
  constexpr auto kEthernet = util::joined(
      static_cast<std::uint32_t>(spec::hca_cap_type::ETHERNET_OFFLOADS), spec::hca_cap_op_mod::mode,
      static_cast<std::uint32_t>(spec::hca_cap_mode::CURRENT));
  Command<In> in(spec::command_opcode::QUERY_HCA_CAP);
  in.set(In::op_mod, kEthernet);
  const auto out = commands().execute<Out>(in);
  if (!out) return tl::unexpected(out.error());
  log_max_tso_ = util::View<Caps>(out->get(Out::capability)).get(Caps::max_lso_cap);
  return {};
}

util::Result<void> Device::set_gid(std::size_t index, const std::optional<GidEntry>& entry) {
  const auto number = static_cast<std::uint8_t>(index);
  auto set = entry ? hca_.set_roce_address(
                         number, {.gid = entry->gid, .mac = hca_.mac(), .roce_v2 = entry->roce_v2})
                   : hca_.clear_roce_address(number);
  if (!set) return set;
  if (index >= gids_.size()) gids_.resize(index + 1);
  gids_[index] = entry;
  return {};
}

Device::~Device() {
  if (everybody_ != 0) end_user_context(everybody_);
  if (counter_set_ == 0) return;
  using In = spec::dealloc_q_counter_in;
  Command<In> in(spec::command_opcode::DEALLOC_Q_COUNTER);
  in.set(In::counter_set_id, counter_set_);
  report(commands().run(in));
}

std::uint16_t Device::make_user_context() {
  using In = spec::create_uctx_in;
  // Linux requires CAP_NET_RAW for this capability. Here the program owns the device.
  constexpr auto kRawTx = static_cast<std::uint32_t>(spec::uctx_cap_bit::RAW_TX);
  Command<In> in(spec::command_opcode::CREATE_UCTX);
  in.sub(In::uctx).set(spec::uctx::cap, kRawTx);
  const auto out = commands().execute<spec::create_uctx_out>(in);
  return out ? static_cast<std::uint16_t>(out->get(spec::create_uctx_out::uid)) : 0;
}

void Device::end_user_context(std::uint16_t uid) {
  using In = spec::destroy_uctx_in;
  Command<In> in(spec::command_opcode::DESTROY_UCTX);
  in.set(In::uid, uid);
  const auto done = commands().run(in);
  if (!done) util::log(util::LogLevel::kWarning, "{}", done.error().message);
}

std::uint16_t Device::everybodys_user_context() {
  if (everybody_ == 0) everybody_ = make_user_context();
  return everybody_;
}

std::uint8_t Device::active_mtu() const {
  // iboe_get_mtu: room for the longest headers of a packet.
  constexpr unsigned kHeaders = 96, kHalfOfLeast = 128;
  const auto most = options_.interface_mtu ? options_.interface_mtu() : 0;
  auto mtu = kMtu4096;
  while (most != 0 && mtu != 0 && most < (kHalfOfLeast << mtu) + kHeaders) --mtu;
  return static_cast<std::uint8_t>(mtu);
}

bool Device::find_mac(const driver::Gid& to, driver::Mac& mac) const {
  if (to.is_multicast()) {
    mac = group_mac(to);
    return true;
  }
  return options_.find_mac && options_.find_mac(to, mac);
}

bool Device::resolve_mac(const driver::Gid& to, driver::Mac& mac) const {
  return find_mac(to, mac) || (options_.ask_for_mac && options_.ask_for_mac(to, mac));
}

std::uint32_t Device::own_pd() {
  if (own_pd_ == nullptr) {
    auto made = driver::connectx::ProtectionDomain::create(hca_);
    if (!made) return 0;
    own_pd_ = *std::move(made);
  }
  return own_pd_->pd();
}

std::uint32_t Device::own_xrc_domain() {
  using In = softhca::spec::connectx::alloc_xrcd_in;
  using Out = softhca::spec::connectx::alloc_xrcd_out;
  if (own_xrc_domain_ != 0) return own_xrc_domain_;
  const auto out =
      commands().execute<Out>(Command<In>(softhca::spec::connectx::command_opcode::ALLOC_XRCD));
  if (out) own_xrc_domain_ = out->get(Out::xrcd);
  return own_xrc_domain_;
}

bool Device::change_key(const driver::connectx::KeyChange& change) {
  if (own_pd() == 0) return false;
  if (key_changer_ == nullptr) {
    auto made = driver::connectx::KeyChanger::create(*own_pd_, hca_);
    if (!made) {
      util::log(util::LogLevel::kWarning, "no queue for changing keys: {}", made.error().message);
      return false;
    }
    key_changer_ = *std::move(made);
  }
  const auto done = key_changer_->change(change);
  if (!done) {
    util::log(util::LogLevel::kWarning, "key {:#x}: {}", change.key, done.error().message);
    key_changer_.reset();
  }
  return done.has_value();
}

std::shared_ptr<SharedXrcDomain> Device::find_xrc_domain(FileName file) const {
  const auto at = xrc_domains_.find(file);
  return at == xrc_domains_.end() ? nullptr : at->second.lock();
}

void Device::name_xrc_domain(FileName file, const std::shared_ptr<SharedXrcDomain>& domain) {
  std::erase_if(xrc_domains_, [](const auto& entry) { return entry.second.expired(); });
  xrc_domains_[file] = domain;
}

void Device::add_completion_target(std::uint32_t cqn, EventTarget& target) {
  completion_targets_[cqn] = &target;
}

bool Device::poll_events() {
  bool any = false;
  auto& completions = hca_.completion_events();
  while (const auto event = completions.poll()) {
    any = true;
    if (event->type != spec::event_type::COMPLETION) continue;
    subscriptions_.handle_event(*event);
    using Data = spec::event_data_completion;
    const auto target = completion_targets_.find(event->as<Data>().get(Data::cqn));
    if (target != completion_targets_.end()) target->second->handle_event(event->type);
  }
  if (any) completions.arm();
  for (;;) {
    const auto event = hca_.poll_event();
    if (!event) {
      util::log(util::LogLevel::kWarning, "event queue: {}", event.error().message);
      break;
    }
    if (!*event) break;
    any = true;
    subscriptions_.handle_event(**event);
    using Data = spec::event_data_qp_srq;
    using CqData = spec::event_data_cq_error;
    const auto type = (**event).type;
    if (type == spec::event_type::CQ_ERROR) {
      const auto cq = completion_targets_.find((**event).as<CqData>().get(CqData::cqn));
      if (cq != completion_targets_.end()) cq->second->handle_event(type);
      continue;
    }
    const auto number = (**event).as<Data>().get(Data::qp_srq_n);
    const bool shared = type == spec::event_type::SRQ_LIMIT ||
                        type == spec::event_type::LOCAL_SRQ_CATASTROPHIC_ERROR;
    const auto& targets = shared ? shared_targets_ : queue_targets_;
    const auto target = targets.find(number);
    if (target != targets.end()) target->second->handle_event((**event).type);
  }
  return any;
}

}  // namespace softhca::uverbs
