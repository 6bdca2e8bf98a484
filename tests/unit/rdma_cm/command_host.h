// A host that sends commands, also those that Linux refuses.
#pragma once

#include <gtest/gtest.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "rdma_cm/guest_on_wire.h"

namespace softhca::rdma_cm {

class RdmaCmCommands : public RdmaCmWithGuest {
 protected:
  /// ib_qp_state.
  enum : std::uint32_t { kToRtr = 2, kToRts = 3 };
  /// ib_qp_attr_mask: what responders and requesters have.
  enum : std::uint32_t { kTimeout = 0x200, kSends = 0x2e00, kResponds = 0x28000 };
  Errno notify(std::uint32_t id, std::uint32_t event) {
    return command(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{.id = id, .event = event});
  }
  Errno listen_at(std::uint32_t id, std::uint32_t backlog = 1) {
    return command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = id, .backlog = backlog});
  }
  Errno resolve_from(std::uint32_t id, const SocketAddress& from, const SocketAddress& to) {
    rdma_ucm_resolve_addr in{};
    in.id = id;
    in.timeout_ms = 1000;
    in.src_size = from.size();
    std::memcpy(&in.src_addr, &from.storage, sizeof in.src_addr);
    in.dst_size = to.size();
    std::memcpy(&in.dst_addr, &to.storage, sizeof in.dst_addr);
    return command(RDMA_USER_CM_CMD_RESOLVE_ADDR, in);
  }
  ib_uverbs_qp_attr attributes_of(std::uint32_t id, std::uint32_t state) {
    ib_uverbs_qp_attr out{};
    EXPECT_EQ(command(RDMA_USER_CM_CMD_INIT_QP_ATTR,
                      rdma_ucm_init_qp_attr{.response = reinterpret_cast<std::uint64_t>(&out),
                                            .id = id,
                                            .qp_state = state}),
              0);
    return out;
  }
  Errno accept_with(std::uint32_t id, std::size_t bytes) {
    rdma_ucm_accept in{};
    in.uid = 3;
    in.id = id;
    in.conn_param = param(0x200, std::string(bytes, 'x'));
    return command(RDMA_USER_CM_CMD_ACCEPT, in);
  }
  Errno reject_with(std::uint32_t id, std::uint8_t bytes, std::uint8_t reason = 0) {
    rdma_ucm_reject in{};
    in.id = id;
    in.private_data_len = bytes;
    in.reason = reason;
    std::memset(in.private_data, 'x', bytes);
    return command(RDMA_USER_CM_CMD_REJECT, in);
  }
  rdma_ucm_event_resp ask(std::uint16_t space) {
    const auto client = create(20, space);
    resolve(client, 7471);
    connect(client, "");
    return next();
  }
};

}  // namespace softhca::rdma_cm
