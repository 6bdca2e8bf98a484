// What devices do, step by step, as they do it: for people who follow a doorbell through one, and
// compare with hardware. Text, or the JSON that Perfetto and chrome://tracing open.
//
// A device notes its steps where it takes them. Without a trace that costs nothing: the steps are
// noted on ways that it takes only with one, since a device that is traced has no memory within
// reach (pcie::DmaSpace::set_tap), so that nothing is "like before".
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "util/clock.h"
#include "util/result.h"

namespace softhca::util {

/// In the order in which a doorbell's life has them; then those of a command.
enum class TraceStep : std::uint8_t {
  kDoorbell,         ///< a register said that there is work
  kCqDoorbell,       ///< one that a completion queue is to tell of its next completion
  kEqDoorbell,       ///< one how far events are read, and whether to tell of the next
  kDmaRead,          ///< the device read memory of the host
  kDmaWrite,         ///< it wrote it
  kSendWqe,          ///< a work request was fetched and decoded
  kReceiveWqe,       ///< likewise one for what arrives
  kKey,              ///< a memory key was found and checked, or refused
  kPacketOut,        ///< a frame left for the wire
  kPacketIn,         ///< one arrived
  kCompletion,       ///< a completion is about to be written
  kEvent,            ///< likewise an event
  kInterrupt,        ///< a message was sent
  kCommandDoorbell,  ///< commands were posted
  kCommandBegin,     ///< one is about to be fetched
  kCommand,          ///< it was executed, or refused
  kCommandEnd,       ///< its answer is written
};
std::string_view to_string(TraceStep step);

/// A number of a step. The name lasts for ever.
struct TraceField {
  std::string_view name;
  std::uint64_t value = 0;
};

/// Text and fields are valid during the call only.
struct TraceRecord {
  TraceStep step;
  std::string_view text;  ///< what words say: an opcode, a reason
  std::span<const TraceField> fields;

  /// 0 if the step has no such field.
  std::uint64_t get(std::string_view name) const;
};

/// One line of a trace.
struct TraceLine {
  std::string_view module;  ///< which part of the device did it
  std::string_view name;    ///< what it did
  std::string_view text;
  std::span<const TraceField> fields;
};

/// A file that lines go to.
class TraceWriter {
 public:
  enum class Format : std::uint8_t { kText, kJson };

  /// JSON if the path ends in .json.
  static Result<std::unique_ptr<TraceWriter>> create(const std::string& path,
                                                     std::function<Time()> clock = monotonic_now);
  /// To `file`, which stays the caller's.
  TraceWriter(std::FILE* file, Format format, std::function<Time()> clock);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  void write(std::string_view device, const TraceLine& line);
  /// So that who follows the file sees what has happened.
  void flush() { std::fflush(file_); }

 private:
  void write_text(std::string_view device, const TraceLine& line);
  void write_json(std::string_view device, const TraceLine& line);
  /// The numbers that JSON has for both; new ones are named first.
  unsigned process_of(std::string_view device);
  unsigned thread_of(unsigned process, std::string_view module);
  void name_it(std::string_view what, unsigned process, unsigned thread, std::string_view name);
  void put(const std::string& event);
  std::uint64_t nanoseconds() const;

  std::FILE* file_;
  bool owned_ = false;
  Format format_;
  std::function<Time()> clock_;
  Time start_;
  bool first_ = true;
  std::map<std::string, unsigned, std::less<>> processes_;
  std::map<std::pair<unsigned, std::string>, unsigned> threads_;
};

/// What a model of device calls its parts, and what they do of one step: instead of the general
/// names.
class TraceModules {
 public:
  using Emit = std::function<void(const TraceLine&)>;
  virtual ~TraceModules() = default;
  virtual void handle_step(const TraceRecord& record, const Emit& emit) = 0;
};

/// What a step is called whose line has the record's own text and fields.
struct TraceName {
  TraceStep step;
  std::string_view module;
  std::string_view name;
};
/// The line of a record under one of these names, or under the general ones.
TraceLine named(const TraceRecord& record, std::span<const TraceName> names);

/// For a model that calls some steps otherwise, and no more. The names last for ever.
class TraceNames final : public TraceModules {
 public:
  explicit TraceNames(std::span<const TraceName> names) : names_(names) {}
  void handle_step(const TraceRecord& record, const Emit& emit) override {
    emit(named(record, names_));
  }

 private:
  std::span<const TraceName> names_;
};

/// The trace of one device.
class Trace {
 public:
  Trace(TraceWriter& writer, std::string device) : writer_(writer), device_(std::move(device)) {}

  /// Null: the general names.
  void set_modules(TraceModules* modules) { modules_ = modules; }
  void note(TraceStep step, std::string_view text, std::initializer_list<TraceField> fields);

 private:
  TraceWriter& writer_;
  std::string device_;
  TraceModules* modules_ = nullptr;
};

}  // namespace softhca::util
