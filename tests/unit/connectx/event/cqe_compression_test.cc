// Compressed CQEs (PRM Table 76: cqe_compression_en; mlx5 driver interface 8.7), read as software
// reads them. A title CQE holds the count of mini CQEs in its byte count; each mini CQE has 8
// bytes.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "connectx/event/completion_queue.h"
#include "connectx/event/event_queue.h"
#include "pcie/dma_space.h"
#include "spec/connectx/cqe.h"
#include "util/endian.h"
#include "util/field.h"

namespace softhca::connectx {
namespace {

using namespace std::chrono_literals;
using MiniFormat = spec::connectx::mini_cqe_format;
using CqeLayout = spec::connectx::cqe64;
using Mini = spec::connectx::mini_cqe_checksum;
using Hash = spec::connectx::mini_cqe_hash;
using CqeFormat = spec::connectx::cqe_format;
using CqeCode = spec::connectx::cqe_opcode;
using CqeBytes = std::array<std::byte, 64>;

/// One receive as software decodes it.
struct Receive {
  std::uint32_t bytes = 0;
  std::uint16_t wqe = 0;
  std::uint32_t check = 0;  ///< checksum or hash
  bool compressed = false;

  friend bool operator==(const Receive&, const Receive&) = default;
};

class CqeCompression : public testing::Test, private pcie::InterruptSink {
 protected:
  static constexpr pcie::Iova kBase = 0x10000;
  static constexpr std::size_t kRing = 0x2000;
  static constexpr std::size_t kRecord = 0x4000;
  static constexpr unsigned kLogSize = 5;
  static constexpr std::uint32_t kSize = 1u << kLogSize;

  CqeCompression() {
    EXPECT_TRUE(dma_.map(kBase, memory_.size(), memory_.data(), pcie::DmaAccess::kReadWrite));
    msix_.set_sink(this);
    EventQueue::Attributes eq;
    eq.log_size = 6;
    eq.queue = queue(kBase, 64 * kEqeSize, 0);
    eqs_.create(std::move(eq))->handle_doorbell(0, false);
    make(MiniFormat::CHECKSUM);
  }
  void make(MiniFormat format) {
    cq_.reset();
    for (std::uint32_t i = 0; i != kSize; ++i) entry(i)[63] = std::byte{0xF1};
    producer_ = consumer_ = 0;
    CompletionQueue::Attributes cq;
    cq.log_size = kLogSize;
    cq.compression = format;
    cq.queue = queue(kBase + kRing, kSize * 64, kBase + kRecord);
    util::store_be32(&memory_[kRecord], 0);
    cq_ = std::make_unique<CompletionQueue>(Cqn(1), std::move(cq), eqs_, moderation_);
  }

  MappedQueue queue(pcie::Iova at, std::uint64_t size, pcie::Iova record) {
    std::vector<std::byte> pas;
    for (std::uint64_t done = 0; done < size; done += 4096) {
      pas.resize(pas.size() + 8);
      util::store_be64(pas.data() + pas.size() - 8, at + done);
    }
    return *QueueMapper(dma_, translations_, user_memories_, work_)
                .map({.size = size, .pas = pas, .dbr_addr = record}, "");
  }

  // Device side.
  static CqeBytes cqe(std::uint16_t wqe, std::uint32_t bytes, std::uint16_t checksum = 0x1111) {
    CqeBytes cqe{};
    const util::MutableView<CqeLayout> view(cqe);
    view.set(CqeLayout::opcode, static_cast<std::uint32_t>(CqeCode::RESPONDER_SEND));
    view.set(CqeLayout::wqe_counter, wqe);
    view.set(CqeLayout::byte_cnt, bytes);
    view.set(CqeLayout::checksum, checksum);
    view.set(CqeLayout::rx_hash_result, 0xAB000000u + wqe);
    view.set(CqeLayout::timestamp, wqe);
    view.set(CqeLayout::srqn_user_index, 0x77);
    return cqe;
  }
  bool write(CqeBytes cqe, bool solicited = false) { return cq_->write(cqe, solicited); }
  /// Makes `count` receives that differ only in length, checksum and hash.
  void receive(std::uint32_t count) {
    for (; count != 0; --count, ++producer_) {
      const auto checksum = static_cast<std::uint16_t>(0x2000 + producer_);
      ASSERT_TRUE(write(cqe(producer_, 100u + producer_, checksum)));
    }
  }
  /// Begins a turn of the device.
  void turn() {
    now_ += 1us;
    util::WorkBudget work(100'000);
    moderation_.begin_turn(now_);
    moderation_.report_due(work, [this](Cqn) { cq_->report_held_event(); });
  }
  void arm() { cq_->handle_arm((events() & 3) << 28 | (consumer_ & 0xFFFFFF)); }
  std::uint32_t events() { return eqs_.find(Eqn(0))->ring().producer(); }

  // Software side.
  std::byte* entry(std::uint32_t index) { return &memory_[kRing + (index & (kSize - 1)) * 64]; }
  bool is_mine(std::uint32_t index) {
    const util::View<CqeLayout> view(std::span(entry(index), 64));
    return view.get(CqeLayout::opcode) != static_cast<std::uint32_t>(CqeCode::INVALID) &&
           view.get(CqeLayout::owner) == (index >> kLogSize & 1);
  }
  std::vector<Receive> poll(MiniFormat format = MiniFormat::CHECKSUM) {
    std::vector<Receive> all;
    while (is_mine(consumer_)) {
      const util::View<CqeLayout> title(std::span(entry(consumer_), 64));
      const auto wqe = static_cast<std::uint16_t>(title.get(CqeLayout::wqe_counter));
      if (title.get(CqeLayout::cqe_format) != static_cast<std::uint32_t>(CqeFormat::COMPRESSED)) {
        all.push_back({title.get(CqeLayout::byte_cnt), wqe,
                       format == MiniFormat::CHECKSUM ? title.get(CqeLayout::checksum)
                                                      : title.get(CqeLayout::rx_hash_result)});
        ++consumer_;
        continue;
      }
      const auto count = title.get(CqeLayout::byte_cnt);
      EXPECT_LE(consumer_ % kSize + count, kSize) << "beyond the end of the CQ";
      for (std::uint32_t i = 0; i != count; ++i) {
        const auto array = consumer_ + (i < 8 ? 1 : i / 8 * 8);
        const std::span mini(entry(array) + i % 8 * 8, 8);
        Receive one{.wqe = static_cast<std::uint16_t>(wqe + i), .compressed = true};
        one.bytes = util::View<Mini>(mini).get(Mini::byte_cnt);
        one.check = format == MiniFormat::CHECKSUM
                        ? util::View<Mini>(mini).get(Mini::checksum)
                        : util::View<Hash>(mini).get(Hash::rx_hash_result);
        all.push_back(one);
      }
      // The device does not write the owner bits of the places behind the title.
      for (std::uint32_t i = 0; i != count; ++i) {
        entry(consumer_ + i)[63] = static_cast<std::byte>(consumer_ + i) >> kLogSize & std::byte{1};
      }
      consumer_ += count;
    }
    util::store_be32(&memory_[kRecord], consumer_ & 0xFFFFFF);
    return all;
  }
  /// The receives since the last call.
  std::vector<Receive> expected(std::uint32_t count, MiniFormat format = MiniFormat::CHECKSUM) {
    std::vector<Receive> all;
    for (std::uint32_t i = 0; i != count; ++i) {
      const auto wqe = static_cast<std::uint16_t>(producer_ - count + i);
      all.push_back({100u + wqe, wqe,
                     format == MiniFormat::CHECKSUM ? (0x2000u + wqe) & 0xFFFF : 0xAB000000u + wqe,
                     count > 1});
    }
    return all;
  }

  void raise(std::uint16_t) override {}

  std::vector<std::byte> memory_ = std::vector<std::byte>(0x5000);
  pcie::DmaSpace dma_;
  util::Budget translations_{100};
  UserMemories user_memories_{translations_, Limits{.log_max_umem = 0}};
  util::WorkBudget work_{1'000'000};
  pcie::Msix msix_{{.vectors = 1, .bar = 0, .table_offset = 0, .pba_offset = 0x800}};
  Health health_;
  util::Notes notes_{"test"};
  EventQueues eqs_{msix_, Limits{}, health_, notes_};
  EventModeration moderation_;
  std::unique_ptr<CompletionQueue> cq_;
  util::Time now_{1h};
  std::uint16_t producer_ = 0;
  std::uint32_t consumer_ = 0;
};

TEST_F(CqeCompression, CqesThatDifferInLittleAreWrittenTogether) {
  // 8 and 9: the boundary of the second array.
  for (const std::uint32_t count : {2u, 3u, 8u, 9u, 2u}) {
    receive(count);
    EXPECT_TRUE(poll().empty()) << "software sees none of them before all";
    turn();
    EXPECT_EQ(poll(), expected(count)) << count;
  }
}

// DPDK's vector receive relies on this.
TEST_F(CqeCompression, ASessionEndsWhereTheRingGoesRound) {
  for (const std::uint32_t count : {20u, 20u, 32u, 31u, 9u, 32u}) {
    const auto before_end = kSize - producer_ % kSize;
    receive(count);
    auto all = poll();
    EXPECT_EQ(all.size(), before_end < count ? before_end : 0) << count;
    turn();
    for (const auto& one : poll()) all.push_back(one);
    EXPECT_EQ(all, expected(count)) << count;
  }
}

TEST_F(CqeCompression, AnArrayOfHashesIsTheOtherFormat) {
  make(MiniFormat::HASH);
  receive(10);
  turn();
  EXPECT_EQ(poll(MiniFormat::HASH), expected(10, MiniFormat::HASH));
}

TEST_F(CqeCompression, ACqeThatIsAloneIsAsEver) {
  receive(1);
  turn();
  EXPECT_EQ(poll(), expected(1));
}

TEST_F(CqeCompression, ACqeThatDiffersInOtherFieldsBeginsANewSession) {
  struct Case {
    const char* what;
    void (*change)(util::MutableView<CqeLayout>);
  };
  const Case cases[] = {
      {"user index", [](auto c) { c.set(CqeLayout::srqn_user_index, 0x78); }},
      {"flow tag", [](auto c) { c.set(CqeLayout::flow_tag, 1); }},
      {"VLAN", [](auto c) { c.set(CqeLayout::vid, 5); }},
      {"checks", [](auto c) { c.set(CqeLayout::l4_ok, 1); }},
      {"WQE", [](auto c) { c.set(CqeLayout::wqe_counter, c.get(CqeLayout::wqe_counter) + 1); }},
  };
  for (const auto& c : cases) {
    receive(2);
    auto other = cqe(producer_++, 1);
    c.change(util::MutableView<CqeLayout>(other));
    ASSERT_TRUE(write(other));
    const auto first = poll();
    ASSERT_EQ(first.size(), 2u) << c.what;
    EXPECT_TRUE(first[1].compressed);
    turn();
    const auto second = poll();
    ASSERT_EQ(second.size(), 1u) << c.what;
    EXPECT_FALSE(second[0].compressed);
  }
}

TEST_F(CqeCompression, AnErrorCqeFollowsTheCompressedOnes) {
  receive(2);
  auto error = cqe(producer_++, 0);
  util::MutableView<CqeLayout>(error).set(CqeLayout::opcode,
                                          static_cast<std::uint32_t>(CqeCode::RESPONDER_ERROR));
  ASSERT_TRUE(write(error, true));
  const auto all = poll();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_TRUE(all[0].compressed);
  EXPECT_FALSE(all[2].compressed);
}

TEST_F(CqeCompression, AnArmedCqReportsThemWhenTheyCanBeSeen) {
  arm();
  receive(3);
  EXPECT_EQ(events(), 0u);
  turn();
  EXPECT_EQ(events(), 1u);
  EXPECT_EQ(poll().size(), 3u);
  turn();
  EXPECT_EQ(events(), 1u);
}

TEST_F(CqeCompression, AFullCqOverrunsAsOthersDo) {
  receive(kSize);
  EXPECT_FALSE(write(cqe(producer_, 1))) << "PRM 7.12.5";
  EXPECT_EQ(poll(), expected(kSize)) << "what had room is there";
  EXPECT_EQ(cq_->status(), spec::connectx::cq_status::CQ_OVERFLOW);
}

TEST_F(CqeCompression, NoMoreComeTogetherThanTheCapabilityReports) {
  CqeSession session(MiniFormat::HASH, CqeSession::kCqesMax);
  for (std::uint16_t i = 0; i != 64; ++i) {
    ASSERT_TRUE(i == 0 || session.takes(cqe(i, 1)));
    session.add(cqe(i, 1));
  }
  EXPECT_FALSE(session.takes(cqe(64, 1)));
}

TEST_F(CqeCompression, ACqThatGoesTakesWhatWaitsWithIt) {
  receive(3);
  cq_.reset();
  turn();
  EXPECT_TRUE(poll().empty());
}

}  // namespace
}  // namespace softhca::connectx
