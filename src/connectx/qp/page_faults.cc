#include "connectx/qp/page_faults.h"

#include "connectx/qp/send_wqe.h"
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

/// Data for a fault at a WQE of a QP or an SRQ. The token is the QP's number in both cases.
EventData wqe_fault_data(const PageFaults::Place& place, const rdma::PageFault& fault) {
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
EventData rdma_fault_data(const PageFaults::Place& place, const rdma::PageFault& fault) {
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

FaultAnswer PageFaults::open(const rdma::PageFault& fault, const Place& place) {
  auto& queues = event_queues_;
  const auto eqn = queues.mapped(event_type::PAGE_FAULT);
  if (!eqn) return FaultAnswer::kNobody;
  // If an event were lost, the driver would never resume the queue.
  if (open_ >= kOpenMax || queues.find(*eqn)->ring().full()) return FaultAnswer::kBusy;
  const bool remote = is_remote(fault.kind);
  const auto subtype = remote ? page_fault_subtype::RDMA : page_fault_subtype::WQE;
  queues.post(event_type::PAGE_FAULT, static_cast<std::uint8_t>(subtype),
              remote ? rdma_fault_data(place, fault) : wqe_fault_data(place, fault));
  ++open_;
  return FaultAnswer::kOpened;
}

}  // namespace softhca::connectx
