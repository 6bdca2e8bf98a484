// Programs with long lives: lives CASE. See lives.py.
#include "lives.h"

#include <string_view>

int main(int count, char** words) {
  const std::string_view wanted = count > 1 ? words[1] : "";
  for (const auto cases : {lives::ends(), lives::pages(), lives::signals(), lives::files(),
                           lives::limits(), lives::meanwhile(), lives::held(), lives::tree()}) {
    for (const auto& one : cases) {
      if (wanted == one.name) return one.run();
    }
  }
  std::fprintf(stderr, "lives: no case '%s'\n", count > 1 ? words[1] : "");
  return 2;
}
