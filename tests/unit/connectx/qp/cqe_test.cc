// CQEs of QPs, field by field (mlx5 driver interface 8.7).
#include "connectx/qp/cqe.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "spec/connectx/cqe.h"
#include "spec/connectx/opcodes.h"

namespace softhca::connectx {
namespace {

using rdma::ReceiveOpcode;
using rdma::SendOpcode;
using rdma::WorkStatus;
using Requester = spec::connectx::cqe64_requester;
using Responder = spec::connectx::cqe64_responder;
using Error = spec::connectx::cqe_error;
using Syndrome = spec::connectx::cqe_syndrome;
using CqeOpcode = spec::connectx::cqe_opcode;

constexpr CqeQueue kQueue{.qpn = Qpn(0x123456), .user_index = 0xABCDE};
constexpr std::uint64_t kTime = 0x0102030405060708;

template <class Field>
std::uint64_t field(const Cqe& cqe, Field f) {
  return f.read(cqe.data());
}
std::uint64_t code(CqeOpcode opcode) { return static_cast<std::uint64_t>(opcode); }

rdma::SendCompletion sent(SendOpcode opcode, std::uint32_t bytes = 0) {
  return {.cookie =
              SendCookie{.index = 0xFEDC, .opcode = 0x10, .completion = WqeCompletion::CQE_AND_EQE}
                  .pack(),
          .opcode = opcode,
          .status = WorkStatus::kSuccess,
          .signaled = true,
          .byte_count = bytes,
          .reason = {}};
}

rdma::ReceiveCompletion received(ReceiveOpcode opcode) {
  rdma::ReceiveCompletion completion{};
  completion.cookie = 0x8001;
  completion.opcode = opcode;
  completion.status = WorkStatus::kSuccess;
  completion.byte_count = 1234;
  completion.immediate = 0xDEADBEEF;
  completion.source_qpn = rdma::Qpn(0x777777);
  completion.pkey = 0xFFFF;
  return completion;
}

TEST(RdmaCqe, RequesterGivesWqeQpnAndUserIndex) {
  Cqe cqe;
  cqe.fill(std::byte{0xFF});
  encode_requester_cqe(cqe, kQueue, sent(SendOpcode::kRdmaRead, 4096), kTime);
  EXPECT_EQ(field(cqe, Requester::srqn_user_index), 0xABCDEu);
  EXPECT_EQ(field(cqe, Requester::byte_cnt), 4096u);
  EXPECT_EQ(field(cqe, Requester::timestamp), kTime);
  EXPECT_EQ(field(cqe, Requester::s_wqe_opcode), 0x10u);
  EXPECT_EQ(field(cqe, Requester::qpn), 0x123456u);
  EXPECT_EQ(field(cqe, Requester::wqe_counter), 0xFEDCu);
  EXPECT_EQ(field(cqe, Requester::opcode), code(CqeOpcode::REQUESTER));
  EXPECT_EQ(field(cqe, Requester::cqe_format), 0u);
  EXPECT_EQ(field(cqe, Requester::owner), 0u) << "the owner bit is the CQ's business";
  EXPECT_EQ(field(cqe, Requester::signature), 0u);
  EXPECT_EQ(cqe[0], std::byte{0}) << "what is not set is zero";
}

TEST(RdmaCqe, OnlyReadsAndAtomicsGiveTheirBytes) {
  Cqe cqe;
  for (const auto& [opcode, bytes] : {std::pair{SendOpcode::kSend, 0u},
                                      {SendOpcode::kRdmaWrite, 0u},
                                      {SendOpcode::kRdmaRead, 8u},
                                      {SendOpcode::kCompareSwap, 8u},
                                      {SendOpcode::kFetchAdd, 8u}}) {
    encode_requester_cqe(cqe, kQueue, sent(opcode, 8), kTime);
    EXPECT_EQ(field(cqe, Requester::byte_cnt), bytes);
  }
}

TEST(RdmaCqe, ResponderOpcodes) {
  for (const auto& [opcode, expected, immediate] :
       {std::tuple{ReceiveOpcode::kSend, CqeOpcode::RESPONDER_SEND, 0u},
        {ReceiveOpcode::kSendWithImmediate, CqeOpcode::RESPONDER_SEND_WITH_IMMEDIATE, 0xDEADBEEF},
        {ReceiveOpcode::kSendWithInvalidate, CqeOpcode::RESPONDER_SEND_WITH_INVALIDATE, 0xDEADBEEF},
        {ReceiveOpcode::kRdmaWriteWithImmediate, CqeOpcode::RESPONDER_RDMA_WRITE_WITH_IMMEDIATE,
         0xDEADBEEF}}) {
    Cqe cqe;
    encode_responder_cqe(cqe, kQueue, received(opcode), kTime);
    EXPECT_EQ(field(cqe, Responder::opcode), code(expected));
    EXPECT_EQ(field(cqe, Responder::imm_inval_pkey), immediate);
    EXPECT_EQ(field(cqe, Responder::byte_cnt), 1234u);
    EXPECT_EQ(field(cqe, Responder::wqe_counter), 0x8001u);
    EXPECT_EQ(field(cqe, Responder::qpn), 0x123456u);
    EXPECT_EQ(field(cqe, Responder::srqn_user_index), 0xABCDEu);
    EXPECT_EQ(field(cqe, Responder::timestamp), kTime);
    EXPECT_EQ(field(cqe, Responder::grh), 0u) << "a connected QP";
    EXPECT_EQ(field(cqe, Responder::rqpn), 0u);
    EXPECT_EQ(field(cqe, Responder::l3_ok), 0u);
    EXPECT_EQ(field(cqe, Responder::l4_ok), 0u);
    EXPECT_EQ(field(cqe, Responder::cv), 0u);
    EXPECT_EQ(field(cqe, Responder::se), 0u);
  }
}

TEST(RdmaCqe, DatagramsGiveGrhSourceAndL3Type) {
  auto queue = kQueue;
  queue.is_datagram = true;
  auto completion = received(ReceiveOpcode::kSend);
  completion.solicited = true;
  using wire::NetworkHeader;
  for (const auto& [network, type] : {std::pair(NetworkHeader::kGrh, 0u),
                                      {NetworkHeader::kIpv6, 1u},
                                      {NetworkHeader::kIpv4, 2u}}) {
    completion.network = network;
    Cqe cqe;
    encode_responder_cqe(cqe, queue, completion, kTime);
    EXPECT_EQ(field(cqe, Responder::grh), 1u);
    EXPECT_EQ(field(cqe, Responder::rqpn), 0x777777u);
    EXPECT_EQ(field(cqe, Responder::sl_l3_type), type);
    EXPECT_EQ(field(cqe, Responder::se), 1u);
    EXPECT_EQ(field(cqe, Responder::imm_inval_pkey), 0u);
  }
}

TEST(RdmaCqe, Qp1GivesThePkey) {
  Cqe cqe;
  encode_responder_cqe(cqe, {.qpn = Qpn(0x40), .is_datagram = true, .is_gsi = true},
                       received(ReceiveOpcode::kSend), kTime);
  EXPECT_EQ(field(cqe, Responder::imm_inval_pkey), 0xFFFFu);
}

TEST(RdmaCqe, VlanTagIsGiven) {
  auto completion = received(ReceiveOpcode::kSend);
  completion.vlan_tci = 0xB123;  // priority 5, drop eligible, VLAN 0x123
  Cqe cqe;
  encode_responder_cqe(cqe, kQueue, completion, kTime);
  EXPECT_EQ(field(cqe, Responder::cv), 1u);
  EXPECT_EQ(field(cqe, Responder::up), 5u);
  EXPECT_EQ(field(cqe, Responder::cfi), 1u);
  EXPECT_EQ(field(cqe, Responder::vid), 0x123u);
}

TEST(RdmaCqe, ErrorsHaveTheirSyndromes) {
  for (const auto& [status, syndrome] :
       {std::pair{WorkStatus::kLocalLength, Syndrome::LOCAL_LENGTH_ERROR},
        {WorkStatus::kLocalQpOperation, Syndrome::LOCAL_QP_OPERATION_ERROR},
        {WorkStatus::kLocalProtection, Syndrome::LOCAL_PROTECTION_ERROR},
        {WorkStatus::kFlushed, Syndrome::WORK_REQUEST_FLUSHED_ERROR},
        {WorkStatus::kMemoryWindowBind, Syndrome::MEMORY_WINDOW_BIND_ERROR},
        {WorkStatus::kBadResponse, Syndrome::BAD_RESPONSE_ERROR},
        {WorkStatus::kLocalAccess, Syndrome::LOCAL_ACCESS_ERROR},
        {WorkStatus::kRemoteInvalidRequest, Syndrome::REMOTE_INVALID_REQUEST_ERROR},
        {WorkStatus::kRemoteAccess, Syndrome::REMOTE_ACCESS_ERROR},
        {WorkStatus::kRemoteOperation, Syndrome::REMOTE_OPERATION_ERROR},
        {WorkStatus::kTransportRetryExceeded, Syndrome::TRANSPORT_RETRY_COUNTER_EXCEEDED},
        {WorkStatus::kRnrRetryExceeded, Syndrome::RNR_RETRY_COUNTER_EXCEEDED}}) {
    auto send = sent(SendOpcode::kSend);
    send.status = status;
    Cqe cqe;
    encode_requester_cqe(cqe, kQueue, send, kTime);
    EXPECT_EQ(field(cqe, Error::opcode), code(CqeOpcode::REQUESTER_ERROR));
    EXPECT_EQ(field(cqe, Error::syndrome), static_cast<std::uint64_t>(syndrome));
    EXPECT_EQ(field(cqe, Error::qpn), 0x123456u);
    EXPECT_EQ(field(cqe, Error::user_index), 0xABCDEu);
    EXPECT_EQ(field(cqe, Error::wqe_counter), 0xFEDCu);
    EXPECT_EQ(field(cqe, Error::s_wqe_opcode), 0x10u);

    auto receive = received(ReceiveOpcode::kSend);
    receive.status = status;
    encode_responder_cqe(cqe, kQueue, receive, kTime);
    EXPECT_EQ(field(cqe, Error::opcode), code(CqeOpcode::RESPONDER_ERROR));
    EXPECT_EQ(field(cqe, Error::syndrome), static_cast<std::uint64_t>(syndrome));
    EXPECT_EQ(field(cqe, Error::wqe_counter), 0x8001u);
    EXPECT_EQ(field(cqe, Error::byte_cnt), 0u);
  }
}

TEST(RdmaCqe, VendorErrIsTheOneThatHardwareGives) {
  auto send = sent(SendOpcode::kSend);
  send.reason = rdma::Reason::kKeyOtherPd;
  Cqe cqe;
  for (const auto& [status, vendor_err] : {std::pair{WorkStatus::kTransportRetryExceeded, 0x81u},
                                           {WorkStatus::kRemoteAccess, 0x88u},
                                           {WorkStatus::kRemoteOperation, 0x89u},
                                           {WorkStatus::kRemoteInvalidRequest, 0x8Au},
                                           {WorkStatus::kLocalProtection, 0x51u},
                                           {WorkStatus::kFlushed, 0xF9u}}) {
    send.status = status;
    encode_requester_cqe(cqe, kQueue, send, kTime);
    EXPECT_EQ(field(cqe, Error::vendor_error_syndrome), vendor_err);
  }
  auto receive = received(ReceiveOpcode::kSend);
  for (const auto& [status, vendor_err] :
       {std::pair{WorkStatus::kLocalProtection, 0x32u}, {WorkStatus::kFlushed, 0xF9u}}) {
    receive.status = status;
    encode_responder_cqe(cqe, kQueue, receive, kTime);
    EXPECT_EQ(field(cqe, Error::vendor_error_syndrome), vendor_err);
  }
}

TEST(RdmaCqe, VendorErrIsOurReasonWhereThatOfHardwareIsUnknown) {
  auto send = sent(SendOpcode::kSend);
  send.reason = reason_of(WqeFault::kWrongQpn);
  Cqe cqe;
  for (const auto status : {WorkStatus::kLocalQpOperation, WorkStatus::kLocalLength,
                            WorkStatus::kMemoryWindowBind, WorkStatus::kRnrRetryExceeded}) {
    send.status = status;
    encode_requester_cqe(cqe, kQueue, send, kTime);
    EXPECT_EQ(field(cqe, Error::vendor_error_syndrome), 4u);
  }
  auto receive = received(ReceiveOpcode::kSend);
  receive.status = WorkStatus::kRemoteAccess;  // the sender's CQE has 0x88 for it
  receive.reason = rdma::Reason::kWriteForbidden;
  encode_responder_cqe(cqe, kQueue, receive, kTime);
  EXPECT_EQ(field(cqe, Error::vendor_error_syndrome), 186u);
}

TEST(RdmaCqe, TheReasonIsInTheHwErrorSyndrome) {
  auto send = sent(SendOpcode::kSend);
  send.status = WorkStatus::kLocalProtection;
  send.reason = rdma::Reason::kKeyOtherPd;
  Cqe cqe;
  encode_requester_cqe(cqe, kQueue, send, kTime);
  EXPECT_EQ(field(cqe, Error::hw_error_syndrome), 130u);
  EXPECT_EQ(field(cqe, Error::hw_syndrome_type), 0u);

  auto receive = received(ReceiveOpcode::kSend);
  receive.status = WorkStatus::kLocalLength;
  receive.reason = rdma::Reason::kReceiveTooShort;
  encode_responder_cqe(cqe, kQueue, receive, kTime);
  EXPECT_EQ(field(cqe, Error::hw_error_syndrome), 184u);
}

// libmlx5 dumps error CQEs. A log of ConnectX hardware has this dump of a READ
// (ofiwg/libfabric#4283):
//   00000000 00008813 10012abe 0dd0c1d3
// The CQE of softhca differs in three points: the first byte that differs is the reason number,
// there is no signature, and se and owner are 0.
TEST(RdmaCqe, AnErrorIsDumpedAsThatOfHardware) {
  auto read = sent(SendOpcode::kRdmaRead);
  read.cookie = SendCookie{.index = 0x0DD0, .opcode = 0x10, .completion = {}}.pack();
  read.status = WorkStatus::kRemoteAccess;
  read.reason = rdma::Reason::kNakRemoteAccess;
  Cqe cqe;
  encode_requester_cqe(cqe, {.qpn = Qpn(0x012ABE)}, read, kTime);
  std::string dump;
  for (std::size_t at = 48; at < cqe.size(); at += 4) {
    dump += fmt::format("{:08x} ", util::load_be32(&cqe[at]));
  }
  EXPECT_EQ(dump, "00000000 a1008813 10012abe 0dd000d0 ");
}

}  // namespace
}  // namespace softhca::connectx
