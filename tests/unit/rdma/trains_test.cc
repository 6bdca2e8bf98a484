// Trains (wire/train.h) only change how packets are carried, not the protocol: the observable
// result must equal that of single packets. Each test runs the same scenario both ways and compares
// everything.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "rdma/pair.h"
#include "wire/train.h"

namespace softhca::rdma::test {
namespace {

using wire::Opcode;

std::uint64_t hash_of(std::span<const std::byte> bytes) {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

/// Two hosts that follow a seed, and a record of everything observable.
class Conversation {
 public:
  Conversation(WireOptions options, unsigned seed, QpType type, Joined joined)
      : pair_(options, seed, joined), random_(seed), type_(type) {
    pair_.adjust = [seed](QpAttributes& attributes) {
      attributes.path_mtu = 256u << seed % 5;
      attributes.rnr_retry = 7;
      attributes.retry_count = 7;
      attributes.ack_timeout = 8;
    };
    pair_.capture = [this](std::span<const std::byte> bytes, bool to_b) {
      log_ += fmt::format("{} {} {} {:x}\n", pair_.now.time_since_epoch().count(), to_b ? ">" : "<",
                          bytes.size(), hash_of(bytes));
    };
    pair_.a.fill(0, kMemorySize / 2, seed);
    pair_.b.fill(0, kMemorySize / 2, seed + 1000);
    make_short_key(pair_.a);
    make_short_key(pair_.b);
    pair_.connect(type);
  }

  std::string run() {
    for (unsigned round = 0; round < 6; ++round) {
      for (unsigned i = random_() % 4; i != 0; --i) post(pair_.a, *pair_.qa);
      for (unsigned i = random_() % 4; i != 0; --i) post(pair_.b, *pair_.qb);
      for (unsigned i = random_() % 4; i != 0; --i) receive(pair_.a, *pair_.qa);
      for (unsigned i = random_() % 4; i != 0; --i) receive(pair_.b, *pair_.qb);
      pair_.drive_for(std::chrono::microseconds(random_() % 300));
    }
    for (unsigned i = 0; i < 40; ++i) {
      receive(pair_.a, *pair_.qa);
      receive(pair_.b, *pair_.qb);
    }
    pair_.drive();
    tell(pair_.a);
    tell(pair_.b);
    return std::move(log_);
  }

  static constexpr MKey kShortKey{0x1299'56};

 private:
  /// The key is longer than its pages, so that messages fail in the middle.
  static void make_short_key(End& end) {
    MemoryKey::Attributes key;
    key.key = kShortKey;
    key.pd = kPd;
    key.access = kLocalRead | kLocalWrite | kRemoteRead | kRemoteWrite;
    key.start = kKeyStart;
    key.length = kMemorySize;
    for (std::size_t page = 0; page < kMemorySize / 8192; ++page) {
      key.pages.push_back(kMemoryIova + page * 4096);
    }
    end.keys.insert(key);
  }

  std::uint32_t length() {
    switch (random_() % 4) {
      case 0:
        return static_cast<std::uint32_t>(random_() % 64);
      case 1:
        return static_cast<std::uint32_t>(random_() % 8192);
      default:
        return static_cast<std::uint32_t>(random_() % 150'000);
    }
  }
  std::uint64_t place() { return random_() % (kMemorySize - 200'000); }

  void post(End& end, QueuePair& qp) {
    const auto kinds = type_ == QpType::kRc ? 6 : 4;
    auto request = [&] {
      switch (random_() % kinds) {
        case 0:
          return send(place(), length());
        case 1:
        case 2:
          return write(place(), place(), length());
        case 3: {
          auto r = write(place(), place(), length());
          r.opcode = SendOpcode::kRdmaWriteWithImmediate;
          r.immediate = static_cast<std::uint32_t>(random_());
          return r;
        }
        case 4:
          return read(place(), place(), length());
        default:
          return fetch_add(place() / 8 * 8, place() / 8 * 8, random_());
      }
    }();
    request.cookie = ++cookie_;
    request.solicited = random_() % 2 != 0;
    request.fence = random_() % 8 == 0;
    if (random_() % 40 == 0) request.rkey = kShortKey;
    if (random_() % 40 == 0) request.sges[0].lkey = kShortKey;
    if (request.sges[0].length > 1000 && random_() % 3 == 0) divide(request.sges);
    end.post(qp, std::move(request));
  }

  /// Splits the same bytes into several pieces from several places.
  void divide(std::vector<Sge>& sges) {
    const auto whole = sges[0];
    sges.clear();
    for (std::uint32_t done = 0; done < whole.length;) {
      const auto n = std::min<std::uint32_t>(
          whole.length - done,
          sges.size() == 29 ? whole.length : static_cast<std::uint32_t>(1 + random_() % 20'000));
      sges.push_back({kKeyStart + random_() % (kMemorySize - 200'000), n, whole.lkey});
      done += n;
    }
  }

  void receive(End& end, QueuePair& qp) {
    const auto size = random_() % 60 == 0 ? 5000u : 150'000u;
    end.post_receive(qp, {End::sge(place(), size / 2), End::sge(place(), size - size / 2)},
                     ++cookie_);
  }

  void tell(End& end) {
    for (const auto& s : end.hca.sends) {
      log_ += fmt::format("send {} {} {} {}\n", s.cookie, static_cast<int>(s.status), s.byte_count,
                          static_cast<int>(s.reason));
    }
    for (const auto& [qpn, c] : end.hca.receives) {
      log_ += fmt::format("receive {} {} {} {} {}\n", c.cookie, static_cast<int>(c.status),
                          c.byte_count, c.immediate, c.solicited);
    }
    for (const auto& e : end.hca.events) {
      log_ += fmt::format("event {} {}\n", static_cast<int>(e.event), static_cast<int>(e.reason));
    }
    log_ += end.transport.inspect();
    for (const auto& info : qp_counter_table()) {
      log_ += fmt::format("{} {}\n", info.name, end.counters.*info.value);
    }
    log_ += fmt::format("memory {:x}\n", hash_of(end.memory));
  }

  Pair pair_;
  std::mt19937 random_;
  QpType type_;
  std::uint32_t cookie_ = 0;
  std::string log_;
};

struct TrainCase {
  const char* name;
  WireOptions wire;
};
const TrainCase kCases[] = {
    {"clean", {}},
    {"lossy", {.loss = 0.01}},
    {"doubling", {.duplicate = 0.02}},
    {"reordering", {.late = 0.02}},
    {"all", {.loss = 0.01, .duplicate = 0.01, .late = 0.01}},
};

class TrainsTest : public ::testing::TestWithParam<unsigned> {};

TEST_P(TrainsTest, EverythingIsAsPacketByPacket) {
  const auto seed = GetParam();
  const auto& [name, wire] = kCases[seed / 4 % std::size(kCases)];
  const auto type = seed % 2 == 0 ? QpType::kRc : QpType::kUc;
  const auto joined = seed / 2 % 2 == 0 ? Joined::kRoceV2 : Joined::kGlobal;
  auto with = wire;
  with.trains = true;
  const auto packets = Conversation(wire, seed, type, joined).run();
  const auto trains = Conversation(with, seed, type, joined).run();
  const auto differs =
      std::mismatch(packets.begin(), packets.end(), trains.begin(), trains.end()).first;
  const auto place = static_cast<std::size_t>(differs - packets.begin());
  ASSERT_TRUE(packets == trains) << name << ": first difference at " << packets.substr(place, 300);
}

/// Combines each kind of wire with each service and each link.
INSTANTIATE_TEST_SUITE_P(Seeds, TrainsTest, ::testing::Range(0u, 20u));

}  // namespace
}  // namespace softhca::rdma::test
