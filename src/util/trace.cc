#include "util/trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "util/json_quote.h"

namespace softhca::util {
namespace {

/// The general name of the part of a device to which a step belongs.
std::string_view module_of(TraceStep step) {
  switch (step) {
    case TraceStep::kDoorbell:
    case TraceStep::kCqDoorbell:
    case TraceStep::kEqDoorbell:
      return "doorbells";
    case TraceStep::kDmaRead:
    case TraceStep::kDmaWrite:
      return "DMA";
    case TraceStep::kSendWqe:
    case TraceStep::kReceiveWqe:
      return "work queues";
    case TraceStep::kKey:
      return "memory keys";
    case TraceStep::kPacketOut:
    case TraceStep::kPacketIn:
      return "port";
    case TraceStep::kCompletion:
      return "completion queues";
    case TraceStep::kEvent:
      return "event queues";
    case TraceStep::kInterrupt:
      return "interrupts";
    case TraceStep::kCommandDoorbell:
    case TraceStep::kCommandBegin:
    case TraceStep::kCommand:
    case TraceStep::kCommandEnd:
      break;
  }
  return "commands";
}

}  // namespace

std::string_view to_string(TraceStep step) {
  switch (step) {
    case TraceStep::kDoorbell:
      return "doorbell";
    case TraceStep::kCqDoorbell:
      return "CQ doorbell";
    case TraceStep::kEqDoorbell:
      return "EQ doorbell";
    case TraceStep::kDmaRead:
      return "read";
    case TraceStep::kDmaWrite:
      return "write";
    case TraceStep::kSendWqe:
      return "send WQE";
    case TraceStep::kReceiveWqe:
      return "receive WQE";
    case TraceStep::kKey:
      return "key";
    case TraceStep::kPacketOut:
      return "packet out";
    case TraceStep::kPacketIn:
      return "packet in";
    case TraceStep::kCompletion:
      return "completion";
    case TraceStep::kEvent:
      return "event";
    case TraceStep::kInterrupt:
      return "interrupt";
    case TraceStep::kCommandDoorbell:
      return "command doorbell";
    case TraceStep::kCommandBegin:
      return "command fetched";
    case TraceStep::kCommand:
      return "command executed";
    case TraceStep::kCommandEnd:
      break;
  }
  return "command answered";
}

std::uint64_t TraceRecord::get(std::string_view name) const {
  const auto found = std::ranges::find(fields, name, &TraceField::name);
  return found == fields.end() ? 0 : found->value;
}

TraceLine named(const TraceRecord& record, std::span<const TraceName> names) {
  const auto found = std::ranges::find(names, record.step, &TraceName::step);
  const auto [step, module, name] =
      found != names.end() ? *found
                           : TraceName{record.step, module_of(record.step), to_string(record.step)};
  return {module, name, record.text, record.fields};
}

void Trace::note(TraceStep step, std::string_view text, std::initializer_list<TraceField> fields) {
  const TraceRecord record{step, text, {fields.begin(), fields.size()}};
  if (modules_ == nullptr) return writer_.write(device_, named(record, {}));
  modules_->handle_step(record, [this](const TraceLine& line) { writer_.write(device_, line); });
}

// TraceWriter ----------------------------------------------------------------------------------

Result<std::unique_ptr<TraceWriter>> TraceWriter::create(const std::string& path,
                                                         std::function<Time()> clock) {
  // A trace contains guests' data.
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  auto* file = fd < 0 ? nullptr : ::fdopen(fd, "w");
  if (file == nullptr) {
    auto error = fail(fmt::format("{}: {}", path, std::strerror(errno)));
    if (fd >= 0) ::close(fd);
    return error;
  }
  const auto format = path.ends_with(".json") ? Format::kJson : Format::kText;
  auto writer = std::make_unique<TraceWriter>(file, format, std::move(clock));
  writer->owned_ = true;
  return writer;
}

TraceWriter::TraceWriter(std::FILE* file, Format format, std::function<Time()> clock)
    : file_(file), format_(format), clock_(std::move(clock)), start_(clock_()) {
  if (format_ == Format::kJson) std::fputs("{\"traceEvents\":[", file_);
}

TraceWriter::~TraceWriter() {
  if (format_ == Format::kJson) std::fputs("\n]}\n", file_);
  owned_ ? (void)std::fclose(file_) : (void)std::fflush(file_);
}

std::uint64_t TraceWriter::nanoseconds() const {
  const auto since = clock_() - start_;
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

void TraceWriter::write(std::string_view device, const TraceLine& line) {
  format_ == Format::kJson ? write_json(device, line) : write_text(device, line);
}

void TraceWriter::write_text(std::string_view device, const TraceLine& line) {
  const auto ns = nanoseconds();
  auto text = fmt::format("{}.{:09} {} {}: {}", ns / 1'000'000'000, ns % 1'000'000'000, device,
                          line.module, line.name);
  if (!line.text.empty()) text += fmt::format(" \"{}\"", line.text);
  for (const auto& [name, value] : line.fields) text += fmt::format(" {}={:#x}", name, value);
  text += '\n';
  std::fwrite(text.data(), 1, text.size(), file_);
}

void TraceWriter::put(const std::string& event) {
  std::fputs(std::exchange(first_, false) ? "\n" : ",\n", file_);
  std::fwrite(event.data(), 1, event.size(), file_);
}

void TraceWriter::name_it(std::string_view what, unsigned process, unsigned thread,
                          std::string_view name) {
  put(fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})", what,
                  process, thread, json_quote(name)));
}

unsigned TraceWriter::process_of(std::string_view device) {
  const auto known = processes_.find(device);
  if (known != processes_.end()) return known->second;
  const auto number = static_cast<unsigned>(processes_.size()) + 1;
  processes_.emplace(device, number);
  name_it("process_name", number, 0, device);
  return number;
}

unsigned TraceWriter::thread_of(unsigned process, std::string_view module) {
  const auto next = static_cast<unsigned>(threads_.size()) + 1;
  const auto [place, is_new] = threads_.try_emplace({process, std::string(module)}, next);
  if (is_new) name_it("thread_name", process, next, module);
  return place->second;
}

void TraceWriter::write_json(std::string_view device, const TraceLine& line) {
  const auto ns = nanoseconds();
  const auto process = process_of(device);
  const auto thread = thread_of(process, line.module);
  std::string args;
  if (!line.text.empty()) args = fmt::format(R"("text":{})", json_quote(line.text));
  for (const auto& [name, value] : line.fields) {
    args += fmt::format(R"({}{}:"{:#x}")", args.empty() ? "" : ",", json_quote(name), value);
  }
  put(fmt::format(
      R"({{"name":{},"cat":{},"ph":"i","s":"t","ts":{}.{:03},"pid":{},"tid":{},"args":{{{}}}}})",
      json_quote(line.name), json_quote(line.module), ns / 1000, ns % 1000, process, thread, args));
}

}  // namespace softhca::util
