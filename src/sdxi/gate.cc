#include "sdxi/gate.h"

#include <cassert>
#include <thread>

#include "sdxi/spin.h"

namespace softhca::sdxi {

void Gate::pause() {
  if (depth_++ != 0 || passes_.empty()) return;
  // Sequentially consistent, as in enter(): one of the two threads sees the other's store.
  closed_.store(1);
  for (const auto* pass : passes_) {
    for (unsigned tries = 0; pass->inside.load(); ++tries) spin_or_yield(tries);
  }
}

void Gate::resume() {
  assert(depth_ > 0);
  if (--depth_ != 0 || passes_.empty()) return;
  closed_.store(0);
  closed_.notify_all();
}

void Gate::enter(Pass& pass) {
  for (;;) {
    pass.inside.store(true);
    if (closed_.load() == 0) return;
    leave(pass);
    for (unsigned tries = 0; closing() && tries < kSpins; ++tries) spin_or_yield(tries);
    closed_.wait(1);
  }
}

}  // namespace softhca::sdxi
