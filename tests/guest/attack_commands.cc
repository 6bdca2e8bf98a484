#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "attacks.h"
#include "spec/connectx/command.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/qp.h"

namespace softhca::guest {
namespace {

using namespace spec::connectx;  // NOLINT(google-build-using-namespace): of this file alone
using driver::connectx::Request;
using neighbours::must;

constexpr std::size_t kStride = 1024;  // of mailbox blocks (PRM Table 98)
constexpr std::size_t kInline = 16;
constexpr std::size_t kData = command_mailbox_block::mailbox_data.kSize;
/// All slots except the first and the last, which the driver uses.
constexpr unsigned kFirstSlot = 1, kSlots = 30;

/// A chain of mailbox blocks. Inputs and outputs of all slots may share it.
class Chain {
 public:
  Chain(Life& life, std::size_t message)
      : memory_(must(driver::DmaBuffer::allocate(life.host(), blocks(message) * kStride))) {
    for (std::size_t i = 0; i != blocks(message); ++i) {
      const auto next = i + 1 < blocks(message) ? memory_.iova((i + 1) * kStride) : 0;
      const auto at = block(i);
      at.set(command_mailbox_block::next_pointer, next >> command_mailbox_block::next_pointer.kLo);
      at.set(command_mailbox_block::block_number, static_cast<std::uint32_t>(i));
    }
  }
  std::uint64_t iova() const { return memory_.iova(); }
  /// Stores the part of an input that does not fit inline.
  void fill(std::span<const std::byte> rest) {
    for (std::size_t i = 0; !rest.empty(); ++i) {
      const auto n = std::min(rest.size(), kData);
      std::ranges::copy(rest.first(n), block(i).bytes().begin());
      rest = rest.subspan(n);
    }
  }

 private:
  static std::size_t blocks(std::size_t message) { return (message + kData - 1) / kData; }
  util::MutableView<command_mailbox_block> block(std::size_t i) const {
    return util::MutableView<command_mailbox_block>(memory_.bytes().subspan(i * kStride));
  }
  driver::DmaBuffer memory_;
};

/// Posts commands in all slots together, bypassing the driver.
class Slots {
 public:
  explicit Slots(Life& life) : life_(life) {}

  void write(unsigned slot, std::span<const std::byte> input, std::uint64_t input_chain,
             std::uint32_t output_length, std::uint64_t output_chain) {
    using E = command_queue_entry;
    const auto entry = at(slot);
    std::ranges::fill(entry.bytes().first<E::kSize>(), std::byte{0});
    entry.set(E::type, 7);  // PRM Table 96: PCI transport
    entry.set(E::input_length, static_cast<std::uint32_t>(input.size()));
    std::ranges::copy(input.first(std::min(input.size(), kInline)),
                      entry.sub(E::command_input_inline_data).begin());
    entry.set(E::input_mailbox_pointer, input_chain >> E::input_mailbox_pointer.kLo);
    entry.set(E::output_length, output_length);
    entry.set(E::output_mailbox_pointer, output_chain >> E::output_mailbox_pointer.kLo);
    entry.set(E::ownership, 1);
  }
  /// Rings the doorbell for all slots, and waits until the device has answered.
  void run() {
    std::atomic_thread_fence(std::memory_order_release);
    life_.loop().hca().commands().init_segment().write(init_segment::command_doorbell_vector,
                                                       ((1u << kSlots) - 1) << kFirstSlot);
    life_.did(kSlots);
    for (unsigned i = 0; i != kSlots; ++i) {
      while (at(kFirstSlot + i).get(command_queue_entry::ownership) != 0 && life_.goes_on()) {
        std::this_thread::yield();
      }
    }
  }

 private:
  util::MutableView<command_queue_entry> at(unsigned slot) const {
    const auto stride = std::size_t{1} << life_.loop().hca().commands().init_segment().read(
                            init_segment::log_cmdq_stride);
    return util::MutableView<command_queue_entry>(life_.command_queue().subspan(slot * stride));
  }
  Life& life_;
};

constexpr std::uint32_t kShortOutput = 16;

/// Executes a command that makes an object again and again, in all slots.
void make_many(Life& life, std::span<const std::byte> input, std::uint64_t most) {
  Chain rest(life, 4096);
  if (input.size() > kInline) rest.fill(input.subspan(kInline));
  Slots slots(life);
  for (std::uint64_t made = 0; made < most && life.goes_on(); made += kSlots) {
    for (unsigned i = 0; i != kSlots; ++i) {
      slots.write(kFirstSlot + i, input, rest.iova(), kShortOutput, 0);
    }
    slots.run();
  }
}

Request<create_qp_in> create_qp(Life& life, const driver::DmaBuffer& ring) {
  Request<create_qp_in> in(command_opcode::CREATE_QP, driver::connectx::page_list_size(4096));
  const auto context = in.sub(create_qp_in::qpc);
  context.set(qpc::st, static_cast<std::uint32_t>(service_type::RC));
  context.set(qpc::pm_state, static_cast<std::uint32_t>(pm_state::MIGRATED));
  context.set(qpc::pd, life.loop().pd());
  context.set(qpc::log_rq_size, 4);
  context.set(qpc::log_sq_size, 4);
  context.set(qpc::uar_page, life.loop().hca().uar());
  context.set(qpc::cqn_snd, life.loop().cq().cqn());
  context.set(qpc::cqn_rcv, life.loop().cq().cqn());
  context.set(qpc::dbr_addr, ring.iova(2048));
  driver::connectx::store_page_list(in.all().subspan(create_qp_in::pas_offset), ring);
  return in;
}

Request<create_mkey_in> create_mkey(Life& life) {
  Request<create_mkey_in> in(command_opcode::CREATE_MKEY);
  const auto context = in.sub(create_mkey_in::mkey_context);
  context.set(mkey_context::access_mode, static_cast<std::uint32_t>(mkey_access_mode::PA));
  context.set(mkey_context::length64, 1);
  context.set(mkey_context::pd, life.loop().pd());
  context.set(mkey_context::qpn, 0xffffff);
  return in;
}

}  // namespace

void give_random_commands(Life& life) {
  constexpr std::size_t kLongest = 4096;
  Chain rest(life, kLongest), output(life, kLongest);
  Slots slots(life);
  std::vector<std::byte> input(kLongest);
  // Some hundred random commands break the function; then the attack needs a new life.
  for (int round = 0; round < 50 && life.goes_on(); ++round) {
    life.fill_at_random(input);
    // Half of the payloads are zeros but for the header, as in valid commands.
    if (life.below(2) == 0) std::ranges::fill(std::span(input).subspan(32), std::byte{0});
    rest.fill(std::span(input).subspan(kInline));
    for (unsigned i = 0; i != kSlots; ++i) {
      const auto opcode = 0x100 + life.below(0x900);
      util::MutableView<command_input_header> header(input);
      header.set(command_input_header::opcode, static_cast<std::uint32_t>(opcode));
      header.set(command_input_header::uid, 0);
      header.set(command_input_header::op_mod, static_cast<std::uint32_t>(life.below(4)));
      if (life.below(2) == 0)
        util::store_be32(input.data() + 8, static_cast<std::uint32_t>(life.below(256)));
      slots.write(kFirstSlot + i, std::span(input).first(16 + life.below(kLongest - 16)),
                  rest.iova(), static_cast<std::uint32_t>(8 + life.below(kLongest - 8)),
                  output.iova());
    }
    slots.run();
  }
}

void ask_for_long_outputs(Life& life) {
  constexpr std::uint32_t kOutput = 512 << 10;  // the longest output of any command
  constexpr std::uint32_t kTooLong = 32 << 20;
  Chain output(life, kOutput);
  Slots slots(life);
  while (life.goes_on()) {
    for (unsigned i = 0; i != kSlots; ++i) {
      Request<manage_pages_in> in(i % 2 == 0 ? command_opcode::MANAGE_PAGES
                                             : command_opcode::QUERY_HCA_CAP);
      in.set(manage_pages_in::op_mod, static_cast<std::uint32_t>(manage_pages_op_mod::TAKE));
      in.set(manage_pages_in::input_num_entries, kOutput / manage_pages_out::pas_size);
      slots.write(kFirstSlot + i, in.all(), 0, i % 8 == 7 ? kTooLong : kOutput, output.iova());
    }
    slots.run();
  }
}

void make_objects_and_go(Life& life) {
  const auto ring = must(driver::DmaBuffer::allocate(life.host(), 4096));
  switch (life.below(3)) {
    case 0:
      return make_many(life, create_qp(life, ring).all(), 1 << 17);
    case 1:
      return make_many(life, create_mkey(life).all(), 1 << 20);
    default:
      for (const auto opcode :
           {command_opcode::ALLOC_PD, command_opcode::ALLOC_XRCD, command_opcode::ALLOC_UAR,
            command_opcode::ALLOC_TRANSPORT_DOMAIN, command_opcode::ALLOC_Q_COUNTER}) {
        std::array<std::byte, 16> input{};
        util::MutableView<command_input_header>(input).set(command_input_header::opcode,
                                                           static_cast<std::uint32_t>(opcode));
        make_many(life, input, 1 << 13);
      }
  }
}

}  // namespace softhca::guest
