#include "connectx/qp/completion_writer.h"

#include <algorithm>

#include "connectx/qp/qp_context.h"
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
std::uint32_t CompletionWriter::data_in_cqes(Cqn cqn, bool asks_32, bool asks_64) {
  const auto* cq = completion_queues_.find(cqn);
  if (cq == nullptr || (!asks_32 && !asks_64)) return 0;
  const bool wide = cq->attributes().stride == CompletionQueue::kWideCqeSize;
  return asks_64 && wide ? kLong : kShort;
}

rdma::CompletionData CompletionWriter::data_of(util::View<spec::connectx::qpc> context) {
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
  const auto type = *QpContext::transport_type(context);
  if (!rdma::service_rules(type).datagram && !QpContext::is_xrc(context)) {
    data.of_sends =
        data_in_cqes(Cqn(context.get(Context::cqn_rcv)), responder == Responder::UP_TO_32B,
                     responder == Responder::UP_TO_64B);
  }
  return data;
}

rdma::CompletionData CompletionWriter::data_of(util::View<spec::connectx::dctc> context) {
  using Dctc = spec::connectx::dctc;
  const auto responder = static_cast<Responder>(context.get(Dctc::cs_res));
  return {.of_sends = data_in_cqes(Cqn(context.get(Dctc::cqn)), responder == Responder::UP_TO_32B,
                                   responder == Responder::UP_TO_64B)};
}

/// `room`: the result of data_in_cqes() for this CQ.
bool CompletionWriter::write_with(Cqn cqn, Cqe& cqe, std::span<const std::byte> data,
                                  std::uint32_t room, bool event) {
  auto* cq = completion_queues_.find(cqn);
  if (cq == nullptr) return false;
  if (room == kShort) {
    std::ranges::copy(data, cqe.begin());
    put_format(cqe, cqe_format::INLINE_32);
    return cq->write(cqe, event);
  }
  put_format(cqe, cqe_format::INLINE_64);
  WideCqe wide{};
  std::ranges::copy(data, wide.begin());
  std::ranges::copy(cqe, wide.begin() + kLong);
  return cq->write_wide(wide, event);
}

bool CompletionWriter::write_send_with(Cqn cqn, const CqeQueue& queue,
                                       const rdma::SendCompletion& completion,
                                       std::span<const std::byte> data, std::uint32_t room) {
  Cqe cqe;
  encode_requester_cqe(cqe, queue, completion, ticks_);
  const bool event = has_event(SendCookie::unpack(completion.cookie).completion);
  return write_with(cqn, cqe, data, room, event);
}

bool CompletionWriter::write_receive_with(Cqn cqn, const CqeQueue& queue,
                                          const rdma::ReceiveCompletion& completion,
                                          std::span<const std::byte> data, std::uint32_t room) {
  Cqe cqe;
  encode_responder_cqe(cqe, queue, completion, ticks_);
  return write_with(cqn, cqe, data, room, completion.solicited);
}

bool CompletionWriter::write_signature_error(Cqn cqn, Qpn qpn, const rdma::SignatureError& error) {
  Cqe cqe;
  encode_signature_error(cqe, qpn, error);
  return write(cqn, cqe, true);
}

}  // namespace softhca::connectx
