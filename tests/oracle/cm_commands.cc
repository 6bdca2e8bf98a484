// Chapter cm, below librdmacm: commands as bytes, addresses of InfiniBand, numbers of ports.
#include <endian.h>
#include <infiniband/ib.h>
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "cm.h"

namespace oracle {
namespace {

/// Structures of <rdma/rdma_user_cm.h>, which cannot be included beside <rdma/rdma_cma.h>.
struct Header {
  std::uint32_t number;
  std::uint16_t in, out;
};
struct CreateId {
  std::uint64_t uid, response;
  std::uint16_t space;
  std::uint8_t qp_type, reserved[5];
};
struct Named {
  std::uint64_t response;
  std::uint32_t id, option;
};
struct Listen {
  std::uint32_t id, backlog;
};
enum : std::uint32_t { kCreateId, kDestroyId, kConnect = 6, kListen, kAccept, kGetOption = 13 };
enum : std::uint32_t { kQuery = 19, kPath = 1 };

/// Commands to an event channel.
class Commands {
 public:
  explicit Commands(Cm& cm) : file_(cm.channel()->fd), bytes_(512) {}
  template <class Payload>
  void say(const std::string& name, Header header, const Payload& payload, std::size_t size) {
    std::memcpy(bytes_.data(), &header, sizeof header);
    std::memcpy(bytes_.data() + sizeof header, &payload, sizeof payload);
    moved(name, [&] { return ::write(file_, bytes_.data(), size); });
  }

 private:
  int file_;
  std::vector<char> bytes_;
};

sockaddr_ib address(std::uint8_t first, std::uint64_t service, std::uint64_t mask) {
  sockaddr_ib all{};
  all.sib_family = AF_IB;
  all.sib_addr.sib_raw[0] = first;
  all.sib_sid = htobe64(service);
  all.sib_sid_mask = htobe64(mask);
  return all;
}

}  // namespace

ORACLE_CASE(cm, commands) {
  Cm cm, other;
  Commands commands(cm), others(other);
  std::uint32_t id = 0;
  CreateId create{};
  create.uid = 1;
  create.response = reinterpret_cast<std::uintptr_t>(&id);
  create.space = RDMA_PS_TCP;
  commands.say("a byte", {kCreateId, 24, 4}, create, 1);
  commands.say("7 bytes", {kCreateId, 24, 4}, create, 7);
  commands.say("a header", {kCreateId, 24, 4}, create, 8);
  commands.say("no command", {1000, 24, 4}, create, 32);
  commands.say("no command, cut", {1000, 24, 4}, create, 31);
  commands.say("GET_OPTION", {kGetOption, 24, 4}, create, 32);
  commands.say("GET_OPTION, cut", {kGetOption, 24, 4}, create, 31);
  commands.say("CREATE_ID, cut", {kCreateId, 24, 4}, create, 31);
  commands.say("CREATE_ID, room for 3 bytes", {kCreateId, 24, 3}, create, 32);
  commands.say("CREATE_ID, no size", {kCreateId, 0, 4}, create, 32);
  commands.say("CREATE_ID, more than enough", {kCreateId, 100, 4}, create, 108);
  commands.say("LISTEN", {kListen, 8, 0}, Listen{id, 1}, 16);
  others.say("LISTEN on another channel", {kListen, 8, 0}, Listen{id, 1}, 16);
  commands.say("LISTEN, unknown", {kListen, 8, 0}, Listen{0x7ffffff, 1}, 16);
  const auto response = create.response;
  std::uint64_t paths[16] = {};
  const Named query{reinterpret_cast<std::uintptr_t>(paths), id, kPath};
  commands.say("QUERY, room for 7 bytes", {kQuery, 16, 7}, query, 24);
  commands.say("QUERY, room for 8 bytes", {kQuery, 16, 8}, query, 24);
  commands.say("CONNECT, 279 bytes", {kConnect, 279, 0}, query, 400);
  commands.say("CONNECT, 280 bytes of nothing", {kConnect, 280, 0}, query, 400);
  commands.say("ACCEPT, 287 bytes", {kAccept, 287, 0}, query, 400);
  const Named destroy{response, id, 0};
  commands.say("DESTROY_ID, no room", {kDestroyId, 16, 3}, destroy, 24);
  others.say("DESTROY_ID on another channel", {kDestroyId, 16, 4}, destroy, 24);
  commands.say("DESTROY_ID", {kDestroyId, 16, 4}, destroy, 24);
  commands.say("DESTROY_ID again", {kDestroyId, 16, 4}, destroy, 24);
  create.response = 0;
  commands.say("CREATE_ID, answer to nowhere", {kCreateId, 24, 4}, create, 32);
  static const void* volatile nowhere = nullptr;
  moved("null", [&] { return ::write(cm.channel()->fd, nowhere, 32); });
}
ORACLE_CASE(cm, infiniband_addresses) {
  Cm cm;
  for (const auto space : {RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IPOIB, RDMA_PS_IB}) {
    for (const unsigned long long service : {0ull, RDMA_IB_IP_PS_TCP, RDMA_IB_IP_PS_UDP}) {
      auto any = address(0, service, RDMA_IB_IP_PS_MASK);
      auto* const id = cm.id(space);
      const auto words = text("space 0x%x, service 0x%llx", space, service);
      did(words, [&] { return rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&any)); });
      did(words + ", again", [&] { return rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&any)); });
      rdma_destroy_id(id);
    }
    auto one = address(0xfe, 0, 0);
    auto* const bound = cm.id(space);
    did(text("space 0x%x, an address", space),
        [&] { return rdma_bind_addr(bound, reinterpret_cast<sockaddr*>(&one)); });
    auto* const client = cm.id(space);
    did(text("space 0x%x, resolve", space), [&] {
      return rdma_resolve_addr(client, nullptr, reinterpret_cast<sockaddr*>(&one), 1000);
    });
    Address here(kHere, 0);
    did(text("space 0x%x, then bind to IPv4", space),
        [&] { return rdma_bind_addr(client, here.get()); });
    rdma_destroy_id(bound);
    rdma_destroy_id(client);
  }
}
ORACLE_CASE(cm, free_ports) {
  int first = 0, last = 0;
  auto* const setting = std::fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
  need(setting != nullptr && std::fscanf(setting, "%d %d", &first, &last) == 2, "range");
  std::fclose(setting);
  Cm cm;
  for (const auto space : {RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB}) {
    for (int i = 0; i != 8; ++i) {
      auto* const id = cm.id(space);
      Address any("0.0.0.0", 0);
      did(text("space 0x%x", space), [&] { return rdma_bind_addr(id, any.get()); });
      const int port = port_of(id);
      line(text("space 0x%x, number", space),
           first <= port && port <= last ? "in the range" : "another");
    }
  }
}
ORACLE_CASE(cm_courses, migrate_with_a_request, 90) {
  Cm cm, other;
  auto* const listener = cm.listener();
  auto* const client = cm.resolved(port_of(listener));
  auto asked = parameters();
  asked.qp_num = 0x123;
  did("connect", [&] { return rdma_connect(client, &asked); });
  pollfd wait{cm.channel()->fd, POLLIN, 0};
  line("a request waits", ::poll(&wait, 1, 15000) == 1 ? "yes" : "no");
  did("migrate", [&] { return rdma_migrate_id(listener, other.channel()); });
  other.event("on the new channel", 2);
  cm.silence("on the old channel");
}

}  // namespace oracle
