#include "suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "fabric/allocation_counter.h"
#include "skips.h"

namespace softhca::driver::verbs::test {

std::vector<Pair> all_pairs() {
  std::vector<Pair> pairs;
  for (const auto link : {wire::Link::kEthernet, wire::Link::kInfiniband}) {
    for (const auto from : lab::models()) {
      for (const auto to : lab::models()) {
        if (!lab::has_link(from, link) || !lab::has_link(to, link)) continue;
        pairs.push_back({std::string(from), std::string(to), link});
      }
    }
  }
  return pairs;
}

void PrintTo(const Pair& pair, std::ostream* out) {
  *out << pair.from << "_to_" << pair.to;
  if (pair.link == wire::Link::kInfiniband) *out << "_on_infiniband";
}

TestName parts_of(const testing::TestInfo& test) {
  std::string_view suite = test.test_suite_name(), name = test.name();
  suite.remove_prefix(suite.find('/') + 1);
  const auto slash = name.find('/');
  if (slash == std::string_view::npos) return {suite, name, {}};
  return {suite, name.substr(0, slash), name.substr(slash + 1)};
}

bool is_skipped(const TestName& test, const Pair& pair) {
  const auto lacks = [](std::string_view device, Feature feature) {
    return std::ranges::any_of(
        kSkips, [&](const Skip& skip) { return skip.device == device && skip.feature == feature; });
  };
  return std::ranges::any_of(kNeeds, [&](const Need& need) {
    return need.suite == test.suite && (need.test.empty() || need.test == test.name) &&
           (lacks(pair.from, need.feature) || lacks(pair.to, need.feature));
  });
}

std::string name_of(const testing::TestParamInfo<Pair>& info) {
  std::ostringstream name;
  PrintTo(info.param, &name);
  return name.str();
}

namespace {

std::optional<SharedReceiveQueue> make_srq(ProtectionDomain& pd, const Side::Options& options) {
  if (!options.with_srq) return std::nullopt;
  return must(pd.create_srq(options.capacity.receive_requests, options.capacity.receive_pieces));
}

}  // namespace

Side::Side(Device& on, const Options& options)
    : SideMemory(kMemory),
      device(on),
      pd(must(on.allocate_pd())),
      region(must(pd.register_memory(memory, options.access))),
      send_cq(must(on.create_cq(options.cq_entries))),
      receive_cq(must(on.create_cq(options.cq_entries))),
      srq(make_srq(pd, options)),
      qp(must(pd.create_qp({.type = options.type,
                            .send_cq = send_cq,
                            .receive_cq = receive_cq,
                            .srq = srq ? &*srq : nullptr,
                            .capacity = options.capacity}))) {}

void Side::receive(std::uint64_t id, std::size_t offset, std::size_t length) {
  const auto piece = region.piece(offset, length);
  const ReceiveRequest request{.id = id, .pieces = {&piece, 1}};
  ASSERT_EQ(srq ? srq->post(request) : qp.post_receive(request), PostStatus::kOk);
}

PostStatus Side::send(SendOpcode opcode, std::size_t length, std::uint64_t id) {
  const auto piece = region.piece(0, length);
  return qp.post_send({.id = id, .opcode = opcode, .pieces = {&piece, 1}});
}

Verbs::Verbs() {
  // Tests provoke refusals, whose warnings would hide what matters.
  lab_ = std::make_unique<lab::Lab>(
      std::vector{GetParam().from, GetParam().to},
      lab::Lab::Options{
          .virtual_time = true, .link = GetParam().link, .log_level = util::LogLevel::kError});
  // The ports have come up.
  for (std::size_t i = 0; i != lab_->size(); ++i) {
    while (must(lab_->device(i).poll_event())) {
    }
  }
}

void Verbs::TearDown() {
  const auto test = parts_of(*testing::UnitTest::GetInstance()->current_test_info());
  // With a sanitizer that replaces operator new, allocations cannot be counted.
  if (!fabric::kAllocationsCount && test.name == "PostingAndPollingAllocateNothing") return;
  EXPECT_EQ(IsSkipped(), is_skipped(test, GetParam())) << "skips.h says otherwise";
}

const fabric::NetworkFaults::Counters& Verbs::lose(std::string_view keys) {
  return lab().add_fault(fmt::format("port={}{},do=lose", lab().port_name(0), keys));
}

void Verbs::make_sides(const Side::Options& options) {
  a_.emplace(lab_->device(0), options);
  b_.emplace(lab_->device(1), options);
}

void Verbs::connect_sides(QpType type, const ConnectionOptions& options) {
  make_sides({.type = type});
  must(connect(a_->qp, b_->qp, options));
}

std::vector<Completion> Verbs::wait(CompletionQueue& cq, std::size_t count) {
  return driver::test::wait(*lab_, cq, count);
}

std::optional<AsyncEvent> Verbs::wait_event(Device& device) {
  std::optional<AsyncEvent> found;
  lab_->run_until([&] {
    found = must(device.poll_event());
    return found.has_value();
  });
  return found;
}

bool Verbs::lacks(Feature feature) {
  bool missing = false;
  for (std::size_t i = 0; i != lab_->size(); ++i) {
    const auto* const limitation = lab_->device(i).attributes().lacks(feature);
    if (limitation == nullptr) continue;
    missing = true;
    const bool listed = std::ranges::any_of(kSkips, [&](const Skip& skip) {
      return skip.device == lab_->name(i) && skip.feature == feature &&
             skip.section == limitation->section;
    });
    EXPECT_TRUE(listed) << lab_->name(i) << " lacks " << to_string(feature)
                        << ", which skips.h does not list";
  }
  return missing;
}

}  // namespace softhca::driver::verbs::test
