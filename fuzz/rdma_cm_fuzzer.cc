// A program that writes any command to the device file of rdma_cm, and peers that send any
// management datagram. Commands use any identifiers, addresses and states. Datagrams are built from
// communication IDs found on the wire, or are recorded ones with words changed.
//
// Whatever they do, a command returns 0 or an errno, and pending unread requests never exceed the
// program's backlog. Once the program has closed all its channels, no port number is in use.
#include <endian.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <set>

#include "cm/message.h"
#include "fabric/tap.h"
#include "oracle.h"
#include "rdma_cm/manager.h"
#include "script.h"
#include "util/log.h"
#include "uverbs/program.h"
#include "wire/ib_header.h"

namespace softhca::rdma_cm {
namespace {

using namespace cm;
using fuzz::check;
using fuzz::Script;

const driver::Gid kOwn = driver::Gid::from_ipv4(198, 18, 0, 1);
const driver::Gid kGuest = driver::Gid::from_ipv4(198, 19, 0, 1);
const driver::Gid kOwnLinkLocal{{std::byte{0xfe}, std::byte{0x80}}};
const wire::MacAddress kOwnMac{{std::byte{2}}};
constexpr std::uint32_t kMadsKept = 16;

/// A tap that records the last datagrams between QP1s.
class Ear final : public fabric::Tap {
 public:
  void handle_port(std::uint32_t, std::string_view, wire::Link) override {}
  void handle_frame(std::uint32_t, const wire::Frame& frame) override {
    const auto packet = wire::IbPacket::parse(frame);
    if (!packet || packet->bth.dest_qp != wire::Qpn(1)) return;
    if (packet->payload_size != std::tuple_size_v<Mad>) return;
    Mad mad;
    frame.copy_range(packet->payload_offset, mad);
    if (heard.size() == kMadsKept) heard.pop_front();
    heard.push_back(mad);
  }
  std::deque<Mad> heard;
};

class Numbers final : public PortNumbers {
 public:
  Errno claim(std::uint16_t space, std::uint16_t port, const driver::Gid&, bool) override {
    return used.insert({space, port}).second ? 0 : EADDRINUSE;
  }
  void release(std::uint16_t space, std::uint16_t port, bool) override {
    check(used.erase({space, port}) == 1);
  }
  std::optional<driver::Gid> find(std::uint16_t space, std::uint16_t port) override {
    if (!used.contains({space, port})) return std::nullopt;
    return kOwn;
  }
  std::set<std::pair<std::uint16_t, std::uint16_t>> used;
};

class World {
 public:
  explicit World(Script script) : script_(script), peer_(program_.network().create_port("peer")) {
    program_.network().set_tap(&ear_);
    check(program_.device().set_gid(1, uverbs::GidEntry{.gid = kOwnLinkLocal}).has_value());
    const Manager::Port port{program_.device(), 1};
    manager_ = *Manager::create(
        std::span(&port, 1), memory_,
        {.port_numbers = numbers_,
         .is_member =
             [this](const driver::Gid& gid) {
               return gid == kOwn || gid == kOwnLinkLocal || (gid == kGuest && guest_is_known_);
             },
         .is_local = [](const SocketAddress& address) { return address.gid() != kGuest; },
         .ask = [](const driver::Gid&) {},
         .path_mtu = [](const driver::Gid& gid) -> std::uint8_t { return gid == kGuest ? 3 : 5; },
         .is_gone = {.address =
                         [this](const driver::Gid& gid) { return peer_is_gone_ && gid == kGuest; },
                     .number = {}}});
    open();
  }
  ~World() { program_.network().set_tap(nullptr); }

  void play() {
    while (!script_.empty()) {
      const fuzz::Turn turn;
      step();
    }
    while (!channels_.empty()) close();
    check(numbers_.used.empty());
    manager_->disconnect_all();
    run();
  }

 private:
  struct Open {
    Channel* channel;
    os::UniqueFd reader;
  };

  void open() {
    auto channel = manager_->open();
    if (!channel) return;
    channels_.push_back({*channel, (*channel)->take_reader()});
    current_ = channels_.size() - 1;
  }
  void close() {
    channels_.erase(channels_.begin() + static_cast<long>(current_));
    manager_->drop_closed();
    current_ = 0;
  }
  void run() {
    for (int i = 0; i != 4; ++i) {
      program_.device().hca().host().progress();
      program_.device().poll_events();
    }
    manager_->tick(now_);
  }

  // Commands of the program -----------------------------------------------------------------------

  template <class Payload>
  void command(std::uint32_t number, const Payload& payload) {
    serve(number, std::as_bytes(std::span(&payload, 1)));
  }
  void serve(std::uint32_t number, std::span<const std::byte> payload) {
    if (channels_.empty()) return;
    std::vector<std::byte> bytes(sizeof(rdma_ucm_cmd_hdr) + payload.size());
    const rdma_ucm_cmd_hdr header{
        .cmd = number, .in = static_cast<std::uint16_t>(payload.size()), .out = 0xffff};
    std::memcpy(bytes.data(), &header, sizeof header);
    std::ranges::copy(payload, bytes.begin() + sizeof header);
    const auto wrong = manager_->serve(
        *channels_[current_].channel, reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size(),
        [this](int fd) -> Channel* {
          return fd >= 0 && fd < static_cast<int>(channels_.size())
                     ? channels_[static_cast<std::size_t>(fd)].channel
                     : nullptr;
        },
        now_);
    check(wrong >= 0 && wrong < 4096);
  }
  /// An identifier or membership: small numbers from 1 on.
  std::uint32_t id() { return 1u + script_.byte() % 32; }
  /// The address of a response: a valid buffer, or an invalid address.
  std::uint64_t response() {
    return script_.byte() < 250 ? reinterpret_cast<std::uint64_t>(answer_.data()) : script_.word();
  }
  SocketAddress address() {
    const auto how = script_.byte();
    const auto port = static_cast<std::uint16_t>((how & 0x80) != 0 ? 0 : 7000 + how % 4);
    switch (how / 4 % 8) {
      case 0:
      case 1:
        return SocketAddress::of(kOwn, port);
      case 2:
        return SocketAddress::of(kGuest, port);
      case 3:
        return SocketAddress::of(kOwnLinkLocal, port);
      case 4:
        return SocketAddress::of(driver::Gid::from_ipv4(0, 0, 0, 0), port);
      case 5:
        return SocketAddress::of(driver::Gid::from_ipv4(239, 1, 2, 3), port);
      case 6: {
        SocketAddress any;
        any.storage.ss_family = script_.byte() % 32;
        const auto bytes = script_.take(script_.byte() % 32);
        std::memcpy(reinterpret_cast<std::byte*>(&any.storage) + 2, bytes.data(), bytes.size());
        return any;
      }
      default:
        return SocketAddress::of(driver::Gid{}, port);
    }
  }
  template <class To>
  static void put(To& to, const SocketAddress& address) {
    std::memcpy(&to, &address.storage, std::min(sizeof to, sizeof address.storage));
  }
  rdma_ucm_conn_param param() {
    rdma_ucm_conn_param out{};
    const auto how = script_.byte();
    out.qp_num = script_.dword();
    out.responder_resources = script_.byte();
    out.initiator_depth = script_.byte();
    out.retry_count = out.rnr_retry_count = how;
    out.valid = how != 0;
    out.private_data_len = script_.byte();
    const auto bytes = script_.take(out.private_data_len % 16u);
    std::memcpy(out.private_data, bytes.data(), bytes.size());
    return out;
  }

  void step() {
    switch (script_.byte() % 26) {
      case 0:
      case 1: {
        static constexpr std::uint16_t kSpaces[] = {RDMA_PS_TCP, RDMA_PS_TCP,   RDMA_PS_UDP,
                                                    RDMA_PS_IB,  RDMA_PS_IPOIB, 7};
        rdma_ucm_create_id in{};
        const auto how = script_.byte();
        in.uid = script_.byte();
        in.response = response();
        in.ps = kSpaces[how % 6];
        in.qp_type = static_cast<std::uint8_t>(how / 6 % 3 == 0 ? 2 : 2 + how / 18);
        return command(RDMA_USER_CM_CMD_CREATE_ID, in);
      }
      case 2: {
        rdma_ucm_bind in{};
        in.id = id();
        const auto at = address();
        put(in.addr, at);
        in.addr_size = at.size();
        return command(RDMA_USER_CM_CMD_BIND, in);
      }
      case 3:
        return command(RDMA_USER_CM_CMD_LISTEN,
                       rdma_ucm_listen{.id = id(), .backlog = script_.byte()});
      case 4: {
        rdma_ucm_resolve_addr in{};
        in.id = id();
        in.timeout_ms = script_.word();
        const auto from = address(), to = address();
        if ((in.timeout_ms & 1) != 0) {
          put(in.src_addr, from);
          in.src_size = from.size();
        }
        put(in.dst_addr, to);
        in.dst_size = to.size();
        return command(RDMA_USER_CM_CMD_RESOLVE_ADDR, in);
      }
      case 5:
        return command(RDMA_USER_CM_CMD_RESOLVE_ROUTE,
                       rdma_ucm_resolve_route{.id = id(), .timeout_ms = 2000});
      case 6: {
        rdma_ucm_connect in{};
        in.id = id();
        in.conn_param = param();
        return command(RDMA_USER_CM_CMD_CONNECT, in);
      }
      case 7: {
        rdma_ucm_accept in{};
        in.id = id();
        in.uid = script_.byte();
        in.conn_param = param();
        return command(RDMA_USER_CM_CMD_ACCEPT, in);
      }
      case 8: {
        rdma_ucm_reject in{};
        in.id = id();
        in.private_data_len = script_.byte();
        return command(RDMA_USER_CM_CMD_REJECT, in);
      }
      case 9:
        return command(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{.id = id()});
      case 10:
        return command(RDMA_USER_CM_CMD_INIT_QP_ATTR,
                       rdma_ucm_init_qp_attr{
                           .response = response(), .id = id(), .qp_state = script_.byte() % 5u});
      case 11:
      case 12:
        return command(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{.response = response()});
      case 13:
        return command(
            RDMA_USER_CM_CMD_QUERY,
            rdma_ucm_query{.response = response(), .id = id(), .option = script_.byte() % 4u});
      case 14: {
        rdma_ucm_set_option in{};
        in.optval = response();
        in.id = id();
        in.level = script_.byte() % 3;
        in.optname = script_.byte() % 5;
        in.optlen = script_.byte() % 4;
        return command(RDMA_USER_CM_CMD_SET_OPTION, in);
      }
      case 15:
        return command(RDMA_USER_CM_CMD_NOTIFY,
                       rdma_ucm_notify{.id = id(), .event = script_.byte() % 8u});
      case 16: {
        rdma_ucm_migrate_id in{};
        in.response = response();
        in.id = id();
        in.fd = script_.byte() % 4;
        return command(RDMA_USER_CM_CMD_MIGRATE_ID, in);
      }
      case 17: {
        rdma_ucm_join_mcast in{};
        in.response = response();
        in.uid = script_.byte();
        in.id = id();
        const auto group = address();
        put(in.addr, group);
        in.addr_size = group.size();
        in.join_flags = script_.byte() % 4;
        return command(RDMA_USER_CM_CMD_JOIN_MCAST, in);
      }
      case 18:
      case 19:
        return command(
            (script_.byte() & 1) != 0 ? RDMA_USER_CM_CMD_LEAVE_MCAST : RDMA_USER_CM_CMD_DESTROY_ID,
            rdma_ucm_destroy_id{.response = response(), .id = id(), .reserved = 0});
      case 20: {
        const auto number = script_.byte() % 26u;
        return serve(number, script_.take(script_.word() % 600));
      }
      case 21:
        if ((script_.byte() & 3) == 0 && !channels_.empty()) return close();
        if (channels_.size() < 3) return open();
        current_ = script_.byte() % channels_.size();
        return;
      case 22: {
        const auto how = script_.byte();
        guest_is_known_ = (how & 1) != 0;
        peer_is_gone_ = (how & 2) != 0;
        program_.knows_macs = (how & 4) == 0;
        now_ += std::chrono::milliseconds((how / 8) * 100);
        return run();
      }
      case 23:
        return run();
      case 24:
        return new_datagram();
      case 25:
        return old_datagram();
    }
  }

  // Datagrams of peers ----------------------------------------------------------------------------

  driver::Gid sender() {
    switch (script_.byte() % 4) {
      case 0:
        return kOwn;
      case 1:
        return kOwnLinkLocal;
      default:
        return kGuest;
    }
  }
  /// A communication ID that one end uses.
  std::uint32_t comm_id() {
    const auto which = script_.byte();
    if (ear_.heard.empty() || which >= 0xf0) return which;
    const auto& mad = ear_.heard[which / 2 % ear_.heard.size()];
    return util::load_be32(mad.data() + spec::mad_header::kSize + (which & 1) * 4);
  }
  /// A datagram of a kind that a peer could send.
  void new_datagram() {
    static constexpr cm_attribute kKinds[] = {
        cm_attribute::REQ,      cm_attribute::REP,  cm_attribute::RTU, cm_attribute::REJ,
        cm_attribute::DREQ,     cm_attribute::DREP, cm_attribute::MRA, cm_attribute::SIDR_REQ,
        cm_attribute::SIDR_REP, cm_attribute::REQ};
    const auto kind = kKinds[script_.byte() % std::size(kKinds)];
    const auto from = sender();
    Message<spec::cm_req> message(kind, script_.byte());
    auto mad = message.mad();
    const auto body = std::span(mad).subspan(spec::mad_header::kSize);
    const auto put = [&](std::size_t at, std::uint32_t value) {
      util::store_be32(body.data() + at, value);
    };
    put(0, comm_id());
    if (kind == cm_attribute::REQ || kind == cm_attribute::SIDR_REQ) {
      // service_id, and the address that it is for (Annex A11).
      const auto how = script_.byte();
      const std::uint32_t space = (how & 0x80) != 0 ? RDMA_PS_UDP : RDMA_PS_TCP;
      util::store_be64(body.data() + 8, std::uint64_t{space} << 16 | (7000u + how % 4));
      const std::size_t cma = kind == cm_attribute::REQ ? 0x8c : 0x10;
      put(cma, ((how & 0x40) != 0 ? 6u : 4u) << 20 | 5000u);
      std::ranges::copy(from.bytes, body.begin() + static_cast<long>(cma) + 4);
      std::ranges::copy(kOwn.bytes, body.begin() + static_cast<long>(cma) + 20);
    } else {
      put(4, comm_id());
    }
    change(body);
    arrive(mad, from);
  }
  /// A recorded datagram.
  void old_datagram() {
    if (ear_.heard.empty()) return;
    auto mad = ear_.heard[script_.byte() % ear_.heard.size()];
    change(mad);
    arrive(mad, sender());
  }
  void change(std::span<std::byte> bytes) {
    for (unsigned n = script_.byte() % 8; n != 0; --n) {
      const auto at = script_.byte() % (bytes.size() / 4) * 4;
      util::store_be32(bytes.data() + at, script_.dword());
    }
  }
  void arrive(const Mad& mad, const driver::Gid& from) {
    wire::IbAddress address;
    address.destination_mac = kOwnMac;
    address.source_mac = wire::MacAddress::from_u64(0x020000000009);
    address.source_gid = wire::Gid::from(from.bytes);
    address.destination_gid = wire::Gid::from(from.is_ipv4() ? kOwn.bytes : kOwnLinkLocal.bytes);
    address.hop_limit = kHopLimit;
    wire::Bth bth;
    bth.opcode = wire::Opcode::UD_SEND_ONLY;
    bth.dest_qp = wire::Qpn(1);
    wire::ExtHeaders ext;
    ext.deth = {wire::QKey(softhca::spec::infiniband::kGsiQkey), wire::Qpn(1)};
    wire::Frame frame;
    wire::IbHeader(address).emit(bth, ext, mad.size(), frame);
    (void)frame.add_segment(mad);
    (void)frame.own_segments();
    (void)peer_->transmit(frame);
    run();
  }

  Script script_;
  Ear ear_;
  uverbs::Program program_;
  std::unique_ptr<fabric::Port> peer_;
  uverbs::OwnMemory memory_;
  Numbers numbers_;
  bool guest_is_known_ = false;
  bool peer_is_gone_ = false;
  util::Time now_{std::chrono::hours(1)};
  std::unique_ptr<Manager> manager_;
  std::vector<Open> channels_;
  std::size_t current_ = 0;
  std::array<std::byte, 1024> answer_{};
};

}  // namespace
}  // namespace softhca::rdma_cm

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace softhca;
  util::set_log_level(util::LogLevel::kError);
  return fuzz::run_input([&] {
    rdma_cm::World(fuzz::Script(data, size)).play();
    // Program's own expectations: all objects were returned to the device.
    fuzz::check(!testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed());
  });
}
