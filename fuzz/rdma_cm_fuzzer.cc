// A program that writes any command to the device file of rdma_cm, and peers that send any
// management datagram (rdma_cm_peers.h). Commands use any identifiers, addresses and states.
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
#include <set>

#include "oracle.h"
#include "rdma_cm/manager.h"
#include "rdma_cm_peers.h"
#include "script.h"
#include "util/log.h"
#include "uverbs/program.h"

namespace softhca::rdma_cm {
namespace {

using namespace cm;
using fuzz::check;
using fuzz::Script;

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
  explicit World(Script script) : script_(script), peers_(script_, program_.network()) {
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
        peers_.send_new();
        return run();
      case 25:
        peers_.send_old();
        return run();
    }
  }

  Script script_;
  uverbs::Program program_;
  Peers peers_;
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
