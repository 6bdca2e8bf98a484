// A client that makes the register accesses of the driver that JingZhao's author has published: the
// kernel module ib_hgrnic and its library libhgrnic of the public repository liaoyunkun/Jingzhao.
// None of its code is copied here. docs/interface/jingzhao.md says what the driver does, and cites
// the same sections.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "jingzhao/raw_host.h"
#include "spec/jingzhao/context.h"
#include "spec/jingzhao/cqe.h"
#include "spec/jingzhao/wqe.h"

namespace softhca::jingzhao::test {

// The formats that the driver and its tests read and write.
using enum hcr_status;
using spec::jingzhao::cq_context;
using spec::jingzhao::cqe;
using spec::jingzhao::data_unit;
using spec::jingzhao::eq_context;
using spec::jingzhao::eqe;
using spec::jingzhao::error_cqe;
using spec::jingzhao::event_type;
using spec::jingzhao::inline_unit;
using spec::jingzhao::mpt_entry;
using spec::jingzhao::next_unit;
using spec::jingzhao::qp_context;
using spec::jingzhao::qp_state;
using spec::jingzhao::qp_type;
using spec::jingzhao::raddr_unit;
using spec::jingzhao::ud_unit;
using spec::jingzhao::wqe_opcode;

/// The constants of the driver, and for a card of the document what a port must change in it.
/// Written down here, not taken from src/jingzhao/profile.h.
struct AuthorsCard {
  Profile profile;
  std::uint16_t device_id;
  std::uint64_t hcr;  ///< offset in BAR0
  unsigned log_qps, log_cqs, log_mpts;
  bool polls_go;                 ///< reads `go` at its place, and so waits for commands
  std::uint32_t mtts_announced;  ///< most entries that in_modifier of WRITE_MTT names
  std::uint32_t first_qpn;
  bool numbers_count_on;             ///< a freed number comes back with other upper bits
  bool marks_all_memory;             ///< sets `physical` for a region of all memory
  bool sets_qkey;                    ///< in the QP context
  unsigned port_bit, rnr_timer_bit;  ///< of opt_param_mask
};
inline constexpr AuthorsCard kCardOfTheDriver{.profile = Profile::kDriver,
                                              .device_id = 0x7028,
                                              .hcr = 0,
                                              .log_qps = 16,
                                              .log_cqs = 16,
                                              .log_mpts = 17,
                                              .polls_go = false,
                                              .mtts_announced = UINT32_MAX,
                                              .first_qpn = 0,
                                              .numbers_count_on = true,
                                              .marks_all_memory = false,
                                              .sets_qkey = false,
                                              .port_bit = 11,
                                              .rnr_timer_bit = 6};
inline constexpr AuthorsCard kCardOfTheDocument{.profile = Profile::kDocument,
                                                .device_id = 0x1011,
                                                .hcr = 0x80000,
                                                .log_qps = 14,
                                                .log_cqs = 13,
                                                .log_mpts = 14,
                                                .polls_go = true,
                                                .mtts_announced = 508,
                                                .first_qpn = 2,
                                                .numbers_count_on = false,
                                                .marks_all_memory = true,
                                                .sets_qkey = true,
                                                .port_bit = 5,
                                                .rnr_timer_bit = 15};

/// For messages of gtest.
inline void PrintTo(const AuthorsCard& card, std::ostream* out) {
  *out << (card.profile == Profile::kDriver ? "card of the driver" : "card of the document");
}

/// The driver's numbers of QPs, CQs and MPT entries.
class AuthorsNumbers {
 public:
  AuthorsNumbers(std::uint32_t first, unsigned log_count, bool counts_on)
      : next_(first), count_(1u << log_count), counts_on_(counts_on) {}
  std::uint32_t take();
  void free(std::uint32_t number);
  std::uint32_t index(std::uint32_t number) const { return number & (count_ - 1); }

 private:
  std::uint32_t next_;
  std::uint32_t count_;
  bool counts_on_;
  std::uint32_t upper_ = 0;
  std::set<std::uint32_t> used_;
};

class AuthorsDriver {
 public:
  static constexpr std::uint32_t kPd = 1;
  /// Its least size of a WQE, which suits the requests here.
  static constexpr unsigned kLogSlot = 7;
  static constexpr std::uint32_t kSlot = 1u << kLogSlot;
  static constexpr std::uint32_t kKernelCqEntries = 32;
  /// Most WQEs of a doorbell.
  static constexpr std::uint32_t kListMax = 255;

  struct Memory {
    driver::DmaRegion region;
    std::uint32_t key = 0;
    std::uint32_t first_mtt = 0;
    std::uint32_t pages = 0;                               ///< 0: it has no MTT entries
    std::uint64_t address() const { return region.iova; }  ///< bus address of the region
  };
  struct Cq {
    Memory ring;
    std::uint32_t cqn = 0, mask = 0, consumer = 0;
  };
  /// A send or receive queue. The counters never decrease.
  struct Queue {
    Memory memory;
    std::uint32_t slots = 0, head = 0, tail = 0, last_done = 0;
    std::vector<std::uint64_t> ids;  ///< by slot
    std::byte* last = nullptr;       ///< WQE that was posted last
    std::span<std::byte> slot(std::uint32_t number) const {
      return memory.region.bytes.subspan(number % slots * kSlot, kSlot);
    }
    bool has_room(std::uint32_t more) const { return head - tail + more < slots; }
  };
  struct Qp {
    std::uint32_t qpn = 0;
    qp_type type = qp_type::RC;
    qp_state state = qp_state::RST;
    Queue sends, receives;
    Cq* send_cq = nullptr;
    Cq* receive_cq = nullptr;
    // Attributes of earlier transitions: the context repeats them each time.
    std::uint32_t remote_qpn = 0, psn = 0, epsn = 0, mtu = 0, msgmax = 0, rnr_timer = 0;
    std::uint32_t qkey = 0;
  };
  /// Attributes of one MODIFY_QP.
  struct Change {
    std::optional<std::uint32_t> remote_qpn = {}, psn = {}, epsn = {}, mtu = {}, rnr_timer = {};
    bool port = false;
  };
  struct Piece {
    std::uint64_t at = 0;
    std::uint32_t length = 0;
    std::uint32_t lkey = 0;
  };
  struct Wr {
    std::uint64_t id = 0;
    wqe_opcode opcode = wqe_opcode::SEND;
    std::vector<Piece> pieces = {};
    std::uint64_t to = 0;
    std::uint32_t rkey = 0;
    bool fence = false;
    std::uint32_t immediate = 0;
    bool is_inline = false;                         ///< the pieces' bytes are in the WQE
    std::uint32_t remote_qpn = 0, remote_qkey = 0;  ///< UD
  };
  struct Done {
    std::uint64_t id = 0;
    Qp* qp = nullptr;
    bool of_send = false;
    std::uint32_t opcode = 0, bytes = 0, immediate = 0, source = 0;
    std::uint32_t syndrome = 0;  ///< 0: success
  };

  explicit AuthorsDriver(const AuthorsCard& card);

  // Commands.
  hcr_status command(command_opcode op, std::uint32_t in_modifier, std::uint8_t op_modifier = 0) {
    return command_with(op, in_modifier, h.in.iova, op_modifier);
  }
  hcr_status command_with(command_opcode op, std::uint32_t in_modifier, std::uint64_t in_param,
                          std::uint8_t op_modifier);

  /// From reading the PCI IDs to the kernel's own CQ.
  void probe();
  /// Unloads. The kernel's CQ, and all that is left, stay installed until CLOSE_HCA.
  void remove();

  /// `start_at`: the address in the region of its first byte; the bus address if there is none.
  Memory register_memory(std::size_t size, std::optional<std::uint64_t> start_at = std::nullopt);
  /// A region of all memory (get_dma_mr). Returns the key.
  std::uint32_t register_all_memory();
  /// A region of many pages of `page`, which are all the same memory.
  Memory register_repeated(std::uint64_t page, std::uint32_t pages);
  void deregister(Memory& memory);

  std::unique_ptr<Cq> create_cq(std::uint32_t entries);
  hcr_status resize(Cq& cq, std::uint32_t entries);
  void destroy(Cq& cq);

  std::unique_ptr<Qp> create_qp(Cq& send_cq, Cq& receive_cq, std::uint32_t slots = 8,
                                qp_type type = qp_type::RC);
  hcr_status modify(Qp& qp, qp_state to, const Change& change);
  hcr_status modify(Qp& qp, qp_state to) { return modify(qp, to, {}); }
  /// RST to RTS with the attributes that a program gives.
  void connect(Qp& qp, const Qp& peer);
  void destroy(Qp& qp);
  /// The state in the context of QUERY_QP.
  qp_state query(const Qp& qp);

  /// Posts a list, with a doorbell for each kListMax WQEs. Returns how many had room.
  std::size_t post_send(Qp& qp, std::span<const Wr> list);
  std::size_t post_receive(Qp& qp, std::span<const Wr> list);
  /// The next completion. Nothing if there is none, or if it is of a QP that is gone.
  std::optional<Done> poll(Cq& cq);
  /// Runs the card until `count` completions are polled, or no more come.
  std::vector<Done> wait(Cq& cq, std::size_t count);
  void run() { h.run(); }

  RawHost h;

 private:
  static constexpr std::size_t kIcmChunk = 256 << 10;
  struct Chunk {
    driver::DmaRegion memory;
    unsigned users = 0;
  };
  struct Table {
    std::uint64_t base = 0;
    std::uint64_t entries = 0;
    std::uint64_t entry = 0;  ///< bytes
    std::uint8_t group = 1;
    std::map<std::uint64_t, Chunk> chunks = {};
    std::uint64_t size() const { return entries * entry; }
  };

  void place_tables();
  void init_hca();
  void map(const Table& table, std::uint64_t virt, const driver::DmaRegion& memory);
  void use(Table& table, std::uint32_t index);
  void release(Table& table, std::uint32_t index);
  std::uint32_t take_mtts(std::uint32_t pages);
  /// `step`: from the address of a page to the next.
  void write_mtts(std::uint32_t first, std::uint64_t page, std::uint64_t step, std::uint32_t count);
  void write_mtt(std::uint32_t first, std::uint64_t page, std::uint64_t step, std::uint32_t count);
  void give_mpt(Memory& memory, std::uint64_t start, std::uint64_t length);
  Memory make_queue(std::size_t size);
  void fill_context(const Qp& qp, qp_state to);
  void reset_indices(Qp& qp);
  void clean(Cq& cq, std::uint32_t qpn);
  std::uint32_t put_wqe(const Qp& qp, std::span<std::byte> wqe, const Wr& wr);
  void ring(Qp& qp, const Wr& first, std::uint32_t units, std::uint32_t count);
  void give_back(Cq& cq, std::uint32_t index) {
    cq.ring.region.bytes[(index & cq.mask) * spec::jingzhao::cqe::kSize + 31] = std::byte{0x80};
  }

  AuthorsCard card_;
  AuthorsNumbers qpns_, cqns_, keys_;
  Table qpc_, cqc_, eqc_, mpt_, mtt_;
  std::map<std::uint32_t, std::set<std::uint32_t>> free_mtts_;  ///< by length
  std::uint32_t next_mtt_ = 0;
  std::map<std::uint32_t, Qp*> qps_;  ///< by the lower bits of the number
  std::unique_ptr<Cq> kernel_cq_;
};

}  // namespace softhca::jingzhao::test
