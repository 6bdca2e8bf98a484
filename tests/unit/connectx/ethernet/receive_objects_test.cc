// RQ, RQT and TIR: accepted and refused commands (PRM 12.9, 12.10, 12.12).
#include <gtest/gtest.h>

#include "connectx/ethernet/objects_host.h"
#include "connectx/ethernet/transport_interface.h"
#include "connectx/function/capabilities.h"
#include "spec/connectx/caps.h"
#include "util/endian.h"

namespace softhca::connectx::test {
namespace {

using namespace spec::connectx;

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
  const auto cap = host.device.driver().capabilities().general();
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

}  // namespace
}  // namespace softhca::connectx::test
