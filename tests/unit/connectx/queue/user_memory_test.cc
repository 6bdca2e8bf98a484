// Memory of user contexts (UMEM, mlx5 driver interface 7.11), and the queues, doorbell records and
// keys in it.

#include <gtest/gtest.h>

#include <cstring>

#include "connectx/command/user_context_host.h"
#include "connectx/memory/memory_keys.h"
#include "connectx/qp/rdma_test_host.h"
#include "connectx/qp/wqe_builder.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Code = s::command_status;
using Opcode = s::command_opcode;
using Umem = s::umem;
using test::HostQp;
using test::RdmaTestHost;

constexpr std::uint64_t kReadable = 1;
constexpr std::uint64_t kWritable = 2;

class UserMemoryTest : public ::testing::Test {
 protected:
  UserMemoryTest() : user_(create_uctx(host_)), as_(host_, user_) {
    pd_ = host_.allocate_pd();
    memory_ = host_.allocate(32 * 4096);
  }

  struct Shape {
    unsigned log_page_size = 12;
    std::uint32_t page_offset = 0;
    std::uint64_t rights = kReadable | kWritable;
    std::uint64_t more = 0;  ///< pages that the command counts but does not list
  };
  Reply try_create(const std::vector<std::uint64_t>& pages, const Shape& shape) {
    using In = s::create_umem_in;
    std::vector<std::byte> list(8 * pages.size());
    for (std::size_t i = 0; i != pages.size(); ++i) {
      util::store_be64(list.data() + 8 * i, pages[i] | shape.rights);
    }
    return host_.call<s::create_umem_out, In>(
        Opcode::CREATE_UMEM,
        [&](auto in) {
          const auto umem = in.sub(In::umem);
          umem.set(Umem::log_page_size, shape.log_page_size - 12);
          umem.set(Umem::page_offset, shape.page_offset);
          umem.set(Umem::num_of_mtt, pages.size() + shape.more);
        },
        list);
  }
  std::uint32_t create(const std::vector<std::uint64_t>& pages) { return create(pages, {}); }
  std::uint32_t create(const std::vector<std::uint64_t>& pages, const Shape& shape) {
    const auto reply = try_create(pages, shape);
    EXPECT_TRUE(reply) << reply.reason();
    return reply.as<s::create_umem_out>().get(s::create_umem_out::umem_id);
  }
  Code destroy(std::uint32_t id) {
    using In = s::destroy_umem_in;
    return host_
        .call<s::destroy_umem_out, In>(Opcode::DESTROY_UMEM,
                                       [&](auto in) { in.set(In::umem_id, id); })
        .status();
  }

  /// A CQ of 16 CQEs of 64 bytes at `offset`, with its record at `record` of another UMEM.
  Reply try_create_cq(std::uint32_t umem, std::uint64_t offset, std::uint32_t record_umem,
                      std::uint64_t record) {
    using In = s::create_cq_in;
    using Context = s::cq_context;
    return host_.call<s::create_cq_out, In>(Opcode::CREATE_CQ, [&](auto in) {
      in.set(In::cq_umem_valid, 1);
      in.set(In::cq_umem_id, umem);
      in.set(In::cq_umem_offset, offset);
      const auto context = in.sub(In::cq_context_entry);
      context.set(Context::log_cq_size, 4);
      context.set(Context::uar_page, host_.uar);
      context.set(Context::c_eqn, host_.eqn);
      context.set(Context::dbr_umem_valid, 1);
      context.set(Context::dbr_umem_id, record_umem);
      context.set(Context::dbr_addr, record);
    });
  }
  /// A QP with its queues at the beginning of `umem`, and its record at `record` of another UMEM.
  Reply try_create_qp(std::uint32_t umem, std::uint32_t cqn, std::uint32_t record_umem,
                      std::uint64_t record) {
    using In = s::create_qp_in;
    HostQp qp;
    qp.options = {.log_sq = 2, .pd = pd_};
    return host_.call<s::create_qp_out, In>(Opcode::CREATE_QP, [&](auto in) {
      host_.fill_create(in, qp);
      in.set(In::wq_umem_valid, 1);
      in.set(In::wq_umem_id, umem);
      const auto context = in.sub(In::qpc);
      context.set(s::qpc::cqn_snd, cqn);
      context.set(s::qpc::cqn_rcv, cqn);
      context.set(s::qpc::dbr_umem_valid, 1);
      context.set(s::qpc::dbr_umem_id, record_umem);
      context.set(s::qpc::dbr_addr, record);
    });
  }
  Code destroy_cq(std::uint32_t cqn) {
    using In = s::destroy_cq_in;
    return host_
        .call<s::destroy_cq_out, In>(Opcode::DESTROY_CQ, [&](auto in) { in.set(In::cqn, cqn); })
        .status();
  }

  struct KeyOptions {
    std::uint64_t start = 0x10000;
    std::uint64_t length = 0x2000;
    std::uint64_t offset = 0;
    s::mkey_access_mode mode = s::mkey_access_mode::MTT;
  };
  Reply try_create_key(std::uint32_t umem, const KeyOptions& options) {
    using In = s::create_mkey_in;
    using Context = s::mkey_context;
    return host_.call<s::create_mkey_out, In>(Opcode::CREATE_MKEY, [&](auto in) {
      in.set(In::mkey_umem_valid, 1);
      in.set(In::mkey_umem_id, umem);
      in.set(In::mkey_umem_offset, options.offset);
      const auto context = in.sub(In::mkey_context);
      context.set(Context::access_mode, static_cast<std::uint32_t>(options.mode));
      context.set(Context::lr, 1);
      context.set(Context::lw, 1);
      context.set(Context::qpn, 0xFFFFFF);
      context.set(Context::mkey, 0x42);
      context.set(Context::pd, pd_);
      context.set(Context::start_addr, options.start);
      context.set(Context::len, options.length);
      context.set(Context::log_page_size, 12);
    });
  }
  std::uint32_t index_of(const Reply& reply) {
    EXPECT_TRUE(reply) << reply.reason();
    return reply.as<s::create_mkey_out>().get(s::create_mkey_out::mkey_index);
  }
  bool write(std::uint32_t index, std::uint64_t address, std::string_view text) {
    auto& table = host_.device.driver().memory_keys().table();
    const auto check =
        table.check(rdma::MKey(index << 8 | 0x42), {.pd = rdma::Pd(pd_), .qpn = rdma::Qpn(5)},
                    address, text.size(), rdma::kLocalWrite);
    return check && table.write(*check.key, address, std::as_bytes(std::span(text)));
  }

  RdmaTestHost host_;
  std::uint16_t user_;
  As as_;
  std::uint32_t pd_ = 0;
  std::uint64_t memory_ = 0;
};

TEST_F(UserMemoryTest, HasTheShapeThatTheCommandSays) {
  EXPECT_EQ(try_create({memory_}, {.page_offset = 4096}).status(), Code::BAD_PARAM);
  EXPECT_EQ(try_create({}, {}).status(), Code::BAD_PARAM);
  EXPECT_EQ(try_create({memory_}, {.more = 1}).status(), Code::BAD_INPUT_LEN);
  EXPECT_EQ(try_create({memory_}, {.more = ~std::uint64_t{0} - 1}).status(), Code::BAD_INPUT_LEN);
  EXPECT_EQ(try_create({memory_}, {.page_offset = 4095}).status(), Code::OK);
}

// umem_uid_0 is 0.
TEST_F(UserMemoryTest, IsOfAUserContext) {
  As as(host_, 0);
  EXPECT_EQ(try_create({memory_}, {}).status(), Code::BAD_PARAM);
}

TEST_F(UserMemoryTest, IsDestroyedOnce) {
  const auto umem = create({memory_});
  EXPECT_EQ(destroy(umem), Code::OK);
  EXPECT_EQ(destroy(umem), Code::BAD_RESOURCE);
}

TEST_F(UserMemoryTest, AUmemOfAnotherContextIsNotUsed) {
  const auto umem = create({memory_});
  std::uint16_t other = 0;
  {
    As kernel(host_, 0);
    other = create_uctx(host_);
  }
  As as(host_, other);
  EXPECT_EQ(try_create_cq(umem, 0, umem, 0x800).status(), Code::BAD_RESOURCE);
  EXPECT_EQ(destroy(umem), Code::BAD_RESOURCE);
}

// A resized CQ writes its CQEs to the new buffer.
TEST_F(UserMemoryTest, AUmemOfAnotherContextIsNoNewBufferOfACq) {
  using In = s::modify_cq_in;
  const auto foreign = create({memory_});
  std::uint16_t other = 0;
  {
    As kernel(host_, 0);
    other = create_uctx(host_);
  }
  As as(host_, other);
  const auto own = create({memory_ + 4096, memory_ + 8192});
  const auto made = try_create_cq(own, 0, own, 4096);
  ASSERT_TRUE(made) << made.reason();
  const auto cqn = made.as<s::create_cq_out>().get(s::create_cq_out::cqn);
  const auto resize = [&](std::uint32_t umem) {
    return host_
        .call<s::modify_cq_out, In>(
            Opcode::MODIFY_CQ,
            [&](auto in) {
              in.set(In::cqn, cqn);
              in.set(In::modify_field_select,
                     1u << static_cast<unsigned>(s::resize_cq_field_bit::LOG_CQ_SIZE));
              in.set(In::cq_umem_valid, 1);
              in.set(In::cq_umem_id, umem);
              in.sub(In::cq_context_entry).set(s::cq_context::log_cq_size, 5);
            },
            {}, static_cast<std::uint16_t>(s::modify_cq_op_mod::RESIZE))
        .status();
  };
  EXPECT_EQ(resize(foreign), Code::BAD_RESOURCE);
  EXPECT_EQ(resize(own), Code::OK);
}

// A QP whose rings are in two pages that are not adjacent, whose CQ starts in the middle of another
// UMEM, and whose records have a UMEM each. NOPs and a flushed receive complete.
TEST_F(UserMemoryTest, QueuesAndTheirRecordsLieInIt) {
  const auto cq_umem = create({memory_ + 0x3000, memory_}, {.page_offset = 0xC00});
  const auto cq_record_umem = create({memory_ + 0x5000}, {.page_offset = 0x100});
  const auto qp_umem = create({memory_ + 0x9000, memory_ + 0x7000});
  const auto qp_record_umem = create({memory_ + 0xB000});
  // CQEs from byte 0x400 of the UMEM: 0x1000 bytes from the start of its first page, so all of them
  // lie in its second page.
  const auto made = try_create_cq(cq_umem, 0x400, cq_record_umem, 0x20);
  ASSERT_TRUE(made) << made.reason();
  HostCq cq{.cqn = made.as<s::create_cq_out>().get(s::create_cq_out::cqn),
            .log_size = 4,
            .ring = memory_,
            .record = memory_ + 0x5120};
  for (unsigned i = 0; i != 16; ++i) host_.at(cq.ring)[64 * i + 63] = std::byte{0xF1};

  // 16 receive WQEs of 64 bytes from byte 0xC00, then 32 blocks of the send queue from 0x1000.
  HostQp qp;
  qp.options = {.log_sq = 4, .pd = pd_};
  qp.record = memory_ + 0xB040;
  const auto created =
      host_.call<s::create_qp_out, s::create_qp_in>(Opcode::CREATE_QP, [&](auto in) {
        host_.fill_create(in, qp);
        in.set(s::create_qp_in::wq_umem_valid, 1);
        in.set(s::create_qp_in::wq_umem_id, qp_umem);
        in.set(s::create_qp_in::wq_umem_offset, 0xC00);
        const auto context = in.sub(s::create_qp_in::qpc);
        context.set(s::qpc::cqn_snd, cq.cqn);
        context.set(s::qpc::cqn_rcv, cq.cqn);
        context.set(s::qpc::dbr_umem_valid, 1);
        context.set(s::qpc::dbr_umem_id, qp_record_umem);
        context.set(s::qpc::dbr_addr, 0x40);
      });
  ASSERT_TRUE(created) << created.reason();
  qp.qpn = created.as<s::create_qp_out>().get(s::create_qp_out::qpn);
  host_.cq.cqn = cq.cqn;
  ASSERT_TRUE(host_.to_init(qp));
  ASSERT_TRUE(host_.to_rtr(qp, qp.qpn));
  ASSERT_TRUE(host_.to_rts(qp));

  // The receive ring ends in the second page of the UMEM: its 16 * 64 bytes begin at 0xC00 of the
  // first. The send ring follows, at 0x000 of the second page.
  qp.ring = memory_ + 0x7000 - qp.send_offset();
  const auto nop = test::WqeBuilder(s::wqe_opcode::NOP, 0, qp.qpn).bytes();
  host_.post_send(qp, nop);
  host_.ring_send(qp);
  host_.run();
  const auto sent = host_.poll(cq);
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->opcode, s::cqe_opcode::REQUESTER);
  EXPECT_EQ(sent->qpn, qp.qpn);

  qp.ring = memory_ + 0x9C00;
  host_.post_receive(qp, memory_, 64);
  ASSERT_TRUE(host_.to_error(qp));
  host_.run();
  const auto flushed = host_.poll(cq);
  ASSERT_TRUE(flushed);
  EXPECT_EQ(flushed->opcode, s::cqe_opcode::RESPONDER_ERROR);

  EXPECT_EQ(destroy(cq_umem), Code::BAD_RES_STATE);
  EXPECT_EQ(destroy(cq_record_umem), Code::BAD_RES_STATE);
  EXPECT_EQ(destroy(qp_umem), Code::BAD_RES_STATE);
  EXPECT_EQ(destroy(qp_record_umem), Code::BAD_RES_STATE);
  host_.destroy(qp);
  ASSERT_EQ(destroy_cq(cq.cqn), Code::OK);
  for (const auto umem : {cq_umem, cq_record_umem, qp_umem, qp_record_umem}) {
    EXPECT_EQ(destroy(umem), Code::OK);
  }
}

TEST_F(UserMemoryTest, QueuesEndInIt) {
  const auto umem = create({memory_, memory_ + 0x1000}, {.page_offset = 0x100});
  const auto record = create({memory_ + 0x2000});
  constexpr std::uint64_t kEnd = 0x2000 - 0x100;
  const auto status = [&](std::uint64_t offset, std::uint64_t at) {
    return try_create_cq(umem, offset, record, at).status();
  };
  EXPECT_EQ(status(kEnd - 16 * 64, 0x1000 - 8), Code::OK);
  EXPECT_EQ(status(kEnd - 16 * 64 + 1, 0), Code::BAD_PARAM);
  EXPECT_EQ(status(kEnd - 16 * 64 + 0x100, 0), Code::BAD_PARAM);
  EXPECT_EQ(status(~std::uint64_t{0} - 63, 0), Code::BAD_PARAM) << "offset and size overflow";
  EXPECT_EQ(status(0, 0x1000 - 4), Code::BAD_PARAM);
  EXPECT_EQ(status(0, 0x1000), Code::BAD_PARAM);
  EXPECT_EQ(status(0, ~std::uint64_t{0} - 3), Code::BAD_PARAM);
}

TEST_F(UserMemoryTest, ARecordLiesInOnePage) {
  const auto umem = create({memory_, memory_ + 0x5000});
  const auto made = try_create_cq(umem, 0, umem, 0x1000 - 8);
  ASSERT_TRUE(made) << made.reason();
  const auto cqn = made.as<s::create_cq_out>().get(s::create_cq_out::cqn);
  EXPECT_EQ(try_create_qp(umem, cqn, umem, 0x1000 - 4).status(), Code::BAD_PARAM);
  EXPECT_EQ(try_create_qp(umem, cqn, umem, 0x1000 - 12).status(), Code::OK);
}

// PRM 7.4.2, 7.12.2: records of work queues are aligned to 4 bytes, those of CQs to 8.
TEST_F(UserMemoryTest, ARecordIsAlignedInMemory) {
  const auto umem = create({memory_, memory_ + 0x1000});
  const auto records = create({memory_ + 0x2000}, {.page_offset = 4});
  EXPECT_EQ(try_create_cq(umem, 0, records, 0x40).status(), Code::BAD_PARAM);
  const auto made = try_create_cq(umem, 0, records, 0x44);
  ASSERT_TRUE(made) << made.reason();
  const auto cqn = made.as<s::create_cq_out>().get(s::create_cq_out::cqn);
  EXPECT_EQ(try_create_qp(umem, cqn, records, 0x82).status(), Code::BAD_PARAM);
  EXPECT_EQ(try_create_qp(umem, cqn, records, 0x80).status(), Code::OK);
}

// The device only reads work queues and records, so UCX registers them without write access.
TEST_F(UserMemoryTest, ReadOnlyMemoryHoldsQueuesThatTheDeviceReads) {
  const auto umem = create({memory_, memory_ + 0x1000}, {.rights = kReadable});
  EXPECT_EQ(try_create_cq(umem, 0, umem, 0x800).status(), Code::BAD_PARAM);
  const auto made = try_create_cq(create({memory_ + 0x3000}), 0, umem, 0x800);
  ASSERT_TRUE(made) << made.reason();
  const auto cqn = made.as<s::create_cq_out>().get(s::create_cq_out::cqn);
  const auto reply = try_create_qp(umem, cqn, umem, 0x1800);
  EXPECT_TRUE(reply) << reply.reason();
}

// A process that made the queue gave no addresses, so queries must not reveal any.
TEST_F(UserMemoryTest, QueriesReportOffsetsAndNoAddresses) {
  const auto umem = create({memory_});
  const auto made = try_create_cq(umem, 0, umem, 0x800);
  ASSERT_TRUE(made) << made.reason();
  using In = s::query_cq_in;
  using Out = s::query_cq_out;
  const auto queried = host_.call<Out, In>(
      Opcode::QUERY_CQ,
      [&](auto in) { in.set(In::cqn, made.as<s::create_cq_out>().get(s::create_cq_out::cqn)); }, {},
      0, 8);
  ASSERT_TRUE(queried) << queried.reason();
  const auto context = queried.as<Out>().get(Out::cq_context_entry);
  EXPECT_EQ(context.get(s::cq_context::dbr_addr), 0x800u);
  EXPECT_EQ(util::load_be64(queried.out.data() + Out::pas_offset), 0u);
}

TEST_F(UserMemoryTest, AKeyTranslatesToItsBytes) {
  const auto umem = create({memory_ + 0x3000, memory_ + 0x8000}, {.page_offset = 0x200});
  // Byte 0x100 of the UMEM is 0x300 of its first page.
  const auto key =
      index_of(try_create_key(umem, {.start = 0x70300, .length = 0x1000, .offset = 0x100}));
  EXPECT_TRUE(write(key, 0x70300, "first"));
  EXPECT_EQ(host_.text(memory_ + 0x3300, 5), "first");
  EXPECT_TRUE(write(key, 0x70FFE, "across"));
  EXPECT_EQ(host_.text(memory_ + 0x3FFE, 2), "ac");
  EXPECT_EQ(host_.text(memory_ + 0x8000, 4), "ross");
  EXPECT_FALSE(write(key, 0x712FF, "xx")) << "behind the key";
  EXPECT_EQ(destroy(umem), Code::BAD_RES_STATE) << "the key lies in it";
}

TEST_F(UserMemoryTest, AKeyHasPagesAsLargeAsBothAllow) {
  const auto large = (memory_ + 0x7FFF) & ~std::uint64_t{0x7FFF};
  const auto umem = create({large}, {.log_page_size = 15});
  // The key begins at 0x3000 of the large page, at an address that is a multiple of 0x1000 alone.
  const auto key =
      index_of(try_create_key(umem, {.start = 0x1000, .length = 0x4000, .offset = 0x3000}));
  EXPECT_TRUE(write(key, 0x4FFC, "last"));
  EXPECT_EQ(host_.text(large + 0x6FFC, 4), "last");
}

TEST_F(UserMemoryTest, AKeyHasItsRights) {
  const auto umem = create({memory_}, {.rights = kReadable});
  const auto key = index_of(try_create_key(umem, {.length = 0x1000}));
  EXPECT_FALSE(write(key, 0x10000, "x"));
}

TEST_F(UserMemoryTest, AKeyEndsInIt) {
  const auto umem = create({memory_, memory_ + 0x1000});
  EXPECT_EQ(try_create_key(umem, {.length = 0x2001}).status(), Code::BAD_PARAM);
  EXPECT_EQ(try_create_key(umem, {.length = 0x1001, .offset = 0x1000}).status(), Code::BAD_PARAM);
  EXPECT_EQ(try_create_key(umem, {.length = 0x1000, .offset = 0x1000}).status(), Code::OK);
}

TEST_F(UserMemoryTest, AKeyWhoseBytesLieDifferentlyInTheirPagesIsRefused) {
  const auto umem = create({memory_, memory_ + 0x1000});
  EXPECT_EQ(try_create_key(umem, {.start = 0x10010, .length = 0x10}).status(), Code::BAD_PARAM);
}

// A PA key would cover all of the host's memory.
TEST_F(UserMemoryTest, AKeyInItIsAPageList) {
  const auto umem = create({memory_, memory_ + 0x1000});
  EXPECT_EQ(try_create_key(umem, {.mode = s::mkey_access_mode::KLM}).status(), Code::BAD_PARAM);
  EXPECT_EQ(try_create_key(umem, {.mode = s::mkey_access_mode::PA}).status(), Code::BAD_PARAM);
}

}  // namespace
}  // namespace softhca::connectx
