// A shared library that is not loaded before a case lets it go: others wait for the loader
// meanwhile.
#include "lives_library.h"

namespace {

[[gnu::constructor]] void wait() { hold_in_constructor(); }

}  // namespace
