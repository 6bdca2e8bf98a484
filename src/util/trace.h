// The steps of devices, as they happen: for users who follow a doorbell through a device, and
// compare it with hardware. Written as text, or as the JSON that Perfetto and chrome://tracing
// read.
//
// A device notes its steps where they happen. Without a trace this costs nothing: a traced device
// has no directly accessible memory (pcie::DmaSpace::set_tap), so that it takes only its slow
// paths, and only these note steps.
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

/// In the order of a doorbell's life, then in that of a command.
enum class TraceStep : std::uint8_t {
  kDoorbell,    ///< a register write announced work
  kCqDoorbell,  ///< a register write armed a completion queue
  kEqDoorbell,  ///< a register write reported consumed events, and may have armed the event queue
  kDmaRead,     ///< the device read memory of the host
  kDmaWrite,    ///< the device wrote memory of the host
  kSendWqe,     ///< a work request was fetched and decoded
  kReceiveWqe,  ///< a receive work request was fetched and decoded
  kKey,         ///< a memory key was found and checked, or refused
  kPacketOut,   ///< a frame left for the wire
  kPacketIn,    ///< a frame arrived
  kCompletion,  ///< a completion is about to be written
  kEvent,       ///< an event is about to be written
  kInterrupt,   ///< a message was sent
  kCommandDoorbell,  ///< commands were posted
  kCommandBegin,     ///< a command is about to be fetched
  kCommand,          ///< a command was executed, or refused
  kCommandEnd,       ///< a command's output was written
};
std::string_view to_string(TraceStep step);

/// A number of a step. The name has static storage.
struct TraceField {
  std::string_view name;
  std::uint64_t value = 0;
};

/// Text and fields are valid during the call only.
struct TraceRecord {
  TraceStep step;
  std::string_view text;  ///< an opcode, or a reason
  std::span<const TraceField> fields;

  /// 0 if the step has no such field.
  std::uint64_t get(std::string_view name) const;
};

struct TraceLine {
  std::string_view module;  ///< the part of the device that did it
  std::string_view name;    ///< the step
  std::string_view text;
  std::span<const TraceField> fields;
};

/// A file of trace lines.
class TraceWriter {
 public:
  enum class Format : std::uint8_t { kText, kJson };

  /// JSON if the path ends in .json.
  static Result<std::unique_ptr<TraceWriter>> create(const std::string& path,
                                                     std::function<Time()> clock = monotonic_now);
  /// Writes to `file`, which the caller keeps.
  TraceWriter(std::FILE* file, Format format, std::function<Time()> clock);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  void write(std::string_view device, const TraceLine& line);
  /// Makes all lines visible to a reader of the file.
  void flush() { std::fflush(file_); }

 private:
  void write_text(std::string_view device, const TraceLine& line);
  void write_json(std::string_view device, const TraceLine& line);
  /// The numbers of devices and modules in the JSON; new ones are named first.
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

/// Names for the parts of a model of device, and for their steps, in place of the general names.
class TraceModules {
 public:
  using Emit = std::function<void(const TraceLine&)>;
  virtual ~TraceModules() = default;
  virtual void handle_step(const TraceRecord& record, const Emit& emit) = 0;
};

/// The name of a step whose line has the record's own text and fields.
struct TraceName {
  TraceStep step;
  std::string_view module;
  std::string_view name;
};
/// The line of a record, with a name from `names`, or else the general one.
TraceLine named(const TraceRecord& record, std::span<const TraceName> names);

/// For a model that only renames some steps. The names have static storage.
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

  /// Null selects the general names.
  void set_modules(TraceModules* modules) { modules_ = modules; }
  void note(TraceStep step, std::string_view text, std::initializer_list<TraceField> fields);

 private:
  TraceWriter& writer_;
  std::string device_;
  TraceModules* modules_ = nullptr;
};

}  // namespace softhca::util
