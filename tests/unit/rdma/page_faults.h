// Memory of two ends whose pages are all missing until a test brings them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "rdma/pair.h"

namespace softhca::rdma::test {

inline constexpr MKey kPaged{0x7700};
inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::size_t kPages = 256;

class PageFaults : public ::testing::TestWithParam<bool> {
 protected:
  explicit PageFaults(QpType type = QpType::kRc, bool trains = GetParamOrNot())
      : pair({.trains = trains}) {
    pair.connect(type);
    for (auto* end : {&pair.a, &pair.b}) {
      end->fill(0, 0x300000, end == &pair.a ? 1 : 2);
      make_key(*end);
    }
  }
  static bool GetParamOrNot() {
    return ::testing::UnitTest::GetInstance()->current_test_info()->value_param() != nullptr &&
           GetParam();
  }
  /// Makes a key over the first pages of the memory, all missing.
  static void make_key(End& end) {
    auto attributes = end.keys.find(kKey)->attributes();
    attributes.key = kPaged;
    attributes.pages.clear();
    attributes.form = KeyForm::kPages;
    attributes.reloadable = true;
    attributes.log_page_size = 12;
    attributes.length = kPages * kPage;
    auto key = std::make_unique<MemoryKey>(attributes);
    key->refresh();
    end.keys.insert(std::move(key));
  }
  static void set(End& end, std::size_t page, std::uint8_t access) {
    auto& key = *end.keys.find(kPaged);
    end.keys.change(key, [&] {
      key.load_page(page, {access == 0 ? 0 : kMemoryIova + page * kPage, access});
      key.refresh();
    });
  }
  static void bring(End& end, std::size_t first, std::size_t count) {
    for (std::size_t i = 0; i != count; ++i) set(end, first + i, kEveryAccess);
  }
  static void bring_all(End& end) { bring(end, 0, kPages); }
  static void take_away(End& end, std::size_t page) { set(end, page, 0); }

  static SendRequest of_paged_memory(SendRequest request, bool here, bool there) {
    if (here) {
      for (auto& sge : request.sges) sge.lkey = kPaged;
    }
    if (there) request.rkey = kPaged;
    return request;
  }
  static SendRequest from_paged(const SendRequest& request) {
    return of_paged_memory(request, true, false);
  }
  static SendRequest to_paged(const SendRequest& request) {
    return of_paged_memory(request, false, true);
  }
  void expect_same(std::uint64_t at_a, std::uint64_t at_b, std::size_t length) {
    EXPECT_TRUE(std::equal(pair.a.at(at_a), pair.a.at(at_a) + length, pair.b.at(at_b)));
  }
  /// Calls `what` when the first packet is in flight.
  void with_first_packet(bool to_b, std::function<void()> what) {
    pair.script = [to_b, what = std::move(what)](const wire::IbPacket&, bool sent_to_b) mutable {
      if (sent_to_b == to_b && what) std::exchange(what, nullptr)();
      return Fate::kDeliver;
    };
  }
  /// No fault is open, and every request posted to a has succeeded.
  void expect_done(std::size_t count = 1) {
    EXPECT_EQ(pair.a.hca.open_faults + pair.b.hca.open_faults, 0u);
    EXPECT_EQ(pair.a.hca.sends.size(), count);
    EXPECT_THAT(pair.a.hca.send_statuses(), ::testing::Each(WorkStatus::kSuccess));
  }

  Pair pair;
};

}  // namespace softhca::rdma::test
