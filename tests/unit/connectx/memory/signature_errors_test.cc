// Signature errors, and refusals of signature keys (mlx5 driver interface 8.6, 8.7).
#include <gtest/gtest.h>

#include "connectx/memory/signature_handover.h"

namespace softhca::connectx::test {
namespace {

// The error's CQE comes first, and the work request still succeeds.
TEST_F(SignatureHandover, AWrongBlockOfASendIsReportedBeforeItsCompletion) {
  auto [a, b] = host_.connected();
  const auto key = signature_key();
  put_protected(other_);
  *host_.at(other_ + 2 * kProtected + 5) ^= std::byte{1};
  expect_success(a,
                 signing(a, key, other_, 8 * kProtected, [&](BsfView bsf) { dif_in_memory(bsf); }));
  set_psv(a, memory_psv_);
  const auto to = host_.allocate(4096);
  send(a, wqe(a, Send::RDMA_WRITE).remote(to, kKey).data(0, 4096, key));
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 2u);
  EXPECT_EQ(cqes[0].opcode, CqeOpcode::SIGNATURE_ERROR);
  EXPECT_EQ(cqes[1].opcode, CqeOpcode::REQUESTER);
  EXPECT_EQ(error(cqes[0], ErrorCqe::mkey), key);
  EXPECT_EQ(error(cqes[0], ErrorCqe::sig_err_offset), 2u * kProtected);
  EXPECT_EQ(error(cqes[0], ErrorCqe::guard_error), 1u);
  EXPECT_EQ(error(cqes[0], ErrorCqe::ref_tag_error), 0u);
  EXPECT_EQ(error(cqes[0], ErrorCqe::domain), 1u);
  EXPECT_EQ(error(cqes[0], ErrorCqe::qpn), a.qpn);
  EXPECT_EQ(error(cqes[0], ErrorCqe::expected_trans_sig),
            util::load_be32(host_.at(other_ + 2 * kProtected + kBlock)));
  EXPECT_EQ(error(cqes[0], ErrorCqe::actual_ref_tag), kRef + 2);
}

TEST_F(SignatureHandover, AWrongTagOfAPeersWriteIsReportedToTheReceiveCq) {
  auto [a, b] = host_.connected();
  const auto key = key_with_dif_on_wire(a);
  put_protected(other_);
  util::store_be32(host_.at(other_ + 3 * kProtected + kBlock + 4), 99);
  const auto cqes = write_protected(b, key);
  ASSERT_EQ(cqes.size(), 2u);
  EXPECT_EQ(cqes[0].opcode, CqeOpcode::SIGNATURE_ERROR);
  EXPECT_EQ(error(cqes[0], ErrorCqe::qpn), a.qpn);
  EXPECT_EQ(error(cqes[0], ErrorCqe::ref_tag_error), 1u);
  EXPECT_EQ(error(cqes[0], ErrorCqe::domain), 0u);
  EXPECT_EQ(error(cqes[0], ErrorCqe::expected_ref_tag), 99u);
  EXPECT_EQ(error(cqes[0], ErrorCqe::actual_ref_tag), kRef + 3);
  EXPECT_EQ(error(cqes[0], ErrorCqe::sig_err_offset), 3u * kProtected);
}

TEST_F(SignatureHandover, AQpWithoutReceivesReportsTheSendCq) {
  auto [a, b] = host_.connected({.no_receive_queue = true}, {});
  const auto key = key_with_dif_on_wire(a);
  const auto cqes = write_protected(b, key);
  ASSERT_EQ(cqes.size(), 2u);
  EXPECT_EQ(cqes[0].opcode, CqeOpcode::SIGNATURE_ERROR);
  EXPECT_EQ(error(cqes[0], ErrorCqe::qpn), a.qpn);
  EXPECT_EQ(host_.query_state(a), state(spec::connectx::qp_state::RTS));
}

// libmlx5 counts the errors that it has received, and passes the lowest bit when it configures the
// key.
TEST_F(SignatureHandover, TheNextErrorIsReportedWhenTheDriverHasCountedTheLast) {
  auto [a, b] = host_.connected();
  const auto key = signature_key();
  put_protected(other_);
  *host_.at(other_ + kBlock) ^= std::byte{1};
  expect_success(a,
                 signing(a, key, other_, 8 * kProtected, [&](BsfView bsf) { dif_in_memory(bsf); }));
  const auto to = host_.allocate(4096);
  const auto errors = [&] {
    send(a, wqe(a, Send::RDMA_WRITE).remote(to, kKey).data(0, 4096, key));
    host_.run();
    return completions().size() - 1;
  };
  EXPECT_EQ(errors(), 1u);
  EXPECT_EQ(errors(), 0u);
  expect_success(a, umr(a, key, [](ControlView, MaskView m, ContextView k) {
                   m.set(Mask::sigerr, 1);
                   k.set(Context::expected_sigerr_count, 1);
                 }));
  EXPECT_EQ(errors(), 1u);
}

// Refusals ---------------------------------------------------------------------------------------

TEST_F(SignatureHandover, AUmrOfWhatIsNotOfferedIsRefused) {
  const auto key = signature_key();
  const auto refused_for = [&](const FillBsf& change, WqeFault fault) {
    expect_refused(
        [&](const HostQp& qp) {
          return signing(qp, key, data_, 4096, [&](BsfView bsf) {
            dif_on_wire(bsf);
            change(bsf);
          });
        },
        fault);
  };
  refused_for([](BsfView bsf) { bsf.set(Bsf::size, 1); }, WqeFault::kUmrBsf);
  refused_for([](BsfView bsf) { bsf.set(Bsf::wire_block_selector, 5); }, WqeFault::kUmrBsf);
  refused_for([](BsfView bsf) { bsf.set(Bsf::mem_block_selector, 6); }, WqeFault::kUmrBsf);
  refused_for([](BsfView bsf) { bsf.sub(Bsf::w_inline).set(Inline::valid, 0); }, WqeFault::kUmrBsf);
  refused_for([](BsfView bsf) { bsf.sub(Bsf::w_inline).set(Inline::repeat, 0); },
              WqeFault::kUmrBsf);
  refused_for([](BsfView bsf) { bsf.sub(Bsf::w_inline).set(Inline::sig_type, 3); },
              WqeFault::kUmrBsf);
  refused_for([](BsfView bsf) { bsf.sub(Bsf::w_inline).set(Inline::escape, 3); },
              WqeFault::kUmrBsf);
  refused_for([](BsfView bsf) { bsf.set(Bsf::w_crc, 4); }, WqeFault::kUmrBsf);  // CRC32C
  refused_for([](BsfView bsf) { bsf.set(Bsf::same_block_structure, 1); }, WqeFault::kUmrBsf);
  refused_for([](BsfView bsf) { bsf.set(Bsf::t_init_gen_pro_size, 1); }, WqeFault::kUmrBsf);
  refused_for([](BsfView bsf) { bsf.set(Bsf::w_psv, 0x4444); }, WqeFault::kPsvUnknown);
  expect_refused(
      [&](const HostQp& qp) {
        return umr(qp, key, [](ControlView, MaskView m, ContextView k) {
          m.set(Mask::bsf_en, 1);
          k.set(Context::bsf_en, 1);
        });
      },
      WqeFault::kUmrBsfMissing);
  const auto plain = free_key(Mode::KLM, 4);
  expect_refused(
      [&](const HostQp& qp) {
        return signing(
            qp, plain, data_, 4096, [&](BsfView bsf) { dif_on_wire(bsf); },
            [](ControlView, MaskView m, ContextView) { m.set(Mask::bsf_en, 0); });
      },
      WqeFault::kUmrNotSignable);
  expect_refused(
      [&](const HostQp& qp) {
        return signing(qp, plain, data_, 4096, [&](BsfView bsf) { dif_on_wire(bsf); });
      },
      WqeFault::kUmrMask);
}

TEST_F(SignatureHandover, APsvOfAnotherPdIsRefused) {
  const auto reply = psv_command(1, host_.allocate_pd());
  ASSERT_TRUE(reply) << reply.reason();
  using PsvOut = spec::connectx::create_psv_out;
  const auto psv = reply.as<PsvOut>().get(PsvOut::psv0_index);
  expect_refused([&](const HostQp& qp) { return wqe(qp, Send::SET_PSV).set_psv(psv, 0, 0); },
                 WqeFault::kPsvUnknown);
  const auto key = signature_key();
  expect_refused(
      [&](const HostQp& qp) {
        return signing(qp, key, data_, 4096, [&](BsfView bsf) {
          dif_on_wire(bsf);
          bsf.set(Bsf::w_psv, psv);
        });
      },
      WqeFault::kPsvUnknown);
}

// libmlx5 destroys a key's PSVs before the key.
TEST_F(SignatureHandover, AKeyWhosePsvIsDestroyedGivesNoAccess) {
  auto [a, b] = host_.connected();
  const auto key = signature_key();
  expect_success(a, signing(a, key, data_, 4096, [&](BsfView bsf) { dif_on_wire(bsf); }));
  EXPECT_TRUE(destroy_psv(wire_psv_));
  const auto cqe = run(a, wqe(a, Send::RDMA_WRITE).remote(other_, kKey).data(0, 512, key));
  EXPECT_EQ(cqe.syndrome, Syndrome::LOCAL_PROTECTION_ERROR);
  EXPECT_EQ(cqe.reason, static_cast<int>(rdma::Reason::kSignatureValueGone));
}

TEST_F(SignatureHandover, AtomicsAndKeysOfKeysDoNotGoThroughIt) {
  auto [a, b] = host_.connected();
  const auto key = signature_key();
  expect_success(a, signing(
                        a, key, data_, 4096, [&](BsfView bsf) { dif_on_wire(bsf); },
                        [](ControlView, MaskView m, ContextView) { m.set(Mask::a, 1); }));
  const auto outer = free_key(Mode::KLM, 4);
  expect_success(a, registration(a, outer, 512, 4).klm(512, key, 0).octwords_of_zero(3));
  const auto cqe = run(a, wqe(a, Send::RDMA_WRITE).remote(other_, kKey).data(kStart, 512, outer));
  EXPECT_EQ(cqe.reason, static_cast<int>(rdma::Reason::kKeySigned)) << explain(cqe);
  auto [c, d] = host_.connected();
  const auto atomic =
      run(c, wqe(c, Send::ATOMIC_FA).remote(0, key).atomic(1, 0).data(other_, 8, kKey));
  EXPECT_EQ(atomic.syndrome, Syndrome::REMOTE_ACCESS_ERROR);
}

}  // namespace
}  // namespace softhca::connectx::test
