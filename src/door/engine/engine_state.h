// All that the lock of an engine protects: the cards of the process, and the device files and event
// channels that the program has open. Turns let them work.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "door/engine/card_table.h"
#include "door/engine/cm_channels.h"
#include "door/engine/device_files.h"
#include "door/engine/device_lock.h"
#include "door/engine/thread_waker.h"
#include "util/clock.h"

namespace softhca::door {

class EngineState {
 public:
  EngineState(const CardTable::Options& cards, const DeviceFiles::Options& files)
      : cards_(cards, lock_, waker_),
        files_(files),
        channels_(cards.directory, cards_, files_.memory()) {}

  DeviceLock& lock() { return lock_; }
  ThreadWaker& waker() { return waker_; }
  CardTable& cards() { return cards_; }
  DeviceFiles& files() { return files_; }
  const DeviceFiles& files() const { return files_; }
  CmChannels& channels() { return channels_; }

  // Call with the lock, except polls().
  /// Whether a turn serves all devices, or only those with pending work.
  enum class Turn : std::uint8_t { kWhole, kSparing };
  /// Runs a turn. True if there was work.
  bool turn(Turn how = Turn::kWhole);
  /// Runs the turn of a call by which the program polls.
  void turn_of_poll();
  /// Packets that the last turn received.
  std::size_t received() const { return received_; }
  /// When a turn is due if nothing comes before.
  util::Time next_event() const;
  /// Polls the doorbell records now: a CQ's record holds one arm request, and the program is about
  /// to write the next.
  void take_arms();
  /// Turns by polls of the program so far.
  std::uint64_t polls() const { return polls_.load(std::memory_order_relaxed); }
  /// The program calls: it may create queues and pages.
  void note_call() { ++calls_; }
  std::uint64_t calls() const { return calls_; }

  /// Does the chores of about once a second.
  void do_chores();
  /// Destroys what the program has closed.
  void drop_closed();
  /// Picks up changed host addresses.
  void follow_host();
  /// Adds the devices' counters to those of the run, which all its processes see.
  void publish_counters();

  /// In a forked child: leaves everything to the parent, and destroys nothing of it.
  void leave_to_parent();

 private:
  bool handle_faults();
  void report_link_changes();
  /// Checks whether hubs have gone.
  void look_at_hubs();

  DeviceLock lock_;
  ThreadWaker waker_;
  CardTable cards_;
  DeviceFiles files_;
  CmChannels channels_;
  std::size_t received_ = 0;
  std::atomic<std::uint64_t> polls_ = 0;
  std::uint64_t calls_ = 0;
};

}  // namespace softhca::door
