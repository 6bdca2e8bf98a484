"""tools/tidy.py: each rule reports a violation, and accepts correct code."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import tidy  # noqa: E402

HEADER = "// What it is.\n#pragma once\n"


def problems(name, text, exceptions=frozenset()):
    return tidy.check_files({name: text}, set(exceptions))[0]


def lines(count):
    return "int x;\n" * count


def readme(text="| a | b |\n|---|---|\n\n## What it does not implement\n"):
    """Names and texts of a tree in which every folder has its README."""
    names = [f"src/{folder}/a.cc" for folder in tidy.MAY_INCLUDE]
    texts = {f"src/{folder}/README.md": text for folder in tidy.MAY_INCLUDE}
    return names + list(texts), texts


class Lines(unittest.TestCase):
    def test_long_files(self):
        self.assertEqual(problems("src/util/a.cc", lines(400)), [])
        self.assertIn("401 lines", problems("src/util/a.cc", lines(401))[0])
        self.assertEqual(problems("tests/unit/a.cc", lines(600)), [])
        self.assertIn("601 lines", problems("tests/unit/a.cc", lines(601))[0])

    def test_long_lines_blanks_and_tabs(self):
        self.assertEqual(problems("src/util/a.cc", "x" * 100 + "\n"), [])
        self.assertIn("101 columns", problems("src/util/a.cc", "x" * 101 + "\n")[0])
        self.assertIn("trailing blank", problems("src/util/a.cc", "int x; \n")[0])
        self.assertIn("tab", problems("src/util/a.cc", "\tint x;\n")[0])

    def test_headers(self):
        self.assertEqual(problems("src/util/a.h", HEADER), [])
        self.assertIn("begins with a comment", problems("src/util/a.h", "#pragma once\n")[0])
        self.assertIn("#pragma once", problems("src/util/a.h", "// What it is.\n")[0])


class Folders(unittest.TestCase):
    def test_the_order_of_folders(self):
        self.assertEqual(problems("src/rdma/a.cc", '#include "wire/bth.h"\n'), [])
        self.assertIn("wire/ may not include rdma/", problems("src/wire/a.cc", '#include "rdma/types.h"\n')[0])
        self.assertIn("sdxi/ may not include connectx/",
                      problems("src/sdxi/a.cc", '#include "connectx/device.h"\n')[0])

    def test_a_folder_that_nobody_knows(self):
        self.assertIn("not in tools/tidy.py", problems("src/news/a.cc", "")[0])

    def test_the_order_of_chapters(self):
        self.assertEqual(problems("src/connectx/qp/a.cc", '#include "connectx/event/event_queue.h"\n'), [])
        self.assertIn("connectx/event/ may not include connectx/qp/",
                      problems("src/connectx/event/a.cc", '#include "connectx/qp/rdma.h"\n')[0])
        self.assertIn("not in tools/tidy.py", problems("src/connectx/news/a.cc", "")[0])

    def test_the_device_is_for_the_root_and_the_command_interface(self):
        text = '#include "connectx/device.h"\n'
        for name in ("qp/rdma.cc", "qp/qp_commands.cc"):
            self.assertIn("may not include connectx/device.h", problems(f"src/connectx/{name}", text)[0])
        for name in ("command/command_interface.cc", "doorbell_pages.cc"):
            self.assertEqual(problems(f"src/connectx/{name}", text), [])

    def test_handlers_see_the_state_of_the_driver(self):
        text = '#include "connectx/driver_state.h"\n'
        self.assertIn("may not include connectx/driver_state.h", problems("src/connectx/qp/rdma.cc", text)[0])
        self.assertEqual(problems("src/connectx/qp/qp_commands.cc", text), [])

    def test_what_a_command_is_belongs_to_all(self):
        self.assertEqual(problems("src/connectx/base/a.h", HEADER + '#include "connectx/command/command.h"\n'), [])


class DoorChapters(unittest.TestCase):
    def test_chapters_include_what_they_stand_on(self):
        for name, included in (("card/a.cc", "memory/pages.h"), ("a.cc", "engine/engine.h"), ("interpose/a.cc", "kernel.h"),
                               ("engine/a.cc", "engine/b.h")):
            self.assertEqual(problems(f"src/door/{name}", f'#include "door/{included}"\n'), [], name)

    def test_no_chapter_includes_its_users(self):
        for name, included in (("memory/a.cc", "engine/engine.h"), ("engine/a.cc", "kernel.h"), ("a.cc", "interpose/netlink.h"),
                               ("engine/a.cc", "interpose/interpose.h")):
            self.assertIn("may not include", problems(f"src/door/{name}", f'#include "door/{included}"\n')[0], name)

    def test_chapters_are_listed(self):
        self.assertIn("is not in tools/floors.py", problems("src/door/extra/a.cc", "int a;\n")[0])


class Functions(unittest.TestCase):
    def test_long_functions(self):
        def function(count):
            return "void Part::work(int a) {\n" + "  step();\n" * (count - 2) + "}\n"
        self.assertEqual(problems("src/util/a.cc", function(60)), [])
        self.assertEqual(problems("src/util/a.cc", function(61)), ["src/util/a.cc:1: Part::work has 61 lines (at most 60)"])
        self.assertEqual(problems("tests/unit/a.cc", function(61)), [])

    def test_a_class_is_no_function(self):
        self.assertEqual(problems("src/util/a.cc", "class A {\n" + "  void f() { g(); }\n" * 100 + "};\n"), [])


class Neutral(unittest.TestCase):
    def test_what_devices_stand_on_names_none(self):
        for line in ("// as ConnectX does", "// PRM 7.4.3", 'log("mlx5");', "// SDXI 5.3"):
            self.assertTrue(any("names a device" in p for p in problems("src/rdma/a.cc", line + "\n")), line)

    def test_devices_name_themselves_and_words_are_no_documents(self):
        self.assertEqual(problems("src/connectx/a.cc", "// PRM 7.4.3\n"), [])
        self.assertEqual(problems("src/hca/a.cc", "// prmx\n"), [])


class Formats(unittest.TestCase):
    def bites(self, line, folder="connectx/qp"):
        return any("shift or mask" in problem for problem in problems(f"src/{folder}/a.cc", line + "\n"))

    def test_fields_by_hand(self):
        for line in ("x = tci >> 13;", "x = tci & 0xFFF;", "x = a << 2 | b;", "x = v & ~0xFu;",
                     "x = view.get(F::at) << F::at.kLo;", "return dword >> Doorbell::number.kLo;",
                     "x = high << Layout::low.kWidth | low;", "return 16u << context.get(Qpc::log_stride);",
                     "x = (word >> bit & 1) != 0;", "x = priority & 7u;"):
            self.assertTrue(self.bites(line), line)

    def test_sizes_and_bits_of_sets(self):
        for line in ("constexpr auto kSize = 4 << 20;", "kBit = 1u << 3,", "auto x = std::uint64_t{1} << 31;",
                     "x = 1u << number;", "x = std::uint64_t{1} << (a + kLogUnit);", "if (a && 1 < b) x = y & mask;",
                     "out << 5_text;  // no format: a stream", 'log("a >> 3");', "// x >> 3"):
            self.assertFalse(self.bites(line), line)

    def test_with_a_reason(self):
        self.assertFalse(self.bites("x = hash >> 32;  // no format: a hash"))
        self.assertFalse(self.bites("// no format: a hash\nx = hash >> 32;"))
        self.assertTrue(self.bites("x = hash >> 32;  // a hash"))

    def test_where_formats_are_declared(self):
        for folder in ("spec/infiniband", "wire", "util"):
            self.assertFalse(self.bites("x = tci >> 13;", folder), folder)
        for folder in ("pcie", "driver", "door/tree", "uverbs", "cli"):
            self.assertTrue(self.bites("x = tci >> 13;", folder), folder)


class SpecNames(unittest.TestCase):
    def bites(self, line, name="src/connectx/port/a.cc"):
        return any("using namespace" in problem for problem in problems(name, HEADER + line + "\n"))

    def test_the_namespace_of_the_formats_has_no_second_name(self):
        for line in ("namespace s = spec::connectx;", "namespace spec = softhca::spec::connectx;"):
            self.assertTrue(self.bites(line), line)
            self.assertTrue(self.bites("  " + line), line)
        self.assertFalse(self.bites("namespace fs = std::filesystem;"))

    def test_a_header_names_what_it_uses(self):
        self.assertFalse(self.bites("using namespace spec::connectx;"))
        self.assertFalse(self.bites("using Context = spec::connectx::cq_context;", "src/connectx/port/a.h"))
        self.assertTrue(self.bites("using namespace spec::connectx;", "src/connectx/port/a.h"))


class Exceptions(unittest.TestCase):
    def test_what_is_excepted_passes_and_what_needs_no_exception_is_told(self):
        name = "src/util/a.cc"
        self.assertEqual(tidy.check_files({name: lines(401)}, {("lines", name)}), ([], []))
        found, notes = tidy.check_files({name: lines(4)}, {("lines", name)})
        self.assertEqual(found, [])
        self.assertIn("nothing needs the exception lines of src/util/a.cc", notes[0])

    def test_an_exception_is_for_one_rule(self):
        self.assertTrue(problems("src/util/a.cc", lines(401), {("headers", "src/util/a.cc")}))


class Readmes(unittest.TestCase):
    def test_what_each_has(self):
        self.assertEqual(list(tidy.rule_readmes(readme())), [])
        self.assertIn("does not implement", list(tidy.rule_readmes(readme("| a |\n|---|\n")))[0])
        self.assertIn("no table", list(tidy.rule_readmes(readme("## What it does not implement\n")))[0])
        names, texts = readme()
        del texts["src/util/README.md"]
        self.assertIn("src/util: no README.md", list(tidy.rule_readmes((names, texts))))

    def test_folders_below_have_one_too(self):
        names, texts = readme()
        names.append("src/connectx/qp/a.cc")
        self.assertEqual(list(tidy.rule_readmes((names, texts))), ["src/connectx/qp: no README.md"])
        texts["src/connectx/qp/README.md"] = "| a |\n|---|\n"
        self.assertIn("does not implement", list(tidy.rule_readmes((names, texts)))[0])

    def test_files_that_are_named_exist(self):
        names, texts = readme()
        good = "`a.cc`, `a.*`, `util/`, `src/util/a.cc`, `util/a.cc`, `CMakeLists`, `build/softhca`, `softhca serve`\n"
        texts["src/util/README.md"] += good
        self.assertEqual(list(tidy.rule_readmes((names, texts))), [])
        texts["src/util/README.md"] += "`gone.cc`\n"
        self.assertIn("there is no gone.cc", list(tidy.rule_readmes((names, texts)))[0])

    def test_files_of_folders_below_are_named_by_their_ends(self):
        names, texts = readme()
        names.append("src/util/x/README.md")
        texts["src/util/x/README.md"] = texts["src/util/README.md"]
        names.append("src/util/x/deep/b.cc")
        texts["src/util/README.md"] += "`b.cc`, `deep/b.cc`, `deep/`, `x/`, `x/*/`, `*.cc`\n"
        self.assertEqual([problem for problem in tidy.rule_readmes((names, texts)) if "there is no" in problem], [])
        for gone in ("eep/b.cc", "x/b.cc", "y/", "y/*/", "*.sh"):
            self.assertTrue(any("there is no" in problem for problem in
                                tidy.rule_readmes((names, {**texts, "src/util/README.md": f"`{gone}`"}))), gone)

    def test_tests_that_are_named_exist(self):
        texts = {"docs/a.md": "line\n`Suite.Name` and `Suite.Gone`\n"}
        self.assertEqual(list(tidy.rule_cited_tests(texts, {"Suite.Name"})), ["docs/a.md:2: there is no test Suite.Gone"])

    def test_functions_of_walks_exist(self):
        files = {"src/a/b.cc": "namespace a {\nvoid Box::open(int way) {\n}\nint shut() {\n  return 0;\n}\n"
                               "SOFTHCA_INTERPOSE(int, door_dup, \"dup\", (int fd)) {\n}\n}\n",
                 "src/a/c.h": "class Box {\n  void fill() {}\n};\n"}
        good = ("| 1 | `src/a/b.cc` | `Box::open`, `shut` | opens |\n| 2 | `src/a/b.cc` | `door_dup` | |\n"
                "| 3 | `src/a/c.h` | `Box::fill` | |\n")
        self.assertEqual(list(tidy.rule_walks({"docs/a.md": good}, files)), [])
        bad = good + "| 4 | `src/a/b.cc` | `Box::open`, `Box::fill` | elsewhere |\n"
        self.assertEqual(list(tidy.rule_walks({"docs/a.md": bad}, files)), ["docs/a.md:4: src/a/b.cc defines no Box::fill"])

    def test_a_fast_path_without_a_test_or_a_word(self):
        files = {"src/a/b.h": "class Box {\n  /// Fast path of open().\n  bool open_fast();\n  bool can_shut_fast() const;\n};\n"}
        row = "| `Box::open_fast` | `open` | %s |\n"
        self.assertEqual(list(tidy.rule_fast_paths({"src/a/README.md": row % "`Box.OpensAlike`"}, files)), [])
        for texts in ({}, {"src/a/README.md": row % "a test"}, {"docs/a.md": row % "`Box.OpensAlike`"}):
            self.assertIn("no README of src/ has a row for open_fast", list(tidy.rule_fast_paths(texts, files))[0])
        files["src/a/b.h"] = files["src/a/b.h"].replace("Fast path", "Another form")
        self.assertEqual(list(tidy.rule_fast_paths({"src/a/README.md": row % "`Box.OpensAlike`"}, files)),
                         ["src/a/b.h: open_fast has no comment: Fast path of ..."])


if __name__ == "__main__":
    unittest.main()
