// Doorbell pages that a guest maps (vfio-user's mappable regions): what its processes store there
// is memory, and no message; the device looks at it.
//
// Such a page keeps the last store to each of its registers only, so it does not say what was
// posted: it says that something was. What, stands in the doorbell records of the queues on the
// page, which software writes first (PRM 7.4.4, 7.12.4). A register is emptied before the records
// are read, so a later store is seen at the next look.
//
// EQs have no doorbell record: the kernel's pages are not among these.
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
#include "util/clock.h"
#include "util/result.h"

namespace softhca::connectx {

class SharedDoorbells {
 public:
  /// A queue that is told of by stores to a page.
  struct Queue {
    enum class Kind : std::uint8_t { kNone, kSend, kCompletion };
    Kind kind = Kind::kNone;
    std::uint32_t number = 0;  ///< QPN, SQN or CQN
  };

  /// Keeps a queue on its page, as long as it lives.
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
    /// False if the page of the queue is not a shared one.
    explicit operator bool() const { return owner_ != nullptr; }

   private:
    friend class SharedDoorbells;
    Listener(SharedDoorbells& owner, std::uint32_t page, std::uint32_t place)
        : owner_(&owner), page_(page), place_(place) {}

    SharedDoorbells* owner_ = nullptr;
    std::uint32_t page_ = 0;
    std::uint32_t place_ = 0;
  };

  /// What was stored to the registers of one page since the last look.
  struct Heard {
    UarPage page;
    /// The queues that send doorbells name, one for each register, 0 for none.
    std::array<std::uint32_t, 8> senders{};
    bool sends = false;
    bool arms = false;  ///< a CQ's doorbell
  };

  /// Fails if the machine has no memory for it.
  static util::Result<std::unique_ptr<SharedDoorbells>> create();
  ~SharedDoorbells();
  SharedDoorbells(const SharedDoorbells&) = delete;
  SharedDoorbells& operator=(const SharedDoorbells&) = delete;

  /// What the guest maps.
  pcie::SharedBarMemory memory() const { return {.fd = file_, .areas = kAreas}; }
  static bool contains(UarPage page) {
    return page.value() - kFirstSharedUar < kSharedUars;  // a large number if it is below
  }

  /// From now on the queue is among those of the page. Empty if that is not a shared one.
  Listener listen(UarPage page, Queue queue);
  /// Nothing is stored in the page any more: it becomes another's.
  void clear(UarPage page);
  /// The same for all pages, whose memory is given back.
  void clear_all();

  /// Pages with queues. Nothing is looked at without them.
  std::size_t pages() const { return listened_.size(); }
  /// Looks at one of them. @pre index < pages()
  Heard look(std::size_t index);
  const std::vector<Queue>& queues(UarPage page) const { return page_of(page).queues; }

  /// Notes whether the look at `now` found anything, and returns when the next one is due: at once
  /// while stores keep coming, later and later when they do not. A store waits no longer than a
  /// part of the pause that was before it (kPatience), and kLongestWait.
  util::Time next_look(util::Time now, bool heard);

  std::uint64_t looks() const { return looks_; }
  std::uint64_t heard() const { return heard_; }

  static constexpr auto kLongestWait = std::chrono::milliseconds(4);
  /// The wait, as a part of the time in which nothing was heard.
  static constexpr int kPatience = 8;

 private:
  struct Page {
    std::vector<Queue> queues;          ///< with holes
    std::vector<std::uint32_t> unused;  ///< the holes
    std::size_t listened = 0;           ///< place in listened_, if it has queues
  };

  SharedDoorbells(int file, std::byte* memory);
  void remove(std::uint32_t page, std::uint32_t place);
  const Page& page_of(UarPage page) const { return pages_[page.value() - kFirstSharedUar]; }
  std::byte* at(std::uint32_t page) const { return memory_ + page * kUarPageSize; }

  static constexpr std::array<pcie::SharedBarMemory::Area, 1> kAreas{
      {{.offset = kFirstSharedUar * kUarPageSize, .size = kSharedUars * kUarPageSize}}};

  int file_;
  std::byte* memory_;  ///< of the first shared page
  bool spins_;         ///< a processor is left for who stores
  std::vector<Page> pages_;
  std::vector<std::uint32_t> listened_;  ///< of pages_, those with queues
  util::Time last_heard_{};
  std::uint64_t looks_ = 0;
  std::uint64_t heard_ = 0;
};

}  // namespace softhca::connectx
