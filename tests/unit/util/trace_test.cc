// The two forms of a trace: docs/debugging.md has the words.
#include "util/trace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace softhca::util {
namespace {

class TraceFile : public ::testing::Test {
 protected:
  ~TraceFile() override { std::fclose(file_); }
  std::string text() {
    std::fflush(file_);
    std::string text(static_cast<std::size_t>(std::ftell(file_)), '\0');
    std::rewind(file_);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), file_), text.size());
    return text;
  }
  std::FILE* file_ = std::tmpfile();
  Time now_{std::chrono::hours(5)};
};

TEST_F(TraceFile, TextIsALineForEachStep) {
  TraceWriter writer(file_, TraceWriter::Format::kText, [this] { return now_; });
  Trace trace(writer, "hca0");
  now_ += std::chrono::nanoseconds(1'500'000'001);
  trace.note(TraceStep::kDoorbell, {}, {{"queue", 0x41}, {"uar", 3}});
  trace.note(TraceStep::kSendWqe, "RDMA_READ", {});
  EXPECT_EQ(text(),
            "1.500000001 hca0 doorbells: doorbell queue=0x41 uar=0x3\n"
            "1.500000001 hca0 work queues: send WQE \"RDMA_READ\"\n");
}

// Each device is a process, each of its parts a thread, which are named before they are used.
TEST_F(TraceFile, JsonHasWhatPerfettoAsksFor) {
  {
    TraceWriter writer(file_, TraceWriter::Format::kJson, [this] { return now_; });
    Trace first(writer, "hca\"0\"");
    Trace second(writer, "hca1");
    now_ += std::chrono::nanoseconds(2'345);
    first.note(TraceStep::kKey, "no \\ such\n key", {{"key", 7}});
    second.note(TraceStep::kKey, {}, {});
  }
  const auto events = nlohmann::json::parse(text()).at("traceEvents");
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

TEST_F(TraceFile, AnEmptyOneIsJsonToo) {
  {
    const TraceWriter writer(file_, TraceWriter::Format::kJson, [this] { return now_; });
  }
  EXPECT_TRUE(nlohmann::json::parse(text()).at("traceEvents").empty());
}

TEST(TraceWriterFiles, APathThatCannotBeWrittenIsAnError) {
  EXPECT_FALSE(TraceWriter::create("/nonexistent/trace"));
}

}  // namespace
}  // namespace softhca::util
