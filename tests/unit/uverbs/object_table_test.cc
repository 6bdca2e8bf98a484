// The table of a context's objects, and their end.
#include "uverbs/object_table.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <utility>

namespace softhca::uverbs {
namespace {

/// An object that a device does not destroy.
struct Kept : Object {
  static constexpr Kind kKind = Kind::kPd;
  Kept(std::set<const Object*>& all, Kept* needs) : Object(kKind), there(all), needed(needs) {
    there.insert(this);
  }
  ~Kept() override {
    EXPECT_TRUE(needed.get() == nullptr || there.contains(needed.get())) << "it is still used";
    there.erase(this);
  }
  Errno end() override { return EIO; }
  std::set<const Object*>& there;
  Use needed;
};

// A device that answers no command destroys nothing. Its context ends all the same.
TEST(ObjectTable, WhatTheDeviceKeepsGoesBeforeWhatItUses) {
  constexpr int kMany = 100;  // enough to make the hash table grow
  std::set<const Object*> there;
  {
    Objects objects;
    Kept* last = nullptr;
    for (int i = 0; i != kMany; ++i) {
      auto one = std::make_unique<Kept>(there, last);
      last = one.get();
      (void)objects.add(std::move(one));
    }
    objects.clear();
    EXPECT_TRUE(there.empty());
    EXPECT_EQ(objects.find_any(1), nullptr);
    EXPECT_EQ(objects.find_if<Kept>([](const Kept&) { return true; }), nullptr);
  }
}

}  // namespace
}  // namespace softhca::uverbs
