"""tools/make_site.py: which links of a site it reports."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_site  # noqa: E402


def problems(links, files=()):
    pages = {"a/page.html": '<h1 id="top">A</h1>' + "".join(f'<a href="{link}">x</a>' for link in links),
             "index.html": '<h1 id="start">B</h1><a name="old"></a>'}
    return list(make_site.broken(pages, set(pages) | set(files)))


class Links(unittest.TestCase):
    def test_links_that_lead_somewhere(self):
        links = ["#top", "page.html#top", "../index.html#start", "../index.html#old", "..", "../", "https://example.org/#x", "mailto:a@b",
                 "file.c", "a%20b.txt"]
        self.assertEqual(problems(links, ["a/file.c", "a/a b.txt"]), [])

    def test_links_that_lead_nowhere(self):
        self.assertEqual(problems(["gone.html"]), ["a/page.html: gone.html: no such file"])
        self.assertEqual(problems(["../gone.c#L1"]), ["a/page.html: ../gone.c#L1: no such file"])
        self.assertEqual(problems(["#gone"]), ["a/page.html: #gone: no such heading"])
        self.assertEqual(problems(["../#top"]), ["a/page.html: ../#top: no such heading"])


if __name__ == "__main__":
    unittest.main()
