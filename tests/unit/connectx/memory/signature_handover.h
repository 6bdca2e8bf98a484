// PSVs, and keys with a BSF as mlx5_ib and libmlx5 post them (mlx5 driver interface 8.3, 8.6).
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>

#include "connectx/memory/umr_host.h"
#include "rdma/guard.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx::test {

class SignatureHandover : public UmrTest {
 protected:
  using Status = spec::connectx::command_status;
  using Bsf = spec::connectx::block_signature_format;
  using Inline = spec::connectx::bsf_inline;
  using BsfView = util::MutableView<Bsf>;
  using FillBsf = std::function<void(BsfView)>;
  using ErrorCqe = spec::connectx::cqe_signature_error;
  static constexpr std::uint16_t kApp = 0xABCD;
  static constexpr std::uint32_t kRef = 0x01234567;
  static constexpr std::uint32_t kBlock = 512;
  static constexpr std::uint32_t kProtected = 520;

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

}  // namespace softhca::connectx::test
