// SQ, RQ, TIS, TIR and RQT: accepted and refused commands (PRM 12.8 to 12.12).
#include <gtest/gtest.h>

#include <algorithm>

#include "connectx/ethernet/transport_interface.h"
#include "connectx/ethernet_host.h"
#include "connectx/function/capabilities.h"
#include "spec/connectx/caps.h"
#include "spec/connectx/vport.h"
#include "util/endian.h"

namespace softhca::connectx::test {
namespace {

using namespace spec::connectx;

class EthernetObjects : public ::testing::Test {
 protected:
  EthernetObjects() : cqn(host.create_cq()) {}

  template <class Out, class In, class FillIn>
  Status status(Opcode opcode, FillIn fill, std::span<const std::byte> tail = {}) {
    return host.call<Out, In>(opcode, [&](util::MutableView<In> in) { fill(in); }, tail).status();
  }

  EthernetHost host;
  std::uint32_t cqn;
};

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
  const auto cap = host.device.capabilities().general();
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

TEST_F(EthernetSqCommands, ModifyFailsIfTheStateIsNotAsTold) {
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

// RQ ---------------------------------------------------------------------------------------------

class EthernetRqCommands : public EthernetObjects {
 protected:
  using In = create_rq_in;
  using Context = util::MutableView<rq_context>;

  template <class Spoil>
  Status create(Spoil spoil) {
    Bytes pas(8);
    util::store_be64(pas.data(), host.allocate(4096));
    return status<create_rq_out, In>(
        Opcode::CREATE_RQ,
        [&](auto in) {
          const auto context = in.sub(In::rq_context);
          context.set(rq_context::cqn, cqn);
          const auto queue = context.sub(rq_context::wq);
          queue.set(wq::wq_type, 1);
          queue.set(wq::pd, host.pd);
          queue.set(wq::dbr_addr, EthernetHost::kMemoryAt);
          queue.set(wq::log_wq_stride, 4);
          queue.set(wq::log_wq_sz, 3);
          spoil(context);
        },
        pas);
  }
};

TEST_F(EthernetRqCommands, CreateChecksItsContext) {
  EXPECT_EQ(create([](Context) {}), Status::OK);
  EXPECT_EQ(create([](Context c) { c.set(rq_context::state, 3); }), Status::BAD_PARAM);
  EXPECT_EQ(create([](Context c) { c.set(rq_context::cqn, 999); }), Status::BAD_RESOURCE);
  EXPECT_EQ(create([](Context c) { c.set(rq_context::mem_rq_type, 1); }), Status::BAD_PARAM);
  EXPECT_EQ(create([](Context c) { c.set(rq_context::scatter_fcs, 1); }), Status::BAD_PARAM);
  EXPECT_EQ(create([](Context c) { c.sub(rq_context::wq).set(wq::log_wq_stride, 3); }),
            Status::EXCEED_LIM);
  EXPECT_EQ(create([](Context c) { c.sub(rq_context::wq).set(wq::log_wq_stride, 10); }),
            Status::EXCEED_LIM);
  EXPECT_EQ(create([](Context c) { c.sub(rq_context::wq).set(wq::wq_type, 0); }),
            Status::BAD_PARAM);
  EXPECT_EQ(create([](Context c) { c.sub(rq_context::wq).set(wq::wq_signature, 1); }), Status::OK);
  EXPECT_EQ(create([](Context c) { c.sub(rq_context::wq).set(wq::wq_type, 3); }),
            Status::BAD_PARAM);
  EXPECT_EQ(create([](Context c) { c.sub(rq_context::wq).set(wq::end_padding_mode, 1); }),
            Status::OK);
  EXPECT_EQ(create([](Context c) { c.sub(rq_context::wq).set(wq::end_padding_mode, 2); }),
            Status::BAD_PARAM);
}

TEST_F(EthernetRqCommands, LimitsAreThoseOfTheCapabilities) {
  const auto cap = host.device.capabilities().general();
  const auto with = [&](std::uint32_t log_stride, std::uint32_t log_size) {
    return create([&](Context c) {
      c.sub(rq_context::wq).set(wq::log_wq_stride, log_stride);
      c.sub(rq_context::wq).set(wq::log_wq_sz, log_size);
      c.sub(rq_context::wq).set(wq::log_wq_pg_sz, 12);  // page size: 16 MiB
    });
  };
  const auto min = cap.get(hca_cap::log_min_stride_sz_rq);
  const auto max = cap.get(hca_cap::log_max_stride_sz_rq);
  const auto size = cap.get(hca_cap::log_max_wq_sz);
  EXPECT_EQ(1u << max, cap.get(hca_cap::max_wqe_sz_rq));
  EXPECT_EQ(with(min, size), Status::OK);
  EXPECT_EQ(with(max, size), Status::OK);
  EXPECT_EQ(with(min - 1, size), Status::EXCEED_LIM);
  EXPECT_EQ(with(max + 1, size), Status::EXCEED_LIM);
  EXPECT_EQ(with(min, size + 1), Status::EXCEED_LIM);
}

TEST_F(EthernetRqCommands, TransitionsAreThoseOfTheDocument) {
  using State = spec::connectx::rq_state;
  const auto rqn = host.create_rq(cqn, 3, 4, false);
  EXPECT_EQ(host.modify_rq(rqn, State::RDY, State::RDY).status(), Status::BAD_RESOURCE_STATE);
  EXPECT_EQ(host.modify_rq(rqn, State::RST, State::RDY).status(), Status::OK);
  EXPECT_EQ(host.modify_rq(rqn, State::RDY, State::RDY).status(), Status::OK);
  EXPECT_EQ(host.modify_rq(rqn, State::RDY, State::ERR).status(), Status::OK);
  EXPECT_EQ(host.modify_rq(rqn, State::ERR, State::RDY).status(), Status::BAD_RESOURCE_STATE);
  EXPECT_EQ(host.modify_rq(rqn, State::ERR, State::RST).status(), Status::OK);
}

TEST_F(EthernetRqCommands, QueueStaysAsLongAsATirOrAnRqtPointsToIt) {
  const auto destroy = [&](std::uint32_t rqn) {
    return status<destroy_rq_out, destroy_rq_in>(Opcode::DESTROY_RQ,
                                                 [&](auto in) { in.set(destroy_rq_in::rqn, rqn); });
  };
  const auto direct = host.create_rq(cqn);
  const auto tirn = host.create_direct_tir(direct);
  EXPECT_EQ(destroy(direct), Status::BAD_RES_STATE);
  EXPECT_EQ((status<destroy_tir_out, destroy_tir_in>(
                Opcode::DESTROY_TIR, [&](auto in) { in.set(destroy_tir_in::tirn, tirn); })),
            Status::OK);
  EXPECT_EQ(destroy(direct), Status::OK);
  EXPECT_EQ(destroy(direct), Status::BAD_RESOURCE);

  const auto listed = host.create_rq(cqn);
  const auto rqtn = host.create_rqt({listed, listed});
  EXPECT_EQ(destroy(listed), Status::BAD_RES_STATE);
  EXPECT_EQ((status<destroy_rqt_out, destroy_rqt_in>(
                Opcode::DESTROY_RQT, [&](auto in) { in.set(destroy_rqt_in::rqtn, rqtn); })),
            Status::OK);
  EXPECT_EQ(destroy(listed), Status::OK);
}

// RQT --------------------------------------------------------------------------------------------

class EthernetRqtCommands : public EthernetObjects {
 protected:
  Status create(std::uint32_t max, std::uint32_t actual, const std::vector<std::uint32_t>& rqns) {
    Bytes list(4 * rqns.size());
    for (std::size_t i = 0; i < rqns.size(); ++i) util::store_be32(list.data() + 4 * i, rqns[i]);
    return status<create_rqt_out, create_rqt_in>(
        Opcode::CREATE_RQT,
        [&](auto in) {
          const auto context = in.sub(create_rqt_in::rqt_context);
          context.set(rqt_context::rqt_max_size, max);
          context.set(rqt_context::rqt_actual_size, actual);
        },
        list);
  }
};

TEST_F(EthernetRqtCommands, SizesArePowersOfTwoWithinTheLimit) {
  const auto rqn = host.create_rq(cqn);
  EXPECT_EQ(create(4, 2, {rqn, rqn}), Status::OK);
  EXPECT_EQ(create(3, 1, {rqn}), Status::BAD_PARAM);
  EXPECT_EQ(create(4, 3, {rqn, rqn, rqn}), Status::BAD_PARAM);
  EXPECT_EQ(create(4, 0, {}), Status::BAD_PARAM);
  EXPECT_EQ(create(2, 4, {rqn, rqn, rqn, rqn}), Status::BAD_PARAM);
  EXPECT_EQ(create(4096, 1, {rqn}), Status::EXCEED_LIM);
  EXPECT_EQ(create(4, 4, {rqn, rqn}), Status::BAD_INPUT_LEN);
  EXPECT_EQ(create(4, 2, {rqn, 999}), Status::BAD_RESOURCE);
}

// 4096 tables of 2048 entries are within the capabilities, but not all at the same time.
TEST_F(EthernetRqtCommands, EntriesOfAllTablesAreLimitedByTheirMaximumSizes) {
  const auto rqn = host.create_rq(cqn);
  constexpr std::uint32_t kLargest = 2048;
  static_assert(kLargest == Limits::count(Limits{}.log_max_rqt_size));
  for (std::uint64_t i = 0; i < kRqtEntriesMax / kLargest; ++i) {
    ASSERT_EQ(create(kLargest, 1, {rqn}), Status::OK) << i;
  }
  EXPECT_EQ(create(1, 1, {rqn}), Status::NO_RESOURCES);
  const auto destroy = [&](std::uint32_t rqtn) {
    return status<destroy_rqt_out, destroy_rqt_in>(
        Opcode::DESTROY_RQT, [&](auto in) { in.set(destroy_rqt_in::rqtn, rqtn); });
  };
  EXPECT_EQ(destroy(1), Status::OK);
  EXPECT_EQ(create(kLargest, 1, {rqn}), Status::OK);
  EXPECT_EQ(create(1, 1, {rqn}), Status::NO_RESOURCES);
}

TEST_F(EthernetRqtCommands, TableDoesNotChangeIfModifyFails) {
  const auto rqn = host.create_rq(cqn);
  const auto rqtn = host.create_rqt({rqn, rqn});
  const auto modify = [&](std::uint32_t size, std::uint32_t first) {
    Bytes list(16);
    for (std::size_t i = 0; i < 4; ++i) util::store_be32(list.data() + 4 * i, first);
    return status<modify_rqt_out, modify_rqt_in>(
        Opcode::MODIFY_RQT,
        [&](auto in) {
          in.set(modify_rqt_in::rqtn, rqtn);
          in.sub(modify_rqt_in::modify_bitmask).set(rqt_bitmask::rqn_list, 1);
          in.sub(modify_rqt_in::rqt_context).set(rqt_context::rqt_actual_size, size);
        },
        list);
  };
  EXPECT_EQ(modify(4, rqn), Status::BAD_PARAM);
  EXPECT_EQ(modify(1, 999), Status::BAD_RESOURCE);
  const auto query = [&] {
    return host.call<query_rqt_out, query_rqt_in>(
        Opcode::QUERY_RQT, [&](auto in) { in.set(query_rqt_in::rqtn, rqtn); }, {}, 0, 8);
  };
  auto answer = query();
  auto context = answer.as<query_rqt_out>().get(query_rqt_out::rqt_context);
  EXPECT_EQ(context.get(rqt_context::rqt_actual_size), 2u);
  EXPECT_EQ(util::load_be32(answer.out.data() + query_rqt_out::kSize + 4), rqn);
  EXPECT_EQ(modify(1, rqn), Status::OK);
  answer = query();
  context = answer.as<query_rqt_out>().get(query_rqt_out::rqt_context);
  EXPECT_EQ(context.get(rqt_context::rqt_actual_size), 1u);
}

// TIR --------------------------------------------------------------------------------------------

class EthernetTirCommands : public EthernetObjects {
 protected:
  using In = create_tir_in;
  using Context = util::MutableView<tir_context>;

  EthernetTirCommands() : rqn(host.create_rq(cqn)), rqtn(host.create_rqt({rqn})) {}

  template <class Spoil>
  Status create(bool indirect, Spoil spoil) {
    return status<create_tir_out, In>(Opcode::CREATE_TIR, [&](auto in) {
      const auto context = in.sub(In::tir_context);
      context.set(tir_context::disp_type, indirect);
      context.set(tir_context::transport_domain, host.transport_domain);
      if (indirect) {
        context.set(tir_context::indirect_table, rqtn);
        context.set(tir_context::rx_hash_fn, 2);
      } else {
        context.set(tir_context::inline_rqn, rqn);
      }
      spoil(context);
    });
  }

  std::uint32_t rqn;
  std::uint32_t rqtn;
};

TEST_F(EthernetTirCommands, CreateChecksItsContext) {
  EXPECT_EQ(create(false, [](Context) {}), Status::OK);
  EXPECT_EQ(create(true, [](Context) {}), Status::OK);
  EXPECT_EQ(create(false, [](Context c) { c.set(tir_context::inline_rqn, 9); }),
            Status::BAD_RESOURCE);
  EXPECT_EQ(create(true, [](Context c) { c.set(tir_context::indirect_table, 9); }),
            Status::BAD_RESOURCE);
  EXPECT_EQ(create(true, [](Context c) { c.set(tir_context::transport_domain, 9); }),
            Status::BAD_RESOURCE);
  EXPECT_EQ(create(true, [](Context c) { c.set(tir_context::disp_type, 2); }), Status::BAD_PARAM);
  EXPECT_EQ(create(true, [](Context c) { c.set(tir_context::rx_hash_fn, 0); }), Status::BAD_PARAM);
  EXPECT_EQ(create(true, [](Context c) { c.set(tir_context::rx_hash_fn, 3); }), Status::BAD_PARAM);
  EXPECT_EQ(create(false, [](Context c) { c.set(tir_context::rx_hash_fn, 2); }), Status::BAD_PARAM);
  EXPECT_EQ(create(true, [](Context c) { c.set(tir_context::lro_enable_mask, 1); }),
            Status::BAD_PARAM);
  EXPECT_EQ(create(true, [](Context c) { c.set(tir_context::tls_en, 1); }), Status::BAD_PARAM);
  EXPECT_EQ(create(true,
                   [](Context c) {
                     c.sub(tir_context::rx_hash_field_selector_inner)
                         .set(rx_hash_field_select::selected_fields, 1);
                   }),
            Status::BAD_PARAM);
}

TEST_F(EthernetTirCommands, ModifyTakesTheFieldsOfItsBitmaskOnly) {
  const auto created = host.call<create_tir_out, In>(Opcode::CREATE_TIR, [&](auto in) {
    const auto context = in.sub(In::tir_context);
    context.set(tir_context::disp_type, 1);
    context.set(tir_context::transport_domain, host.transport_domain);
    context.set(tir_context::indirect_table, rqtn);
    context.set(tir_context::rx_hash_fn, 1);
  });
  const auto tirn = created.as<create_tir_out>().get(create_tir_out::tirn);
  const auto modify = [&](std::uint64_t mask, auto fill) {
    return status<modify_tir_out, modify_tir_in>(Opcode::MODIFY_TIR, [&](auto in) {
      in.set(modify_tir_in::tirn, tirn);
      util::store_be64(in.sub(modify_tir_in::modify_bitmask).bytes().data(), mask);
      fill(in.sub(modify_tir_in::tir_context));
    });
  };
  const auto query = [&](auto field) {
    const auto answer = host.call<query_tir_out, query_tir_in>(
        Opcode::QUERY_TIR, [&](auto in) { in.set(query_tir_in::tirn, tirn); });
    return answer.template as<query_tir_out>().get(query_tir_out::tir_context).get(field);
  };
  EXPECT_EQ(modify(1 << 4, [](auto c) { c.set(tir_context::self_lb_en_unicast, 1); }), Status::OK);
  EXPECT_EQ(query(tir_context::self_lb_en_unicast), 1u);
  EXPECT_EQ(query(tir_context::self_lb_en_multicast), 0u);
  EXPECT_EQ(query(tir_context::rx_hash_fn), 1u);
  EXPECT_EQ(modify(1 << 2, [](auto c) { c.set(tir_context::rx_hash_fn, 2); }), Status::OK);
  EXPECT_EQ(query(tir_context::rx_hash_fn), 2u);
  EXPECT_EQ(query(tir_context::self_lb_en_unicast), 1u);
  EXPECT_EQ(query(tir_context::self_lb_en_multicast), 0u);
  EXPECT_EQ(modify(1 << 2, [](auto) {}), Status::BAD_PARAM) << "an indirect TIR must hash";
  EXPECT_EQ(query(tir_context::rx_hash_fn), 2u);
  EXPECT_EQ(modify(1 << 1, [](auto c) { c.set(tir_context::indirect_table, 99); }),
            Status::BAD_RESOURCE);
  EXPECT_EQ(modify(1, [](auto c) { c.set(tir_context::lro_enable_mask, 1); }), Status::BAD_PARAM);
  EXPECT_EQ(modify(1, [](auto) {}), Status::OK);
  EXPECT_EQ(modify(1ull << 3, [](auto) {}), Status::BAD_PARAM);
}

TEST_F(EthernetTirCommands, RqtStaysAsLongAsATirPointsToIt) {
  EXPECT_EQ(create(true, [](Context) {}), Status::OK);
  EXPECT_EQ((status<destroy_rqt_out, destroy_rqt_in>(
                Opcode::DESTROY_RQT, [&](auto in) { in.set(destroy_rqt_in::rqtn, rqtn); })),
            Status::BAD_RES_STATE);
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

}  // namespace
}  // namespace softhca::connectx::test
