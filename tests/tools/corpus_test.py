"""fuzz/corpus.py: what is kept is written again, and each fuzzer has inputs."""
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "fuzz"))
import corpus  # noqa: E402


class Archive(unittest.TestCase):
    def test_inputs_come_back_as_they_were(self):
        inputs = {"b": bytes(range(256)) * 20, "a": b"", "0f": b"\n"}
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(corpus, "HERE", pathlib.Path(folder)):
            (corpus.HERE / "corpus").mkdir()
            self.assertEqual(corpus.kept("wire"), {})
            corpus.keep("wire", inputs)
            self.assertEqual(corpus.kept("wire"), inputs)
            corpus.keep("wire", {"a": b"another"})
            self.assertEqual(corpus.kept("wire"), {**inputs, "a": b"another"})
            self.assertEqual([line.split()[0] for line in corpus.archive("wire").read_text().splitlines()], ["0f", "a", "b"])
            out = corpus.HERE / "out"
            (out / "wire").mkdir(parents=True)
            (out / "wire" / "old").touch()
            corpus.write(out)
            self.assertEqual({file.name: file.read_bytes() for file in (out / "wire").iterdir()}, corpus.kept("wire"))


class Inputs(unittest.TestCase):
    def test_each_fuzzer_has_some_and_none_has_one_name_twice(self):
        fuzzers = re.findall(r"^softhca_fuzzer\((\w+)", (ROOT / "fuzz/CMakeLists.txt").read_text(), re.M)
        names = [(fuzzer, name) for fuzzer, name, _ in corpus.computed()]
        names += [(fuzzer, name) for fuzzer in fuzzers for name in corpus.kept(fuzzer)]
        self.assertEqual({fuzzer for fuzzer, _ in names}, set(fuzzers))
        self.assertEqual(len(names), len(set(names)))


if __name__ == "__main__":
    unittest.main()
