// How a test shows that a call does not wait: it returns although what it might wait for never
// comes.
#pragma once

#include <chrono>
#include <future>

namespace softhca {

/// True if `act` returns by itself, however late this process gets a processor. If it does not
/// within 20 seconds, `rescue` is called in another thread, to let it return.
template <class Act, class Rescue>
bool returns_alone(Act act, Rescue rescue) {
  std::promise<void> returned;
  auto rescuer = std::async(std::launch::async, [&rescue, future = returned.get_future()] {
    if (future.wait_for(std::chrono::seconds(20)) == std::future_status::ready) return true;
    rescue();
    return false;
  });
  act();
  returned.set_value();
  return rescuer.get();
}

}  // namespace softhca
