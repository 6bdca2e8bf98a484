// Both forms of a trace. docs/debugging.md defines the words.
#include "util/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "util/written_trace.h"

namespace softhca::util {
namespace {

using test::WrittenTrace;
using Format = TraceWriter::Format;

TEST(TraceFile, TextIsALineForEachStep) {
  Time now{std::chrono::hours(5)};
  WrittenTrace file(Format::kText, [&now] { return now; });
  Trace trace(file.writer(), "hca0");
  now += std::chrono::nanoseconds(1'500'000'001);
  trace.note(TraceStep::kDoorbell, {}, {{"queue", 0x41}, {"uar", 3}});
  trace.note(TraceStep::kSendWqe, "RDMA_READ", {});
  EXPECT_EQ(file.close(),
            "1.500000001 hca0 doorbells: doorbell queue=0x41 uar=0x3\n"
            "1.500000001 hca0 work queues: send WQE \"RDMA_READ\"\n");
}

// Each device is a process and each part of it a thread. Both are named before they are used.
TEST(TraceFile, JsonHasWhatPerfettoAsksFor) {
  Time now{};
  WrittenTrace file(Format::kJson, [&now] { return now; });
  Trace first(file.writer(), "hca\"0\"");
  Trace second(file.writer(), "hca1");
  now += std::chrono::nanoseconds(2'345);
  first.note(TraceStep::kKey, "no \\ such\n key", {{"key", 7}});
  second.note(TraceStep::kKey, {}, {});
  const auto events = nlohmann::json::parse(file.close()).at("traceEvents");
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0].at("name"), "process_name");
  EXPECT_EQ(events[0].at("args").at("name"), "hca\"0\"");
  EXPECT_EQ(events[1].at("args").at("name"), "memory keys");
  const auto& key = events[2];
  EXPECT_EQ(key.at("ph"), "i");
  EXPECT_DOUBLE_EQ(key.at("ts"), 2.345);
  EXPECT_EQ(key.at("args").at("text"), "no \\ such\n key");
  EXPECT_EQ(key.at("args").at("key"), "0x7");
  EXPECT_NE(events[5].at("pid"), key.at("pid"));
}

TEST(TraceFile, AnEmptyOneIsJsonToo) {
  WrittenTrace file(Format::kJson);
  EXPECT_TRUE(nlohmann::json::parse(file.close()).at("traceEvents").empty());
}

// Some steps have the names of the model's document, the others the general names.
TEST(TraceFile, AModelNamesTheStepsThatItCallsOtherwise) {
  constexpr TraceName kNames[] = {{TraceStep::kCompletion, "blocks", "signal"}};
  TraceNames names(kNames);
  WrittenTrace file;
  Trace trace(file.writer(), "mover");
  trace.set_modules(&names);
  trace.note(TraceStep::kCompletion, "zero", {{"address", 0x40}});
  trace.note(TraceStep::kInterrupt, {}, {{"vector", 1}});
  const auto text = file.close();
  EXPECT_NE(text.find(" mover blocks: signal \"zero\" address=0x40\n"), text.npos);
  EXPECT_NE(text.find(" mover interrupts: interrupt vector=0x1\n"), text.npos);
}

TEST(TraceWriterFiles, AFileIsForItsOwnerAlone) {
  using std::filesystem::perms;
  const auto path =
      std::filesystem::temp_directory_path() / ("trace_test." + std::to_string(::getpid()));
  EXPECT_TRUE(TraceWriter::create(path));
  EXPECT_EQ(std::filesystem::status(path).permissions(), perms::owner_read | perms::owner_write);
  std::filesystem::remove(path);
}

TEST(TraceWriterFiles, APathThatCannotBeWrittenIsAnError) {
  EXPECT_FALSE(TraceWriter::create("/nonexistent/trace"));
}

}  // namespace
}  // namespace softhca::util
