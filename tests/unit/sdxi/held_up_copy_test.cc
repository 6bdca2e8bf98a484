// A thread of a shared copy is suspended at each of its instructions, while the owner ends this
// copy and begins the next. Single-stepping covers every interleaving without depending on chance.
#include <gtest/gtest.h>
#include <sys/ucontext.h>

#include <csignal>
#include <functional>

#include "sdxi/shared_copy.h"
#include "util/unordered_access.h"

namespace softhca::sdxi::test {
namespace {

// Under a sanitizer the test would also stop at its instructions: millions of them, some with its
// locks held.
#if !defined(SOFTHCA_THREAD_SANITIZER)

/// Single-steps a function, and calls another one after a given instruction.
class HeldUp {
 public:
  /// False if `function` had fewer instructions.
  static bool run(unsigned instructions, const std::function<void()>& function,
                  const std::function<void()>& meanwhile) {
    left_ = instructions;
    meanwhile_ = &meanwhile;
    struct sigaction action{};
    struct sigaction before{};
    action.sa_sigaction = stop;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGTRAP, &action, &before);
    std::raise(SIGTRAP);
    function();
    meanwhile_ = nullptr;
    const bool held_up = left_ == 0;
    left_ = 0;
    std::raise(SIGTRAP);
    ::sigaction(SIGTRAP, &before, nullptr);
    return held_up;
  }

 private:
  static constexpr greg_t kTrapFlag = 0x100;

  static void stop(int, siginfo_t*, void* context) {
    auto& flags = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL];
    flags |= kTrapFlag;
    if (left_ != 0) left_ = left_ - 1;
    if (left_ != 0) return;
    flags &= ~kTrapFlag;
    const auto* const meanwhile = meanwhile_;
    meanwhile_ = nullptr;
    if (meanwhile != nullptr) (*meanwhile)();
  }

  static inline volatile unsigned left_ = 0;
  static inline const std::function<void()>* volatile meanwhile_ = nullptr;
};

TEST(HeldUpCopy, ALatecomerTakesNothingOfTheNextCopyByMistake) {
  SharedCopy copy;
  std::uint64_t first_source = 111, first_target = 0, next_source = 222, next_target = 0;
  const auto buffers = [](std::uint64_t& to, std::uint64_t& from) {
    return SharedCopy::Buffers{reinterpret_cast<std::byte*>(&to),
                               reinterpret_cast<std::byte*>(&from), 8, 8};
  };
  unsigned instructions = 1, begun_anew = 0;
  for (bool held_up = true; held_up; ++instructions) {
    first_target = next_target = 0;
    ASSERT_TRUE(copy.open(buffers(first_target, first_source)));
    bool is_next = false;
    held_up = HeldUp::run(
        instructions, [&] { copy.copy_next(); },
        [&] {
          if (copy.taken() != 0) return;  // the owner would wait for the chunk in progress
          copy.close();
          is_next = copy.open(buffers(next_target, next_source));
        });
    begun_anew += is_next;
    const auto done = copy.close();
    ASSERT_EQ(first_target, is_next ? 0 : 111u) << instructions;
    ASSERT_EQ(next_target, is_next && done != 0 ? 222u : 0) << instructions;
    ASSERT_EQ(done, 8u) << instructions;
  }
  EXPECT_GT(begun_anew, 10u);
  EXPECT_GT(instructions, begun_anew + 2) << "and some were held up after they had taken the chunk";
}

#endif

}  // namespace
}  // namespace softhca::sdxi::test
