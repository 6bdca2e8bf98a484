// Chapter cm: every call in every state of an identifier; addresses; options; private data; events.
#include <arpa/inet.h>

#include <cstring>
#include <functional>

#include "cm.h"

namespace oracle {
namespace {

enum class State {
  kFresh,
  kBound,
  kListening,
  kAddress,
  kRoute,
  kConnecting,
  kRequest,
  kConnected,
  kDisconnected,
  kRejected
};

void destroy(rdma_cm_id* id) {
  if (id->qp != nullptr) rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

/// An identifier in a state, with the objects that the state needs. They are destroyed with it.
class Subject {
 public:
  Subject(State state, rdma_port_space space) : space_(space), id_(make(state)) {}
  Subject(const Subject&) = delete;
  ~Subject() {
    if (other_ != nullptr && connected_) rdma_disconnect(other_);
    if (other_ != nullptr && connected_) rdma_disconnect(id_);
    // Destroy the passive side first, which answers the request. rdma_reject() would not do: Linux
    // then forgets a message that it has sent, repeats it for a minute, and blocks the identifier
    // meanwhile.
    if (open_request_ != nullptr) {
      destroy(open_request_);
      cm_.event("", 2);
    }
    for (auto* const id : {other_, id_, listener_}) {
      if (id != nullptr && id != open_request_) destroy(id);
    }
  }
  Cm& cm() { return cm_; }
  rdma_cm_id* id() { return id_; }

 private:
  rdma_cm_id* make(State state);
  rdma_cm_id* connect(State state);

  Cm cm_;
  rdma_port_space space_;
  bool connected_ = false;
  rdma_cm_id* listener_ = nullptr;
  rdma_cm_id* other_ = nullptr;
  rdma_cm_id* open_request_ = nullptr;
  rdma_cm_id* id_;
};

rdma_cm_id* Subject::make(State state) {
  if (state == State::kFresh) return cm_.id(space_);
  if (state == State::kListening) return cm_.listener(space_);
  if (state == State::kBound) {
    auto* const id = cm_.id(space_);
    Address here(kHere, 0);
    need(rdma_bind_addr(id, here.get()) == 0, "bind");
    return id;
  }
  listener_ = cm_.listener(space_);
  if (state == State::kAddress || state == State::kRoute)
    return cm_.resolved(port_of(listener_), space_, state == State::kRoute);
  return connect(state);
}

rdma_cm_id* Subject::connect(State state) {
  const auto type = space_ == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
  auto* const id = cm_.resolved(port_of(listener_), space_);
  need(make_qp(id, type) == 0, "QP");
  auto ask = parameters();
  need(rdma_connect(id, &ask) == 0, "connect");
  const auto request = cm_.event("");
  need(request.kind == RDMA_CM_EVENT_CONNECT_REQUEST, "request");
  other_ = state == State::kRequest ? id : request.id;
  if (state == State::kConnecting || state == State::kRequest) {
    open_request_ = request.id;
    return state == State::kRequest ? request.id : id;
  }
  if (state == State::kRejected) {
    need(rdma_reject(request.id, nullptr, 0) == 0, "reject");
    cm_.event("");
    return id;
  }
  need(make_qp(request.id, type) == 0, "QP");
  need(rdma_accept(request.id, &ask) == 0, "accept");
  connected_ = true;
  cm_.event("");
  if (space_ != RDMA_PS_UDP) cm_.event("");
  if (state == State::kConnected) return id;
  need(rdma_disconnect(id) == 0, "disconnect");
  cm_.event("");
  rdma_disconnect(request.id);
  cm_.event("");
  return id;
}

struct Call {
  const char* name;
  int (*call)(Cm& cm, rdma_cm_id* id);
};

int resolve(rdma_cm_id* id) {
  Address there(kHere, 4791);
  return rdma_resolve_addr(id, nullptr, there.get(), 1000);
}

const Call kCalls[] = {
    {"bind",
     [](Cm&, rdma_cm_id* id) {
       Address here(kHere, 0);
       return rdma_bind_addr(id, here.get());
     }},
    {"listen", [](Cm&, rdma_cm_id* id) { return rdma_listen(id, 4); }},
    {"resolve_addr", [](Cm&, rdma_cm_id* id) { return resolve(id); }},
    {"resolve_route", [](Cm&, rdma_cm_id* id) { return rdma_resolve_route(id, 1000); }},
    {"create_qp", [](Cm&, rdma_cm_id* id) { return id->verbs != nullptr ? make_qp(id) : -2; }},
    {"connect",
     [](Cm&, rdma_cm_id* id) {
       auto ask = parameters();
       ask.qp_num = 0x123;
       return rdma_connect(id, &ask);
     }},
    {"accept",
     [](Cm&, rdma_cm_id* id) {
       auto give = parameters();
       give.qp_num = 0x123;
       return rdma_accept(id, &give);
     }},
    {"reject", [](Cm&, rdma_cm_id* id) { return rdma_reject(id, nullptr, 0); }},
    {"disconnect", [](Cm&, rdma_cm_id* id) { return rdma_disconnect(id); }},
    {"establish", [](Cm&, rdma_cm_id* id) { return rdma_establish(id); }},
    {"notify COMM_EST", [](Cm&, rdma_cm_id* id) { return rdma_notify(id, IBV_EVENT_COMM_EST); }},
    {"notify PATH_MIG", [](Cm&, rdma_cm_id* id) { return rdma_notify(id, IBV_EVENT_PATH_MIG); }},
    {"notify QP_FATAL", [](Cm&, rdma_cm_id* id) { return rdma_notify(id, IBV_EVENT_QP_FATAL); }},
    {"migrate",
     [](Cm&, rdma_cm_id* id) { return rdma_migrate_id(id, rdma_create_event_channel()); }},
    {"join",
     [](Cm&, rdma_cm_id* id) {
       Address group("239.1.2.3", 0);
       return rdma_join_multicast(id, group.get(), nullptr);
     }},
    {"init_qp_attr INIT",
     [](Cm&, rdma_cm_id* id) {
       ibv_qp_attr attr{};
       int mask = 0;
       attr.qp_state = IBV_QPS_INIT;
       return rdma_init_qp_attr(id, &attr, &mask);
     }},
    {"init_qp_attr RTR",
     [](Cm&, rdma_cm_id* id) {
       ibv_qp_attr attr{};
       int mask = 0;
       attr.qp_state = IBV_QPS_RTR;
       return rdma_init_qp_attr(id, &attr, &mask);
     }},
    {"init_qp_attr RTS",
     [](Cm&, rdma_cm_id* id) {
       ibv_qp_attr attr{};
       int mask = 0;
       attr.qp_state = IBV_QPS_RTS;
       return rdma_init_qp_attr(id, &attr, &mask);
     }},
    {"TOS",
     [](Cm&, rdma_cm_id* id) {
       std::uint8_t tos = 32;
       return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1);
     }},
    {"REUSEADDR",
     [](Cm&, rdma_cm_id* id) {
       int on = 1;
       return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on);
     }},
    {"AFONLY",
     [](Cm&, rdma_cm_id* id) {
       int on = 1;
       return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on);
     }},
    {"ACK_TIMEOUT", [](Cm&, rdma_cm_id* id) {
       std::uint8_t timeout = 18;
       return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1);
     }}};

void calls_in(State state, rdma_port_space space, bool wanted(const std::string&) = nullptr) {
  for (const auto& [name, call] : kCalls) {
    if (wanted != nullptr && !wanted(name)) continue;
    Subject subject(state, space);
    // librdmacm dereferences the device before it calls the kernel, so it crashes without one.
    const std::string words = name;
    const bool looks = words == "resolve_route" || words == "connect" || words == "accept";
    if (looks && subject.id()->verbs == nullptr) continue;
    did(name, [&] { return call(subject.cm(), subject.id()); });
  }
}

void options(Cm& cm) {
  std::vector<char> value(1 << 20, 0);
  for (int level = 0; level != 4; ++level) {
    for (const int option : {0, 1, 2, 3, 4, 77}) {
      for (const std::size_t size :
           {0ul, 1ul, 2ul, 3ul, 4ul, 8ul, 64ul, 4096ul, 4097ul, 1ul << 20}) {
        auto* const id = cm.id();
        did(text("level %d, option %d, %zu bytes", level, option, size),
            [&] { return rdma_set_option(id, level, option, value.data(), size); });
        rdma_destroy_id(id);
      }
      did(text("level %d, option %d, null", level, option),
          [&] { return rdma_set_option(cm.id(), level, option, nullptr, 4); });
    }
  }
  for (int timeout = 0; timeout != 40; ++timeout) {
    auto byte = static_cast<std::uint8_t>(timeout);
    did(text("ACK_TIMEOUT %d", timeout), [&] {
      return rdma_set_option(cm.id(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1);
    });
  }
}

constexpr const char* kAddresses[] = {
    kHere,         kSecond,       "0.0.0.0",         "127.0.0.1", "127.0.0.2", "198.19.1.99",
    "203.0.113.9", "239.1.1.1",   "255.255.255.255", "::",        "::1",       "::ffff:198.19.1.1",
    "fe80::1",     "2001:db8::1", "ff0e::1"};

struct Space {
  const char* name;
  rdma_port_space space;
};
constexpr Space kSpaces[] = {
    {"TCP", RDMA_PS_TCP}, {"UDP", RDMA_PS_UDP}, {"IPOIB", RDMA_PS_IPOIB}, {"IB", RDMA_PS_IB}};

void bindings(Cm& cm) {
  for (const auto& [name, space] : kSpaces) {
    for (const auto* const address : kAddresses) {
      for (const int port : {0, 7471}) {
        auto* const id = cm.id(space);
        Address at(address, port);
        const auto words = text("%s, %s, port %d", name, address, port);
        const int bound = did(words, [&] { return rdma_bind_addr(id, at.get()); });
        if (bound == 0)
          line(words + ", then",
               text("%s, port %s, number %u", id->verbs ? "a device" : "no device",
                    port_of(id) == port ? "as asked"
                    : port_of(id) != 0  ? "another"
                                        : "0",
                    id->port_num));
        if (bound == 0) did(words + ", listens", [&] { return rdma_listen(id, 4); });
        did(words + ", destroyed", [&] { return rdma_destroy_id(id); });
      }
    }
  }
}

void resolutions(Cm& cm) {
  for (const auto* const source : {"", kHere, kSecond, "198.19.1.99", "127.0.0.1", "::1"}) {
    for (const auto* const address : kAddresses) {
      if (address == std::string("198.19.1.99") || address == std::string("203.0.113.9")) continue;
      auto* const id = cm.id();
      Address to(address, 7471), from(*source != 0 ? source : kHere, 0);
      // Linux asks for it by ARP on the second device. Whether it takes the answer depends on what
      // its neighbor table has by chance. The question itself fills the table for later cases.
      if (source == std::string(kSecond) && address == std::string(kHere)) {
        if (rdma_resolve_addr(id, from.get(), to.get(), 1000) == 0) cm.event("");
        continue;
      }
      const auto words = text("to %s from %s", address, *source != 0 ? source : "anywhere");
      const int called = did(words, [&] {
        return rdma_resolve_addr(id, *source != 0 ? from.get() : nullptr, to.get(), 1000);
      });
      if (called != 0) continue;
      const auto event = cm.event("");
      line(words + ", then",
           text("%s, status %d, %s", rdma_event_str(static_cast<rdma_cm_event_type>(event.kind)),
                event.status, id->verbs ? "a device" : "no device"));
      if (event.kind != RDMA_CM_EVENT_ADDR_RESOLVED) continue;
      if (did(words + ", route", [&] { return rdma_resolve_route(id, 1000); }) == 0)
        cm.event(words + ", route");
    }
  }
}

/// Listeners that want the same port number.
void shared_numbers(Cm& cm) {
  for (const auto* const first : {kHere, "0.0.0.0", "127.0.0.1", "::"}) {
    for (const auto* const second : {kHere, kSecond, "0.0.0.0", "127.0.0.1", "127.0.0.2", "::"}) {
      for (const int reuse : {0, 1}) {
        auto* const one = cm.id();
        auto* const other = cm.id();
        int on = reuse;
        for (auto* const id : {one, other})
          rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on);
        Address at(first, 7480), beside(second, 7480);
        const auto words = text("%s and %s, reuse %d", first, second, reuse);
        did(words + ", first", [&] { return rdma_bind_addr(one, at.get()); });
        did(words + ", second", [&] { return rdma_bind_addr(other, beside.get()); });
        did(words + ", first listens", [&] { return rdma_listen(one, 4); });
        did(words + ", second listens", [&] { return rdma_listen(other, 4); });
        rdma_destroy_id(one);
        rdma_destroy_id(other);
      }
    }
  }
}

void backlogs(Cm& cm) {
  for (const int backlog : {-1, 0, 1, 1000, 0x7fffffff}) {
    auto* const id = cm.id();
    Address here(kHere, 0);
    rdma_bind_addr(id, here.get());
    did(text("backlog %d", backlog), [&] { return rdma_listen(id, backlog); });
    did("again", [&] { return rdma_listen(id, 8); });
  }
}

/// Types of QPs, as rdma_create_ep() passes them with any port space.
void types() {
  for (const auto& [name, space] : kSpaces) {
    for (const int type :
         {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV}) {
      Address here(kHere, 0);
      rdma_addrinfo at{};
      at.ai_flags = RAI_PASSIVE;
      at.ai_family = AF_INET;
      at.ai_qp_type = type;
      at.ai_port_space = space;
      at.ai_src_len = sizeof(sockaddr_in);
      at.ai_src_addr = here.get();
      rdma_cm_id* id = nullptr;
      const auto words = text("%s, QPs of type %d", name, type);
      if (did(words, [&] { return rdma_create_ep(&id, &at, nullptr, nullptr); }) != 0) continue;
      std::uint8_t timeout = 18;
      did(words + ", ACK_TIMEOUT", [&] {
        return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1);
      });
      rdma_destroy_ep(id);
    }
  }
}

void route_timeouts(Cm& cm) {
  const int port = port_of(cm.listener());
  for (const int timeout : {0, 1, -1}) {
    auto* const id = cm.resolved(port, RDMA_PS_TCP, false);
    const auto words = text("%d ms", timeout);
    if (did(words, [&] { return rdma_resolve_route(id, timeout); }) == 0) {
      cm.event(words);
    } else {
      did(words + ", then 1000 ms", [&] { return rdma_resolve_route(id, 1000); });
      cm.event(words + ", then 1000 ms");
    }
  }
}

/// Listeners of both families at one port number, with RDMA_OPTION_ID_AFONLY.
void families(Cm& cm) {
  for (const int four : {0, 1}) {
    for (const int six : {0, 1}) {
      auto* const one = cm.id();
      auto* const other = cm.id();
      const auto words = text("IPv4 only %d, IPv6 only %d", four, six);
      int only = four;
      did(words + ", IPv4", [&] {
        return rdma_set_option(one, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof only);
      });
      only = six;
      did(words + ", IPv6", [&] {
        return rdma_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof only);
      });
      Address at("0.0.0.0", 7481), beside("::", 7481);
      did(words + ", 0.0.0.0", [&] { return rdma_bind_addr(one, at.get()); });
      did(words + ", ::", [&] { return rdma_bind_addr(other, beside.get()); });
      did(words + ", 0.0.0.0 listens", [&] { return rdma_listen(one, 4); });
      rdma_destroy_id(one);
      rdma_destroy_id(other);
    }
  }
}

}  // namespace

#define CALLS(name, state)                                                    \
  ORACLE_CASE(cm, calls_##name, 120) { calls_in(State::state, RDMA_PS_TCP); } \
  ORACLE_CASE(cm, calls_ud_##name, 120) { calls_in(State::state, RDMA_PS_UDP); }
CALLS(fresh, kFresh)
CALLS(bound, kBound)
CALLS(listening, kListening)
CALLS(address, kAddress)
CALLS(route, kRoute)
CALLS(request, kRequest)
CALLS(connected, kConnected)
CALLS(rejected, kRejected)
// After a rejection by its own side, Linux repeats the request for a minute before it releases the
// identifier.
bool takes_back(const std::string& call) { return call == "reject"; }
ORACLE_CASE(long_runs, calls_connecting, 120) {
  calls_in(State::kConnecting, RDMA_PS_TCP, takes_back);
}
ORACLE_CASE(cm, calls_connecting, 120) {
  calls_in(State::kConnecting, RDMA_PS_TCP, [](const auto& call) { return !takes_back(call); });
}
ORACLE_CASE(cm, calls_ud_connecting, 120) { calls_in(State::kConnecting, RDMA_PS_UDP); }
ORACLE_CASE(cm, calls_disconnected, 120) { calls_in(State::kDisconnected, RDMA_PS_TCP); }
ORACLE_CASE(cm, options) {
  Cm cm;
  options(cm);
}
ORACLE_CASE(cm, bindings) {
  Cm cm;
  bindings(cm);
}
ORACLE_CASE(cm, resolutions, 120) {
  Cm cm;
  resolutions(cm);
}
ORACLE_CASE(cm, shared_numbers) {
  Cm cm;
  shared_numbers(cm);
}
ORACLE_CASE(cm, backlogs) {
  Cm cm;
  backlogs(cm);
}
ORACLE_CASE(cm, types) { types(); }
ORACLE_CASE(cm, route_timeouts) {
  Cm cm;
  route_timeouts(cm);
}
ORACLE_CASE(cm, families) {
  Cm cm;
  families(cm);
}

}  // namespace oracle
