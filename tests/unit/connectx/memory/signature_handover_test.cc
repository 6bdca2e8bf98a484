// Signature handover: PSVs, SET_PSV, and keys with a BSF as mlx5_ib and libmlx5 post them (mlx5
// driver interface 8.3, 8.6).

#include "connectx/memory/signature_handover.h"

#include <array>

#include "rdma/guard.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx::test {
namespace {

// Commands ---------------------------------------------------------------------------------------

TEST_F(SignatureHandover, UpToFourPsvsComeAtOnceAndKeepTheirPd) {
  using Out = spec::connectx::create_psv_out;
  const auto four = psv_command(4, host_.pd);
  ASSERT_TRUE(four) << four.reason();
  const auto out = four.as<Out>();
  const std::array numbers{out.get(Out::psv0_index), out.get(Out::psv1_index),
                           out.get(Out::psv2_index), out.get(Out::psv3_index)};
  for (const auto number : numbers) EXPECT_NE(number, 0u);
  EXPECT_NE(numbers[0], numbers[3]);
  EXPECT_EQ(psv_command(0, host_.pd).status(), Status::BAD_PARAM);
  EXPECT_EQ(psv_command(5, host_.pd).status(), Status::BAD_PARAM);
  EXPECT_EQ(psv_command(1, 0x1234).status(), Status::BAD_RESOURCE);
  for (const auto number : numbers) EXPECT_TRUE(destroy_psv(number));
  EXPECT_EQ(destroy_psv(numbers[0]).status(), Status::BAD_RESOURCE);
}

TEST_F(SignatureHandover, AKeyIsMadeForItFreeAndForTheListsOfUmrs) {
  using In = spec::connectx::create_mkey_in;
  using Out = spec::connectx::create_mkey_out;
  const auto create = [&](std::uint32_t octwords, Mode mode, bool free) {
    return host_
        .call<Out, In>(FakeHost::Opcode::CREATE_MKEY,
                       [&](util::MutableView<In> in) {
                         const auto context = in.sub(In::mkey_context);
                         context.set(Context::free, free);
                         context.set(Context::umr_en, 1);
                         context.set(Context::access_mode, static_cast<std::uint32_t>(mode));
                         context.set(Context::qpn, kAnyQpn);
                         context.set(Context::pd, host_.pd);
                         context.set(Context::log_page_size, 12);
                         context.set(Context::translations_octword_size, 4);
                         context.set(Context::bsf_en, 1);
                         context.set(Context::bsf_octword_size, octwords);
                       })
        .status();
  };
  EXPECT_EQ(create(4, Mode::KLM, true), Status::OK);
  EXPECT_EQ(create(8, Mode::KLM, true), Status::BAD_PARAM);
  EXPECT_EQ(create(4, Mode::MTT, true), Status::BAD_PARAM);
  EXPECT_EQ(create(4, Mode::KLM, false), Status::BAD_PARAM);
}

// Data -------------------------------------------------------------------------------------------

// "transmit it to the wire while generating an additional T10DIF field".
TEST_F(SignatureHandover, SentDataGetTheirProtection) {
  auto [a, b] = host_.connected();
  const auto key = key_with_dif_on_wire(a);
  put_protected(other_);
  const auto to = host_.allocate(8192);
  const auto cqe = run(a, wqe(a, Send::RDMA_WRITE).remote(to, kKey).data(0, 8 * kProtected, key));
  EXPECT_EQ(cqe.opcode, CqeOpcode::REQUESTER) << explain(cqe);
  EXPECT_TRUE(equal(to, other_, 8 * kProtected));
}

// Example 2.1 of mlx5dv_wr_set_mkey_sig_block(3), and a READ of the same (example 2).
TEST_F(SignatureHandover, APeersWriteIsCheckedAndItsReadProtected) {
  auto [a, b] = host_.connected();
  const auto key = signature_key();
  const auto plain = host_.allocate(4096);
  expect_success(a, signing(a, key, plain, 4096, [&](BsfView bsf) { dif_on_wire(bsf); }));
  set_psv(a, wire_psv_);
  put_protected(other_);
  expect_success(b, wqe(b, Send::RDMA_WRITE).remote(0, key).data(other_, 8 * kProtected, kKey));
  EXPECT_TRUE(equal(plain, data_, 4096));
  const auto to = host_.allocate(8192);
  expect_success(b, wqe(b, Send::RDMA_READ).remote(0, key).data(to, 8 * kProtected, kKey));
  EXPECT_TRUE(equal(to, other_, 8 * kProtected));
}

// mlx5_ib: blocks and their protection in two buffers, joined by a strided layout.
TEST_F(SignatureHandover, ProtectionInABufferOfItsOwnIsPassedOn) {
  using spec::connectx::klm_list_op;
  auto [a, b] = host_.connected();
  const auto key = signature_key();
  const auto protection = host_.allocate(64);
  put_protected(other_);
  for (std::uint32_t block = 0; block != 8; ++block) {
    std::memcpy(host_.at(protection + block * 8),
                host_.at(other_ + std::uint64_t{block} * kProtected + kBlock), 8);
  }
  const auto both = registration(a, key, 8 * kProtected, 4,
                                 [&](ControlView c, MaskView m, ContextView k) {
                                   c.set(Control::bsf_octword_actual_size, 4);
                                   m.set(Mask::bsf_en, 1);
                                   k.set(Context::bsf_en, 1);
                                   k.set(Context::start_addr, 0);
                                 })
                        .klm(kProtected, static_cast<std::uint32_t>(klm_list_op::STRIDED_BLOCK),
                             std::uint64_t{8} << 32 | 2)
                        .klm(kBlock << 16 | kBlock, kKey, data_)
                        .klm(8 << 16 | 8, kKey, protection)
                        .octwords_of_zero(1)
                        .bsf([&](BsfView bsf) { dif_on_both(bsf); });
  expect_success(a, both);
  set_psv(a, memory_psv_);
  set_psv(a, wire_psv_);
  const auto to = host_.allocate(8192);
  expect_success(a, wqe(a, Send::RDMA_WRITE).remote(to, kKey).data(0, 8 * kProtected, key));
  EXPECT_TRUE(equal(to, other_, 8 * kProtected));
  // The opposite direction, by a READ.
  std::memset(host_.at(protection), 0, 64);
  const auto data = host_.allocate(4096);
  std::memcpy(host_.at(data), host_.at(data_), 4096);
  std::memset(host_.at(data_), 0, 4096);
  expect_success(a, wqe(a, Send::RDMA_READ).remote(to, kKey).data(0, 8 * kProtected, key));
  EXPECT_TRUE(equal(data_, data, 4096));
  EXPECT_EQ(util::load_be32(host_.at(protection + 7 * 8 + 4)), kRef + 7);
}

// CRC32 in memory, as in pyverbs.
TEST_F(SignatureHandover, ACrc32OfMemoryIsCheckedAndNotSent) {
  auto [a, b] = host_.connected();
  const auto key = signature_key();
  expect_success(a, signing(a, key, other_, 516, [&](BsfView bsf) {
                   bsf.set(Bsf::size, 2);
                   bsf.set(Bsf::check_byte_mask, 0xF0);
                   bsf.set(Bsf::mem_block_selector, 1);
                   bsf.set(Bsf::m_crc, 2);
                   bsf.set(Bsf::m_crc_repeat, 1);
                   bsf.set(Bsf::m_psv, memory_psv_);
                 }));
  expect_success(a, wqe(a, Send::SET_PSV).set_psv(memory_psv_, 0xFFFFFFFF, 0));
  std::memcpy(host_.at(other_), host_.at(data_), kBlock);
  const auto sum =
      rdma::add_to_guard(rdma::Guard::kCrc32, 0xFFFFFFFF, std::span(host_.at(data_), kBlock), 0);
  util::store_le32(host_.at(other_ + kBlock), sum);
  const auto to = host_.allocate(4096);
  expect_success(a, wqe(a, Send::RDMA_WRITE).remote(to, kKey).data(0, kBlock, key));
  EXPECT_TRUE(equal(to, data_, kBlock));
  util::store_le32(host_.at(other_ + kBlock), ~sum);
  const auto cqe = run(a, wqe(a, Send::RDMA_WRITE).remote(to, kKey).data(0, kBlock, key));
  EXPECT_EQ(cqe.opcode, CqeOpcode::SIGNATURE_ERROR);
  EXPECT_EQ(error(cqe, ErrorCqe::expected_trans_sig), ~sum & 0xFFFFFFFF);
  EXPECT_EQ(error(cqe, ErrorCqe::actual_trans_sig), sum);
}

// MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR.
TEST_F(SignatureHandover, WithBsfEnTakenAwayItIsAKeyLikeOthers) {
  auto [a, b] = host_.connected();
  const auto key = signature_key();
  expect_success(a, signing(a, key, data_, 4096, [&](BsfView bsf) { dif_on_wire(bsf); }));
  expect_success(a,
                 umr(a, key, [](ControlView, MaskView m, ContextView) { m.set(Mask::bsf_en, 1); }));
  const auto to = host_.allocate(4096);
  expect_success(a, wqe(a, Send::RDMA_WRITE).remote(to, kKey).data(0, 4096, key));
  EXPECT_TRUE(equal(to, data_, 4096));
  // Enables it again with the bit alone.
  expect_success(a, umr(a, key, [](ControlView, MaskView m, ContextView k) {
                   m.set(Mask::bsf_en, 1);
                   k.set(Context::bsf_en, 1);
                 }));
  put_protected(other_);
  const auto again = host_.allocate(8192);
  expect_success(a, wqe(a, Send::RDMA_WRITE).remote(again, kKey).data(0, 8 * kProtected, key));
  EXPECT_TRUE(equal(again, other_, 8 * kProtected));
}

TEST_F(SignatureHandover, QueryMkeyReportsTheBsf) {
  auto [a, b] = host_.connected();
  const auto key = signature_key();
  expect_success(a, signing(a, key, data_, 4096, [&](BsfView bsf) { dif_on_wire(bsf); }));
  using In = spec::connectx::query_mkey_in;
  using Out = spec::connectx::query_mkey_out;
  const auto reply = host_.call<Out, In>(FakeHost::Opcode::QUERY_MKEY, [&](auto in) {
    in.set(In::op_mod, 2);
    in.set(In::mkey_index, key >> 8);
  });
  const auto bsf = reply.as<Out>().get(Out::bsf0_klm0_pas_mtt0_1);
  EXPECT_EQ(util::load_be32(bsf.data() + 8), wire_psv_);
}

}  // namespace
}  // namespace softhca::connectx::test
