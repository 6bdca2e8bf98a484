// The RDMA connection manager: identifiers, their events, and connections with both ends in one
// process.
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <string>
#include <vector>

#include "world.h"

namespace oracle {

inline constexpr const char* kHere = "198.19.1.1";
inline constexpr const char* kSecond = "198.19.2.1";

/// An address of either family.
struct Address {
  Address(const char* text, int port);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
  sockaddr_storage bytes{};
};

/// A copy of an event that has been acknowledged. `kind` is -1 if none came.
struct Event {
  int kind = -1;
  int status = 0;
  rdma_cm_id* id = nullptr;
  rdma_cm_id* listener = nullptr;
  rdma_conn_param connection{};
  rdma_ud_param datagram{};
  std::vector<std::uint8_t> data;
};

class Cm {
 public:
  Cm();
  rdma_event_channel* channel() const { return channel_; }
  rdma_cm_id* id(rdma_port_space space = RDMA_PS_TCP);
  /// The next event on any identifier, printed as a line unless `name` is empty.
  Event event(const std::string& name, int seconds = 15);
  /// Prints whether no event comes for some time.
  void silence(const std::string& name, int milliseconds = 300);
  /// A listener on `kHere` at a port that the kernel chooses.
  rdma_cm_id* listener(rdma_port_space space = RDMA_PS_TCP, int backlog = 16);
  /// An identifier with a resolved route to a listener (or to a port number). Null if that fails.
  rdma_cm_id* resolved(int port, rdma_port_space space = RDMA_PS_TCP, bool route = true);

 private:
  rdma_event_channel* channel_;
};

int port_of(rdma_cm_id* id);
std::string describe(const Event& event);
/// Bytes that encode their own offset.
std::vector<std::uint8_t> pattern(std::size_t size);
/// Lets librdmacm create a QP with its CQs.
int make_qp(rdma_cm_id* id, ibv_qp_type type = IBV_QPT_RC);
/// The connection parameters that most cases use.
rdma_conn_param parameters();

/// Two connected identifiers, each with a QP.
struct Connection {
  explicit Connection(Cm& cm, rdma_conn_param ask = parameters(),
                      rdma_conn_param give = parameters());
  rdma_cm_id* listener;
  rdma_cm_id* client;
  rdma_cm_id* server = nullptr;
};

}  // namespace oracle
