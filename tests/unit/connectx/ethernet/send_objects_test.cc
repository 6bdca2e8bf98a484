// SQ and TIS: accepted and refused commands (PRM 12.8 to 12.12).
#include <gtest/gtest.h>

#include <algorithm>

#include "connectx/ethernet/objects_host.h"
#include "connectx/function/capabilities.h"
#include "spec/connectx/caps.h"
#include "spec/connectx/vport.h"
#include "util/endian.h"

namespace softhca::connectx::test {
namespace {

using namespace spec::connectx;

// SQ ---------------------------------------------------------------------------------------------

class EthernetSqCommands : public EthernetObjects {
 protected:
  using In = create_sq_in;
  using Context = util::MutableView<sq_context>;

  /// CREATE_SQ with a valid context that `spoil` changes.
  template <class Spoil>
  Status create(Spoil spoil, std::size_t pages = 1) {
    const auto tisn = host.create_tis();
    Bytes pas(8 * pages);
    for (std::size_t i = 0; i < pages; ++i) {
      util::store_be64(pas.data() + 8 * i, host.allocate(4096));
    }
    return status<create_sq_out, In>(
        Opcode::CREATE_SQ,
        [&](auto in) {
          const auto context = in.sub(In::sq_context);
          context.set(sq_context::cqn, cqn);
          context.set(sq_context::tis_lst_sz, 1);
          context.set(sq_context::tis_num, tisn);
          const auto queue = context.sub(sq_context::wq);
          queue.set(wq::wq_type, 1);
          queue.set(wq::pd, host.pd);
          queue.set(wq::uar_page, host.uar);
          queue.set(wq::dbr_addr, EthernetHost::kMemoryAt);
          queue.set(wq::log_wq_stride, 6);
          queue.set(wq::log_wq_sz, 6);
          spoil(context);
        },
        pas);
  }
};

TEST_F(EthernetSqCommands, CreateChecksItsContext) {
  EXPECT_EQ(create([](Context) {}), Status::OK);
  EXPECT_EQ(create([](Context c) { c.set(sq_context::state, 1); }), Status::BAD_PARAM);
  EXPECT_EQ(create([](Context c) { c.set(sq_context::cqn, 999); }), Status::BAD_RESOURCE);
  EXPECT_EQ(create([](Context c) { c.set(sq_context::tis_num, 999); }), Status::BAD_RESOURCE);
  EXPECT_EQ(create([](Context c) { c.set(sq_context::hairpin, 1); }), Status::BAD_PARAM);
  EXPECT_EQ(create([](Context c) { c.set(sq_context::packet_pacing_rate_limit_index, 1); }),
            Status::BAD_PARAM);
}

TEST_F(EthernetSqCommands, CreateChecksItsWorkQueue) {
  const auto spoiled = [&](auto spoil) {
    return create([&](Context c) { spoil(c.sub(sq_context::wq)); });
  };
  EXPECT_EQ(spoiled([](auto w) { w.set(wq::wq_type, 0); }), Status::BAD_PARAM);
  EXPECT_EQ(spoiled([](auto w) { w.set(wq::wq_signature, 1); }), Status::OK);
  EXPECT_EQ(spoiled([](auto w) { w.set(wq::pd, 999); }), Status::BAD_RESOURCE);
  EXPECT_EQ(spoiled([](auto w) { w.set(wq::uar_page, 999); }), Status::BAD_RESOURCE);
  EXPECT_EQ(spoiled([](auto w) { w.set(wq::dbr_addr, 0x1002); }), Status::BAD_PARAM);
  EXPECT_EQ(spoiled([](auto w) { w.set(wq::log_wq_stride, 7); }), Status::EXCEED_LIM);
  EXPECT_EQ(spoiled([](auto w) { w.set(wq::log_wq_sz, 16); }), Status::EXCEED_LIM);
  EXPECT_EQ(spoiled([](auto w) { w.set(wq::log_wq_sz, 7); }), Status::BAD_INPUT_LEN) << "one page";
  EXPECT_EQ(spoiled([](auto w) { w.set(wq::page_offset, 1); }), Status::BAD_INPUT_LEN)
      << "one page";
  EXPECT_EQ(spoiled([](auto w) { w.set(wq::log_wq_pg_sz, 31); }), Status::OK) << "one giant page";
  EXPECT_EQ(spoiled([](auto w) { w.set(wq::wq_umem_valid, 1); }), Status::BAD_RESOURCE)
      << "no such UMEM";
  EXPECT_EQ(spoiled([](auto w) { w.set(wq::dbr_umem_valid, 1); }), Status::BAD_RESOURCE);
}

TEST_F(EthernetSqCommands, LimitsAreThoseOfTheCapabilities) {
  const auto cap = host.device.driver().capabilities().general();
  const auto with_size = [&](std::uint32_t log_size) {
    return create([&](Context c) {
      c.sub(sq_context::wq).set(wq::log_wq_sz, log_size);
      c.sub(sq_context::wq).set(wq::log_wq_pg_sz, 9);  // page size: 2 MiB
    });
  };
  EXPECT_EQ(with_size(cap.get(hca_cap::log_max_wq_sz)), Status::OK);
  EXPECT_EQ(with_size(cap.get(hca_cap::log_max_wq_sz) + 1), Status::EXCEED_LIM);
  const auto with_tises = [&](std::uint32_t count) {
    return create([&](Context c) { c.set(sq_context::tis_lst_sz, count); });
  };
  EXPECT_EQ(with_tises(1u << cap.get(hca_cap::log_max_tis_per_sq)), Status::OK);
  EXPECT_EQ(with_tises((1u << cap.get(hca_cap::log_max_tis_per_sq)) + 1), Status::EXCEED_LIM);
  const auto with_stride = [&](std::uint32_t log_stride) {
    return create([&](Context c) { c.sub(sq_context::wq).set(wq::log_wq_stride, log_stride); });
  };
  EXPECT_EQ(with_stride(cap.get(hca_cap::log_max_stride_sz_sq)), Status::OK);
  EXPECT_EQ(with_stride(cap.get(hca_cap::log_max_stride_sz_sq) + 1), Status::EXCEED_LIM);
  EXPECT_EQ(with_stride(cap.get(hca_cap::log_min_stride_sz_sq) - 1), Status::EXCEED_LIM);
}

TEST_F(EthernetSqCommands, InlineModeIsNotBelowTheVports) {
  const auto create_with = [&](min_wqe_inline_mode mode) {
    return create([&](Context c) {
      c.set(sq_context::min_wqe_inline_mode, static_cast<std::uint32_t>(mode));
    });
  };
  EXPECT_EQ(create_with(min_wqe_inline_mode::NONE), Status::OK);
  using Modify = modify_nic_vport_context_in;
  const auto set_vport_mode = [&](min_wqe_inline_mode mode) {
    return status<modify_nic_vport_context_out, Modify>(
        Opcode::MODIFY_NIC_VPORT_CONTEXT, [&](auto in) {
          in.sub(Modify::field_select).set(modify_nic_vport_field_select::min_inline, 1);
          in.sub(Modify::nic_vport_context)
              .set(nic_vport_context::min_wqe_inline_mode, static_cast<std::uint32_t>(mode));
        });
  };
  EXPECT_EQ(set_vport_mode(min_wqe_inline_mode::IP), Status::OK);
  EXPECT_EQ(create_with(min_wqe_inline_mode::NONE), Status::BAD_PARAM);
  EXPECT_EQ(create_with(min_wqe_inline_mode::L2), Status::BAD_PARAM);
  EXPECT_EQ(create_with(min_wqe_inline_mode::IP), Status::OK);
  EXPECT_EQ(create_with(min_wqe_inline_mode::TCP_UDP), Status::OK);
  EXPECT_EQ(create_with(min_wqe_inline_mode(4)), Status::BAD_PARAM) << "reserved (PRM 7.9.3.1)";
  EXPECT_EQ(set_vport_mode(min_wqe_inline_mode(4)), Status::BAD_PARAM);
}

TEST_F(EthernetSqCommands, ModifyFailsIfTheStateIsNotAsNamed) {
  using State = spec::connectx::sq_state;
  const auto sqn = host.create_sq(cqn, 4, false);
  EXPECT_EQ(host.modify_sq(sqn, State::RDY, State::RST).status(), Status::BAD_RESOURCE_STATE);
  EXPECT_EQ(host.sq_state(sqn), State::RST);
  EXPECT_EQ(host.modify_sq(sqn, State::RST, State::RDY).status(), Status::OK);
  EXPECT_EQ(host.sq_state(sqn), State::RDY);
  EXPECT_EQ(host.modify_sq(sqn, State::RDY, State::RDY).status(), Status::OK);
  EXPECT_EQ(host.modify_sq(sqn, State::RDY, State::ERR).status(), Status::OK);
  EXPECT_EQ(host.modify_sq(sqn, State::ERR, State::RDY).status(), Status::BAD_RESOURCE_STATE);
  EXPECT_EQ(host.modify_sq(sqn, State::ERR, spec::connectx::sq_state(2)).status(),
            Status::BAD_RESOURCE_STATE);
  EXPECT_EQ(host.modify_sq(sqn, State::ERR, State::RST).status(), Status::OK);
  EXPECT_EQ(host.modify_sq(sqn + 1, State::RST, State::RDY).status(), Status::BAD_RESOURCE);
}

TEST_F(EthernetSqCommands, ModifyRefusesUnknownBits) {
  const auto sqn = host.create_sq(cqn);
  EXPECT_EQ((status<modify_sq_out, modify_sq_in>(
                Opcode::MODIFY_SQ,
                [&](auto in) {
                  in.set(modify_sq_in::sqn, sqn);
                  in.set(modify_sq_in::sq_state, 1);
                  in.set(modify_sq_in::modify_bitmask, 1ull << 40);
                  in.sub(modify_sq_in::sq_context).set(sq_context::state, 1);
                })),
            Status::BAD_PARAM);
}

TEST_F(EthernetSqCommands, CountersAreFilledInQueriesOnly) {
  const auto sqn = host.create_sq(cqn);
  host.post_send(sqn, Wqe(wqe_opcode::NOP, sqn, 0).finish());
  host.write_wqe(sqn, Wqe(wqe_opcode::NOP, sqn, 1).finish());
  const auto answer = host.call<query_sq_out, query_sq_in>(
      Opcode::QUERY_SQ, [&](auto in) { in.set(query_sq_in::sqn, sqn); });
  const auto queue = answer.as<query_sq_out>().get(query_sq_out::sq_context).get(sq_context::wq);
  EXPECT_EQ(queue.get(wq::hw_counter), 1u);
  EXPECT_EQ(queue.get(wq::sw_counter), 2u);
  EXPECT_EQ(queue.get(wq::log_wq_sz), 4u);
}

TEST_F(EthernetSqCommands, DestroyAndQueryNeedAnSq) {
  const auto rqn = host.create_rq(cqn);
  for (const auto sqn : {0u, rqn, 0xFFFFFFu}) {
    EXPECT_EQ((status<destroy_sq_out, destroy_sq_in>(
                  Opcode::DESTROY_SQ, [&](auto in) { in.set(destroy_sq_in::sqn, sqn); })),
              Status::BAD_RESOURCE);
    EXPECT_EQ((status<query_sq_out, query_sq_in>(Opcode::QUERY_SQ,
                                                 [&](auto in) { in.set(query_sq_in::sqn, sqn); })),
              Status::BAD_RESOURCE);
  }
}

// TIS --------------------------------------------------------------------------------------------

TEST_F(EthernetObjects, TisChecksItsTransportDomain) {
  EXPECT_EQ((status<create_tis_out, create_tis_in>(
                Opcode::CREATE_TIS,
                [](auto in) {
                  in.sub(create_tis_in::tis_context).set(tis_context::transport_domain, 77);
                })),
            Status::BAD_RESOURCE);
}

TEST_F(EthernetObjects, TisWithAnSqIsNeitherDestroyedNorModifiedWhileItIsReady) {
  using State = spec::connectx::sq_state;
  const auto sqn = host.create_sq(cqn);
  const auto answer = host.call<query_sq_out, query_sq_in>(
      Opcode::QUERY_SQ, [&](auto in) { in.set(query_sq_in::sqn, sqn); });
  const auto tisn =
      answer.as<query_sq_out>().get(query_sq_out::sq_context).get(sq_context::tis_num);
  const auto destroy = [&] {
    return status<destroy_tis_out, destroy_tis_in>(
        Opcode::DESTROY_TIS, [&](auto in) { in.set(destroy_tis_in::tisn, tisn); });
  };
  const auto modify = [&] {
    return status<modify_tis_out, modify_tis_in>(Opcode::MODIFY_TIS, [&](auto in) {
      in.set(modify_tis_in::tisn, tisn);
      in.sub(modify_tis_in::modify_bitmask).set(modify_tis_bitmask::prio, 1);
      in.sub(modify_tis_in::tis_context).set(tis_context::prio, 3);
    });
  };
  EXPECT_EQ(destroy(), Status::BAD_RES_STATE);
  const auto cost = [&] {
    const auto before = host.device.work_done();
    EXPECT_EQ(modify(), Status::BAD_RES_STATE);
    return host.device.work_done() - before;
  };
  const auto of_one = cost();
  for (int i = 0; i < 100; ++i) (void)host.create_sq(cqn);
  EXPECT_GT(cost(), of_one + 500) << "all SQs are looked at";
  EXPECT_TRUE(host.modify_sq(sqn, State::RDY, State::RST).ok());
  EXPECT_EQ(modify(), Status::OK);
  const auto tis = host.call<query_tis_out, query_tis_in>(
      Opcode::QUERY_TIS, [&](auto in) { in.set(query_tis_in::tisn, tisn); });
  EXPECT_EQ(tis.as<query_tis_out>().get(query_tis_out::tis_context).get(tis_context::prio), 3u);
  EXPECT_EQ((status<destroy_sq_out, destroy_sq_in>(
                Opcode::DESTROY_SQ, [&](auto in) { in.set(destroy_sq_in::sqn, sqn); })),
            Status::OK);
  EXPECT_EQ(destroy(), Status::OK);
  EXPECT_EQ(destroy(), Status::BAD_RESOURCE);
}

// RQs take numbers between those of two SQs.
TEST_F(EthernetObjects, ModifyTisPaysForThePlacesItLooksAt) {
  const auto sqn = host.create_sq(cqn);
  const auto answer = host.call<query_sq_out, query_sq_in>(
      Opcode::QUERY_SQ, [&](auto in) { in.set(query_sq_in::sqn, sqn); });
  const auto tisn =
      answer.as<query_sq_out>().get(query_sq_out::sq_context).get(sq_context::tis_num);
  const auto cost = [&] {
    const auto before = host.device.work_done();
    EXPECT_EQ((status<modify_tis_out, modify_tis_in>(
                  Opcode::MODIFY_TIS, [&](auto in) { in.set(modify_tis_in::tisn, tisn); })),
              Status::BAD_RES_STATE);
    return host.device.work_done() - before;
  };
  const auto close = cost();
  for (int i = 0; i < 400; ++i) (void)host.create_rq(cqn);
  (void)host.create_sq(cqn);
  EXPECT_GE(cost(), close + 800);
}

// A guest may have 2^16 SQs.
TEST_F(EthernetObjects, ModifyTisLooksAtVeryManyQueuesOverTurns) {
  constexpr std::int64_t kTurn = 500, kQueues = 600, kQueueWork = 10;
  const auto sqn = host.create_sq(cqn);
  const auto answer = host.call<query_sq_out, query_sq_in>(
      Opcode::QUERY_SQ, [&](auto in) { in.set(query_sq_in::sqn, sqn); });
  const auto tisn =
      answer.as<query_sq_out>().get(query_sq_out::sq_context).get(sq_context::tis_num);
  const auto usual = host.turn;
  const auto longest_turn = [&] {
    std::int64_t longest = 0;
    host.turn = [&](pcie::Function& function, util::Time at) {
      const auto before = function.work_done();
      const auto next = function.run(at, kTurn);
      longest = std::max(longest, function.work_done() - before);
      return next;
    };
    for (int i = 0; i != 2; ++i) {
      EXPECT_EQ((status<modify_tis_out, modify_tis_in>(
                    Opcode::MODIFY_TIS, [&](auto in) { in.set(modify_tis_in::tisn, tisn); })),
                Status::BAD_RES_STATE);
    }
    host.turn = usual;
    return longest;
  };
  const auto of_one = longest_turn();
  for (int i = 0; i != kQueues; ++i) (void)host.create_sq(cqn);
  static_assert(kQueues * kQueueWork > 2 * kTurn);
  EXPECT_LE(longest_turn(), of_one + kTurn + kQueueWork);
}

}  // namespace
}  // namespace softhca::connectx::test
