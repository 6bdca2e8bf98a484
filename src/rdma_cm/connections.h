// The communication manager: the connections of RC, UC and XRC QPs (IBTA 12.9), and the exchange of
// SIDR messages for UD QPs (IBTA 12.11).
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <span>

#include "rdma_cm/identifiers.h"
#include "rdma_cm/message_writer.h"
#include "rdma_cm/options.h"
#include "rdma_cm/ports.h"
#include "rdma_cm/transitions.h"
#include "rdma_cm/transmitter.h"
#include "rdma_cm/wakeup.h"

namespace softhca::rdma_cm {

class Connections {
 public:
  Connections(const Ports& ports, const Options& options, Identifiers& identifiers,
              Transmitter& transmitter, Wakeup& wakeup)
      : ports_(ports),
        options_(options),
        identifiers_(identifiers),
        transmitter_(transmitter),
        wakeup_(wakeup) {}

  /// Any host may send messages, so messages that match nothing are ignored.
  void receive(const Received& message, Input input, util::Time now);
  void receive_sidr_rep(const Received& message);
  /// Handles a REQ or SIDR_REQ for which the identifier was created before.
  void receive_again(Identifier& id, const Mad& mad, util::Time now);

  /// Handles a call of the program, or what the program reports about its QP. False: it does not
  /// fit the state of the connection.
  bool apply(Identifier& id, Input input, util::Time now) { return apply(id, input, nullptr, now); }
  /// Sends a REQ or SIDR_REQ. `ece`: vendor-specific options of a connection
  /// (rdma_set_local_ece(3)).
  void send_request(Identifier& id, const rdma_ucm_conn_param& param, const rdma_ucm_ece& ece,
                    const Requester& requester, util::Time now);
  void send_rep(Identifier& id, const rdma_ucm_conn_param& param, const rdma_ucm_ece& ece,
                util::Time now);
  void send_rej(const Connection& connection, std::uint16_t reason,
                std::span<const std::byte> private_data);
  void send_sidr_rep(Connection& connection, std::uint8_t status, std::uint32_t qkey,
                     std::span<const std::byte> private_data);
  /// Ends a connection that is not established yet, and sends a REJ.
  void reject(Identifier& id, std::uint16_t reason, std::span<const std::byte> private_data);
  /// Ends the connection without a message.
  void end(Identifier& id);
  /// Notifies the peer that the identifier is destroyed.
  void say_goodbye(Identifier& id, util::Time now);

  /// Retransmits messages, and ends TimeWait.
  void tick(util::Time now);
  /// Disconnects peers whose process was killed. On Linux the peer's kernel would disconnect them.
  void look_for_the_gone(util::Time now);

 private:
  bool apply(Identifier& id, Input input, const Mad* mad, util::Time now);
  void act(Identifier& id, Action action, const Mad* mad, util::Time now);
  void wait_longer(Identifier& id, const Mad& mad, util::Time now);
  void wait_for_packets(Identifier& id, util::Time now);
  Identifier* find_rejected(const Received& message) const;
  void handle_death(Identifier& id, util::Time now);

  const Ports& ports_;
  const Options& options_;
  Identifiers& identifiers_;
  Transmitter& transmitter_;
  Wakeup& wakeup_;
  util::Time looked_for_gone_{};
};

}  // namespace softhca::rdma_cm
