// Reports page faults to the driver (mlx5 driver interface 7.12).

#include <optional>

#include "connectx/qp/rdma.h"
#include "spec/connectx/eq.h"

namespace softhca::connectx {

using rdma::FaultAnswer;
using rdma::PageFaultKind;
using spec::connectx::event_type;
using spec::connectx::page_fault_subtype;
using spec::connectx::page_fault_type;

namespace {

/// Limit on the open faults of all QPs and DCTs together. Drivers have room for 4096 events.
constexpr std::size_t kOpenMax = 1024;

page_fault_type type_of(PageFaultKind kind, bool of_srq) {
  switch (kind) {
    case PageFaultKind::kSend:
      return page_fault_type::REQ_SEND_OR_WRITE;
    case PageFaultKind::kReadOrAtomic:
      return page_fault_type::REQ_READ_OR_ATOMIC;
    case PageFaultKind::kReceive:
      return of_srq ? page_fault_type::RMP : page_fault_type::RESP;
    case PageFaultKind::kRemoteRead:
      return page_fault_type::RDMA_READ;
    case PageFaultKind::kRemoteWrite:
      break;
  }
  return page_fault_type::RDMA_WRITE;
}

std::uint32_t wqe_index(const rdma::PageFault& fault) {
  return fault.kind == PageFaultKind::kReceive ? fault.cookie
                                               : SendCookie::unpack(fault.cookie).index;
}

}  // namespace

/// The queue that has the fault.
struct Rdma::FaultPlace {
  Qpn number;                ///< number of the QP or DCT: the token
  std::optional<Srqn> srqn;  ///< its SRQ, if it does not have its own receive queue
};

namespace {

/// Data for a fault at a WQE of a QP or an SRQ. The token is the QP's number in both cases.
EventData wqe_fault_data(const Rdma::FaultPlace& place, const rdma::PageFault& fault) {
  using Data = spec::connectx::event_data_wqe_page_fault;
  const bool of_srq = fault.kind == PageFaultKind::kReceive && place.srqn;
  util::Struct<Data> data;
  data.set(Data::bytes_committed, fault.committed);
  data.set(Data::wqe_index, wqe_index(fault) & Data::wqe_index.kMax);
  data.set(Data::packet_length, fault.packet_length);
  data.set(Data::token, place.number.value());
  data.set(Data::page_fault_type, static_cast<std::uint32_t>(type_of(fault.kind, of_srq)));
  data.set(Data::wq_number, of_srq ? place.srqn->value() : place.number.value());
  return EventQueues::event_data(data);
}

/// Data for a fault at an address that a peer accesses.
EventData rdma_fault_data(const Rdma::FaultPlace& place, const rdma::PageFault& fault) {
  using Data = spec::connectx::event_data_rdma_page_fault;
  util::Struct<Data> data;
  data.set(Data::bytes_committed, fault.committed);
  data.set(Data::r_key, fault.rkey.value());
  data.set(Data::packet_length, fault.packet_length);
  data.set(Data::rdma_op_len, fault.length);
  data.set(Data::rdma_va, fault.address);
  data.set(Data::page_fault_type, static_cast<std::uint32_t>(type_of(fault.kind, false)));
  data.set(Data::token, place.number.value());
  return EventQueues::event_data(data);
}

bool is_remote(PageFaultKind kind) {
  return kind == PageFaultKind::kRemoteRead || kind == PageFaultKind::kRemoteWrite;
}

}  // namespace

FaultAnswer Rdma::open_fault(QueuePair& qp, const rdma::PageFault& fault) {
  FaultPlace place{.number = qp.qpn(), .srqn = {}};
  if (qp.is_xrc()) {
    place.srqn = Srqn(fault.srqn.value());
  } else if (qp.uses_srq()) {
    place.srqn = qp.srqn();
  }
  return tell_fault(fault, place);
}

FaultAnswer Rdma::open_fault(Dct& dct, const rdma::PageFault& fault) {
  if (dct.fault_open) return FaultAnswer::kBusy;
  const auto answer = tell_fault(fault, {.number = dct.dctn(), .srqn = dct.srqn()});
  dct.fault_open = answer == FaultAnswer::kOpened;
  return answer;
}

FaultAnswer Rdma::tell_fault(const rdma::PageFault& fault, const FaultPlace& place) {
  auto& queues = parts_.event_queues;
  const auto eqn = queues.mapped(event_type::PAGE_FAULT);
  if (!eqn) return FaultAnswer::kNobody;
  // If an event were lost, the driver would never resume the queue.
  if (open_faults_ >= kOpenMax || queues.find(*eqn)->ring().full()) return FaultAnswer::kBusy;
  const bool remote = is_remote(fault.kind);
  const auto subtype = remote ? page_fault_subtype::RDMA : page_fault_subtype::WQE;
  queues.post(event_type::PAGE_FAULT, static_cast<std::uint8_t>(subtype),
              remote ? rdma_fault_data(place, fault) : wqe_fault_data(place, fault));
  ++open_faults_;
  return FaultAnswer::kOpened;
}

}  // namespace softhca::connectx
