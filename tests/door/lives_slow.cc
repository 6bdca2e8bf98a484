// A shared library whose constructor waits until a case lets it go. Meanwhile its thread holds the
// loader's lock.
#include "lives_library.h"

namespace {

[[gnu::constructor]] void wait() { hold_in_constructor(); }

}  // namespace
