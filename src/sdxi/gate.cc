#include "sdxi/gate.h"

#include <thread>

#include "sdxi/spin.h"

namespace softhca::sdxi {

bool Gate::stop() {
  if (passes_.empty()) return false;
  // Sequentially consistent, as in enter(): one of the two threads sees the other's store.
  closed_.store(1);
  for (const auto* pass : passes_) {
    for (unsigned tries = 0; pass->inside.load(); ++tries) spin_or_yield(tries);
  }
  return true;
}

void Gate::go_on() {
  if (passes_.empty()) return;
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
