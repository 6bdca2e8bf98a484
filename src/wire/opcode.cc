#include "wire/opcode.h"

#include "spec/infiniband/services.h"
#include "wire/aeth.h"
#include "wire/atomic_eth.h"
#include "wire/dceth.h"
#include "wire/deth.h"
#include "wire/ieth.h"
#include "wire/immdt.h"
#include "wire/reth.h"
#include "wire/xrceth.h"

namespace softhca::wire {
namespace {

constexpr std::uint8_t size_of(ExtHeader header) {
  switch (header) {
    case ExtHeader::kDeth:
      return DethLayout::kSize;
    case ExtHeader::kXrcEth:
      return XrcEthLayout::kSize;
    case ExtHeader::kDcEth:
      return DcEthLayout::kSize;
    case ExtHeader::kReth:
      return RethLayout::kSize;
    case ExtHeader::kAtomicEth:
      return AtomicEthLayout::kSize;
    case ExtHeader::kAeth:
      return AethLayout::kSize;
    case ExtHeader::kAtomicAckEth:
      return AtomicAckEthLayout::kSize;
    case ExtHeader::kImmDt:
      return ImmDtLayout::kSize;
    case ExtHeader::kIeth:
      return IethLayout::kSize;
  }
  return 0;
}

enum class Place : std::uint8_t { kFirst, kMiddle, kLast, kOnly };

/// An operation of IBTA Table 38, with its headers in every connected service.
struct Row {
  Opcode opcode;  ///< of RC
  Operation operation;
  Place place;
  ExtHeaderSet headers;
};

constexpr ExtHeaderSet kNone{};
constexpr auto kReth = kNone.with(ExtHeader::kReth);
constexpr auto kAeth = kNone.with(ExtHeader::kAeth);
constexpr auto kImmDt = kNone.with(ExtHeader::kImmDt);
constexpr auto kIeth = kNone.with(ExtHeader::kIeth);
constexpr auto kAtomicEth = kNone.with(ExtHeader::kAtomicEth);
constexpr auto kAtomicAckEth = kAeth.with(ExtHeader::kAtomicAckEth);

constexpr Row kRows[] = {
    {Opcode::RC_SEND_FIRST, Operation::kSend, Place::kFirst, kNone},
    {Opcode::RC_SEND_MIDDLE, Operation::kSend, Place::kMiddle, kNone},
    {Opcode::RC_SEND_LAST, Operation::kSend, Place::kLast, kNone},
    {Opcode::RC_SEND_LAST_WITH_IMMEDIATE, Operation::kSend, Place::kLast, kImmDt},
    {Opcode::RC_SEND_ONLY, Operation::kSend, Place::kOnly, kNone},
    {Opcode::RC_SEND_ONLY_WITH_IMMEDIATE, Operation::kSend, Place::kOnly, kImmDt},
    {Opcode::RC_RDMA_WRITE_FIRST, Operation::kRdmaWrite, Place::kFirst, kReth},
    {Opcode::RC_RDMA_WRITE_MIDDLE, Operation::kRdmaWrite, Place::kMiddle, kNone},
    {Opcode::RC_RDMA_WRITE_LAST, Operation::kRdmaWrite, Place::kLast, kNone},
    {Opcode::RC_RDMA_WRITE_LAST_WITH_IMMEDIATE, Operation::kRdmaWrite, Place::kLast, kImmDt},
    {Opcode::RC_RDMA_WRITE_ONLY, Operation::kRdmaWrite, Place::kOnly, kReth},
    {Opcode::RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, Operation::kRdmaWrite, Place::kOnly,
     kReth.with(ExtHeader::kImmDt)},
    {Opcode::RC_RDMA_READ_REQUEST, Operation::kRdmaReadRequest, Place::kOnly, kReth},
    {Opcode::RC_RDMA_READ_RESPONSE_FIRST, Operation::kRdmaReadResponse, Place::kFirst, kAeth},
    {Opcode::RC_RDMA_READ_RESPONSE_MIDDLE, Operation::kRdmaReadResponse, Place::kMiddle, kNone},
    {Opcode::RC_RDMA_READ_RESPONSE_LAST, Operation::kRdmaReadResponse, Place::kLast, kAeth},
    {Opcode::RC_RDMA_READ_RESPONSE_ONLY, Operation::kRdmaReadResponse, Place::kOnly, kAeth},
    {Opcode::RC_ACKNOWLEDGE, Operation::kAcknowledge, Place::kOnly, kAeth},
    {Opcode::RC_ATOMIC_ACKNOWLEDGE, Operation::kAtomicAcknowledge, Place::kOnly, kAtomicAckEth},
    {Opcode::RC_CMP_SWAP, Operation::kCompareSwap, Place::kOnly, kAtomicEth},
    {Opcode::RC_FETCH_ADD, Operation::kFetchAdd, Place::kOnly, kAtomicEth},
    {Opcode::RC_SEND_LAST_WITH_INVALIDATE, Operation::kSend, Place::kLast, kIeth},
    {Opcode::RC_SEND_ONLY_WITH_INVALIDATE, Operation::kSend, Place::kOnly, kIeth},
    {Opcode::RC_FLUSH, Operation::kUnsupported, Place::kOnly, kNone},
    {Opcode::RC_ATOMIC_WRITE, Operation::kUnsupported, Place::kOnly, kNone},
};

constexpr bool is_request(Operation operation) {
  return operation != Operation::kRdmaReadResponse && operation != Operation::kAcknowledge &&
         operation != Operation::kAtomicAcknowledge;
}

constexpr bool is_defined(Opcode opcode) { return !to_string(opcode).empty(); }

/// The headers of an operation, including those that the service adds.
constexpr ExtHeaderSet headers_of(Service service, const Row& row) {
  if (service == Service::UD) return row.headers.with(ExtHeader::kDeth);
  // IBTA Annex A14: every XRC request packet has the XRCETH, and no response has it.
  if (service == Service::XRC && is_request(row.operation)) {
    return row.headers.with(ExtHeader::kXrcEth);
  }
  if (service == Service::DC && is_request(row.operation)) {
    return row.headers.with(ExtHeader::kDcEth);
  }
  return row.headers;
}

constexpr OpcodeInfo info_of(Opcode opcode, Service service, const Row& row) {
  OpcodeInfo info;
  info.defined = true;
  info.service = service;
  info.operation = row.operation;
  info.first = row.place == Place::kFirst || row.place == Place::kOnly;
  info.last = row.place == Place::kLast || row.place == Place::kOnly;
  info.request = is_request(row.operation);
  info.headers = headers_of(service, row);
  for (unsigned i = 0; i != kExtHeaderCount; ++i) {
    if (!info.headers.has(ExtHeader(i))) continue;
    info.headers_size = static_cast<std::uint8_t>(info.headers_size + size_of(ExtHeader(i)));
  }
  info.name = to_string(opcode);
  return info;
}

/// Adds the reserved opcodes of a reliable service. The document does not give their headers.
constexpr void add_reserved(std::array<OpcodeInfo, 256>& table, Service service,
                            std::string_view name) {
  const auto begin = static_cast<std::size_t>(spec::infiniband::opcode_of(service, Opcode{}));
  for (auto at = begin; at != begin + spec::infiniband::kServiceOpcodes; ++at) {
    auto& info = table[at];
    if (info.defined) continue;
    info.defined = info.first = info.last = info.request = true;
    info.service = service;
    info.operation = Operation::kUnsupported;
    info.name = name;
  }
}

constexpr std::array<OpcodeInfo, 256> make_table() {
  std::array<OpcodeInfo, 256> table{};
  for (const auto service : {Service::RC, Service::UC, Service::UD, Service::XRC, Service::DC}) {
    for (const auto& row : kRows) {
      const auto opcode = spec::infiniband::opcode_of(service, row.opcode);
      if (!is_defined(opcode)) continue;
      table[static_cast<std::size_t>(opcode)] = info_of(opcode, service, row);
    }
  }
  for (const auto service : {Service::RC, Service::XRC, Service::DC}) {
    for (const bool add : {false, true}) {
      const auto opcode = masked_atomic(service, add);
      const auto operation = add ? Operation::kMaskedFetchAdd : Operation::kMaskedCompareSwap;
      table[static_cast<std::size_t>(opcode)] =
          info_of(opcode, service, {opcode, operation, Place::kOnly, kAtomicEth});
    }
  }
  table[static_cast<unsigned>(Opcode::CNP)] =
      info_of(Opcode::CNP, Service::CNP_CLASS,
              {Opcode::CNP, Operation::kCongestionNotification, Place::kOnly, kNone});
  table[static_cast<unsigned>(Opcode::DC_DISCONNECT)] =
      info_of(Opcode::DC_DISCONNECT, Service::DC,
              {Opcode::DC_DISCONNECT, Operation::kDisconnect, Place::kOnly, kNone});
  add_reserved(table, Service::RC, "reserved opcode of RC");
  add_reserved(table, Service::XRC, "reserved opcode of XRC");
  return table;
}

}  // namespace

constexpr std::array<OpcodeInfo, 256> kOpcodes = make_table();

}  // namespace softhca::wire
