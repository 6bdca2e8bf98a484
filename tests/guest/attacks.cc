#include "attacks.h"

#include <array>

namespace softhca::guest {

std::span<const Attack> attacks() {
  static constexpr std::array kAttacks{
      Attack{"keys", "keys of keys of single bytes", 20, flood_with_keys_of_keys},
      Attack{"long", "long messages", 200, flood_with_long_messages},
      Attack{"tiny", "tiny messages", 20'000, flood_with_tiny_messages},
      Attack{"unanswered", "requests that nobody answers", 20'000, ask_who_does_not_answer},
      Attack{"timers", "timers of microseconds", 2'000, make_timers_expire},
      Attack{"withdraw", "memory that goes while it is used", 60, withdraw_memory},
      Attack{"flush", "send queues in error that are filled as they are flushed", 40,
             flush_for_ever},
      Attack{"multicast", "datagrams to groups of own QPs", 2'000, multiply_datagrams},
      Attack{"commands", "random commands in all slots", 3'000, give_random_commands},
      Attack{"outputs", "outputs as long as can be in all slots", 600, ask_for_long_outputs},
      Attack{"objects", "as many objects as there can be, and a reset", 30'000,
             make_objects_and_go},
      Attack{"doorbells", "doorbells of any queue", 20'000, ring_doorbells},
      Attack{"registers", "random registers, and command queues elsewhere", 20'000,
             write_registers},
      Attack{"configuration", "bus mastering, memory, MSI-X, power, resets", 1'000,
             turn_configuration},
      Attack{"steering", "deep flow tables with many ways", 2'000, steer_through_many_tables},
      Attack{"frames", "frames for one and for all", 20'000, flood_with_frames}};
  return kAttacks;
}

}  // namespace softhca::guest
