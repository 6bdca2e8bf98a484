"""tools/language.py: the forms that it finds, the files that it reads, and the English that it lets pass."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import language  # noqa: E402


def problems(name, text):
    return language.check({name: text})


class Forms(unittest.TestCase):
    def finds(self, said, advice):
        found = problems("src/hub/a.cc", f"int x;\n/// {said}\nint y;\n")
        self.assertEqual(len(found), 1, said)
        self.assertTrue(found[0].startswith(f"src/hub/a.cc:2: {advice}"), found[0])

    def passes(self, said):
        self.assertEqual(problems("src/hub/a.cc", f"/// {said}\n"), [], said)

    def test_relative_clauses(self):
        for said in ("Who drains it goes on.", "The ring is full. Whose it is does not matter.", "What a client sent.",
                     "Where a response goes: a buffer.", "who has gone", "Room for who sends.",
                     "It waits for whom it serves."):
            self.finds(said, "a relative clause")
        for said in ("Peers who left.", "A client that sends.", "Where to start: one copy.", "Where the manual is silent, a note says so.", "What is free?",
                     "Whatever the value, it is read.", "The place where it ended.", "Whether it is full."):
            self.passes(said)

    def test_genitives(self):
        self.finds("Of a QP with an SRQ.", "a genitive")
        self.finds("It counts. Of a train, each packet.", "a genitive")
        self.passes("The CQ of a QP.")
        self.passes("of the current file")

    def test_inversions(self):
        for said in ("So are those of a train.", "Nor does it wait.", "Neither is it freed."):
            self.finds(said, "subject, verb, object")
        for said in ("So the device waits.", "So do not continue.", "It is full, so it waits.", "Neither side waits."):
            self.passes(said)

    def test_actors(self):
        for said in ("Nobody reads it.", "It waits until somebody rings.", "No one has it.", "Everybody may connect."):
            self.finds(said, "name the sender")
        self.passes("No other thread reads it.")
        self.passes("Either it finds kNobody, or the producer's index.")

    def test_reports(self):
        for said in ("The driver is told.", "It tells the peer.", "The hub hears of it.", "A doorbell that is heard."):
            self.finds(said, "report, notify")
        for said in ("The client could not tell which were done.", "The SPI tells two flows apart.",
                     "Write failures can be told apart."):
            self.passes(said)

    def test_words(self):
        for said in ("It begins anew.", "Memory that is afar.", "Mostly it is short.", "All at once.", "Likewise a read."):
            self.finds(said, "again, remote")
        self.passes("It is at most one.")

    def test_us(self):
        for said in ("A ring that we use.", "A doorbell wakes us.", "Our end of a link.", "The device, if it is ours."):
            self.finds(said, "name the device")
        for said in ("4.096 us * 2^n", "Some 50 us of work.", "Times in us, alpha in 1/1024.", "Four hours."):
            self.passes(said)

    def test_citations(self):
        self.passes('IBTA 9.7: "What the requester is told".')
        self.passes("Calls `tell()` of the peer.")


class Places(unittest.TestCase):
    def test_comments_of_cpp(self):
        for text in ("// Nobody.\n", "  /// Nobody.\n", "int x;  ///< nobody\n", "int x;  // nobody\n"):
            self.assertEqual(len(problems("src/hub/a.h", text)), 1, text)
        for text in ('log("nobody");\n', 'log("a // nobody");\n', "int nobody;\n", "// say\n//\n// it\n"):
            self.assertEqual(problems("src/hub/a.h", text), [], text)

    def test_a_sentence_may_go_on_in_the_next_line(self):
        self.assertEqual(problems("src/hub/a.h", "// The ring. It is that of the peer.\n// Of each peer.\n")[0][:14],
                         "src/hub/a.h:1:")
        self.assertEqual(problems("src/hub/a.h", "// The memory\n// Of nothing.\n"), [])

    def test_layouts(self):
        self.assertEqual(len(problems("src/spec/a.layout", "# Nobody.\nstruct a 0x8\n")), 1)
        self.assertEqual(problems("src/spec/a.layout", "struct nobody 0x8\n"), [])

    def test_scripts(self):
        for name, text in (("tools/a.py", '"""Nobody."""\n'), ("tools/a.py", 'def f():\n    """First.\n\n    Nobody.\n    """\n'),
                           ("tools/a.py", "x = 1  # nobody\n"), ("guest/run", "#!/bin/sh\n# Nobody.\n"), ("a.sh", "wait # nobody\n")):
            self.assertTrue(language.is_scanned(name, text) and problems(name, text), text)
        for name, text in (("tools/a.py", "nobody = 1\n"), ("a.sh", "who >nobody\n"), ("a.py", "x = " + '"a # nobody"\n')):
            self.assertEqual(problems(name, text), [], text)
        self.assertFalse(language.is_scanned("LICENSE", "Nobody"))

    def test_pages(self):
        for text in ("Nobody.\n", "- Of a QP.\n", "| file | Of a QP. |\n", "1. First.\n2. We do.\n"):
            self.assertEqual(len(problems("src/hub/README.md", text)), 1, text)
        for text in ("## What it does not implement\n", "```\nnobody\n```\n", "[link](nobody.md)\n", "`nobody`\n"):
            self.assertEqual(problems("src/hub/README.md", text), [], text)

    def test_folders(self):
        text = "// Nobody.\n"
        for name in ("src/hub/a.cc", "tests/unit/hub/a_test.cc", "src/hub/links/a.cc", "fuzz/a.h"):
            self.assertEqual(len(problems(name, text)), 1, name)
        self.assertEqual(problems("CHANGELOG.md", "Nobody.\n"), [])


if __name__ == "__main__":
    unittest.main()
