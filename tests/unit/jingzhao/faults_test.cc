// Faults that a user injects into a JingZhao, as its driver sees them.
#include "hca/faults.h"

#include <gmock/gmock.h>

#include <vector>

#include "driver/pci.h"
#include "jingzhao/errors.h"
#include "jingzhao/fault_names.h"
#include "jingzhao/raw_host.h"

namespace softhca::jingzhao::test {
namespace {

using spec::jingzhao::qp_state;
using ::testing::HasSubstr;

std::string error_of(std::string_view text) {
  const auto rule = hca::parse_fault(text, fault_dialect());
  return rule ? "accepted: " + to_text(*rule, fault_dialect().names) : rule.error().message;
}

// The document decides which rules there are ------------------------------------------------------

TEST(JingzhaoFaultRule, TheDocumentsNamesAreTaken) {
  for (const auto* text :
       {"opcode=RDMA_WRITE,do=stall-send", "opcode=ATOMIC_FA,do=fail-request,status=REM_ACCESS_ERR",
        "opcode=SW2HW_MPT,do=hang-command", "do=fail-command,status=BAD_NVMEM",
        "opcode=NOP,do=internal-error", "cq=0x3,do=stall-cq", "do=remove"}) {
    EXPECT_EQ(error_of(text), std::string("accepted: ") + text);
  }
}

TEST(JingzhaoFaultRule, WhatTheDocumentDoesNotHaveIsRefusedInWords) {
  EXPECT_EQ(error_of("do=internal-error,syndrome=1"),
            "syndrome=: not with do=internal-error on a JingZhao: LOCAL_CATAS_ERROR has no "
            "syndrome (JingZhao 3.2.4.1)");
  EXPECT_EQ(error_of("do=fail-command,status=BAD_PARAM,syndrome=1"),
            "syndrome=: not with do=fail-command on a JingZhao: the HCR reports a status alone "
            "(JingZhao table 3-1-4)");
  EXPECT_EQ(error_of("do=fail-request,status=LOC_EEC_OP_ERR"),
            "status=LOC_EEC_OP_ERR: not with do=fail-request on a JingZhao: a status of RD, which "
            "the device does not have");
  EXPECT_EQ(error_of("do=fail-request,status=REM_ABORT_ERR"),
            "status=REM_ABORT_ERR: not with do=fail-request on a JingZhao: nothing aborts a "
            "request");
  EXPECT_EQ(error_of("do=fail-command,status=0x77"), "status=0x77: a JingZhao has no such status");
  EXPECT_THAT(error_of("do=fail-command,status=BAD_RESOURCE"), HasSubstr("no such status"));
  EXPECT_THAT(error_of("opcode=LSO,do=stall-send"), HasSubstr("no such request"));
  EXPECT_THAT(error_of("opcode=INVALID,do=stall-send"), HasSubstr("no such request"));
  EXPECT_THAT(error_of("opcode=CREATE_QP,do=hang-command"), HasSubstr("no such command"));
}

// Queues ------------------------------------------------------------------------------------------

class JingzhaoFaults : public JingzhaoErrors {
 protected:
  JingzhaoFaults() { world.a().device->faults().set_rules(rules); }
  ~JingzhaoFaults() override {
    rules.clear();
    world.a().device->faults().follow_rules();
  }
  hca::FaultId add(std::string text) {
    const auto placed = text.find('@');  // the QPN
    if (placed != std::string::npos) text.replace(placed, 1, std::to_string(a->qp->qpn()));
    const auto id = rules.add(must(hca::parse_fault(text, fault_dialect())));
    world.a().device->faults().follow_rules();
    return id;
  }
  void remove(hca::FaultId id) {
    EXPECT_TRUE(rules.remove(id));
    world.a().device->faults().follow_rules();
  }
  std::uint64_t fired(hca::FaultId id) const { return rules.find(id)->fired; }
  void post(std::uint64_t id, std::size_t offset = 0) {
    const auto piece = a->piece(offset, 64);
    ASSERT_EQ(a->qp->post_send({.id = id,
                                .opcode = SendOpcode::kRdmaWrite,
                                .pieces = {&piece, 1},
                                .remote_address = b->address(offset),
                                .rkey = b->key->key()}),
              PostStatus::kOk);
  }
  void send(Side& from, std::uint64_t id) {
    const auto piece = from.piece(0, 64);
    ASSERT_EQ(from.qp->post_send({.id = id, .opcode = SendOpcode::kSend, .pieces = {&piece, 1}}),
              PostStatus::kOk);
  }
  /// Nothing completes, however long the program waits.
  void expect_silence(jz::CompletionQueue& cq) {
    world.advance(std::chrono::seconds(20));
    Completion none;
    EXPECT_EQ(cq.poll({&none, 1}), 0u);
  }
  bool arrived(std::size_t offset) { return same(a->bytes(offset, 64), b->bytes(offset, 64)); }
  void make_filled(const Side::Options& options = {}, jz::Connection connection = {}) {
    make(options, connection);
    fill(a->bytes(0, 4096), 1);
  }
  std::vector<std::uint64_t> ids(std::size_t count) {
    std::vector<std::uint64_t> all;
    for (const auto& done : wait(world, *a->send_cq, count)) {
      EXPECT_EQ(done.status, WorkStatus::kSuccess);
      all.push_back(done.id);
    }
    return all;
  }

  hca::Faults rules;
};

TEST_F(JingzhaoFaults, AStalledSendQueueGoesOnInOrderWhenTheRuleIsRemoved) {
  make_filled();
  const auto rule = add("qp=@,opcode=RDMA_WRITE,nth=2,do=stall-send");
  for (const unsigned i : {1u, 2u, 3u}) post(i, 64 * (i - 1));
  EXPECT_EQ(ids(1), std::vector<std::uint64_t>{1});
  expect_silence(*a->send_cq);
  EXPECT_FALSE(arrived(64));
  remove(rule);
  EXPECT_EQ(ids(2), (std::vector<std::uint64_t>{2, 3}));
  EXPECT_TRUE(arrived(64) && arrived(128));
  post(4);
  EXPECT_EQ(ids(1), std::vector<std::uint64_t>{4});
}

TEST_F(JingzhaoFaults, AStalledQueuePairThatGoesToErrorFlushesInOrder) {
  make_filled();
  add("do=stall-send");
  post(1);
  post(2);
  expect_silence(*a->send_cq);
  must(a->qp->to_error());
  const auto done = wait(world, *a->send_cq, 2);
  ASSERT_EQ(done.size(), 2u);
  for (std::size_t i = 0; i != 2; ++i) {
    EXPECT_EQ(done[i].id, i + 1);
    EXPECT_EQ(done[i].status, WorkStatus::kFlushed);
  }
}

TEST_F(JingzhaoFaults, APeerOfAStalledReceiveQueueRunsOutOfRetries) {
  make_filled({}, {.rnr_retry = 2});
  const auto rule = add("qp=@,do=stall-receive");
  a->receive(7, 0, 64);
  send(*b, 1);
  expect_error(wait(world, *b->send_cq), 1, WorkStatus::kRnrRetryExceeded);
  EXPECT_GE(fired(rule), 2u);
}

TEST_F(JingzhaoFaults, AStalledReceiveQueueGoesOnWhenTheRuleIsRemoved) {
  make_filled({}, {.rnr_retry = 7});
  const auto rule = add("do=stall-receive");
  a->receive(7, 0, 64);
  send(*b, 1);
  world.advance(std::chrono::milliseconds(100));
  Completion none;
  EXPECT_EQ(a->receive_cq->poll({&none, 1}), 0u);
  remove(rule);
  EXPECT_EQ(wait(world, *a->receive_cq).at(0).id, 7u);
}

TEST_F(JingzhaoFaults, ARequestEndsWithEachSyndromeThatTheDeviceHas) {
  const std::vector<std::pair<std::string, WorkStatus>> all{
      {"LOC_LEN_ERR", WorkStatus::kLocalLength},
      {"LOC_QP_OP_ERR", WorkStatus::kLocalQpOperation},
      {"LOC_PROT_ERR", WorkStatus::kLocalProtection},
      {"WR_FLUSH_ERR", WorkStatus::kFlushed},
      {"MW_BIND_ERR", WorkStatus::kMemoryWindowBind},
      {"BAD_RESP_ERR", WorkStatus::kBadResponse},
      {"LOC_ACCESS_ERR", WorkStatus::kLocalAccess},
      {"REM_INV_REQ_ERR", WorkStatus::kRemoteInvalidRequest},
      {"REM_ACCESS_ERR", WorkStatus::kRemoteAccess},
      {"REM_OP_ERR", WorkStatus::kRemoteOperation},
      {"RETRY_EXC_ERR", WorkStatus::kTransportRetryExceeded},
      {"RNR_RETRY_EXC_ERR", WorkStatus::kRnrRetryExceeded}};
  EXPECT_EQ(hca::work_status_names().size(), all.size());
  for (const auto& [name, status] : all) {
    make_filled();
    const auto rule = add("qp=@,nth=2,do=fail-request,status=" + name);
    for (const unsigned i : {1u, 2u, 3u}) post(i, 64 * (i - 1));
    const auto done = wait(world, *a->send_cq, 3);
    ASSERT_EQ(done.size(), 3u) << name;
    EXPECT_EQ(done[0].status, WorkStatus::kSuccess);
    EXPECT_EQ(done[1].id, 2u);
    EXPECT_EQ(done[1].status, status);
    EXPECT_EQ(done[1].vendor_syndrome, 156u) << name;
    EXPECT_TRUE(arrived(0));
    // A flushed request does not move the QP: usually it is in ERR before.
    if (status != WorkStatus::kFlushed) {
      EXPECT_EQ(done[2].status, WorkStatus::kFlushed);
      EXPECT_EQ(must(a->qp->query_state()), qp_state::ERR);
    }
    EXPECT_EQ(must(b->qp->query_state()), qp_state::RTS) << "the peer has noticed nothing";
    EXPECT_EQ(fired(rule), 1u);
    remove(rule);
  }
}

TEST_F(JingzhaoFaults, AQueuePairThatIsMadeLaterFollowsTheRules) {
  add("do=stall-send");
  make_filled();
  post(1);
  expect_silence(*a->send_cq);
}

TEST_F(JingzhaoFaults, AfterTheLastRuleIsRemovedQueuePairsWorkAsBefore) {
  make_filled();
  remove(add("every=2,do=stall-send"));
  for (std::uint64_t id = 1; id <= 8; ++id) post(id, 64 * id);
  EXPECT_EQ(ids(8).size(), 8u);
}

// CQs and interrupts ------------------------------------------------------------------------------

TEST_F(JingzhaoFaults, AStalledCqGoesOnInOrderWhenTheRuleIsRemoved) {
  make_filled();
  const auto rule = add("nth=2,do=stall-cq");
  a->send_cq->arm();
  for (const unsigned i : {1u, 2u, 3u}) post(i, 64 * (i - 1));
  EXPECT_EQ(ids(1), std::vector<std::uint64_t>{1});
  EXPECT_EQ(world.a().hca->poll_completion_event(), a->send_cq.get());
  a->send_cq->arm();
  expect_silence(*a->send_cq);
  EXPECT_TRUE(arrived(128)) << "only the CQE waits";
  EXPECT_EQ(world.a().hca->poll_completion_event(), nullptr);
  remove(rule);
  EXPECT_EQ(world.a().hca->poll_completion_event(), a->send_cq.get());
  EXPECT_EQ(ids(2), (std::vector<std::uint64_t>{2, 3}));
  post(4);
  EXPECT_EQ(ids(1), std::vector<std::uint64_t>{4});
}

TEST_F(JingzhaoFaults, AStalledCqOverrunsWhenMoreWaitsThanItHolds) {
  make_filled({.cq_entries = 4});
  add("do=stall-cq");
  for (std::uint64_t i = 0; i != 5; ++i) post(i);
  const auto overrun = event(world.a());
  ASSERT_TRUE(overrun);
  EXPECT_EQ(overrun->type, event_type::CQ_ERROR);
  EXPECT_EQ(overrun->syndrome, 1);
  EXPECT_EQ(event(world.a())->type, event_type::WQ_CATAS_ERROR);
}

// IBTA 11.2.8.3: the completions that wait are in the CQ.
TEST_F(JingzhaoFaults, AStalledCqIsNotMadeSmallerThanWhatWaits) {
  make_filled({.cq_entries = 8});
  post(1);
  world.advance(std::chrono::seconds(1));  // its CQE is in the ring, unread
  const auto rule = add("do=stall-cq");
  for (const std::uint64_t id : {2u, 3u, 4u}) post(id);
  world.advance(std::chrono::seconds(1));
  EXPECT_FALSE(a->send_cq->resize(2));
  must(a->send_cq->resize(4));
  remove(rule);
  EXPECT_EQ(ids(4), (std::vector<std::uint64_t>{1, 2, 3, 4}));
}

TEST_F(JingzhaoFaults, AStalledCqDropsTheCompletionsOfAQueuePairThatIsReset) {
  make_filled();
  const auto rule = add("do=stall-cq");
  post(1);
  expect_silence(*a->send_cq);
  must(a->qp->to_reset());
  remove(rule);
  expect_silence(*a->send_cq);
  EXPECT_EQ(a->send_cq->strays(), 0u);
}

TEST_F(JingzhaoFaults, AnInterruptIsLostAndTheEventIsThere) {
  make_filled();
  const auto& host = *world.a().host;
  const auto other = add("cq=" + std::to_string(a->receive_cq->cqn()) + ",do=lose-interrupt");
  const auto rule = add("cq=" + std::to_string(a->send_cq->cqn()) + ",nth=1,do=lose-interrupt");
  const auto before = host.interrupts(1);
  a->send_cq->arm();
  world.a().hca->completion_events().arm();
  post(1);
  EXPECT_EQ(ids(1).size(), 1u);
  EXPECT_EQ(host.interrupts(1), before);
  EXPECT_EQ(world.a().hca->poll_completion_event(), a->send_cq.get()) << "software that polls";
  EXPECT_EQ(fired(rule), 1u);
  EXPECT_EQ(fired(other), 0u);
  a->send_cq->arm();
  world.a().hca->completion_events().arm();
  post(2);
  EXPECT_EQ(ids(1).size(), 1u);
  EXPECT_EQ(host.interrupts(1), before + 1);
}

// Commands and the device as a whole --------------------------------------------------------------

TEST_F(JingzhaoFaults, ACommandEndsWithTheStatusOfTheRuleAndIsNotExecuted) {
  const auto rule = add("opcode=SW2HW_CQ,nth=2,do=fail-command,status=BAD_SYS_STATE");
  auto& hca = *world.a().hca;
  const auto first = must(jz::CompletionQueue::create(hca));
  const auto refused = jz::CompletionQueue::create(hca);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("SW2HW_CQ: status BAD_SYS_STATE (0x4)"));
  const auto second = must(jz::CompletionQueue::create(hca));
  EXPECT_EQ(fired(rule), 1u);
}

TEST_F(JingzhaoFaults, ACommandThatHangsEndsWithTheDriversPatience) {
  add("opcode=QUERY_ADAPTER,do=hang-command");
  const auto begin = world.now();
  util::Struct<spec::jingzhao::query_adapter_out> out;
  const auto done = world.a().hca->run({.op = command_opcode::QUERY_ADAPTER, .out = out.bytes()});
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("does not answer"));
  EXPECT_GE(world.now() - begin, std::chrono::seconds(10));
}

TEST_F(JingzhaoFaults, AnInternalErrorIsAnEventAndEndsWithAReset) {
  make_filled();
  EXPECT_EQ(fired(add("do=internal-error")), 1u);
  const auto failed = event(world.a());
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->type, event_type::LOCAL_CATAS_ERROR);
  post(1);
  expect_silence(*a->send_cq);
  EXPECT_FALSE(arrived(0));
  const auto port = world.a().hca->query_port();
  ASSERT_FALSE(port) << "no command ends";
  a.reset();
  b.reset();
  world.a().hca = nullptr;
  world.a().open();
  make_filled();
  post(1);
  EXPECT_EQ(ids(1), std::vector<std::uint64_t>{1});
}

TEST_F(JingzhaoFaults, AnInternalErrorCanWaitForACommand) {
  const auto rule = add("opcode=MAD_IFC,nth=2,do=internal-error");
  EXPECT_TRUE(world.a().hca->query_port());
  EXPECT_FALSE(world.a().hca->query_port());
  EXPECT_EQ(event(world.a())->type, event_type::LOCAL_CATAS_ERROR);
  EXPECT_EQ(fired(rule), 1u);
}

TEST_F(JingzhaoFaults, ARemovedFunctionReadsAsOnesAndComesBackReset) {
  EXPECT_EQ(driver::read_pci_id(*world.a().host).vendor, kVendorId);
  const auto rule = add("do=remove");
  EXPECT_EQ(driver::read_pci_id(*world.a().host).vendor, 0xFFFFu);
  EXPECT_FALSE(world.a().hca->query_port());
  EXPECT_FALSE(world.a().device->initialized());
  remove(rule);
  EXPECT_EQ(driver::read_pci_id(*world.a().host).vendor, kVendorId);
  world.a().hca = nullptr;
  world.a().open();
  EXPECT_TRUE(world.a().hca->query_port());
}

TEST_F(JingzhaoFaults, ARuleForAnotherFunctionHasNoEffect) {
  const auto rule = add("function=jingzhao1,do=fail-command,status=BAD_PARAM");
  EXPECT_TRUE(world.a().hca->query_port());
  EXPECT_EQ(rules.find(rule)->matched, 0u);
}

// Registers ---------------------------------------------------------------------------------------

class JingzhaoHcrFaults : public ::testing::Test {
 protected:
  JingzhaoHcrFaults() { raw.device.faults().set_rules(rules); }
  hca::FaultId add(std::string_view text) {
    const auto id = rules.add(must(hca::parse_fault(text, fault_dialect())));
    raw.device.faults().follow_rules();
    return id;
  }
  bool busy() { return (raw.read(raw.hcr_at + 0x18) >> 23 & 1) != 0; }

  hca::Faults rules;
  RawHost raw;
};

TEST_F(JingzhaoHcrFaults, GoStaysSetUntilTheRuleIsRemoved) {
  const auto rule = add("opcode=NOP,do=hang-command");
  raw.start(static_cast<std::uint32_t>(command_opcode::NOP), {});
  raw.run();
  EXPECT_TRUE(busy());
  add("do=stall-send");
  raw.run();
  EXPECT_TRUE(busy()) << "another rule does not let it go on";
  rules.remove(rule);
  raw.device.faults().follow_rules();
  EXPECT_EQ(raw.finish(), hcr_status::OK);
  EXPECT_EQ(raw.command(command_opcode::NOP, {}), hcr_status::OK);
}

TEST_F(JingzhaoHcrFaults, AResetEndsACommandThatHangs) {
  add("nth=1,do=hang-command");
  raw.start(static_cast<std::uint32_t>(command_opcode::NOP), {});
  raw.run();
  EXPECT_TRUE(busy());
  raw.write(RawHost::kReset, 1);
  EXPECT_EQ(raw.finish(), hcr_status::BAD_SYS_STATE);
  EXPECT_EQ(raw.command(command_opcode::NOP, {}), hcr_status::OK);
}

TEST_F(JingzhaoHcrFaults, EachStatusOfTheDocumentCanBeInjected) {
  for (const auto status : {hcr_status::BAD_OP, hcr_status::BAD_PARAM, hcr_status::BAD_SYS_STATE,
                            hcr_status::BAD_NVMEM}) {
    const auto rule = add("do=fail-command,status=" + std::string(to_string(status)));
    EXPECT_EQ(raw.command(command_opcode::NOP, {}), status);
    rules.remove(rule);
    raw.device.faults().follow_rules();
  }
  EXPECT_EQ(raw.command(command_opcode::NOP, {}), hcr_status::OK);
}

}  // namespace
}  // namespace softhca::jingzhao::test
