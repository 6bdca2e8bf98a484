#!/usr/bin/env python3
"""Turns the roles of opcodes in spec/<document>/*.layout (tools/layout_compiler.py) into the tables of command_role.cc:

    kRoles        CommandRole of each opcode that has one
    kReferences   the objects to which the input of a command refers
    kSharedFields the fields that a command that ends an object has in common with the command that made it

The input and output of CREATE_CQ are the structures create_cq_in and create_cq_out. The number of an object is in the
output of a command that makes it, or in its input if the output has no such field.
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from layout_compiler import LayoutError, parse, write  # noqa: E402


class Document:
    def __init__(self, folder):
        self.structs, self.kinds, self.opcodes, self.roles = {}, set(), {}, {}
        for path in sorted(folder.glob("*.layout")):
            _, _, _, structs, enums = parse(path)
            self.structs.update({struct["name"]: struct for struct in structs})
            for enum in enums:
                if enum["name"] == "object_kind":
                    self.kinds = {name for name, _, _ in enum["values"]}
                self.opcodes.update({name: value for name, value, _ in enum["values"] if name in enum["roles"]})
                self.roles.update(enum["roles"])
        self.makers = {role["kind"]: name for name, role in self.roles.items() if role["verb"] == "makes"}

    def by_opcode(self):
        return sorted(self.roles.items(), key=lambda item: self.opcodes[item[0]])

    def struct(self, opcode, end):
        return self.structs.get(f"{opcode.lower()}_{end}", {"members": [], "size": 0})

    def kind(self, opcode, name):
        if name not in self.kinds:
            raise LayoutError(f"{opcode}: there is no object_kind {name}")
        return f"object_kind::{name}"


def member_of(struct, name):
    return next((member for member in struct["members"] if member["name"] == name), None)


def place(member, base=0):
    if member["hi"] > 31:
        raise LayoutError(f"{member['name']} has more than 32 bits")
    return f"{{{base + member['offset']:#x}, {member['lo']}, {(1 << (member['hi'] - member['lo'] + 1)) - 1:#x}}}"


def needed(opcode, struct, name):
    member = member_of(struct, name)
    if member is None:
        raise LayoutError(f"{opcode}: there is no field {name}")
    return member


def subject(document, opcode, verb, kind, field):
    """A CommandSubject."""
    if field is None:
        return f"{{Verb::{verb}, {document.kind(opcode, kind) if kind else 'object_kind{}'}, {{}}, false}}"
    made = member_of(document.struct(opcode, "out"), field) if verb == "kMakes" else None
    number = made or needed(opcode, document.struct(opcode, "in"), field)
    return f"{{Verb::{verb}, {document.kind(opcode, kind)}, {place(number)}, {'true' if made else 'false'}}}"


def role_row(document, opcode, role):
    own = subject(document, opcode, f"k{role['verb'].capitalize()}", role["kind"], role["field"])
    whole = own
    if role["whole"]:
        whole = subject(document, opcode, "kReads" if role["verb"] == "reads" else "kChanges", *role["whole"])
    senders = ", ".join("false" if name in role["not"] else "true" for name in ("uid", "devx"))
    size = document.struct(opcode, "in")["size"]
    return f"{{command_opcode::{opcode}, {own}, {whole}, {size:#x}, {senders}}},"


def references(document, opcode, verb, struct, base=0):
    """The rows of a structure in the input of an opcode, and of those that it embeds."""
    for member in struct["members"]:
        if member["kind"] == "sub":
            yield from references(document, opcode, verb, document.structs[member["arg"]], base + member["offset"])
        for reference in member.get("references", []):
            if reference["verb"] != verb:
                continue
            condition, when = "{}", {None: "kAlways", "if": "kIf", "unless": "kUnless"}[reference["when"]]
            if reference["condition"]:
                condition = place(needed(opcode, struct, reference["condition"]), base)
            yield (f"{{command_opcode::{opcode}, {document.kind(opcode, reference['kind'])}, {place(member, base)}, "
                   f"{'true' if reference['or_zero'] else 'false'}, When::{when}, {condition}}},")


def shared_rows(document, opcode, role):
    """A bytes member is copied word by word."""
    maker, end = (document.struct(name, "in") for name in (document.makers.get(role["kind"], ""), opcode))
    for field in role["with"]:
        source, target = needed(opcode, maker, field), needed(opcode, end, field)
        if source["kind"] == "bytes":
            for at in range(0, int(source["arg"], 0), 4):
                yield (f"{{command_opcode::{opcode}, {{{source['offset'] + at:#x}, 0, 0xffffffff}}, "
                       f"{{{target['offset'] + at:#x}, 0, 0xffffffff}}}},")
        else:
            yield f"{{command_opcode::{opcode}, {place(source)}, {place(target)}}},"


def emit(document):
    roles, referring, shared = [], [], []
    for opcode, role in document.by_opcode():
        verb = {"makes": "ref", "changes": "change"}.get(role["verb"])
        roles.append(role_row(document, opcode, role))
        shared += shared_rows(document, opcode, role)
        if verb:
            referring += references(document, opcode, verb, document.struct(opcode, "in"))
    lines = ["// Generated from the roles of opcodes by tools/command_roles.py."]
    for element, name, rows in (("CommandRole", "kRoles", roles), ("CommandReference", "kReferences", referring),
                                ("SharedField", "kSharedFields", shared)):
        lines += [f"constexpr auto {name} = std::to_array<{element}>({{", *(f"    {row}" for row in rows), "});"]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layouts", type=pathlib.Path, help="the folder of a document's layouts")
    parser.add_argument("tables", type=pathlib.Path)
    args = parser.parse_args()
    try:
        write(args.tables, emit(Document(args.layouts)))
    except LayoutError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
