// An object that an SQ, RQ, TIS or TIR refers to cannot be destroyed while in use (PRM 12.3.14,
// 12.3.19, 12.7.2, 12.8 to 12.12).
#include <gtest/gtest.h>

#include "connectx/ethernet/ethernet_host.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx::test {
namespace {

using namespace spec::connectx;

class EthernetUses : public ::testing::Test {
 protected:
  template <class In>
  Status destroy(Opcode opcode, auto field, std::uint32_t number) {
    return host.call<destroy_cq_out, In>(opcode, [&](auto in) { in.set(field, number); }).status();
  }
  Status destroy_cq() {
    return destroy<destroy_cq_in>(Opcode::DESTROY_CQ, destroy_cq_in::cqn, cqn);
  }
  Status dealloc_pd() {
    return destroy<dealloc_pd_in>(Opcode::DEALLOC_PD, dealloc_pd_in::pd, host.pd);
  }
  Status dealloc_domain() {
    using In = dealloc_transport_domain_in;
    return destroy<In>(Opcode::DEALLOC_TRANSPORT_DOMAIN, In::transport_domain,
                       host.transport_domain);
  }

  EthernetUses() { host.pd = host.allocate_pd(); }

  EthernetHost host;
  std::uint32_t cqn = host.create_cq();
};

TEST_F(EthernetUses, CqAndPdStayAsLongAsAnSqRefersToThem) {
  const auto sqn = host.create_sq(cqn);
  EXPECT_EQ(destroy_cq(), Status::BAD_RES_STATE);
  EXPECT_EQ(dealloc_pd(), Status::BAD_RES_STATE);
  EXPECT_EQ(destroy<destroy_sq_in>(Opcode::DESTROY_SQ, destroy_sq_in::sqn, sqn), Status::OK);
  EXPECT_EQ(destroy_cq(), Status::OK);
}

TEST_F(EthernetUses, DoorbellPageStaysAsLongAsAnSqRefersToIt) {
  host.uar = host.allocate_uar();
  const auto dealloc_uar = [&] {
    return destroy<dealloc_uar_in>(Opcode::DEALLOC_UAR, dealloc_uar_in::uar, host.uar);
  };
  const auto sqn = host.create_sq(cqn);
  EXPECT_EQ(dealloc_uar(), Status::BAD_RES_STATE);
  EXPECT_EQ(destroy<destroy_sq_in>(Opcode::DESTROY_SQ, destroy_sq_in::sqn, sqn), Status::OK);
  EXPECT_EQ(dealloc_uar(), Status::OK);
}

TEST_F(EthernetUses, CqStaysAsLongAsAnRqRefersToIt) {
  const auto rqn = host.create_rq(cqn);
  EXPECT_EQ(destroy_cq(), Status::BAD_RES_STATE);
  EXPECT_EQ(dealloc_pd(), Status::BAD_RES_STATE);
  EXPECT_EQ(destroy<destroy_rq_in>(Opcode::DESTROY_RQ, destroy_rq_in::rqn, rqn), Status::OK);
  EXPECT_EQ(destroy_cq(), Status::OK);
}

TEST_F(EthernetUses, DomainStaysAsLongAsATisRefersToIt) {
  const auto tisn = host.create_tis();
  EXPECT_EQ(dealloc_domain(), Status::BAD_RES_STATE);
  EXPECT_EQ(destroy<destroy_tis_in>(Opcode::DESTROY_TIS, destroy_tis_in::tisn, tisn), Status::OK);
  EXPECT_EQ(dealloc_domain(), Status::OK);
}

TEST_F(EthernetUses, DomainStaysAsLongAsATirRefersToIt) {
  const auto tirn = host.create_direct_tir(host.create_rq(cqn));
  EXPECT_EQ(dealloc_domain(), Status::BAD_RES_STATE);
  EXPECT_EQ(destroy<destroy_tir_in>(Opcode::DESTROY_TIR, destroy_tir_in::tirn, tirn), Status::OK);
  EXPECT_EQ(dealloc_domain(), Status::OK);
}

TEST_F(EthernetUses, EverythingGoesAtOnceWithTheDevice) {
  // The order asserts that no object goes before its users.
  host.steer_all_to(host.create_direct_tir(host.create_rq(cqn)));
  const auto far = host.create_table(2, 2);
  const auto near = host.create_table(1, 2, far);
  const auto group = host.create_group(near, 0, 3);
  EXPECT_TRUE(host.set_flow(near, group, 0, {{destination_type::FLOW_TABLE, far}}).ok());
  (void)host.create_sq(cqn);
  host.device.driver().drop_objects();
  EXPECT_EQ(host.device.driver().resources().pds().count(), 0u);
}

}  // namespace
}  // namespace softhca::connectx::test
