"""The members of the layouts have the same place as in independent readings of the documents.

manual_places.txt is typed from the tables of the ConnectX manual, sdxi_places.txt from those of SDXI 1.0.
A line is STRUCTURE MEMBER FIRST_BIT [BITS], from the start of the structure, or ENUM NAME = VALUE.
"""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from layout_compiler import parse  # noqa: E402


def members(folder):
    """{(structure, member): (first bit, bits)}, {(enum, name): value}"""
    places, values = {}, {}
    for path in sorted((ROOT / "src/spec" / folder).glob("*.layout")):
        _, order, _, structs, enums = parse(path)
        for struct in structs:
            for member in struct["members"]:
                key = struct["name"], member["name"]
                if member["kind"] == "field":
                    before = member["lo"] if order == "little" else (63 if member["hi"] > 31 else 31) - member["hi"]
                    places[key] = member["offset"] * 8 + before, member["hi"] - member["lo"] + 1
                else:
                    places[key] = (member["offset"] * 8,)
        for enum in enums:
            values.update({(enum["name"], name): value for name, value, _ in enum["values"]})
    return places, values


class LayoutsTest(unittest.TestCase):
    def compare(self, folder, file, least):
        places, values = members(folder)
        lines = (pathlib.Path(__file__).parent / file).read_text().splitlines()
        self.assertGreater(len(lines), least)
        for line in lines:
            owner, name, *numbers = line.split()
            if numbers[0] == "=":
                self.assertEqual(values.get((owner, name)), int(numbers[1]), line)
            else:
                self.assertEqual(places.get((owner, name)), tuple(map(int, numbers)), line)

    def test_members_stand_where_the_manual_has_them(self):
        self.compare("connectx", "manual_places.txt", 1000)

    def test_members_stand_where_sdxi_has_them(self):
        self.compare("sdxi", "sdxi_places.txt", 160)


if __name__ == "__main__":
    unittest.main()
