// QUERY_PAGES and MANAGE_PAGES (PRM 12.3.1, 12.3.2).

#include <algorithm>

#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/function/pages.h"
#include "spec/connectx/hca.h"

namespace softhca::connectx {

CommandResult query_pages(DriverState& driver, const Command& command) {
  using In = spec::connectx::query_pages_in;
  using Out = spec::connectx::query_pages_out;
  using Stage = spec::connectx::query_pages_op_mod;
  constexpr std::string_view kSection = "PRM 12.3.1";
  if (command.input<In>().get(In::function_id) != 0) {
    return refuse(Status::BAD_PARAM, kSection, "the device has function 0 only");
  }
  const auto out = command.output<Out>();
  switch (static_cast<Stage>(command.op_mod)) {
    case Stage::BOOT_PAGES:
      out.set(Out::num_pages, driver.pages().missing_for_boot());
      return {};
    case Stage::INIT_PAGES:
      out.set(Out::num_pages, driver.pages().missing_for_init());
      return {};
    case Stage::REGULAR_PAGES:
      out.set(Out::num_pages, static_cast<std::uint32_t>(driver.pages().wanted()));
      return {};
  }
  return refuse(Status::BAD_OP, kSection, "op_mod is not boot, init or regular pages");
}

CommandResult manage_pages(DriverState& driver, const Command& command) {
  using In = spec::connectx::manage_pages_in;
  using Out = spec::connectx::manage_pages_out;
  using Direction = spec::connectx::manage_pages_op_mod;
  constexpr std::string_view kSection = "PRM 12.3.2";
  const auto in = command.input<In>();
  if (in.get(In::function_id) != 0) {
    return refuse(Status::BAD_PARAM, kSection, "the device has function 0 only");
  }
  const std::uint32_t entries = in.get(In::input_num_entries);
  switch (static_cast<Direction>(command.op_mod)) {
    case Direction::CANT_GIVE:
      driver.pages().cannot_give(driver.now());
      return {};
    case Direction::GIVE: {
      const auto pas = command.in_tail(In::pas_offset);
      if (entries > pas.size() / In::pas_size) {
        return refuse(Status::BAD_INPUT_LEN, kSection, "fewer addresses than input_num_entries");
      }
      command.work.charge(std::min<std::int64_t>(entries, PageManager::kMaxPages) *
                          PageManager::kPageWork);
      return driver.pages().give(pas.first(std::size_t{entries} * In::pas_size));
    }
    case Direction::TAKE: {
      const auto room = command.out.subspan(Out::pas_offset);
      const auto returned = driver.pages().take(entries, room);
      command.work.charge(returned * PageManager::kPageWork);
      command.output<Out>().set(Out::output_num_entries, returned);
      return {};
    }
  }
  return refuse(Status::BAD_OP, kSection, "op_mod is neither give nor take");
}

}  // namespace softhca::connectx
