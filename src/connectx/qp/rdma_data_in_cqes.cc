// Data in CQEs in place of the buffers of their request (mlx5 driver interface 7.2, cs_req and
// cs_res; PRM Table 68, cqe_format). Software copies them to the buffers when it polls.

#include <algorithm>

#include "connectx/qp/rdma.h"
#include "spec/connectx/cqe.h"

namespace softhca::connectx {

namespace {

using spec::connectx::cqe_format;
using Requester = spec::connectx::qp_cs_req;
using Responder = spec::connectx::qp_cs_res;

/// Bytes that fit into the first part of a CQE with cqe_format INLINE_32.
constexpr std::uint32_t kShort = 32;
constexpr std::uint32_t kLong = CompletionQueue::kWideCqeSize - CompletionQueue::kCqeSize;
static_assert(kLong == rdma::kCompletionDataMax);

void put_format(std::span<std::byte> cqe, cqe_format format) {
  using Layout = spec::connectx::cqe64;
  util::MutableView<Layout>(cqe).set(Layout::cqe_format, static_cast<std::uint32_t>(format));
}

}  // namespace

/// Bytes of data that CQEs of this CQ carry. If entries are too small for 64, it is 32.
std::uint32_t Rdma::data_in_cqes(Cqn cqn, bool asks_32, bool asks_64) {
  const auto* cq = parts_.completion_queues.find(cqn);
  if (cq == nullptr || (!asks_32 && !asks_64)) return 0;
  const bool wide = cq->attributes().stride == CompletionQueue::kWideCqeSize;
  return asks_64 && wide ? kLong : kShort;
}

rdma::CompletionData Rdma::completion_data(util::View<spec::connectx::qpc> context) {
  using Context = spec::connectx::qpc;
  const auto requester = static_cast<Requester>(context.get(Context::cs_req));
  const auto responder = static_cast<Responder>(context.get(Context::cs_res));
  rdma::CompletionData data;
  if (context.get(Context::no_sq) == 0) {
    data.of_reads =
        data_in_cqes(Cqn(context.get(Context::cqn_snd)), requester == Requester::UP_TO_32B,
                     requester == Requester::UP_TO_64B);
  }
  // UD and XRC have no data in receive CQEs: a datagram begins with a network header, and an XRC
  // receive completes on the CQ of an SRQ.
  const auto type = *QueuePair::transport_type(context);
  if (!rdma::service_rules(type).datagram && !QueuePair::is_xrc(context)) {
    data.of_sends =
        data_in_cqes(Cqn(context.get(Context::cqn_rcv)), responder == Responder::UP_TO_32B,
                     responder == Responder::UP_TO_64B);
  }
  return data;
}

rdma::CompletionData Rdma::completion_data(util::View<spec::connectx::dctc> context) {
  using Dctc = spec::connectx::dctc;
  const auto responder = static_cast<Responder>(context.get(Dctc::cs_res));
  return {.of_sends = data_in_cqes(Cqn(context.get(Dctc::cqn)), responder == Responder::UP_TO_32B,
                                   responder == Responder::UP_TO_64B)};
}

/// `room`: the result of data_in_cqes() for this CQ.
bool Rdma::write_cqe_with(Cqn cqn, Cqe& cqe, std::span<const std::byte> data, std::uint32_t room,
                          bool solicited) {
  auto* cq = parts_.completion_queues.find(cqn);
  if (cq == nullptr) return false;
  if (room == kShort) {
    std::ranges::copy(data, cqe.begin());
    put_format(cqe, cqe_format::INLINE_32);
    return cq->write(cqe, solicited);
  }
  put_format(cqe, cqe_format::INLINE_64);
  WideCqe wide{};
  std::ranges::copy(data, wide.begin());
  std::ranges::copy(cqe, wide.begin() + kLong);
  return cq->write_wide(wide, solicited);
}

void Rdma::complete_send_with(QueuePair& qp, const rdma::SendCompletion& completion,
                              std::span<const std::byte> data) {
  Cqe cqe;
  encode_requester_cqe(cqe, {.qpn = qp.qpn(), .user_index = qp.cqe_user_index()}, completion,
                       ticks_);
  const auto room = qp.rdma_qp().options().completion_data.of_reads;
  const bool event = has_event(SendCookie::unpack(completion.cookie).completion);
  if (!write_cqe_with(qp.send_cqn(), cqe, data, room, event)) fail_soon(qp);
}

void Rdma::complete_receive_with(QueuePair& qp, const rdma::ReceiveCompletion& completion,
                                 std::span<const std::byte> data) {
  Cqe cqe;
  encode_responder_cqe(cqe, {.qpn = qp.qpn(), .user_index = receive_user_index(qp)}, completion,
                       ticks_);
  const auto room = qp.rdma_qp().options().completion_data.of_sends;
  if (!write_cqe_with(qp.receive_cqn(), cqe, data, room, completion.solicited)) fail_soon(qp);
}

void Rdma::complete_receive_with(Dct& dct, const rdma::ReceiveCompletion& completion,
                                 std::span<const std::byte> data) {
  Cqe cqe;
  encode_responder_cqe(cqe, {.qpn = dct.dctn(), .user_index = dct.cqe_user_index()}, completion,
                       ticks_);
  const auto room = completion_data(dct.context()).of_sends;
  if (!write_cqe_with(dct.cqn(), cqe, data, room, completion.solicited)) dct.failed = true;
}

}  // namespace softhca::connectx
