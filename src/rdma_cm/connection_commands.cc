// The commands of a connection: from listening and connecting to its end (host-door contract 8.2).
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rdma_cm/manager.h"
#include "rdma_cm/message.h"

namespace softhca::rdma_cm {
namespace {

/// Of the program, in REQ and SIDR_REQ, behind the header of Annex A11.
constexpr std::size_t kPrivateDataMax = 56, kDatagramPrivateDataMax = 180;

constexpr std::uint8_t kAckTimeoutMax = 31;

/// net.rdma_ucm.max_backlog of Linux, as it is at first.
constexpr std::uint32_t kBacklogMax = 1024;

/// ib_qp_state.
enum : std::uint32_t { kInit = 1, kRtr = 2, kRts = 3 };
/// ib_qp_attr_mask.
enum : std::uint32_t {
  kState = 1,
  kAccess = 8,
  kPkeyIndex = 0x10,
  kPort = 0x20,
  kQkey = 0x40,
  kPath = 0x80,
  kMtu = 0x100,
  kTimeout = 0x200,
  kRetry = 0x400,
  kRnrRetry = 0x800,
  kRqPsn = 0x1000,
  kMaxReads = 0x2000,
  kMinRnr = 0x8000,
  kSqPsn = 0x10000,
  kMaxDestReads = 0x20000,
  kDestQpn = 0x100000,
};

}  // namespace

Errno Manager::connect(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_connect>(in);
  auto* id = find(channel, command.id);
  if (id == nullptr) return ENOENT;
  const auto& param = command.conn_param;
  if (id->state != State::kResolved || param.valid == 0) return EINVAL;
  if (param.private_data_len > (is_datagram(*id) ? kDatagramPrivateDataMax : kPrivateDataMax)) {
    return EINVAL;
  }
  // Who listens on this machine may have come since.
  id->peer = resolve(*id);
  if (!id->peer) return ENETUNREACH;
  if (!id->bound) id->local = local_for(*id->peer, id->local.port);
  id->local_qpn = param.qp_num;
  id->responder_resources = param.responder_resources;
  id->initiator_depth = param.initiator_depth;
  id->retry_count = std::min<std::uint8_t>(param.retry_count, 7);
  id->rnr_retry_count = std::min<std::uint8_t>(param.rnr_retry_count, 7);
  id->state = State::kReqSent;
  if (is_datagram(*id)) {
    send_sidr_request(*id, param);
  } else {
    send_request(*id, param);
  }
  return 0;
}

Errno Manager::listen(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_listen>(in);
  auto* id = find(channel, command.id);
  if (id == nullptr) return ENOENT;
  if (id->state != State::kIdle && id->state != State::kListening) return EINVAL;
  if (id->source.size() == 0) {
    id->source.storage.ss_family = AF_INET;
    id->one_family = true;
    if (const auto wrong = take_port(*id); wrong != 0) return wrong;
  }
  id->state = State::kListening;
  id->backlog = command.backlog == 0 ? kBacklogMax : std::min(command.backlog, kBacklogMax);
  return 0;
}

Errno Manager::accept(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_accept>(in);
  auto* id = find(channel, command.id);
  if (id == nullptr) return ENOENT;
  const auto& param = command.conn_param;
  if (param.valid == 0) {
    if (id->state != State::kRepReceived) return EINVAL;
    id->state = State::kEstablished;
    send_ready(*id);
    return 0;
  }
  if (id->state != State::kReqReceived) return EINVAL;
  id->uid = command.uid;
  id->local_qpn = param.qp_num;
  if (is_datagram(*id)) {
    id->state = State::kEstablished;
    send_sidr_reply(*id, 0, param);
    return 0;
  }
  id->responder_resources = param.responder_resources;
  id->initiator_depth = param.initiator_depth;
  id->rnr_retry_count = std::min<std::uint8_t>(param.rnr_retry_count, 7);
  id->state = State::kRepSent;
  send_reply(*id, param);
  return 0;
}

Errno Manager::reject(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_reject>(in);
  auto* id = find(channel, command.id);
  if (id == nullptr) return ENOENT;
  if (id->state != State::kReqReceived && id->state != State::kRepReceived) return EINVAL;
  const auto data = std::as_bytes(std::span(command.private_data)).first(command.private_data_len);
  if (is_datagram(*id)) {
    send_sidr_reply(*id, kSidrRejected, {});
  } else {
    send_reject(*id, kConsumerReject, data);
  }
  id->state = State::kOver;
  return 0;
}

Errno Manager::disconnect(Channel& channel, Bytes in) {
  auto* id = find(channel, take<rdma_ucm_disconnect>(in).id);
  if (id == nullptr) return ENOENT;
  if (is_datagram(*id)) return EINVAL;
  // The peer may have been faster.
  if (id->state == State::kOver || id->state == State::kDreqSent) return 0;
  if (id->state != State::kEstablished && id->state != State::kRepSent) return EINVAL;
  send_disconnect(*id);
  id->state = State::kDreqSent;
  return 0;
}

/// What the QP is to be told on its way to `qp_state` (host-door contract 8.2).
Errno Manager::init_qp_attr(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_init_qp_attr>(in);
  auto* id = find(channel, command.id);
  if (id == nullptr) return ENOENT;
  ib_uverbs_qp_attr out{};
  out.qp_state = command.qp_state;
  out.qp_attr_mask = kState;
  const bool connects = !is_datagram(*id);
  const bool reliable = connects && id->qp_type != IB_UVERBS_QPT_UC;
  const bool negotiated = id->remote_qpn != 0;
  switch (command.qp_state) {
    case kInit:
      out.port_num = 1;
      out.qp_attr_mask |= kPkeyIndex | kPort | (connects ? kAccess : kQkey);
      out.qkey = id->qkey;
      if (negotiated) {
        out.qp_access_flags = 2;                                         // REMOTE_WRITE
        if (id->responder_resources != 0) out.qp_access_flags |= 4 | 8;  // READ, ATOMIC
      }
      break;
    case kRtr:
      if (!connects) break;
      if (!negotiated) return EINVAL;
      out.qp_attr_mask |= kPath | kMtu | kDestQpn | kRqPsn;
      if (reliable) out.qp_attr_mask |= kMaxDestReads | kMinRnr;
      std::memcpy(out.ah_attr.grh.dgid, id->peer->bytes.data(), 16);
      out.ah_attr.grh.sgid_index = id->local.gid_index;
      out.ah_attr.grh.hop_limit = kHopLimit;
      out.ah_attr.is_global = 1;
      out.ah_attr.port_num = 1;
      out.path_mtu = id->path_mtu;
      out.dest_qp_num = id->remote_qpn;
      out.rq_psn = id->local_psn;
      out.max_dest_rd_atomic = id->responder_resources;
      break;
    case kRts:
      out.qp_attr_mask |= kSqPsn;
      out.sq_psn = id->remote_psn;
      if (!reliable) break;
      out.qp_attr_mask |= kTimeout | kRetry | kRnrRetry | kMaxReads;
      out.timeout = id->ack_timeout.value_or(kAckTimeout);
      out.retry_cnt = id->retry_count;
      out.rnr_retry = id->rnr_retry_count;
      out.max_rd_atomic = id->initiator_depth;
      break;
    default:
      return EINVAL;
  }
  return answer(command.response, out);
}

Errno Manager::get_event(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_get_event>(in);
  const auto event = channel.pop();
  if (!event) return EAGAIN;
  const auto owner = ids_.find(event->counted_for);
  if (owner != ids_.end()) {
    ++owner->second->events_read;
    if (event->type() == EventType::kConnectRequest) ++owner->second->backlog;
  }
  const auto member = std::ranges::find(memberships_, event->membership, &Membership::number);
  if (member != memberships_.end()) ++member->events_read;
  return answer(command.response, event->content);
}

Errno Manager::set_option(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_set_option>(in);
  auto* id = find(channel, command.id);
  if (id == nullptr) return ENOENT;
  if (command.level > RDMA_OPTION_IB) return ENOSYS;
  if (command.level != RDMA_OPTION_ID) return 0;
  if (command.optname == RDMA_OPTION_ID_AFONLY) {
    int only = 0;
    if (command.optlen != sizeof only) return EINVAL;
    if (!memory_.read(command.optval, std::as_writable_bytes(std::span(&only, 1)))) return EFAULT;
    if (id->state != State::kIdle) return EINVAL;
    id->one_family = only != 0;
    return 0;
  }
  if (command.optname != RDMA_OPTION_ID_ACK_TIMEOUT) return 0;
  std::byte timeout{};
  if (command.optlen != sizeof timeout) return EINVAL;
  if (!memory_.read(command.optval, std::span(&timeout, 1))) return EFAULT;
  if (std::to_integer<std::uint8_t>(timeout) > kAckTimeoutMax) return EINVAL;
  id->ack_timeout = std::to_integer<std::uint8_t>(timeout);
  return 0;
}

/// The program has seen data before the peer's RTU.
Errno Manager::notify(Channel& channel, Bytes in) {
  constexpr std::uint32_t kCommunicationEstablished = 4;  // of ib_event_type
  const auto command = take<rdma_ucm_notify>(in);
  auto* id = find(channel, command.id);
  if (id == nullptr) return ENOENT;
  if (command.event != kCommunicationEstablished) return EINVAL;
  if (id->state == State::kRepSent) {
    settle(*id);
    id->state = State::kEstablished;
    tell(*id, EventType::kEstablished);
  }
  return 0;
}

Errno Manager::migrate_id(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_migrate_id>(in);
  auto* before = (*other_)(static_cast<int>(command.fd));
  auto* id = before == nullptr ? nullptr : find(*before, command.id);
  if (id == nullptr) return ENOENT;
  id->channel = &channel;
  if (before != &channel) {
    before->remove_if([&](const Event& event) { return event.counted_for == id->number; },
                      [&](const Event& event) {
                        channel.push(event);
                        // A request that nobody has read of goes with its listener.
                        if (event.type() != EventType::kConnectRequest) return;
                        if (auto* asks = find(*before, event.content.id)) asks->channel = &channel;
                      });
  }
  return answer(command.response, rdma_ucm_migrate_resp{.events_reported = id->events_read});
}

}  // namespace softhca::rdma_cm
