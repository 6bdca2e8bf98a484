#include "connectx/port/port_registers.h"

#include <algorithm>
#include <array>

#include "connectx/event/event_queue.h"
#include "connectx/port/module_eeprom.h"
#include "connectx/port/network_port.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;
using Id = spec::connectx::register_id;

constexpr std::uint32_t kLocalPort = 1;
/// The only speed: 100GBASE-CR4. RDMA drivers compare eth_proto_oper as a whole, so exactly one bit
/// may be set.
constexpr std::uint32_t kSpeeds = 1u
                                  << static_cast<unsigned>(ptys_eth_proto_bit::MODE_100GBASE_CR4);
constexpr std::uint32_t kDataRate = 1000;  // 100 Gb/s, in units of 100 Mb/s
constexpr unsigned kLanes = 4;
/// The MLCR duration that does not end (mlx5 driver interface 6).
constexpr std::uint16_t kBeaconWithoutEnd = 0xFFFF;
/// Interval for polling the link, because no event reports that the link partner comes or goes.
constexpr util::Duration kLinkPeriod = std::chrono::milliseconds(100);

/// Most registers have local_port at the same place.
template <class Layout>
CommandResult check_port(util::View<Layout> in, std::string_view section) {
  const auto port = in.get(Layout::local_port);
  if (port == kLocalPort) return {};
  return refuse(Status::BAD_INDEX, section, "local_port is not 1");
}

CommandResult read_only(std::string_view section) {
  return refuse(Status::BAD_PARAM, section, "the register is read-only");
}

}  // namespace

PortRegisters::PortRegisters(const Parts& parts, util::Time now)
    : port_(parts.port),
      event_queues_(parts.event_queues),
      counters_(parts.port, now),
      eth_proto_admin_(kSpeeds) {
  constexpr std::string_view kDescription = "softhca ConnectX-4";
  const auto text = std::as_bytes(std::span(kDescription));
  std::copy(text.begin(), text.end(), node_description_.begin());
}

std::span<const PortRegisters::Register> PortRegisters::registers() {
  using P = PortRegisters;
  static constexpr std::array kRegisters{
      Register{Id::PMLP, reg_pmlp::kSize, &P::pmlp},
      Register{Id::PMTU, reg_pmtu::kSize, &P::pmtu},
      Register{Id::PTYS, reg_ptys::kSize, &P::ptys},
      Register{Id::PAOS, reg_paos::kSize, &P::paos},
      Register{Id::PFCC, reg_pfcc::kSize, &P::pfcc},
      Register{Id::PPCNT, reg_ppcnt::kSize, &P::ppcnt},
      Register{Id::PVLC, reg_pvlc::kSize, &P::pvlc},
      Register{Id::PCMR, reg_pcmr::kSize, &P::pcmr},
      Register{Id::NODE_DESC, reg_node_desc::kSize, &P::node_desc},
      Register{Id::HOST_ENDIANNESS, reg_host_endianness::kSize, &P::host_endianness},
      Register{Id::MCIA, reg_mcia::kSize, &P::mcia},
      Register{Id::MLCR, reg_mlcr::kSize, &P::mlcr},
  };
  return kRegisters;
}

bool PortRegisters::has(Id id) {
  return std::ranges::find(registers(), id, &Register::id) != registers().end();
}

CommandResult PortRegisters::access(Id id, bool write, std::span<const std::byte> in,
                                    std::span<std::byte> out, util::Time now) {
  const auto table = registers();
  const auto entry =
      std::find_if(table.begin(), table.end(), [&](const Register& r) { return r.id == id; });
  if (entry == table.end()) {
    return refuse(Status::BAD_PARAM, "PRM 12.4.1", "unknown register_id");
  }
  std::array<std::byte, 256> in_bytes{};
  std::array<std::byte, 256> out_bytes{};
  std::copy_n(in.begin(), std::min(in.size(), entry->size), in_bytes.begin());
  // Fields that a handler does not set (selectors, reserved fields) are returned as the driver sent
  // them.
  std::copy_n(in_bytes.begin(), entry->size, out_bytes.begin());
  const Access access{.write = write,
                      .in = std::span(in_bytes).first(entry->size),
                      .out = std::span(out_bytes).first(entry->size),
                      .now = now};
  if (auto result = (this->*entry->handler)(access); !result) return result;
  std::copy_n(out_bytes.begin(), std::min(out.size(), entry->size), out.begin());
  return {};
}

util::Time PortRegisters::run(util::Time now) {
  if (now >= next_look_) {
    port_.state().look_at_link();
    next_look_ = now + kLinkPeriod;
  }
  if (!event_queues_.mapped(event_type::PORT_STATE_CHANGE)) return util::kNever;
  if (port_.state().vport_is_up() != reported_up_) post_port_change(port_.state().vport_is_up());
  return next_look_;
}

void PortRegisters::post_port_change(bool up) {
  using Data = spec::connectx::event_data_port_state_change;
  using Subtype = spec::connectx::port_change_subtype;
  reported_up_ = up;
  EventData data{};
  util::MutableView<Data>(data).set(Data::port_num, kLocalPort);
  event_queues_.post(event_type::PORT_STATE_CHANGE,
                     static_cast<std::uint8_t>(up ? Subtype::ACTIVE : Subtype::DOWN), data);
}

CommandResult PortRegisters::pmlp(const Access& access) {
  using R = reg_pmlp;
  if (auto ok = check_port(util::View<R>(access.in), R::kSection); !ok) return ok;
  if (access.write) return read_only(R::kSection);
  const util::MutableView<R> out(access.out);
  out.set(R::width, kLanes);
  using Lane = lane_2_module_mapping;
  const auto map = [](util::MutableView<Lane> lane, std::uint32_t number) {
    lane.set(Lane::rx_lane, number);
    lane.set(Lane::tx_lane, number);
  };
  map(out.sub(R::lane0_module_mapping), 0);
  map(out.sub(R::lane1_module_mapping), 1);
  map(out.sub(R::lane2_module_mapping), 2);
  map(out.sub(R::lane3_module_mapping), 3);
  return {};
}

CommandResult PortRegisters::pmtu(const Access& access) {
  using R = reg_pmtu;
  const util::View<R> in(access.in);
  if (auto ok = check_port(in, R::kSection); !ok) return ok;
  if (access.write) {
    const auto mtu = in.get(R::admin_mtu);
    if (mtu == 0 || mtu > NetworkPort::kMaxMtu) {
      return refuse(Status::BAD_PARAM, "PRM Table 106", "admin_mtu above max_mtu, or 0");
    }
    port_.state().set_mtu(static_cast<std::uint16_t>(mtu));
  }
  const util::MutableView<R> out(access.out);
  out.set(R::max_mtu, NetworkPort::kMaxMtu);
  out.set(R::admin_mtu, port_.state().mtu());
  out.set(R::oper_mtu, port_.state().mtu());
  return {};
}

CommandResult PortRegisters::ptys(const Access& access) {
  using R = reg_ptys;
  const util::View<R> in(access.in);
  if (auto ok = check_port(in, R::kSection); !ok) return ok;
  if (access.write) {
    const auto admin = in.get(R::eth_proto_admin);
    if (admin == 0 || (admin & ~kSpeeds) != 0) {
      return refuse(Status::BAD_PARAM, "PRM Table 108", "eth_proto_admin has no supported speed");
    }
    eth_proto_admin_ = admin;
  }
  std::fill(access.out.begin(), access.out.end(), std::byte{0});
  const util::MutableView<R> out(access.out);
  out.set(R::local_port, kLocalPort);
  out.set(R::proto_mask, 1u << static_cast<unsigned>(ptys_proto_mask_bit::ETHERNET));
  out.set(R::an_disable_cap, 0);
  out.set(R::eth_proto_capability, kSpeeds);
  out.set(R::eth_proto_admin, eth_proto_admin_);
  if (port_.state().oper_status() == paos_oper_status::UP) {
    out.set(R::eth_proto_oper, kSpeeds);
    out.set(R::data_rate_oper, kDataRate);
    out.set(R::eth_proto_lp_advertise, kSpeeds);
  }
  return {};
}

CommandResult PortRegisters::paos(const Access& access) {
  using R = reg_paos;
  using State = paos_admin_status;
  const util::View<R> in(access.in);
  if (auto ok = check_port(in, R::kSection); !ok) return ok;
  if (access.write && in.get(R::ase) != 0) {
    const auto wanted = static_cast<State>(in.get(R::admin_status));
    if (wanted != State::UP && wanted != State::DOWN && wanted != State::UP_ONCE) {
      return refuse(Status::BAD_PARAM, "PRM Table 110", "admin_status is neither up nor down");
    }
    port_.state().set_admin_status(wanted);
    // A driver that has just brought the port up checks the carrier only after an event.
    if (port_.state().oper_status() == paos_oper_status::UP) reported_up_ = false;
  }
  const util::MutableView<R> out(access.out);
  out.set(R::admin_status, static_cast<std::uint8_t>(port_.state().admin_status()));
  out.set(R::oper_status, static_cast<std::uint8_t>(port_.state().oper_status()));
  return {};
}

CommandResult PortRegisters::pfcc(const Access& access) {
  using R = reg_pfcc;
  if (auto ok = check_port(util::View<R>(access.in), R::kSection); !ok) return ok;
  // The wire has no pause frames, so the settings are only stored and read back.
  if (access.write) std::copy(access.in.begin(), access.in.end(), pfcc_.begin());
  std::copy(pfcc_.begin(), pfcc_.end(), access.out.begin());
  util::MutableView<R>(access.out).set(R::local_port, kLocalPort);
  return {};
}

CommandResult PortRegisters::ppcnt(const Access& access) {
  using R = reg_ppcnt;
  const util::View<R> in(access.in);
  if (auto ok = check_port(in, R::kSection); !ok) return ok;
  return counters_.access(in, access.write, util::MutableView<R>(access.out), access.now);
}

CommandResult PortRegisters::pcmr(const Access& access) {
  using R = reg_pcmr;
  if (auto ok = check_port(util::View<R>(access.in), R::kSection); !ok) return ok;
  if (access.write) return {};  // nothing can be switched off
  util::MutableView<R>(access.out).set(R::fcs_chk, 1);
  return {};
}

CommandResult PortRegisters::pvlc(const Access& access) {
  using R = reg_pvlc;
  if (auto ok = check_port(util::View<R>(access.in), R::kSection); !ok) return ok;
  if (access.write) return read_only(R::kSection);
  const util::MutableView<R> out(access.out);
  out.set(R::vl_hw_cap, 1);
  out.set(R::vl_admin, 1);
  out.set(R::vl_operational, 1);
  return {};
}

CommandResult PortRegisters::node_desc(const Access& access) {
  if (access.write) std::copy(access.in.begin(), access.in.end(), node_description_.begin());
  std::copy(node_description_.begin(), node_description_.end(), access.out.begin());
  return {};
}

CommandResult PortRegisters::host_endianness(const Access& access) {
  using R = reg_host_endianness;
  const util::View<R> in(access.in);
  if (access.write && in.get(R::he) != 0) {
    return refuse(Status::BAD_PARAM, "mlx5 driver interface: HOST_ENDIANNESS",
                  "only little-endian hosts are implemented");
  }
  util::MutableView<R>(access.out).set(R::he, 0);
  return {};
}

CommandResult PortRegisters::mcia(const Access& access) {
  using R = reg_mcia;
  const util::View<R> in(access.in);
  if (access.write) return read_only(R::kSection);
  const util::MutableView<R> out(access.out);
  const auto data = out.sub(R::dwords);
  std::fill(data.begin(), data.end(), std::byte{0});
  // 0 good, 1 no EEPROM module.
  constexpr std::uint32_t kNoModule = 1;
  const bool present = in.get(R::module) == 0 && in.get(R::i2c_device_address) == kModuleI2cAddress;
  out.set(R::status, present ? 0 : kNoModule);
  if (!present) return {};
  const auto size = std::min<std::size_t>(in.get(R::size), data.size());
  read_module_eeprom(in.get(R::page_number), in.get(R::device_address), data.first(size));
  return {};
}

/// The remaining duration in seconds. kBeaconWithoutEnd does not decrease.
std::uint16_t PortRegisters::beacon_remain(util::Time now) const {
  if (beacon_duration_ == kBeaconWithoutEnd) return kBeaconWithoutEnd;
  if (now >= beacon_end_) return 0;
  return static_cast<std::uint16_t>(
      std::chrono::ceil<std::chrono::seconds>(beacon_end_ - now).count());
}

CommandResult PortRegisters::mlcr(const Access& access) {
  using R = reg_mlcr;
  const util::View<R> in(access.in);
  if (auto ok = check_port(in, R::kSection); !ok) return ok;
  if (access.write) {
    beacon_duration_ = static_cast<std::uint16_t>(in.get(R::beacon_duration));
    beacon_end_ = access.now + std::chrono::seconds(beacon_duration_);
  }
  const util::MutableView<R> out(access.out);
  out.set(R::beacon_duration, beacon_duration_);
  out.set(R::beacon_remain, beacon_remain(access.now));
  return {};
}

}  // namespace softhca::connectx
