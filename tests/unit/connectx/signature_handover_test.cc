// Signature handover: PSVs, SET_PSV, keys with a BSF as mlx5_ib and libmlx5 post them, and the CQEs
// of signature errors (mlx5 driver interface 8.3, 8.6, 8.7).

#include <array>

#include "connectx/umr_host.h"
#include "rdma/guard.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx::test {
namespace {

using Bsf = spec::connectx::block_signature_format;
using Inline = spec::connectx::bsf_inline;
using BsfView = util::MutableView<Bsf>;
using FillBsf = std::function<void(BsfView)>;
using ErrorCqe = spec::connectx::cqe_signature_error;

constexpr std::uint16_t kApp = 0xABCD;
constexpr std::uint32_t kRef = 0x01234567;
constexpr std::uint32_t kBlock = 512;
constexpr std::uint32_t kProtected = 520;

class SignatureHandover : public UmrTest {
 protected:
  using Status = spec::connectx::command_status;

  SignatureHandover() {
    memory_psv_ = create_psv();
    wire_psv_ = create_psv();
    data_ = host_.allocate(4096);
    other_ = host_.allocate(8192);
    for (std::uint32_t i = 0; i != 4096; ++i) {
      *host_.at(data_ + i) = std::byte(i * 7 + i / kBlock);
    }
  }

  Reply psv_command(std::uint32_t count, std::uint32_t pd) {
    using In = spec::connectx::create_psv_in;
    using Out = spec::connectx::create_psv_out;
    return host_.call<Out, In>(FakeHost::Opcode::CREATE_PSV, [&](auto in) {
      in.set(In::num_psv, count);
      in.set(In::pd, pd);
    });
  }
  std::uint32_t create_psv() {
    using Out = spec::connectx::create_psv_out;
    const auto reply = psv_command(1, host_.pd);
    EXPECT_TRUE(reply) << reply.reason();
    return reply.as<Out>().get(Out::psv0_index);
  }
  Reply destroy_psv(std::uint32_t psv) {
    using In = spec::connectx::destroy_psv_in;
    using Out = spec::connectx::destroy_psv_out;
    return host_.call<Out, In>(FakeHost::Opcode::DESTROY_PSV,
                               [&](auto in) { in.set(In::psvn, psv); });
  }
  std::uint32_t signature_key() {
    return free_key(Mode::KLM, 4, [](ContextView context) {
      context.set(Context::bsf_en, 1);
      context.set(Context::bsf_octword_size, 4);
      context.set(Context::start_addr, 0);
    });
  }
  static void fill_inline(util::MutableView<Inline> to) {
    to.set(Inline::valid, 1);
    to.set(Inline::refresh, 1);
    to.set(Inline::repeat, 1);
    to.set(Inline::sig_type, 1);
    to.set(Inline::app_tag, kApp);
    to.set(Inline::ref_tag, kRef);
    to.set(Inline::inc_ref_tag, 1);
    to.set(Inline::app_mask, 0xFFFF);
  }
  void dif_on_wire(BsfView bsf) const {
    bsf.set(Bsf::size, 2);
    bsf.set(Bsf::check_byte_mask, 0xFF);
    bsf.set(Bsf::wire_block_selector, 1);
    bsf.set(Bsf::w_psv, wire_psv_);
    fill_inline(bsf.sub(Bsf::w_inline));
  }
  void dif_in_memory(BsfView bsf) const {
    bsf.set(Bsf::size, 2);
    bsf.set(Bsf::check_byte_mask, 0xFF);
    bsf.set(Bsf::mem_block_selector, 1);
    bsf.set(Bsf::m_psv, memory_psv_);
    fill_inline(bsf.sub(Bsf::m_inline));
  }
  void dif_on_both(BsfView bsf) const {
    dif_in_memory(bsf);
    bsf.set(Bsf::same_block_structure, 1);
    bsf.set(Bsf::copy_byte_mask, 0xFF);
    bsf.set(Bsf::w_psv, wire_psv_);
    fill_inline(bsf.sub(Bsf::w_inline));
  }
  /// A UMR whose list covers `length` bytes from `address`, with a BSF.
  WqeBuilder signing(const HostQp& qp, std::uint32_t key, std::uint64_t address,
                     std::uint32_t length, const FillBsf& fill, const Fill& more = {}) {
    return registration(qp, key, length, 4,
                        [&](ControlView c, MaskView m, ContextView k) {
                          c.set(Control::bsf_octword_actual_size, 4);
                          m.set(Mask::bsf_en, 1);
                          k.set(Context::bsf_en, 1);
                          m.set(Mask::a, 0);
                          k.set(Context::start_addr, 0);
                          if (more) more(c, m, k);
                        })
        .klm(length, kKey, address)
        .octwords_of_zero(3)
        .bsf(fill);
  }
  void set_psv(HostQp& qp, std::uint32_t psv) {
    expect_success(qp, wqe(qp, Send::SET_PSV).set_psv(psv, kApp, kRef));
  }
  /// A key of data_ with its PSV, made by `qp`.
  std::uint32_t key_with_dif_on_wire(HostQp& qp) {
    const auto key = signature_key();
    expect_success(qp, signing(qp, key, data_, 4096, [&](BsfView bsf) { dif_on_wire(bsf); }));
    set_psv(qp, wire_psv_);
    return key;
  }
  /// The completions of an RDMA WRITE of the eight blocks at other_ to the peer's `key`.
  auto write_protected(HostQp& from, std::uint32_t key) {
    send(from, wqe(from, Send::RDMA_WRITE).remote(0, key).data(other_, 8 * kProtected, kKey));
    host_.run();
    return completions();
  }
  /// Writes the eight blocks of data_ with their protection to `to`.
  void put_protected(pcie::Iova to) {
    for (std::uint32_t block = 0; block != 8; ++block) {
      const auto* from = host_.at(data_ + std::uint64_t{block} * kBlock);
      auto* at = host_.at(to + std::uint64_t{block} * kProtected);
      std::memcpy(at, from, kBlock);
      const auto guard = rdma::add_to_guard(rdma::Guard::kCrcT10Dif, 0, std::span(from, kBlock), 0);
      util::store_be16(at + kBlock, static_cast<std::uint16_t>(guard));
      util::store_be16(at + kBlock + 2, kApp);
      util::store_be32(at + kBlock + 4, kRef + block);
    }
  }
  bool equal(pcie::Iova a, pcie::Iova b, std::size_t size) {
    return std::memcmp(host_.at(a), host_.at(b), size) == 0;
  }
  template <class Field>
  static std::uint64_t error(const HostCqe& cqe, Field) {
    return Field::read(cqe.bytes.data());
  }

  std::uint32_t memory_psv_ = 0;
  std::uint32_t wire_psv_ = 0;
  pcie::Iova data_ = 0;
  pcie::Iova other_ = 0;
};

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

// The error's CQE comes first, and the work request still succeeds.
TEST_F(SignatureHandover, AWrongBlockOfASendIsToldBeforeItsCompletion) {
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

TEST_F(SignatureHandover, AWrongTagOfAPeersWriteIsToldToTheReceiveCq) {
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

TEST_F(SignatureHandover, AQpWithoutReceivesTellsTheSendCq) {
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
TEST_F(SignatureHandover, TheNextErrorIsToldWhenTheDriverHasCountedTheLast) {
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

TEST_F(SignatureHandover, QueryMkeyTellsTheBsf) {
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
