// Attacks of a guest program on its own ConnectX. Each attack runs until it has done its number of
// deeds, or ends the process so that it starts again on a fresh function (life.h). It throws if the
// device refuses a step that the attack needs.
#pragma once

#include <span>
#include <string_view>

#include "life.h"

namespace softhca::guest {

struct Attack {
  std::string_view name;
  std::string_view what;
  std::uint64_t deeds;  ///< deeds of one run in a test
  void (*run)(Life&);
};
/// All attacks.
std::span<const Attack> attacks();

// attack_queues.cc: queue pairs, keys, timers
void flood_with_keys_of_keys(Life& life);
void flood_with_long_messages(Life& life);
void flood_with_tiny_messages(Life& life);
void ask_who_does_not_answer(Life& life);
void make_timers_expire(Life& life);
void withdraw_memory(Life& life);

// attack_datagrams.cc: errors of send queues, multicast
void flush_for_ever(Life& life);
void multiply_datagrams(Life& life);

// attack_commands.cc
void give_random_commands(Life& life);
void ask_for_long_outputs(Life& life);
void make_objects_and_go(Life& life);

// attack_registers.cc
void ring_doorbells(Life& life);
void write_registers(Life& life);
void turn_configuration(Life& life);

// attack_frames.cc
void steer_through_many_tables(Life& life);
void flood_with_frames(Life& life);

}  // namespace softhca::guest
