"""tools/citations.py: citations that open, and those that do not."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import citations  # noqa: E402

TEXTS = {
    "docs/interface/README.md": "| [mlx5.md](mlx5.md) | drivers | `mlx5 driver interface 7.4` |\n"
                                "| [kernel.md](kernel.md) | kernel | `kernel interface 4.8` |\n\n"
                                "| name | document | sections |\n|---|---|---|\n"
                                "| `PRM` | manual | 1 to 12, Table 1 to 585 |\n"
                                "| `IBTA` | InfiniBand | 1 to 20, Annex A1 to A19 |\n"
                                "| `JingZhao` | JingZhao | 1 to 3, Table A1 to A2 |\n"
                                "| `RFC`, `Linux` | more | - |\n",
    "docs/interface/mlx5.md": "`mlx5 driver interface: DevX` is 7.11.\n\n## 8. Data\n\n### 8.1 Records\n\n### 7.11 DevX\n",
    "docs/interface/kernel.md": "## 9. Memory\n\n### 9.5 Memory that goes away\n",
}
NAMES = {"src/hub/hello.h", "docs/run.md", *TEXTS}


def problems(text, name="src/rdma/a.cc"):
    return list(citations.check({name: text}, TEXTS, NAMES))


class OurPages(unittest.TestCase):
    def test_a_section_that_is_there(self):
        for text in ("// mlx5 driver interface 8.1: x", "// (mlx5 driver interface 8, 8.1)", "// kernel interface 9.5.",
                     "// the kernel\n// interface 9.5 says", "/// (mlx5 driver interface\n/// 7.11)", "# kernel\n# interface 9"):
            self.assertEqual(problems(text), [], text)

    def test_a_section_that_is_not_there(self):
        self.assertEqual(problems("x\n// mlx5 driver interface 8.2"),
                         ["src/rdma/a.cc:2: mlx5 driver interface has no section 8.2"])
        for text in ("// mlx5 driver interface 8.1, 8.3", "// (kernel interface 9.5, 9.6)", "// kernel\n// interface 1",
                     "// mlx5 driver\n// interface 8.1.1", "// (kernel interface\n// 9.6)", "// mlx5 driver interface 8.1 to 8.9",
                     "// mlx5 driver interface 8 and\n// 9"):
            self.assertEqual(len(problems(text)), 1, text)

    def test_words_of_refusals(self):
        self.assertEqual(problems('refuse("mlx5 driver interface: DevX", "a reason");'), [])
        self.assertIn('no words "UMEM"', problems('refuse("mlx5 driver interface: UMEM", "a reason");')[0])

    def test_the_page_as_a_whole(self):
        self.assertEqual(problems("// not in the manual: mlx5 driver interface."), [])

    def test_words_that_only_contain_a_name(self):
        self.assertEqual(problems("the microkernel interface 77, a kernel interfaces 3"), [])


class PublicDocuments(unittest.TestCase):
    def test_chapters_tables_and_annexes(self):
        for text in ("PRM 12.3.3", "PRM Table 585", "PRM tables 3 and 4", "IBTA Annex A17 17.9.3", "JingZhao table A1-3",
                     "PRM chapter 9", "JingZhao 3.3.1", "RFC 9293 3.1", "Linux 6.12", "the PRM says", "20-bit IBTA fields"):
            self.assertEqual(problems(f"// {text}"), [], text)

    def test_what_the_document_does_not_have(self):
        for text in ("PRM 13.1", "PRM Table 586", "IBTA 21", "IBTA Annex A20", "IBTA A17", "JingZhao A1-3", "PRM 0",
                     "PRM\n// 14.2", "PRM Annex A1", "JingZhao table 3-1"):
            self.assertIn("has no", problems(f"// {text}")[0], text)


class Lost(unittest.TestCase):
    def test_notes_that_are_not_in_the_tree(self):
        for text in ("host-door contract 4.8", "Contract 8.11", "(contract 3.2)", "seed 001", "rsnic-index 4.3", "mlx5 7.10"):
            self.assertIn("no document of docs/interface/README.md", problems(f"// {text}")[0], text)

    def test_a_history_stays(self):
        self.assertEqual(problems("host-door contract 4.8", "CHANGELOG.md"), [])

    def test_a_tree_without_documents(self):
        self.assertEqual(list(citations.check({}, {}, set())), ["docs/interface/README.md: names no documents"])


class Sections(unittest.TestCase):
    def of(self, section, name="tests/mutations/hub.toml"):
        return problems(f'what = "x"\nsection = "{section}"\n', name)

    def test_of_mutants(self):
        for section in ("PRM 7.4", "mlx5 driver interface 8.1", "Linux ib_umem_get", "docs/run.md", "hub/hello.h, sizes",
                        "src/hub/hello.h", "fork(2)", "softhca explain --help", "RFC 768"):
            self.assertEqual(self.of(section), [], section)
        for section in ("fairness", "7.4", "docs/gone.md", "hello.h", "LinuxFoo 3", "PRMs", "some manual 3.1"):
            self.assertEqual(self.of(section), [f"tests/mutations/hub.toml:2: docs/interface/README.md has no document: {section}"])

    def test_of_tables_about_one_document(self):
        self.assertEqual(self.of("4.3.1, shall", "docs/sdxi-features.toml"), [])
        self.assertEqual(self.of("table 4-1", "docs/rsnic-commands.toml"), [])
        self.assertEqual(len(self.of("4.3.1", "docs/connectx-rdma.toml")), 1)

    def test_of_layouts(self):
        def of(section):
            return problems(f'document a big\nstruct a 0x10 "{section}"\n  x 0x0 3 "a note"\n', "src/spec/connectx/a.layout")
        self.assertEqual(of("PRM Table 4"), [])
        self.assertEqual(len(of("a table")), 1)


class Tree(unittest.TestCase):
    def test_each_page_is_in_the_table(self):
        folder = ROOT / citations.FOLDER
        texts = {citations.FOLDER + path.name: path.read_text() for path in folder.glob("*.md")}
        pages = [document for document in citations.documents(texts) if isinstance(document, citations.Page)]
        self.assertEqual(len(pages), len(texts) - 1)
        for page in pages:
            self.assertGreater(len(page.sections), 4, page.name)


if __name__ == "__main__":
    unittest.main()
