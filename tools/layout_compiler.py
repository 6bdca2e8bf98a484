#!/usr/bin/env python3
"""Turns spec/*/*.layout into C++ headers.

A layout file is the one place where a document's formats are declared. Lines:

    document connectx big          namespace and byte order of all structures of the file
    include wqe.layout             another file of the same folder whose structures are used here
    struct eqc 0x40 "PRM 7.13.11"  a structure, its size in bytes, its section
      status   0x00 31:28 "note"   field: name, byte offset of its word, bits (hi:lo, or one bit)
      dbr_addr 0x38 63:0           bits above 31 mean a 64-bit word
      sub   qpc  0x18 qpc          embedded structure: member name, offset, structure
      bytes rgid 0x10 16           uninterpreted bytes: name, offset, size
      tail  pas  0x110 8           array to the end of the message: name, offset, element size
    enum command_opcode 16 "..."   an enumeration of the given bits; its values follow
      CREATE_MKEY 0x200 "note"
      SQ 0x9 as QP "note"          its objects and those of kind QP have one number space

Before its note, a field can name an object, and an opcode can say what it does to one (tools/command_roles.py):

    pd 0x018 23:0 ref PD           commands that make the structure's object refer to this PD
    pd 0x018 23:0 change PD        commands that change the structure's object do
      ... or 0                     0 is no reference
      ... if FIELD                 none if this field of the same structure is 0; `unless FIELD`: if it is not 0
    CREATE_CQ 0x400 makes CQ in cqn    also changes, reads, ends; the number is in this field
      ... of FLOW_TABLE in table_id    the object is a part of this one
      ... with type,table_id           fields that a command that ends the object has in common with the one that made it
      ... not uid, ... not devx        the device, or the kernel, takes it from no user context
    NOP 0x80d open                 it is about the function, which has no owner

Names are the document's own, in lower case. '#' starts a comment. The order of structures is free.
"""
import argparse
import pathlib
import re
import shlex
import sys


class LayoutError(Exception):
    pass


KEYWORDS = {"auto", "class", "default", "delete", "enum", "export", "inline", "namespace", "new", "operator", "private",
            "protected", "public", "register", "signed", "static", "struct", "switch", "this", "typename", "union",
            "unsigned", "using", "virtual"}
VERBS = ("makes", "changes", "reads", "ends", "open")


def parse(path):
    structs, enums, includes = [], [], []
    namespace, order, current = None, None, None
    for number, raw in enumerate(path.read_text().splitlines(), 1):
        try:
            lexer = shlex.shlex(raw, posix=True, punctuation_chars=False)
            lexer.whitespace_split = True
            lexer.commenters = "#"
            lexer.quotes = '"'
            words = list(lexer)
            if not words:
                continue
            head = words[0]
            if head == "document":
                namespace, order = words[1], words[2]
            elif head == "include":
                includes.append(words[1])
            elif head == "struct" and len(words) >= 3:
                current = {"name": words[1], "size": int(words[2], 0), "section": (words[3:] + [""])[0], "members": []}
                structs.append(current)
            elif head == "enum":
                current = {"name": words[1], "bits": int(words[2], 0), "section": (words[3:] + [""])[0], "values": [],
                           "roles": {}, "spaces": {}}
                enums.append(current)
            elif "values" in current:
                rest = parse_role(words[0], words[2:], current)
                current["values"].append((words[0], int(words[1], 0), note_of(rest)))
            else:
                current["members"].append(parse_member(words, current))
        except (LayoutError, ValueError, IndexError, KeyError, TypeError) as error:
            raise LayoutError(f"{path}:{number}: {error}: {raw.strip()!r}") from error
    if namespace is None:
        raise LayoutError(f"{path}: no 'document' line")
    return namespace, order, includes, structs, enums


def note_of(words):
    if len(words) > 1:
        raise LayoutError(f"unknown words after {words[0]}")
    return words[0] if words else ""


def parse_object(words):
    """KIND [in FIELD]; the words after it."""
    kind, rest = words[0], words[1:]
    return (kind, rest[1], rest[2:]) if rest[:1] == ["in"] else (kind, None, rest)


def parse_role(name, words, enum):
    """Notes what the words say about a value. Returns the words after that."""
    if words[:1] == ["as"]:
        enum["spaces"][name] = words[1]
        return words[2:]
    if not words or words[0] not in VERBS:
        return words
    role = {"verb": words[0], "kind": None, "field": None, "whole": None, "with": [], "not": set()}
    words = words[1:]
    if role["verb"] != "open":
        role["kind"], role["field"], words = parse_object(words)
    if words[:1] == ["of"]:
        *role["whole"], words = parse_object(words[1:])
    if words[:1] == ["with"]:
        role["with"], words = words[1].split(","), words[2:]
    while words[:1] == ["not"]:
        if words[1] not in ("uid", "devx"):
            raise LayoutError(f"not {words[1]}")
        role["not"].add(words[1])
        words = words[2:]
    enum["roles"][name] = role
    return words


def parse_references(words):
    """The references at the start of `words`, and the words after them."""
    references = []
    while words[:1] in (["ref"], ["change"]):
        reference = {"verb": words[0], "kind": words[1], "or_zero": words[2:4] == ["or", "0"], "when": None, "condition": None}
        words = words[4:] if reference["or_zero"] else words[2:]
        if words[:1] in (["if"], ["unless"]):
            reference["when"], reference["condition"], *words = words
        references.append(reference)
    return references, words


def parse_member(words, struct):
    kind = words[0] if words[0] in ("sub", "bytes", "tail") else "field"
    if kind == "field":
        name, offset, bits = words[0], int(words[1], 0), words[2]
        references, rest = parse_references(words[3:])
        match = re.fullmatch(r"(\d+)(?::(\d+))?", bits)
        if not match:
            raise LayoutError(f"bad bits {bits}")
        hi = int(match[1])
        lo = int(match[2]) if match[2] is not None else hi
        if lo > hi or hi > 63 or offset + (8 if hi > 31 else 4) > struct["size"]:
            raise LayoutError("field lies outside its structure")
        member = dict(kind=kind, name=name, offset=offset, hi=hi, lo=lo, note=note_of(rest), references=references)
    else:
        name, offset = words[1], int(words[2], 0)
        member = dict(kind=kind, name=name, offset=offset, arg=words[3], note=(words[4:] + [""])[0])
        if kind == "bytes" and offset + int(words[3], 0) > struct["size"]:
            raise LayoutError("bytes lie outside their structure")
    if any(m["name"] == name for m in struct["members"]):
        raise LayoutError(f"second member named {name}")
    if not re.fullmatch(r"[a-zA-Z_]\w*", name):
        raise LayoutError(f"bad name {name}")
    return member


def in_order(structs):
    """Structures after those they embed."""
    by_name = {s["name"]: s for s in structs}
    done, out = set(), []

    def visit(struct, path=()):
        if struct["name"] in path:
            raise LayoutError(f"{struct['name']} embeds itself")
        if struct["name"] in done:
            return
        for m in struct["members"]:
            if m["kind"] == "sub" and m["arg"] in by_name:
                visit(by_name[m["arg"]], (*path, struct["name"]))
        done.add(struct["name"])
        out.append(struct)

    for s in structs:
        visit(s)
    return out


def identifier(name):
    return name + "_" if name in KEYWORDS else name


def quote(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def emit(path, namespace, order, includes, structs, enums):
    out = [f"// Generated from {path.name} by tools/layout_compiler.py.", "#pragma once", "",
           "#include <array>", "#include <cstdint>", "#include <string_view>", "#include <tuple>", "",
           '#include "util/field.h"']
    out += [f'#include "spec/{path.parent.name}/{pathlib.Path(i).stem}.h"' for i in includes]
    out += ["", f"namespace softhca::spec::{namespace} {{", ""]
    byte_order = {"big": "kBig", "little": "kLittle"}[order]
    for e in enums:
        base = {8: "std::uint8_t", 16: "std::uint16_t", 32: "std::uint32_t"}[e["bits"]]
        out += [f"/// {e['section']}", f"enum class {e['name']} : {base} {{"]
        for name, value, note in e["values"]:
            out.append(f"  {identifier(name)} = {value:#x}," + (f"  ///< {note}" if note else ""))
        out += ["};", f"/// The document's name, or an empty string for a value it does not define.",
                f"constexpr std::string_view to_string({e['name']} value) {{", "  switch (value) {"]
        for name, _, _ in e["values"]:
            out.append(f"    case {e['name']}::{identifier(name)}: return {quote(name)};")
        out += ["  }", '  return "";', "}", ""]
        if e["spaces"]:
            out += ["/// The value with whose number space the value's objects are numbered.",
                    f"constexpr {e['name']} number_space({e['name']} value) {{", "  switch (value) {"]
            out += [f"    case {e['name']}::{name}: return {e['name']}::{space};" for name, space in e["spaces"].items()]
            out += ["    default: return value;", "  }", "}", ""]
    for s in in_order(structs):
        me = s["name"]
        if s["section"]:
            out.append(f"/// {s['section']}")
        out += [f"struct {me} {{", f"  static constexpr std::size_t kSize = {s['size']:#x};",
                f"  static constexpr std::string_view kName = {quote(me)};",
                f"  static constexpr std::string_view kSection = {quote(s['section'])};"]
        infos = []
        for m in s["members"]:
            name = identifier(m["name"])
            if m["note"]:
                out.append(f"  /// {m['note']}")
            if m["kind"] == "field":
                out.append(f"  static constexpr util::Field<{me}, util::ByteOrder::{byte_order}, {m['offset']:#x}, "
                           f"{m['hi']}, {m['lo']}> {name}{{}};")
                infos.append(f"{{{quote(m['name'])}, {m['offset']:#x}, {m['hi']}, {m['lo']}, {quote(m['note'])}}}")
            elif m["kind"] == "sub":
                out.append(f"  static constexpr util::SubStruct<{me}, struct ::softhca::spec::{namespace}::{m['arg']}, "
                           f"{m['offset']:#x}> {name}{{}};")
            elif m["kind"] == "bytes":
                out.append(f"  static constexpr util::ByteField<{me}, {m['offset']:#x}, {m['arg']}> {name}{{}};")
            else:
                out += [f"  static constexpr std::size_t {name}_offset = {m['offset']:#x};",
                        f"  static constexpr std::size_t {name}_size = {m['arg']};"]
        out.append(f"  static constexpr std::array<util::FieldInfo, {len(infos)}> kFields{{{{")
        out += [f"      {i}," for i in infos]
        out += ["  }};", "};", ""]
    out += ["/// Every structure of the file.",
            f"using {path.stem}_structures = std::tuple<{', '.join(s['name'] for s in structs)}>;", "",
            f"}}  // namespace softhca::spec::{namespace}", ""]
    return "\n".join(out)


def write(path, text):
    """A file that stays the same is not written, so that nothing is built for it."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layout", type=pathlib.Path)
    parser.add_argument("header", type=pathlib.Path)
    args = parser.parse_args()
    try:
        text = emit(args.layout, *parse(args.layout))
    except LayoutError as error:
        sys.exit(str(error))
    write(args.header, text)


if __name__ == "__main__":
    main()
