// User contexts (DevX, mlx5 driver interface 7.11): the commands that a process may send with its
// uid. They change, read and destroy only objects of its own context, and refer to no others.

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "connectx/base/resources.h"
#include "connectx/command/user_context_host.h"
#include "connectx/qp/rdma_test_host.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/srq.h"
#include "spec/connectx/vport.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Code = s::command_status;
using Opcode = s::command_opcode;
using test::RdmaTestHost;

class UserContext : public ::testing::Test {
 protected:
  UserContext() : user_(create_uctx(host_)), other_(create_uctx(host_)) {}

  Code dealloc_pd(std::uint16_t uid, std::uint32_t pd) {
    As as(host_, uid);
    return host_
        .call<s::dealloc_pd_out, s::dealloc_pd_in>(
            Opcode::DEALLOC_PD, [&](auto in) { in.set(s::dealloc_pd_in::pd, pd); })
        .status();
  }
  std::uint32_t allocate_pd(std::uint16_t uid) {
    As as(host_, uid);
    return host_.allocate_pd();
  }
  HostCq create_cq(std::uint16_t uid) {
    As as(host_, uid);
    return host_.create_cq(4);
  }
  template <class In, class Out>
  Code bare(Opcode opcode, std::uint16_t op_mod = 0) {
    return host_.call<Out, In>(opcode, [](auto) {}, {}, op_mod).status();
  }
  Code create_mkey(std::uint16_t uid, std::uint32_t pd, s::mkey_access_mode mode) {
    using In = s::create_mkey_in;
    As as(host_, uid);
    return host_
        .call<s::create_mkey_out, In>(Opcode::CREATE_MKEY,
                                      [&](auto in) {
                                        const auto context = in.sub(In::mkey_context);
                                        context.set(s::mkey_context::access_mode,
                                                    static_cast<std::uint32_t>(mode));
                                        context.set(s::mkey_context::pd, pd);
                                        context.set(s::mkey_context::log_page_size, 12);
                                      })
        .status();
  }
  using QpChange = std::function<void(util::MutableView<s::qpc>)>;
  Code create_qp(std::uint16_t uid, const QpChange& change) {
    As as(host_, uid);
    const auto qp = host_.allocate_qp({});
    return host_
        .call<s::create_qp_out, s::create_qp_in>(
            Opcode::CREATE_QP,
            [&](auto in) {
              host_.fill_create(in, qp);
              change(in.sub(s::create_qp_in::qpc));
            },
            FakeHost::page_list(qp.ring, 8 * 4096))
        .status();
  }
  /// The objects that a QP of `user_` refers to.
  struct QpParts {
    std::uint32_t pd;
    std::uint32_t send_cqn;
    std::uint32_t receive_cqn;
  };
  Code create_qp(const QpParts& parts, const QpChange& change = [](auto) {}) {
    return create_qp(user_, [&](auto context) {
      context.set(s::qpc::pd, parts.pd);
      context.set(s::qpc::cqn_snd, parts.send_cqn);
      context.set(s::qpc::cqn_rcv, parts.receive_cqn);
      change(context);
    });
  }

  RdmaTestHost host_;
  std::uint16_t user_;
  std::uint16_t other_;
};

TEST_F(UserContext, HasANumberOfItsOwnThatIsNotTheKernels) {
  EXPECT_NE(user_, 0);
  EXPECT_NE(user_, other_);
  EXPECT_EQ(destroy_uctx(host_, other_), Code::OK);
  EXPECT_EQ(destroy_uctx(host_, other_), Code::BAD_RESOURCE);
}

TEST_F(UserContext, CapabilitiesAreThoseOfUctxCap) {
  EXPECT_EQ(try_create_uctx(host_, 1).status(), Code::OK);
  EXPECT_EQ(try_create_uctx(host_, 2).status(), Code::BAD_PARAM);
}

// UCX queries it in every process, regardless of lag_master.
TEST_F(UserContext, ReadsThatThereIsNoLag) {
  As as(host_, user_);
  const auto reply = host_.call<s::query_lag_out, s::query_lag_in>(Opcode::QUERY_LAG, [](auto) {});
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply.as<s::query_lag_out>().get(s::query_lag_out::lag_state), 0u);
}

TEST_F(UserContext, ACommandOfAnUnknownUidIsRefused) {
  As as(host_, 77);
  EXPECT_EQ((bare<s::alloc_pd_in, s::alloc_pd_out>(Opcode::ALLOC_PD)), Code::BAD_PARAM);
}

TEST_F(UserContext, IsNotDestroyedWhileItHasObjects) {
  const auto cq = create_cq(user_);
  EXPECT_EQ(destroy_uctx(host_, user_), Code::BAD_RES_STATE);
  {
    As as(host_, user_);
    host_.call<s::destroy_cq_out, s::destroy_cq_in>(
        Opcode::DESTROY_CQ, [&](auto in) { in.set(s::destroy_cq_in::cqn, cq.cqn); });
  }
  EXPECT_EQ(destroy_uctx(host_, user_), Code::OK);
}

// Linux frees a doorbell page once, even if a CQ still uses it, and then destroys the context.
TEST_F(UserContext, NumbersThatNothingUsesGoWithIt) {
  const auto left = allocate_pd(user_);
  const auto others = allocate_pd(other_);
  EXPECT_EQ(destroy_uctx(host_, user_), Code::OK);
  EXPECT_EQ(dealloc_pd(0, left), Code::BAD_RESOURCE) << "it is gone";
  EXPECT_EQ(dealloc_pd(other_, others), Code::OK);
}

TEST_F(UserContext, ItsObjectsMayBeDestroyedByTheKernel) {
  const auto pd = allocate_pd(user_);
  EXPECT_EQ(dealloc_pd(0, pd), Code::OK);
  EXPECT_EQ(destroy_uctx(host_, user_), Code::OK) << "nothing is counted as its own any more";
}

TEST_F(UserContext, CommandsOfTheFunctionAreTheKernelsAlone) {
  As as(host_, user_);
  EXPECT_EQ((bare<s::create_eq_in, s::create_eq_out>(Opcode::CREATE_EQ)), Code::BAD_PARAM);
  EXPECT_EQ((bare<s::create_uctx_in, s::create_uctx_out>(Opcode::CREATE_UCTX)), Code::BAD_PARAM);
  EXPECT_EQ(
      (bare<s::set_flow_table_root_in, s::set_flow_table_root_out>(Opcode::SET_FLOW_TABLE_ROOT)),
      Code::BAD_PARAM);
  EXPECT_EQ((bare<s::teardown_hca_in, s::teardown_hca_out>(Opcode::TEARDOWN_HCA)), Code::BAD_PARAM);
  EXPECT_EQ((bare<s::query_hca_cap_in, s::query_hca_cap_out>(Opcode::QUERY_HCA_CAP)), Code::OK);
}

TEST_F(UserContext, ItsObjectIsReadChangedAndDestroyedByItselfAndTheKernelOnly) {
  const auto cq = create_cq(user_);
  const auto query = [&](std::uint16_t uid) {
    As as(host_, uid);
    return host_
        .call<s::query_cq_out, s::query_cq_in>(
            Opcode::QUERY_CQ, [&](auto in) { in.set(s::query_cq_in::cqn, cq.cqn); })
        .status();
  };
  const auto modify = [&](std::uint16_t uid) {
    As as(host_, uid);
    return host_
        .call<s::modify_cq_out, s::modify_cq_in>(
            Opcode::MODIFY_CQ, [&](auto in) { in.set(s::modify_cq_in::cqn, cq.cqn); })
        .status();
  };
  const auto destroy = [&](std::uint16_t uid) {
    As as(host_, uid);
    return host_
        .call<s::destroy_cq_out, s::destroy_cq_in>(
            Opcode::DESTROY_CQ, [&](auto in) { in.set(s::destroy_cq_in::cqn, cq.cqn); })
        .status();
  };
  EXPECT_EQ(query(other_), Code::BAD_RESOURCE);
  EXPECT_EQ(modify(other_), Code::BAD_RESOURCE);
  EXPECT_EQ(destroy(other_), Code::BAD_RESOURCE);
  EXPECT_EQ(query(user_), Code::OK);
  EXPECT_EQ(modify(user_), Code::OK);
  EXPECT_EQ(query(0), Code::OK);
  EXPECT_EQ(modify(0), Code::OK);
  EXPECT_EQ(destroy(user_), Code::OK);
}

TEST_F(UserContext, TheKernelsObjectsAreNotItsOwn) {
  EXPECT_EQ(dealloc_pd(user_, allocate_pd(0)), Code::BAD_RESOURCE);
}

TEST_F(UserContext, ItsKeysAreInItsProtectionDomains) {
  constexpr auto kMtt = s::mkey_access_mode::MTT;
  EXPECT_EQ(create_mkey(user_, allocate_pd(0), kMtt), Code::BAD_RESOURCE);
  EXPECT_EQ(create_mkey(user_, allocate_pd(other_), kMtt), Code::BAD_RESOURCE);
  EXPECT_EQ(create_mkey(user_, allocate_pd(user_), kMtt), Code::OK);
}

// These would reach all of the host's memory, or the kernel's special QPs.
TEST_F(UserContext, BusAddressesAndSpecialQpsAreTheKernels) {
  const auto pd = allocate_pd(user_);
  const auto cq = create_cq(user_);
  const QpParts own{pd, cq.cqn, cq.cqn};
  const auto with = [](auto member, std::uint32_t value) {
    return [=](auto context) { context.set(member, value); };
  };
  EXPECT_EQ(create_mkey(user_, pd, s::mkey_access_mode::PA), Code::BAD_PARAM);
  EXPECT_EQ(create_mkey(0, pd, s::mkey_access_mode::PA), Code::OK);
  EXPECT_EQ(create_qp(own), Code::OK);
  EXPECT_EQ(create_qp(own, with(s::qpc::rlky, 1)), Code::BAD_PARAM);
  const auto special = static_cast<std::uint32_t>(s::service_type::QP1);
  EXPECT_EQ(create_qp(own, with(s::qpc::st, special)), Code::BAD_PARAM);
  EXPECT_EQ(create_qp(own, with(s::qpc::deth_sqpn, 1)), Code::BAD_PARAM)
      << "its datagrams would be QP1's";
}

TEST_F(UserContext, ItsQpsReferToItsOwnObjectsOnly) {
  const auto pd = allocate_pd(user_);
  const auto cq = create_cq(user_);
  const auto foreign_cq = create_cq(other_);
  const auto rmp = host_.create_rmp(4);
  const auto from_srq = [&](auto context) {
    context.set(s::qpc::rq_type, static_cast<std::uint32_t>(s::qp_rq_type::SRQ));
    context.set(s::qpc::srqn_rmpn_xrqn, rmp.rmpn);
  };
  EXPECT_EQ(create_qp({pd, cq.cqn, cq.cqn}), Code::OK);
  EXPECT_EQ(create_qp({host_.pd, cq.cqn, cq.cqn}), Code::BAD_RESOURCE);
  EXPECT_EQ(create_qp({pd, foreign_cq.cqn, cq.cqn}), Code::BAD_RESOURCE);
  EXPECT_EQ(create_qp({pd, cq.cqn, host_.cq.cqn}), Code::BAD_RESOURCE);
  EXPECT_EQ(create_qp({pd, cq.cqn, cq.cqn}, from_srq), Code::BAD_RESOURCE);
}

// The queue would keep the page, so that its owner could not be destroyed.
TEST_F(UserContext, ItsDoorbellPageIsNotHeldByAnother) {
  const auto pd = allocate_pd(user_);
  const auto cq = create_cq(user_);
  const auto uar = [&](std::uint16_t uid) {
    As as(host_, uid);
    return host_.allocate_uar();
  };
  const auto cq_on = [&](std::uint32_t page) {
    As as(host_, user_);
    using In = s::create_cq_in;
    const auto fill = [&](auto in) {
      const auto context = in.sub(In::cq_context_entry);
      context.set(s::cq_context::uar_page, page);
      context.set(s::cq_context::c_eqn, host_.eqn);
    };
    const auto ring = FakeHost::page_list(host_.allocate(4096), 4096);
    return host_.call<s::create_cq_out, In>(Opcode::CREATE_CQ, fill, ring).status();
  };
  const auto qp_on = [&](std::uint32_t page, bool sends = true) {
    return create_qp({pd, cq.cqn, cq.cqn}, [&](auto context) {
      context.set(s::qpc::uar_page, page);
      context.set(s::qpc::no_sq, sends ? 0 : 1);
    });
  };
  const auto foreign = uar(other_);
  for (const auto page : {host_.uar, uar(user_)}) {
    EXPECT_EQ(cq_on(page), Code::OK);
    EXPECT_EQ(qp_on(page), Code::OK);
  }
  EXPECT_EQ(cq_on(foreign), Code::BAD_RESOURCE);
  EXPECT_EQ(qp_on(foreign), Code::BAD_RESOURCE);
  EXPECT_EQ(qp_on(foreign, false), Code::OK) << "without a send queue it has no doorbell";
  EXPECT_EQ(destroy_uctx(host_, other_), Code::OK);
}

// Linux names the CQ that the process gave, even if the QP has no receive queue.
TEST_F(UserContext, ItsQpWithoutReceivesNamesNoForeignCq) {
  const auto pd = allocate_pd(user_);
  const auto cq = create_cq(user_);
  const auto foreign_cq = create_cq(other_);
  const auto with = [&](std::uint32_t receive_cqn) {
    return create_qp({pd, cq.cqn, receive_cqn}, [&](auto context) {
      context.set(s::qpc::rq_type, static_cast<std::uint32_t>(s::qp_rq_type::ZERO_LENGTH_RQ));
    });
  };
  EXPECT_EQ(with(0), Code::OK);
  EXPECT_EQ(with(cq.cqn), Code::OK);
  EXPECT_EQ(with(foreign_cq.cqn), Code::BAD_RESOURCE);
  EXPECT_EQ(with(host_.cq.cqn), Code::BAD_RESOURCE);
}

// A request to a target may name any SRQ of its domain, and then reaches the SRQ's PD. Linux makes
// the targets of processes itself.
TEST_F(UserContext, ItsXrcTargetsAreInItsOwnDomains) {
  const auto pd = allocate_pd(user_);
  const auto xrcd = [&](std::uint16_t uid) {
    As as(host_, uid);
    return host_.allocate_xrcd();
  };
  const auto in_domain = [&](std::uint16_t uid, std::uint32_t domain) {
    return create_qp(uid, [&](auto context) {
      context.set(s::qpc::st, static_cast<std::uint32_t>(s::service_type::XRC));
      context.set(s::qpc::pd, pd);
      context.set(s::qpc::no_sq, 1);
      context.set(s::qpc::rq_type, static_cast<std::uint32_t>(s::qp_rq_type::SRQ));
      context.set(s::qpc::xrcd, domain);
    });
  };
  const auto kernels = xrcd(0);
  EXPECT_EQ(in_domain(user_, xrcd(user_)), Code::OK);
  EXPECT_EQ(in_domain(user_, kernels), Code::BAD_RESOURCE);
  EXPECT_EQ(in_domain(user_, xrcd(other_)), Code::BAD_RESOURCE);
  EXPECT_EQ(in_domain(0, kernels), Code::OK);
}

TEST_F(UserContext, ItsXrcSrqsAreInItsOwnDomains) {
  const auto pd = allocate_pd(user_);
  const auto cq = create_cq(user_);
  const auto xrcd = [&](std::uint16_t uid) {
    As as(host_, uid);
    return host_.allocate_xrcd();
  };
  const auto in_domain = [&](std::uint16_t uid, std::uint32_t domain) {
    using In = s::create_xrc_srq_in;
    using Context = s::xrc_srq_context;
    As as(host_, uid);
    const auto ring = host_.allocate(4096);
    return host_
        .call<s::create_xrc_srq_out, In>(
            Opcode::CREATE_XRC_SRQ,
            [&](auto in) {
              const auto context = in.sub(In::xrc_srq_context_entry);
              context.set(Context::log_rq_stride, 1);
              context.set(Context::log_xrc_srq_size, 3);
              context.set(Context::pd, pd);
              context.set(Context::cqn, cq.cqn);
              context.set(Context::xrcd, domain);
              context.set(Context::dbr_addr, host_.allocate(8, 64));
            },
            host_.page_list(ring, 4096))
        .status();
  };
  const auto kernels = xrcd(0), others = xrcd(other_);
  EXPECT_EQ(in_domain(user_, xrcd(user_)), Code::OK);
  EXPECT_EQ(in_domain(user_, kernels), Code::BAD_RESOURCE);
  EXPECT_EQ(in_domain(user_, others), Code::BAD_RESOURCE);
  EXPECT_EQ(in_domain(0, kernels), Code::OK);
}

// If a process gives no SRQ for a DCI, the driver puts in the number of its own dummy SRQ.
TEST_F(UserContext, ItsDcInitiatorsMayHaveTheKernelsSrqFromWhichTheyNeverTake) {
  const auto pd = allocate_pd(user_);
  const auto cq = create_cq(user_);
  const auto foreign_cq = create_cq(other_);
  const auto rmp = host_.create_rmp(4);
  const auto of_service = [&](s::service_type service, std::uint32_t receive_cqn) {
    return create_qp({pd, cq.cqn, receive_cqn}, [&](auto context) {
      context.set(s::qpc::st, static_cast<std::uint32_t>(service));
      context.set(s::qpc::rq_type, static_cast<std::uint32_t>(s::qp_rq_type::SRQ));
      context.set(s::qpc::srqn_rmpn_xrqn, rmp.rmpn);
    });
  };
  EXPECT_EQ(of_service(s::service_type::DCI, cq.cqn), Code::OK);
  EXPECT_EQ(of_service(s::service_type::DCI, foreign_cq.cqn), Code::BAD_RESOURCE);
  EXPECT_EQ(of_service(s::service_type::RC, cq.cqn), Code::BAD_RESOURCE);
  EXPECT_EQ(of_service(s::service_type::UD, cq.cqn), Code::BAD_RESOURCE);
}

TEST_F(UserContext, AChangeOfItsQpRefersToItsOwnObjectsOnly) {
  const auto pd = allocate_pd(user_);
  const auto kernels = host_.cq;
  host_.cq = create_cq(user_);
  As as(host_, user_);
  auto qp = host_.create_qp({.pd = pd});
  const auto to_init = [&](std::uint32_t domain, std::uint32_t cqn, bool reserved_key) {
    return host_
        .modify(qp, Opcode::RST2INIT_QP, 0,
                [&](auto context) {
                  context.set(s::qpc::pd, domain);
                  context.set(s::qpc::cqn_rcv, cqn);
                  context.set(s::qpc::rlky, reserved_key);
                })
        .status();
  };
  EXPECT_EQ(to_init(host_.pd, 0, false), Code::BAD_RESOURCE);
  EXPECT_EQ(to_init(pd, kernels.cqn, false), Code::BAD_RESOURCE);
  EXPECT_EQ(to_init(pd, 0, true), Code::BAD_PARAM);
  const auto as_qp1 = [](auto context) { context.set(s::qpc::deth_sqpn, 1); };
  for (const auto opcode : {Opcode::RST2INIT_QP, Opcode::INIT2INIT_QP}) {
    EXPECT_EQ(host_.modify(qp, opcode, 0, as_qp1).status(), Code::BAD_PARAM);
  }
  EXPECT_EQ(to_init(0, 0, false), Code::OK) << "what is not given stays as it was made";
  EXPECT_EQ(host_.to_rtr(qp, qp.qpn).status(), Code::OK);
}

// The owner of a set would read the errors of others as its own. Linux allocates the sets in which
// the queues of all processes count for all contexts; softhca run and early Linux as the kernel.
TEST_F(UserContext, ItsQueuePairsCountInNoSetOfAnother) {
  const auto foreign = allocate_q_counter(host_, other_);
  const std::uint32_t usable[] = {0, allocate_q_counter(host_, user_), allocate_q_counter(host_, 0),
                                  allocate_q_counter(host_, UserContexts::kShared.value())};
  const auto pd = allocate_pd(user_);
  host_.cq = create_cq(user_);
  const auto counting = [](std::uint32_t set) {
    return [set](auto context) { context.set(s::qpc::counter_set_id, set); };
  };
  EXPECT_EQ(create_qp({pd, host_.cq.cqn, host_.cq.cqn}, counting(foreign)), Code::BAD_RESOURCE);
  constexpr auto kSet = 1u << static_cast<unsigned>(s::qp_opt_param_bit::COUNTER_SET_ID);
  for (const auto set : usable) {
    EXPECT_EQ(create_qp({pd, host_.cq.cqn, host_.cq.cqn}, counting(set)), Code::OK);
    const As as(host_, user_);
    auto qp = host_.create_qp({.pd = pd});
    for (const auto of : {foreign, set}) {
      EXPECT_EQ(host_.modify(qp, Opcode::RST2INIT_QP, 0, counting(of)).status(),
                of == foreign ? Code::BAD_RESOURCE : Code::OK);
    }
    EXPECT_TRUE(host_.to_rtr(qp, qp.qpn));
    EXPECT_TRUE(host_.to_rts(qp));
    for (const auto of : {foreign, set}) {
      EXPECT_EQ(host_.modify(qp, Opcode::RTS2RTS_QP, kSet, counting(of)).status(),
                of == foreign ? Code::BAD_RESOURCE : Code::OK);
    }
  }
}

// A process could name any address, and the device would read the record from there.
TEST_F(UserContext, ItDoesNotMoveTheDoorbellRecordOfItsQp) {
  const auto pd = allocate_pd(user_);
  host_.cq = create_cq(user_);
  As as(host_, user_);
  auto qp = host_.create_qp({.pd = pd});
  const auto elsewhere = host_.allocate(8, 64);
  const auto reply = host_.modify(qp, Opcode::RST2INIT_QP, 0,
                                  [&](auto context) { context.set(s::qpc::dbr_addr, elsewhere); });
  EXPECT_EQ(reply.status(), Code::OK);
  const auto queried = host_.call<s::query_qp_out, s::query_qp_in>(
      Opcode::QUERY_QP, [&](auto in) { in.set(s::query_qp_in::qpn, qp.qpn); });
  EXPECT_EQ(queried.as<s::query_qp_out>().get(s::query_qp_out::qpc).get(s::qpc::dbr_addr),
            qp.record);
}

TEST_F(UserContext, SharedObjectsAreReadByAllAndDestroyedByTheKernel) {
  std::uint32_t set = 0;
  {
    As as(host_, UserContexts::kShared.value());
    const auto made = host_.call<s::alloc_q_counter_out, s::alloc_q_counter_in>(
        Opcode::ALLOC_Q_COUNTER, [](auto) {});
    ASSERT_TRUE(made) << made.reason();
    set = made.as<s::alloc_q_counter_out>().get(s::alloc_q_counter_out::counter_set_id);
  }
  const auto query = [&](std::uint16_t uid, bool clear = false) {
    As as(host_, uid);
    using In = s::query_q_counter_in;
    return host_
        .call<s::query_q_counter_out, In>(Opcode::QUERY_Q_COUNTER,
                                          [&](auto in) {
                                            in.set(In::counter_set_id, set);
                                            in.set(In::clear, clear);
                                          })
        .status();
  };
  const auto dealloc = [&](std::uint16_t uid) {
    As as(host_, uid);
    using In = s::dealloc_q_counter_in;
    return host_
        .call<s::dealloc_q_counter_out, In>(Opcode::DEALLOC_Q_COUNTER,
                                            [&](auto in) { in.set(In::counter_set_id, set); })
        .status();
  };
  EXPECT_EQ(query(user_), Code::OK);
  EXPECT_EQ(query(other_), Code::OK);
  EXPECT_EQ(query(user_, true), Code::BAD_RESOURCE) << "others count with it";
  EXPECT_EQ(query(0, true), Code::OK);
  EXPECT_EQ(dealloc(user_), Code::BAD_RESOURCE);
  EXPECT_EQ(dealloc(0), Code::OK);
}

// Every program may read the port's counters.
TEST_F(UserContext, CountersOfThePortAreReadAndNotCleared) {
  using In = s::query_vport_counter_in;
  const auto query = [&](std::uint16_t uid, bool clear) {
    As as(host_, uid);
    return host_
        .call<s::query_vport_counter_out, In>(Opcode::QUERY_VPORT_COUNTER,
                                              [&](auto in) { in.set(In::clear, clear); })
        .status();
  };
  EXPECT_EQ(query(user_, false), Code::OK);
  EXPECT_EQ(query(user_, true), Code::BAD_PARAM);
  EXPECT_EQ(query(0, true), Code::OK);
}

TEST_F(UserContext, ItsCqsReportEqsThatAreSharedOnly) {
  const auto buffer = host_.allocate(4096);
  const auto kernels = host_.call<s::create_eq_out, s::create_eq_in>(
      Opcode::CREATE_EQ,
      [&](auto in) {
        in.sub(s::create_eq_in::eq_context_entry).set(s::eq_context::uar_page, host_.uar);
      },
      FakeHost::page_list(buffer, 4096));
  ASSERT_TRUE(kernels) << kernels.reason();
  const auto ring = host_.allocate(4096);
  const auto create = [&](std::uint32_t eqn) {
    As as(host_, user_);
    return host_
        .call<s::create_cq_out, s::create_cq_in>(
            Opcode::CREATE_CQ,
            [&](auto in) {
              const auto context = in.sub(s::create_cq_in::cq_context_entry);
              context.set(s::cq_context::uar_page, host_.uar);
              context.set(s::cq_context::c_eqn, eqn);
            },
            FakeHost::page_list(ring, 4096))
        .status();
  };
  EXPECT_EQ(create(kernels.as<s::create_eq_out>().get(s::create_eq_out::eq_number)),
            Code::BAD_RESOURCE);
  EXPECT_EQ(create(host_.eqn), Code::OK);
}

TEST_F(UserContext, GoesWithTheDriver) {
  allocate_pd(user_);
  EXPECT_EQ((bare<s::teardown_hca_in, s::teardown_hca_out>(Opcode::TEARDOWN_HCA)), Code::OK);
  EXPECT_EQ(host_.device.driver().resources().user_contexts().count(), 0u);
}

}  // namespace
}  // namespace softhca::connectx
