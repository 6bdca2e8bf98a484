// DevX descriptors from which a program reads events and command completions, and its event
// subscriptions (kernel interface 4.13, 6).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

#include "uverbs/context_options.h"
#include "uverbs/devx_events.h"
#include "uverbs/event_pipe.h"
#include "uverbs/method.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

class DevxChannels {
 public:
  DevxChannels(const OpenFile& file, const ContextOptions& options)
      : file_(file), options_(options) {}
  ~DevxChannels();
  DevxChannels(const DevxChannels&) = delete;
  DevxChannels& operator=(const DevxChannels&) = delete;

  static std::span<const Method<DevxChannels>> methods();

  /// The results of asynchronous queries behind a descriptor; null: there are none.
  std::shared_ptr<DevxAnswers> find_answers(int number) const;
  /// Writes pending records to descriptors that had no room.
  void flush();
  /// Releases the descriptors that the program has closed.
  void drop_closed();

 private:
  Errno subscribe(Request& request);
  Errno alloc_answers(Request& request);
  Errno alloc_events(Request& request);

  const OpenFile& file_;
  const ContextOptions& options_;
  EventPipe::Waits wait_ = std::make_shared<bool>();  ///< some pipe has pending records
  // By identity of the file.
  std::unordered_map<std::uint64_t, std::shared_ptr<DevxEventChannel>> event_channels_;
  std::unordered_map<std::uint64_t, std::shared_ptr<DevxAnswers>> answers_;
};

}  // namespace softhca::uverbs
