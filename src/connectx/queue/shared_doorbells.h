// Doorbell pages that a guest maps (vfio-user's mappable regions). A store by a process of the
// guest changes memory and sends no message, so the device polls the pages.
//
// A page keeps only the last store to each of its registers. It shows that something was posted.
// The doorbell records of the queues on the page show which WQEs; software writes the records first
// (PRM 7.4.4, 7.12.4). The device clears a register before it reads the records, so the next poll
// finds any later store.
//
// EQs have no doorbell record, so the kernel's pages are not shared.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "connectx/base/bar_layout.h"
#include "connectx/base/numbers.h"
#include "pcie/function.h"
#include "spec/connectx/init_segment.h"
#include "util/clock.h"
#include "util/result.h"

namespace softhca::connectx {

// Registers of a UAR page.
inline constexpr std::uint32_t kFirstSendRegister =
    spec::connectx::uar_page::db_blueflame_buffer0_even.kOffset;
inline constexpr std::uint32_t kSendRegisterSize =
    spec::connectx::uar_page::db_blueflame_buffer0_even.kSize;
inline constexpr std::uint32_t kCqNumber = spec::connectx::uar_page::cq_n.kOffset;

class SharedDoorbells {
 public:
  /// A queue whose doorbells are stores to a shared page.
  struct Queue {
    enum class Kind : std::uint8_t { kNone, kSend, kCompletion };
    Kind kind = Kind::kNone;
    std::uint32_t number = 0;  ///< QPN, SQN or CQN
  };

  /// Registers a queue on its page while the Listener lives.
  class Listener {
   public:
    Listener() = default;
    Listener(Listener&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), page_(other.page_), place_(other.place_) {}
    Listener& operator=(Listener&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(page_, other.page_);
      std::swap(place_, other.place_);
      return *this;
    }
    ~Listener() {
      if (owner_ != nullptr) owner_->remove(page_, place_);
    }
    /// False if the queue's page is not a shared one.
    explicit operator bool() const { return owner_ != nullptr; }

   private:
    friend class SharedDoorbells;
    Listener(SharedDoorbells& owner, std::uint32_t page, std::uint32_t place)
        : owner_(&owner), page_(page), place_(place) {}

    SharedDoorbells* owner_ = nullptr;
    std::uint32_t page_ = 0;
    std::uint32_t place_ = 0;
  };

  /// The stores to the registers of one page since the last poll.
  struct Stores {
    UarPage page;
    /// The queue that the doorbell in each send register names; 0: no doorbell.
    std::array<std::uint32_t, 8> senders{};
    bool sends = false;
    bool arms = false;  ///< a CQ doorbell was rung
  };

  /// Fails if the machine is out of memory.
  static util::Result<std::unique_ptr<SharedDoorbells>> create();
  ~SharedDoorbells();
  SharedDoorbells(const SharedDoorbells&) = delete;
  SharedDoorbells& operator=(const SharedDoorbells&) = delete;

  /// The memory that the guest maps.
  pcie::SharedBarMemory memory() const { return {.fd = file_, .areas = kAreas}; }
  static bool contains(UarPage page) {
    return page.value() - kFirstSharedUar < kSharedUars;  // wraps to a large number if it is below
  }

  /// Registers the queue on its page. Empty if the page is not a shared one.
  Listener listen(UarPage page, Queue queue);
  /// Drops stores to the page. Call it before another owner gets the page.
  void clear(UarPage page);
  /// Clears all pages and frees their memory.
  void clear_all();

  /// Number of pages with queues, which must be polled.
  std::size_t pages() const { return listened_.size(); }
  /// Polls a page with queues. @pre index < pages()
  Stores poll(std::size_t index);
  const std::vector<Queue>& queues(UarPage page) const { return page_of(page).queues; }

  /// Records whether the poll at `now` found a store, and returns when the next poll is due: soon
  /// if stores keep arriving, else less and less often. A store waits at most 1/kPatience of the
  /// time since the store before it, and at most kLongestWait.
  util::Time next_poll(util::Time now, bool found);

  std::uint64_t polls() const { return polls_; }
  std::uint64_t polls_with_stores() const { return polls_with_stores_; }

  static constexpr auto kLongestWait = std::chrono::milliseconds(4);
  /// The wait is 1/kPatience of the time since the last store.
  static constexpr int kPatience = 8;

 private:
  struct Page {
    std::vector<Queue> queues;          ///< unused places are Kind::kNone
    std::vector<std::uint32_t> unused;  ///< unused places in `queues`
    std::size_t listened = 0;           ///< index in listened_, if it has queues
  };

  SharedDoorbells(int file, std::byte* memory);
  void remove(std::uint32_t page, std::uint32_t place);
  const Page& page_of(UarPage page) const { return pages_[page.value() - kFirstSharedUar]; }
  std::byte* at(std::uint32_t page) const { return memory_ + page * kUarPageSize; }

  static constexpr std::array<pcie::SharedBarMemory::Area, 1> kAreas{
      {{.offset = kFirstSharedUar * kUarPageSize, .size = kSharedUars * kUarPageSize}}};

  int file_;
  std::byte* memory_;  ///< first shared page
  bool spins_;         ///< true if another processor can run the storing process
  std::vector<Page> pages_;
  std::vector<std::uint32_t> listened_;  ///< indices of pages_ with queues
  util::Time last_store_{};
  std::uint64_t polls_ = 0;
  std::uint64_t polls_with_stores_ = 0;
};

}  // namespace softhca::connectx
