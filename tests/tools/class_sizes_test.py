"""tools/class_sizes.py counts members as a reader would, and lets a listed class shrink only."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import class_sizes  # noqa: E402
from class_sizes import Size  # noqa: E402

EVERY_KIND = """
namespace softhca::rdma {
class Queue final : public Ring {
 public:
  struct Entry {
    int a, b;
    int sum() const { return a + b; }
  };
  using Clock = util::Time (*)();
  explicit Queue(Clock clock) : clock_(clock), used_{0} { start(); }
  ~Queue();
  Queue(const Queue&) = delete;
  void push(int value = kNone);
  void push(Entry entry) { push(entry.sum()); }
  template <class Visit>
  void each(Visit&& visit) const {
    if (visit) visit(1);
  }
  friend class Reader;

 private:
  static constexpr int kNone = 0;
  std::function<void(int)> done_ = [](int value) { (void)value; };
  Clock clock_;
  std::array<int, 4> used_{};
};
}  // namespace softhca::rdma
"""


def a_class(functions, data):
    declared = "".join(f"  void f{i}();\n" for i in range(functions)) + "".join(f"  int d{i} = 0;\n" for i in range(data))
    return {"src/rdma/a.h": "class A {\n" + declared + "};\n"}


class Counts(unittest.TestCase):
    def test_every_kind_of_member(self):
        sizes = class_sizes.sizes({"src/rdma/a.h": EVERY_KIND})
        self.assertEqual(sizes["src/rdma/Queue"], Size(5, 3, 0))
        self.assertEqual(sizes["src/rdma/Queue::Entry"], Size(1, 1, 0))

    def test_the_files_of_its_functions(self):
        files = a_class(2, 0) | {f"src/rdma/a{i}.cc": f"void A::f{i % 2}() {{}}\n" for i in range(3)}
        self.assertEqual(class_sizes.sizes(files)["src/rdma/A"], Size(2, 0, 3))

    def test_other_folders_have_classes_of_the_same_name(self):
        sizes = class_sizes.sizes({"src/rdma/a.h": "class A { int a; };", "src/hub/a.h": "class A { int a, b; void c(); };"})
        self.assertEqual((sizes["src/rdma/A"], sizes["src/hub/A"]), (Size(0, 1, 0), Size(1, 1, 0)))


class Limits(unittest.TestCase):
    def test_the_widest_class(self):
        self.assertEqual(class_sizes.check(a_class(40, 20), {}), ([], []))

    def test_one_member_more(self):
        self.assertIn("41 member functions (at most 40)", class_sizes.check(a_class(41, 20), {})[0][0])
        self.assertIn("21 data members (at most 20)", class_sizes.check(a_class(40, 21), {})[0][0])

    def test_three_files(self):
        files = a_class(3, 0) | {f"src/rdma/a{i}.cc": f"void A::f{i}() {{}}\n" for i in range(3)}
        self.assertIn("3 .cc files (at most 2)", class_sizes.check(files, {})[0][0])

    def test_a_listed_class_does_not_grow(self):
        listed = {"src/rdma/A": Size(50, 1, 0)}
        self.assertEqual(class_sizes.check(a_class(50, 1), listed), ([], []))
        self.assertIn("51 member functions (at most 50)", class_sizes.check(a_class(51, 1), listed)[0][0])

    def test_notes_on_what_the_list_does_not_need(self):
        problems, notes = class_sizes.check(a_class(45, 1), {"src/rdma/A": Size(50, 1, 0), "src/hub/B": Size(41, 0, 0)})
        self.assertEqual(problems, [])
        self.assertIn("src/rdma/A has 45 | 1 | 0", notes[0])
        self.assertIn("there is no src/hub/B", notes[1])


FORWARDER = """
class A {
 public:
  explicit A(B b) : b_(b) {}
  int one() const { return b_.one(); }
  void handle_two(int value) { parts_.b.handle(value, c_); }
  void take_three(std::vector<int> list) { b_->three(std::move(list)); }
  void four();
  void five();
  int six() { return a_ + b_.six(); }
  int seven() const;

 private:
  void eight() { b_.eight(); }
};
"""


class Forwards(unittest.TestCase):
    def problems(self, more="", listed=()):
        files = {"src/rdma/a.h": FORWARDER, "src/rdma/a.cc": "void A::four() { b_.four(); }\nvoid A::five() { b_.five(1); }\n" + more}
        return class_sizes.check_forwarders(files, listed)

    def test_one_statement_that_calls_a_members_function_of_the_same_name(self):
        self.assertIn("src/rdma/A: 5 of 7 public functions only call", self.problems()[0][0])
        self.assertIn("src/rdma/A: 6 of 7", self.problems("int A::seven() const { return c_.seven(); }")[0][0])

    def test_more_than_a_call_is_no_forward(self):
        for body in ("b_.seven(); return 1;", "return c_.eight();", "return b_.seven(one());", "return seven_;"):
            self.assertIn("src/rdma/A: 5 of 7", self.problems(f"int A::seven() const {{ {body} }}")[0][0])

    def test_half_of_them_is_allowed(self):
        files = {"src/rdma/a.h": FORWARDER, "src/rdma/a.cc": "void A::four() { b_.four(); }\nvoid A::five() {}\n"}
        self.assertIn("4 of 7", class_sizes.check_forwarders(files, [])[0][0])
        files["src/rdma/a.cc"] = "void A::four() {}\nvoid A::five() {}\n"
        self.assertEqual(class_sizes.check_forwarders(files, []), ([], []))

    def test_a_small_class_is_allowed(self):
        text = "".join(f"  void f{i}() {{ b_.f{i}(); }}\n" for i in range(5))
        self.assertEqual(class_sizes.check_forwarders({"src/rdma/a.h": "struct A {\n" + text + "};"}, []), ([], []))

    def test_a_listed_class_has_a_reason_as_long_as_it_needs_one(self):
        self.assertEqual(self.problems(listed=["src/rdma/A"]), ([], []))
        self.assertIn("src/hub/B does not only forward", self.problems(listed=["src/rdma/A", "src/hub/B"])[1][0])


if __name__ == "__main__":
    unittest.main()
