#include "wire/opcode.h"

#include "wire/aeth.h"
#include "wire/atomic_eth.h"
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

/// An operation of IBTA Table 38 and the headers that it has in every connected transport.
struct Row {
  Opcode opcode;  ///< of RC; the other transports have the same low five bits
  Operation operation;
  Place place;
  ExtHeaderSet headers;
  bool in_uc;
  std::string_view names[3];  ///< RC, UC, XRC
};

constexpr ExtHeaderSet kNone{};
constexpr auto kReth = kNone.with(ExtHeader::kReth);
constexpr auto kAeth = kNone.with(ExtHeader::kAeth);
constexpr auto kImmDt = kNone.with(ExtHeader::kImmDt);
constexpr auto kIeth = kNone.with(ExtHeader::kIeth);
constexpr auto kAtomicEth = kNone.with(ExtHeader::kAtomicEth);
constexpr auto kAtomicAckEth = kAeth.with(ExtHeader::kAtomicAckEth);

#define ROW(name, operation, place, headers, in_uc)                          \
  {                                                                          \
    Opcode::RC_##name, Operation::operation, Place::place, headers, in_uc, { \
      "RC_" #name, "UC_" #name, "XRC_" #name                                 \
    }                                                                        \
  }

constexpr Row kRows[] = {
    ROW(SEND_FIRST, kSend, kFirst, kNone, true),
    ROW(SEND_MIDDLE, kSend, kMiddle, kNone, true),
    ROW(SEND_LAST, kSend, kLast, kNone, true),
    ROW(SEND_LAST_WITH_IMMEDIATE, kSend, kLast, kImmDt, true),
    ROW(SEND_ONLY, kSend, kOnly, kNone, true),
    ROW(SEND_ONLY_WITH_IMMEDIATE, kSend, kOnly, kImmDt, true),
    ROW(RDMA_WRITE_FIRST, kRdmaWrite, kFirst, kReth, true),
    ROW(RDMA_WRITE_MIDDLE, kRdmaWrite, kMiddle, kNone, true),
    ROW(RDMA_WRITE_LAST, kRdmaWrite, kLast, kNone, true),
    ROW(RDMA_WRITE_LAST_WITH_IMMEDIATE, kRdmaWrite, kLast, kImmDt, true),
    ROW(RDMA_WRITE_ONLY, kRdmaWrite, kOnly, kReth, true),
    ROW(RDMA_WRITE_ONLY_WITH_IMMEDIATE, kRdmaWrite, kOnly, kReth.with(ExtHeader::kImmDt), true),
    ROW(RDMA_READ_REQUEST, kRdmaReadRequest, kOnly, kReth, false),
    ROW(RDMA_READ_RESPONSE_FIRST, kRdmaReadResponse, kFirst, kAeth, false),
    ROW(RDMA_READ_RESPONSE_MIDDLE, kRdmaReadResponse, kMiddle, kNone, false),
    ROW(RDMA_READ_RESPONSE_LAST, kRdmaReadResponse, kLast, kAeth, false),
    ROW(RDMA_READ_RESPONSE_ONLY, kRdmaReadResponse, kOnly, kAeth, false),
    ROW(ACKNOWLEDGE, kAcknowledge, kOnly, kAeth, false),
    ROW(ATOMIC_ACKNOWLEDGE, kAtomicAcknowledge, kOnly, kAtomicAckEth, false),
    ROW(COMPARE_SWAP, kCompareSwap, kOnly, kAtomicEth, false),
    ROW(FETCH_ADD, kFetchAdd, kOnly, kAtomicEth, false),
    ROW(SEND_LAST_WITH_INVALIDATE, kSend, kLast, kIeth, false),
    ROW(SEND_ONLY_WITH_INVALIDATE, kSend, kOnly, kIeth, false),
};
#undef ROW

constexpr bool is_request(Operation operation) {
  return operation != Operation::kRdmaReadResponse && operation != Operation::kAcknowledge &&
         operation != Operation::kAtomicAcknowledge;
}

class Table {
 public:
  constexpr Table() {
    for (const auto& row : kRows) {
      add(Transport::kRc, row, row.headers, row.names[0]);
      if (row.in_uc) add(Transport::kUc, row, row.headers, row.names[1]);
      // IBTA Annex A14: "XRCETH" is in every request packet of XRC, and in no response.
      add(Transport::kXrc, row,
          is_request(row.operation) ? row.headers.with(ExtHeader::kXrcEth) : row.headers,
          row.names[2]);
      if (row.opcode == Opcode::RC_SEND_ONLY) {
        add(Transport::kUd, row, row.headers.with(ExtHeader::kDeth), "UD_SEND_ONLY");
      }
      if (row.opcode == Opcode::RC_SEND_ONLY_WITH_IMMEDIATE) {
        add(Transport::kUd, row, row.headers.with(ExtHeader::kDeth), "UD_SEND_ONLY_WITH_IMMEDIATE");
      }
    }
    auto& cnp = table_[static_cast<std::uint8_t>(Opcode::CNP)];
    cnp = {true, Transport::kCnp, Operation::kCongestionNotification, true, true, true, kNone, 0,
           "CNP"};
  }
  constexpr const std::array<OpcodeInfo, 256>& table() const { return table_; }

 private:
  constexpr void add(Transport transport, const Row& row, ExtHeaderSet headers,
                     std::string_view name) {
    OpcodeInfo info;
    info.defined = true;
    info.transport = transport;
    info.operation = row.operation;
    info.first = row.place == Place::kFirst || row.place == Place::kOnly;
    info.last = row.place == Place::kLast || row.place == Place::kOnly;
    info.request = is_request(row.operation);
    info.headers = headers;
    for (unsigned i = 0; i != kExtHeaderCount; ++i) {
      if (headers.has(ExtHeader(i))) {
        info.headers_size = static_cast<std::uint8_t>(info.headers_size + size_of(ExtHeader(i)));
      }
    }
    info.name = name;
    table_[static_cast<unsigned>(transport) << 5 | static_cast<unsigned>(row.opcode)] = info;
  }

  std::array<OpcodeInfo, 256> table_{};
};

}  // namespace

constexpr std::array<OpcodeInfo, 256> kOpcodes = Table().table();

}  // namespace softhca::wire
