// Two transports on virtual time, and a wire between them that a test controls. The wire delays,
// loses, doubles and reorders packets by seed, or asks the test about each one.
//
// A frame is queued by reference, as in a switch, until both transports have run; only then is its
// payload read. It crosses the wire as bytes, with its ICRC computed and checked, as between two
// hosts.
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fabric/port.h"
#include "rdma/engine.h"
#include "rdma/test_hca.h"
#include "rdma/transport.h"
#include "util/clock.h"
#include "wire/ib_packet.h"

namespace softhca::rdma::test {

using namespace std::chrono_literals;

inline constexpr std::size_t kMemorySize = std::size_t{5} << 20;
inline constexpr pcie::Iova kMemoryIova = 0x1'0000'0000;
inline constexpr std::uint64_t kKeyStart = 0x7000'0000;  ///< virtual address of the memory's start
inline constexpr MKey kKey{0x1234'56};
inline constexpr MKey kReservedLkey{0x500};
inline constexpr MKey kNullKey{0x600};
inline constexpr MKey kDumpFillKey{0x700};
inline constexpr Pd kPd{7};

/// The fate of a packet on the wire.
enum class Fate { kDeliver, kLose, kDouble, kLate };

/// The link between the hosts.
enum class Joined { kRoceV2, kRoceV1, kLocal, kGlobal };
inline constexpr Joined kAllJoins[] = {Joined::kRoceV2, Joined::kRoceV1, Joined::kLocal,
                                       Joined::kGlobal};

/// One host: memory, HCA, transport.
class End final : public fabric::Port {
 public:
  explicit End(unsigned number, Joined joined = Joined::kRoceV2, std::size_t requests = 1u << 16,
               util::Duration ack_timeout_min = {});

  std::uint64_t transmit(const wire::Frame& frame) override;
  /// Transports only send to the wire; loopback is the device's task.
  std::uint64_t loop_back(const wire::Frame&, std::uint32_t) override { std::abort(); }
  std::uint64_t released() const override { return transmitted - waiting; }
  void set_receiver(fabric::Receiver*) override {}
  bool takes_trains() const override { return trains; }
  bool link_up() const override { return true; }

  /// An SGE of `length` bytes at `offset` in the memory.
  static Sge sge(std::uint64_t offset, std::uint32_t length, MKey key = kKey) {
    return {kKeyStart + offset, length, key};
  }
  std::byte* at(std::uint64_t offset) { return memory.data() + offset; }
  std::uint64_t load64(std::uint64_t offset) {
    std::uint64_t value;
    std::memcpy(&value, at(offset), 8);
    return value;
  }
  void store64(std::uint64_t offset, std::uint64_t value) { std::memcpy(at(offset), &value, 8); }
  /// Fills the memory with bytes that depend on place and seed.
  void fill(std::uint64_t offset, std::size_t length, unsigned seed);

  /// From now on, overwrites the memory of a completed send, as an application does that reuses it
  /// immediately.
  void use_memory_again();

  QueuePair& create_qp(Qpn qpn, QpType type, const QpAttributes& attributes,
                       const QpOptions& options) {
    auto& queues = hca.queues_of(qpn, options.uses_srq);
    return transport.create_qp(qpn, type, attributes, options, queues);
  }
  /// Posts and rings the doorbell.
  void post(QueuePair& qp, SendRequest request);
  void post_receive(QueuePair& qp, std::vector<Sge> sges, std::uint32_t cookie = 0);

  std::vector<std::byte> memory;
  pcie::DmaSpace dma;
  KeyTable keys{dma, KeyShape(8, 24), kReservedLkey, kNullKey, kDumpFillKey};
  TestHca hca;
  QpCounters counters;
  SourceAddress gid;
  LinkAttributes link;  ///< InfiniBand
  util::Notes notes;
  Transport transport;
  /// Runs the transport with a work budget of `packets` packets.
  util::Time run(util::Time now, unsigned packets = 512) {
    util::WorkBudget work(std::int64_t{packets} * Engine::kStepWork);
    return transport.run(now, work);
  }
  std::function<void(End&, const wire::Frame&)> on_transmit;
  std::uint64_t transmitted = 0;  ///< frames transmitted
  std::uint64_t waiting = 0;      ///< transmitted frames that a Pair still holds by reference
  bool trains = false;
  std::size_t queued = 0;  ///< what delivers_last() reports from; 0: the port does not know

 private:
  std::map<std::uint32_t, std::vector<Sge>> posted_;  ///< by cookie, if memory is reused
  bool uses_memory_again_ = false;
};

struct WireOptions {
  util::Duration latency = 1us;
  double loss = 0;
  double duplicate = 0;
  double late = 0;  ///< probability of a packet overtaken by others
  util::Duration lateness = 20us;
  std::size_t requests = 1u << 16;  ///< PortOptions of both
  util::Duration ack_timeout_min{0};
  /// As within a process: frames stay frames, and packets with the same fate may travel as trains.
  bool trains = false;
};

class Pair {
 public:
  explicit Pair(WireOptions options = {}, unsigned seed = 1, Joined joined = Joined::kRoceV2);

  /// Connects a pair of QPs and takes them to RTS: 0x11 on a, and 0x22 on b.
  void connect(QpType type = QpType::kRc);
  /// Takes `qp` from RESET to RTS.
  static void to_rts(End& end, QueuePair& qp, const QpAttributes& attributes);
  /// Changes attributes that only a drained QP may change: RTS to SQD, SQD to SQD, and back.
  static void change_drained(End& end, QueuePair& qp, const QpAttributes& attributes);
  QpAttributes attributes_for(End& from, End& to, Qpn remote) const;
  Path path_to(const End& to) const;

  /// Advances to the next event. False if none will come.
  bool step();
  /// Steps until nothing is in flight. Fails the test after `steps_max`.
  void drive(unsigned steps_max = 300'000);
  /// Runs until `time` has passed.
  void drive_for(util::Duration time);
  /// Reads the queued frames and puts them on the wire. step() calls this after both have run.
  void carry();

  WireOptions options;
  /// Applied to the QPs of connect() before they leave RESET.
  std::function<void(QpAttributes&)> adjust;
  QpOptions qp_options;
  /// Decides the fate of each packet before the random faults. `to_b`: from a to b.
  std::function<Fate(const wire::IbPacket&, bool to_b)> script;
  /// Called with each packet as it is put on the wire.
  std::function<void(std::span<const std::byte>, bool to_b)> capture;
  /// Opcodes and PSNs that were sent, for tests that check the exchange.
  struct Sent {
    wire::IbPacket packet;
    bool to_b;
  };
  std::vector<Sent> sent;
  bool keep_sent = false;

  util::Time now{};
  Joined joined;
  End a{1, joined, options.requests, options.ack_timeout_min};
  End b{2, joined, options.requests, options.ack_timeout_min};
  QueuePair* qa = nullptr;
  QueuePair* qb = nullptr;

 private:
  struct InFlight {
    util::Time due;
    std::uint64_t order;
    bool to_b;
    std::vector<std::byte> bytes;
    std::shared_ptr<wire::Frame>
        whole;  ///< used instead of the bytes: the frame stays in the process
    bool operator>(const InFlight& o) const { return due != o.due ? due > o.due : order > o.order; }
  };
  struct Waiting {
    End* from;
    wire::Frame frame;
  };
  util::Time run_both();
  void take(End& from, const wire::Frame& frame);
  void carry(End& from, const wire::Frame& frame);
  void carry_train(End& from, const wire::Frame& train);
  struct Fates {
    bool lost = false;
    bool late = false;
    bool doubled = false;
  };
  Fates fates_of(const wire::Frame& packet, bool to_b);
  void put_bytes(bool to_b, const wire::Frame& packet, Fates fates);
  void put(bool to_b, const std::vector<std::byte>& bytes, util::Duration delay,
           std::shared_ptr<wire::Frame> whole);
  bool chance(double probability) {
    return probability > 0 && std::uniform_real_distribution<>(0, 1)(random_) < probability;
  }

  std::mt19937 random_;
  std::vector<Waiting> waiting_;
  std::vector<InFlight> wire_;  ///< a heap
  std::uint64_t order_ = 0;
};

/// Short builders of requests.
SendRequest send(std::uint64_t offset, std::uint32_t length);
/// A datagram to a QP of `to`.
SendRequest datagram_to(const End& to, std::uint64_t offset, std::uint32_t length,
                        Qpn qpn = Qpn(0x22));
SendRequest write(std::uint64_t from, std::uint64_t to, std::uint32_t length);
SendRequest read(std::uint64_t to, std::uint64_t from, std::uint32_t length);
SendRequest fetch_add(std::uint64_t result, std::uint64_t at, std::uint64_t add);
SendRequest compare_swap(std::uint64_t result, std::uint64_t at, std::uint64_t compare,
                         std::uint64_t swap);

}  // namespace softhca::rdma::test
