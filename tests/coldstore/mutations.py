"""Ways to damage a store: bytes, headers, rows, files and folders, as accident or malice has it.

Each is made of a random generator alone, so that a seed and a number give the same one again. Not
among them: a body that was changed and given its right checksum, or two names of arrays of one
shape exchanged. Who can write that can write any state; no reader could tell.
"""

import json
import os
import random
import socket
import sqlite3
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash
import zstandard

from llm_mtplx.coldstore.format import ALIGN, CHECKED, FORMAT, MAGIC, PREAMBLE
from llm_mtplx.coldstore.keys import block_key, checkpoint_key, entry_key, pack_ids

from .pristine import Site, remove

HUGE = 2**63 - 1
TEXTS = ("", "x", "tip", "../x", "../../x", "../../../x", "a/b", "\0", "%n%s", "é" * 5000)
NUMBERS: tuple[int | float, ...] = (
    *(-HUGE - 1, -(2**31), -1, 0, 1, 255, 256, 257, 2**31, 2**32, 2**53, HUGE),
    *(-0.5, 0.5, 1e308, float("inf"), float("-inf")),
)
JSON_TEXTS = (
    "",
    "nul",
    "[]",
    "1e999",
    "NaN",
    "[" * 3000,
    '{"bytes": 1e999}',
    '{"bytes": -5}',
    '{"bytes": "x"}',
    '{"bytes": [1]}',
    '{"bytes": NaN}',
    '{"bytes": ' + "9" * 400 + "}",
    '{"bytes": ' + "9" * 5000 + "}",
    '{"at": -1, "beside": -7, "walked": 0}',
    '{"at": 100, "beside": 1e999}',
    '{"at": true, "beside": "x", "tidied": "x", "walked": [], "packed": {}}',
    '{"tidied": NaN, "walked": Infinity, "packed": -1e999}',
    '{"tidied": ' + "9" * 400 + "}",
)
NODES = ("fifo", "folder", "full folder", "socket", "link out", "link in", "no target", "itself")


@dataclass
class Mutation:
    """What was done, and to which part of the store."""

    kind: str
    what: str
    part: str  # blob, entry, marker, index, rows, lock, other, folder
    name: str = ""


@dataclass
class Mutator:
    site: Site
    rng: random.Random
    done: list[Mutation] = field(default_factory=list)

    def mutate(self) -> Mutation:
        """Damage something; tries until one applies."""
        while True:
            make = self.rng.choices([m for m, _ in ALL], [weight for _, weight in ALL])[0]
            made = make(self)
            if made is not None:
                self.done.append(made)
                return made

    # What others choose from.

    def file(self) -> str:
        """A file that is still one, by its name; those of the index more often."""
        names = self.files(self.site.names())
        if not names:
            return ""
        index = [name for name in names if name.startswith("manifest.sqlite")]
        return self.rng.choice(index if index and self.rng.random() < 0.2 else names)

    def files(self, names: list[str]) -> list[str]:
        """Those of ``names`` that are still files of the store alone."""
        root = str(self.site.root)
        inside: dict[str, bool] = {}
        return [name for name in names if _is_alone(f"{root}/{name}", inside)]

    def is_file(self, name: str) -> bool:
        return bool(self.files([name]))

    def is_inside(self, path: Path) -> bool:
        """Whether no folder on the way is a link by now: what lies outside is not to be damaged."""
        return os.path.realpath(path.parent) == str(path.parent)

    def path(self, name: str) -> Path:
        return self.site.root / name

    def blob(self) -> str:
        names = self.files([n for n in self.site.names() if n.endswith((".kv", ".st"))])
        return self.rng.choice(names) if names else ""

    def number(self) -> int | float:
        return self.rng.choice(NUMBERS)

    def text(self) -> str:
        outside = str(self.site.outside / "x")
        return self.rng.choice((*TEXTS, outside, str(self.site.where / "x")))

    def keys(self) -> list[bytes]:
        """Keys that are of this store."""
        stems = {Path(name).name.partition(".")[0] for name in self.site.names()}
        return [bytes.fromhex(s) for s in sorted(stems) if len(s) == 64]


def _is_alone(path: str, inside: dict[str, bool]) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    folder = os.path.dirname(path)
    if folder not in inside:
        inside[folder] = os.path.realpath(folder) == folder
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and inside[folder]


def part_of(name: str) -> str:
    if name.startswith("blobs/"):
        return "blob"
    if name.startswith("entries/"):
        return "entry"
    if name == "STORE":
        return "marker"
    if name.startswith("manifest.sqlite"):
        return "index"
    return "lock" if name.endswith(".lock") else "other"


# Bytes.


def flip_bit(m: Mutator) -> Mutation | None:
    name = m.file()
    data = bytearray(_read(m, name))
    if not data:
        return None
    at = _place(m.rng, len(data))
    data[at] ^= 1 << m.rng.randrange(8)
    m.path(name).write_bytes(data)
    return Mutation("flip a bit", f"of byte {at}", part_of(name), name)


def overwrite(m: Mutator) -> Mutation | None:
    name = m.file()
    data = bytearray(_read(m, name))
    if not data:
        return None
    at = _place(m.rng, len(data))
    length = min(m.rng.choice((1, 2, 4, 8, 64, 512, 4096)), len(data) - at)
    fill = m.rng.choice((b"\0", b"\xff", b"\x7f", None))
    data[at : at + length] = fill * length if fill else m.rng.randbytes(length)
    m.path(name).write_bytes(data)
    return Mutation("overwrite", f"{length} from {at} with {fill!r}", part_of(name), name)


def cut(m: Mutator) -> Mutation | None:
    name = m.file()
    data = _read(m, name)
    if not data:
        return None
    length = m.rng.choice((0, 1, 63, 64, len(data) - 1, _place(m.rng, len(data))))
    m.path(name).write_bytes(data[:length])
    return Mutation("truncate", f"to {length}", part_of(name), name)


def extend(m: Mutator) -> Mutation | None:
    name = m.file()
    if not name:
        return None
    data = _read(m, name)
    if m.rng.random() < 0.1:
        size = m.rng.choice((1 << 30, 1 << 36))
        os.truncate(m.path(name), size)  # a hole: it takes no room
        return Mutation("extend", f"to {size}", part_of(name), name)
    more = m.rng.choice((b"\0", b"\0" * 4096, m.rng.randbytes(100), data[:100]))
    m.path(name).write_bytes(data + more)
    return Mutation("extend", f"by {len(more)}", part_of(name), name)


def shift(m: Mutator) -> Mutation | None:
    name = m.file()
    data = _read(m, name)
    if len(data) < 2:
        return None
    at, length = _place(m.rng, len(data)), m.rng.randrange(1, 9)
    if m.rng.random() < 0.5:
        m.path(name).write_bytes(data[:at] + data[at + length :])
    else:
        m.path(name).write_bytes(data[:at] + m.rng.randbytes(length) + data[at:])
    return Mutation("shift", f"{length} at {at}", part_of(name), name)


def replace(m: Mutator) -> Mutation | None:
    name, other = m.file(), m.file()
    if not name or name == other:
        return None
    m.path(name).write_bytes(_read(m, other))
    return Mutation("replace", f"by {other}", part_of(name), name)


def swap(m: Mutator) -> Mutation | None:
    name, other = m.file(), m.file()
    if not name or name == other:
        return None
    one, two = _read(m, name), _read(m, other)
    m.path(name).write_bytes(two)
    m.path(other).write_bytes(one)
    parts = {part_of(name), part_of(other)}
    part = next(p for p in ("marker", "index", "lock", "blob", "entry", "other") if p in parts)
    return Mutation("swap", f"with {other}", part, name)


def delete(m: Mutator) -> Mutation | None:
    name = m.file()
    if not name:
        return None
    m.path(name).unlink()
    return Mutation("delete", "", part_of(name), name)


# Headers and entries whose checksums are right again.


def header(m: Mutator) -> Mutation | None:
    name = m.blob()
    split = split_blob(_read(m, name)) if name else None
    if split is None:
        return None
    head, body = split
    how = m.rng.choice(HEADER_CHANGES)
    try:
        told = how(m, head, body)
    except (TypeError, KeyError, IndexError, ValueError, AttributeError):
        if not m.done:
            raise
        return None  # it was changed before, and has no more what this one changes
    if told is None:
        return None
    what, body = told
    rename = m.rng.random() < 0.3 and _name_again(head)
    data = join_blob(head, body, m.rng.random() < 0.9)
    target = name
    if rename:
        key = head["key"]
        target = f"blobs/{key[:2]}/{key}{Path(name).suffix}"
        (m.path(target)).parent.mkdir(0o700, exist_ok=True)
    m.path(target).write_bytes(data)
    return Mutation("header", f"{how.__name__}: {what}", "blob", target)


def hostile_field(m: Mutator, head: dict[str, Any], body: bytes) -> tuple[str, bytes] | None:
    """Any leaf or branch of the header, replaced, removed or doubled."""
    holder, key, path = _somewhere(m.rng, head)
    value = m.rng.choice(
        (m.number(), m.text(), None, True, [], {}, [[]], 2**64, 10**400, 1e999, float("nan"))
    )
    action = m.rng.random()
    if action < 0.6:
        holder[key] = value
        return f"{path} = {str(value)[:40]}", body
    if action < 0.8:
        del holder[key]
        return f"{path} removed", body
    if isinstance(holder, list):
        holder.insert(key, holder[key])
        return f"{path} twice", body
    holder["more"] = value
    return f"{path[:-1]} has more", body


def another_shape(m: Mutator, head: dict[str, Any], body: bytes) -> tuple[str, bytes] | None:
    section = m.rng.choice(head["sections"])
    shape, size = section["shape"], 1
    for each in shape:
        size *= each
    new = m.rng.choice(
        (shape[::-1], [size], [1, *shape], [*shape, 1], [1, size, 1], [size, 1, 1], [0], [])
    )
    if new == shape:
        return None
    section["shape"] = new
    return f"{section['name']} {shape} -> {new}", body


def another_dtype(m: Mutator, head: dict[str, Any], body: bytes) -> tuple[str, bytes] | None:
    section = m.rng.choice(head["sections"])
    old = section["dtype"]
    section["dtype"] = m.rng.choice(("bfloat16", "float16", "float32", "uint16", "bool", "int64"))
    return (
        (f"{section['name']} {old} -> {section['dtype']}", body)
        if old != section["dtype"]
        else None
    )


def less(m: Mutator, head: dict[str, Any], body: bytes) -> tuple[str, bytes] | None:
    """A section with its bytes is left out: the first, the last, any, all, or all but one."""
    pieces = _pieces(head, body)
    if pieces is None:
        return None
    count = len(pieces)
    if not count:
        return None
    at = m.rng.randrange(count)
    going = m.rng.choice(({0}, {count - 1}, {at}, set(range(count)), set(range(count)) - {at}))
    head["sections"] = [s for i, s in enumerate(head["sections"]) if i not in going]
    return f"without {sorted(going)}", b"".join(p for i, p in enumerate(pieces) if i not in going)


def more(m: Mutator, head: dict[str, Any], body: bytes) -> tuple[str, bytes] | None:
    """A section that is none of the model's, or one of them twice."""
    name = m.rng.choice(("keys 99", "x", "", "hidden", "recurrent 0.7", "recurrent 9.0", "keys x"))
    shape = m.rng.choice(([1, 1, 4], [0], [2], [1, 0, 8], [1, 256, 8]))
    size = 2
    for each in shape:
        size *= each
    head["sections"].insert(
        m.rng.choice((0, len(head["sections"]))),
        {"name": name, "dtype": "bfloat16", "shape": shape},
    )
    return f"{name} {shape}", body + b"\1" * size


def another_name(m: Mutator, head: dict[str, Any], body: bytes) -> tuple[str, bytes] | None:
    """A name that makes the set of names another one."""
    section = m.rng.choice(head["sections"])
    names = [s["name"] for s in head["sections"]]
    new = m.rng.choice((*names, "keys 99", "", "x", "recurrent 0.9", "values head", "hidden"))
    if new == section["name"]:
        return None
    told = f"{section['name']} -> {new}"
    section["name"] = new
    return told, body


def another_order(m: Mutator, head: dict[str, Any], body: bytes) -> tuple[str, bytes] | None:
    pieces = _pieces(head, body)
    if pieces is None or len(pieces) < 2:
        return None
    order = list(range(len(pieces)))
    m.rng.shuffle(order)
    head["sections"] = [head["sections"][i] for i in order]
    return f"{order}", b"".join(pieces[i] for i in order)


def another_layout(m: Mutator, head: dict[str, Any], body: bytes) -> tuple[str, bytes] | None:
    """The sections and bytes of another file."""
    split = split_blob(m.site.content(m.blob() or "STORE"))
    if split is None or _layout(split[0]) == _layout(head):
        return None  # only the bytes would differ
    head["sections"], head["codec"] = split[0]["sections"], split[0].get("codec", "raw")
    return "as another file", split[1]


def _layout(head: dict[str, Any]) -> list[Any]:
    return [(s.get("name"), s.get("dtype"), s.get("shape")) for s in head["sections"]]


def claims(m: Mutator, head: dict[str, Any], body: bytes) -> tuple[str, bytes] | None:
    """More bytes than any machine has."""
    section = m.rng.choice(head["sections"])
    section["shape"] = m.rng.choice(
        ([1, 2**33, 8], [2**62, 2], [2**40], [1, 1, 2**36], [0, 2**62], [2**31, 1, 1, 1])
    )
    return f"{section['name']} {section['shape']}", body


def packed(m: Mutator, head: dict[str, Any], body: bytes) -> tuple[str, bytes] | None:
    """The codec, and lengths of packed planes, that are not true."""
    head["codec"] = m.rng.choice(("planes", "raw", "zip"))
    for section in head["sections"]:
        if m.rng.random() < 0.5:
            section["packed"] = m.rng.choice((0, 1, len(body), 2**40, 17))
    return head["codec"], body


def places(m: Mutator, head: dict[str, Any], body: bytes) -> tuple[str, bytes] | None:
    """Another line's place for these rows; keys made to fit or not by the caller."""
    field_ = m.rng.choice(("parent", "start", "end", "ids", "kind"))
    if field_ == "parent":
        head["parent"] = m.rng.choice(m.keys()).hex()
    elif field_ == "start":
        head["start"] += m.rng.choice((-256, 256, 1, 512))
    elif field_ == "end":
        head["end"] += m.rng.choice((-256, 256, 1, -1))
    elif field_ == "ids":
        ids = head["ids"]
        if m.rng.random() < 0.5 and ids:
            ids[m.rng.randrange(len(ids))] = m.rng.choice((0, 1, 2**31, 2**32 - 1, 2**32, -1))
        else:
            head["ids"] = ids[: m.rng.randrange(len(ids) + 1)]
    else:
        head["kind"] = "block" if head["kind"] == "checkpoint" else "checkpoint"
    return field_, body


HEADER_CHANGES: list[Callable[[Mutator, dict[str, Any], bytes], tuple[str, bytes] | None]] = [
    hostile_field,
    hostile_field,
    another_shape,
    another_dtype,
    less,
    more,
    another_name,
    another_order,
    another_layout,
    claims,
    packed,
    places,
]


def entry(m: Mutator) -> Mutation | None:
    names = m.files([n for n in m.site.names() if n.startswith("entries/")])
    if not names:
        return None
    name = m.rng.choice(names)
    try:
        content = json.loads(zstandard.ZstdDecompressor().decompress(m.site.content(name)))
    except (zstandard.ZstdError, ValueError):
        return None
    field_ = m.rng.choice((*content, "more"))
    values = (m.number(), m.text(), None, [], {}, m.rng.choice(m.keys()).hex(), "prefix", 10**400)
    content[field_] = m.rng.choice(values)
    text = json.dumps(content)
    if m.rng.random() < 0.1:
        text = m.rng.choice(("", "[" * 5000, "{}", text + "x", " " * (2 << 20), "\\ud800"))
    data = zstandard.ZstdCompressor(write_checksum=True).compress(text.encode())
    target = name
    if m.rng.random() < 0.5:
        try:
            key = entry_key(content["conversation"], bytes.fromhex(content["checkpoint"])).hex()
            target = f"entries/{key[:2]}/{key}.json"
            m.path(target).parent.mkdir(0o700, exist_ok=True)
        except (AttributeError, ValueError, TypeError, KeyError, UnicodeEncodeError):
            target = name
    m.path(target).write_bytes(data)
    return Mutation("entry", f"{field_} = {str(content[field_])[:60]}", "entry", target)


def marker(m: Mutator) -> Mutation | None:
    if not m.is_file("STORE"):
        return None
    content: dict[str, Any] = {"store": "llm-mtplx", "format": 1}
    content[m.rng.choice(("store", "format", "more"))] = m.rng.choice(
        (m.number(), m.text(), None, [], {}, True, "1", 10**400, 1.5, float("nan"))
    )
    text = json.dumps(content)
    if m.rng.random() < 0.3:
        text = m.rng.choice(("", "x", "[" * 3000, "1", '"x"', text + "}", " " * (5 << 20)))
    m.path("STORE").write_bytes(text.encode())
    return Mutation("marker", text[:60], "marker", "STORE")


# Rows.


def row(m: Mutator) -> Mutation | None:
    """One field of one row."""
    with _index(m) as sql:
        if sql is None:
            return None
        tables = _tables(sql)
        if not tables:
            return None
        table = m.rng.choice(tables)
        rows = sql.execute(f'SELECT * FROM "{table}"').fetchall()
        columns = [c[1] for c in sql.execute(f'PRAGMA table_info("{table}")')]
        if not rows:
            return None
        old = m.rng.choice(rows)
        column = m.rng.choice(columns)
        value = _hostile(m, rows, columns.index(column))
        where = " AND ".join(f'"{c}" IS ?' for c in columns)
        update = f'UPDATE OR REPLACE "{table}" SET "{column}" = ? WHERE {where}'
        if m.rng.random() < 0.05:
            update, old = f'UPDATE OR REPLACE "{table}" SET "{column}" = ?', ()
        elif isinstance(value, bytes) and m.rng.random() < 0.2:
            # Text that is none.
            update = update.replace("= ?", "= CAST(? AS TEXT)", 1)
        try:
            sql.execute(update, (value, *old))
        except sqlite3.IntegrityError:
            if value is not None or not _allow_null(sql, table):
                return None
            try:
                sql.execute(update, (value, *old))
            except sqlite3.Error:
                return Mutation("schema", f"{table} takes NULL", "rows")
        return Mutation("row", f"{table}.{column} = {str(value)[:60]!r}", "rows")


def no_row(m: Mutator) -> Mutation | None:
    with _index(m) as sql:
        if sql is None:
            return None
        tables = _tables(sql)
        if not tables:
            return None
        table = m.rng.choice(tables)
        columns = [c[1] for c in sql.execute(f'PRAGMA table_info("{table}")')]
        rows = sql.execute(f'SELECT * FROM "{table}"').fetchall()
        if not rows:
            return None
        old = m.rng.choice(rows)
        everything = m.rng.random() < 0.3
        where = " AND ".join(f'"{c}" IS ?' for c in columns)
        sql.execute(
            f'DELETE FROM "{table}"' + ("" if everything else f" WHERE {where}"),
            () if everything else old,
        )
        return Mutation("no row", f"{table}{' at all' if everything else ''}", "rows")


def another_row(m: Mutator) -> Mutation | None:
    """A row that names something else or nothing, beside the true ones."""
    with _index(m) as sql:
        if sql is None:
            return None
        tables = _tables(sql)
        if not tables:
            return None
        table = m.rng.choice(tables)
        columns = [c[1] for c in sql.execute(f'PRAGMA table_info("{table}")')]
        rows = sql.execute(f'SELECT * FROM "{table}"').fetchall()
        new = [_hostile(m, rows, i) for i in range(len(columns))]
        if rows:
            old = m.rng.choice(rows)
            new = [n if m.rng.random() < 0.4 else o for n, o in zip(new, old, strict=True)]
        try:
            marks = ",".join("?" * len(columns))
            sql.execute(f'INSERT OR REPLACE INTO "{table}" VALUES ({marks})', new)
        except sqlite3.IntegrityError:
            return None
        return Mutation("another row", f"{table} {str(new)[:120]}", "rows")


def schema(m: Mutator) -> Mutation | None:
    """Tables that are not as they are made."""
    with _index(m) as sql:
        if sql is None:
            return None
        tables = _tables(sql)
        if not tables:
            return None
        table = m.rng.choice(tables)
        columns = [c[1] for c in sql.execute(f'PRAGMA table_info("{table}")')]
        column = m.rng.choice(columns)
        endless = (
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
        )
        statement = m.rng.choice(
            (
                f'DROP TABLE "{table}"',
                f'ALTER TABLE "{table}" RENAME TO old_{table}',
                f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO other',
                f'ALTER TABLE "{table}" ADD COLUMN other',
                f'CREATE TABLE other_{table} AS SELECT * FROM "{table}"',
                f'CREATE TABLE t AS SELECT * FROM "{table}"; DROP TABLE "{table}";'
                f'ALTER TABLE t RENAME TO "{table}"',
                f'ALTER TABLE "{table}" RENAME TO t; CREATE VIEW "{table}" AS SELECT * FROM t',
                f'ALTER TABLE "{table}" RENAME TO t;'
                f'CREATE VIEW "{table}" AS SELECT t.* FROM t, ({endless})',
                f'CREATE TRIGGER tr AFTER INSERT ON "{table}" BEGIN DELETE FROM "{table}"; END',
                f'CREATE TRIGGER tr BEFORE INSERT ON "{table}" BEGIN'
                " SELECT RAISE(ABORT, 'no'); END",
                f'CREATE TRIGGER tr BEFORE DELETE ON "{table}" BEGIN SELECT RAISE(IGNORE); END',
                f'CREATE TRIGGER tr BEFORE INSERT ON "{table}" BEGIN {endless}; END',
                f'CREATE TRIGGER tr BEFORE UPDATE ON "{table}" BEGIN {endless}; END',
                f'CREATE UNIQUE INDEX u ON "{table}" ("{column}")',
                "DROP INDEX checkpoints_of",
                "DROP INDEX blocks_of",
                f"PRAGMA application_id = {m.rng.choice((0, 1, -1, 2**31 - 1))}",
                f"PRAGMA user_version = {m.rng.choice((1, -1, 2**31 - 1))}",
                "PRAGMA journal_mode = delete",
                "PRAGMA auto_vacuum = 1; VACUUM",
                "PRAGMA journal_mode = delete; PRAGMA page_size = 512; VACUUM",
                "INSERT OR REPLACE INTO migrations VALUES ('9999-later', 1)",
                "DELETE FROM migrations WHERE name = '0003-limits'",
                "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'CREATE TABLE x(y)'"
                f" WHERE name = '{table}'",
                "PRAGMA writable_schema = ON; UPDATE sqlite_master SET rootpage = 2"
                f" WHERE name = '{table}'",
                f"PRAGMA writable_schema = ON; DELETE FROM sqlite_master WHERE name = '{table}'",
            )
        )
        try:
            sql.executescript(statement)
        except sqlite3.Error:
            statement += " (as far as it went)"
        return Mutation("schema", statement[:160], "rows")


# Files and folders that are none.


def node(m: Mutator) -> Mutation | None:
    """Something else in the place of a file or a folder, or where none is."""
    strangers = (
        *("manifest.sqlite-journal", "manifest.sqlite-shm", "manifest.sqlite-wal"),
        *("manifest.lock", "upkeep.lock", "CACHEDIR.TAG"),
        *("manifest.sqlite.set-aside-0011", ".STORE-00", "writers/" + "0" * 32 + ".lock"),
    )
    folders = [name for name in m.site.folders() if name != "." or m.rng.random() < 0.3]
    pool = m.rng.choice((m.site.names(), folders, strangers))
    name = m.rng.choice(pool)
    # The root itself may be a link: users have it on another disk.
    how = m.rng.choice(NODES if name != "." else NODES[:4])
    path = m.path(name)
    if not path.parent.is_dir() or not m.is_inside(path):
        return None
    _put_node(m, path, name, how)
    part = "folder" if name in m.site.folders() else part_of(name)
    return Mutation("node", how, part, name)


def _put_node(m: Mutator, path: Path, name: str, how: str) -> None:
    held = path.with_name("held")
    if how == "link in" and os.path.lexists(path) and not os.path.lexists(held):
        path.rename(held)
    remove(path)
    if how == "fifo":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "full folder":
        path.mkdir()
        (path / "x").write_bytes(b"x")
    elif how == "socket":
        _socket(path)
    elif how == "link out":
        copy = m.site.outside / "copy" / name
        path.symlink_to(copy if copy.exists() else m.site.outside / "x")
    elif how == "link in":
        path.symlink_to("held")
    elif how == "no target":
        path.symlink_to(m.site.outside / "new")
    else:
        path.symlink_to(path.name)


def hard_link(m: Mutator) -> Mutation | None:
    """The same file outside. SQLite and locks write in place and are left out."""
    names = [n for n in m.site.names() if part_of(n) in ("blob", "entry", "marker")]
    name = m.rng.choice(names)
    path, other = m.path(name), m.site.outside / "copy" / m.rng.choice((name, *names))
    if not path.parent.is_dir() or not m.is_inside(path) or not other.is_file():
        return None
    remove(path)
    os.link(other, path)
    part = "marker" if name == "STORE" else part_of(name)
    return Mutation("hard link", f"to {other.name}", part, name)


def mode(m: Mutator) -> Mutation | None:
    name = m.rng.choice((*m.site.names(), *m.site.folders()))
    path = m.path(name)
    if not os.path.lexists(path) or path.is_symlink() or not m.is_inside(path):
        return None
    folder = name in m.site.folders()
    value = m.rng.choice((0o777, 0o755, 0o7777) if folder else (0o666, 0o644, 0o4777, 0o400))
    path.chmod(value)
    return Mutation("mode", oct(value), "folder" if folder else part_of(name), name)


def stranger(m: Mutator) -> Mutation | None:
    """A file that belongs to nothing, under a name of the store's or another."""
    key = m.rng.choice((*m.keys(), m.rng.randbytes(32))).hex()
    writer = m.rng.randbytes(16).hex()
    name = m.rng.choice(
        (
            f"blobs/{key[:2]}/{key}.kv",
            f"blobs/{key[:2]}/{key}.st",
            f"entries/{key[:2]}/{key}.json",
            f"blobs/{key[:2]}/.{key}.{writer}.tmp",
            f"entries/{key[:2]}/.{key}.{writer}.tmp",
            f"blobs/{key[2:4]}/{key}.kv",
            f"blobs/{key[:2]}/{key}.KV",
            "blobs/x",
            "blobs/zz/x",
            "entries/000/x",
            f"writers/{writer}.lock",
            "writers/x.lock",
            f".STORE-{key[:16]}",
            f".manifest.sqlite-{key[:8]}",
            f"manifest.sqlite.set-aside-{key[:8]}",
            f"manifest.sqlite.set-aside-{key[:8]}-wal",
            "manifest.sqlite-journal",
            "x",
        )
    )
    path = m.path(name)
    if os.path.lexists(path) or not m.is_inside(path):
        return None
    if not path.parent.parent.is_dir() or (path.parent.exists() and not path.parent.is_dir()):
        return None
    path.parent.mkdir(0o700, exist_ok=True)
    if m.rng.random() < 0.3:
        _put_node(m, path, name, m.rng.choice(NODES))
        return Mutation("stranger", "a node", "other", name)
    path.write_bytes(m.site.content(m.rng.choice(m.site.names())))
    return Mutation("stranger", "", "other", name)


def no_folder(m: Mutator) -> Mutation | None:
    name = m.rng.choice([name for name in m.site.folders() if name != "."])
    path = m.path(name)
    if not path.is_dir() or path.is_symlink() or not m.is_inside(path):
        return None
    remove(path)
    return Mutation("no folder", "", "folder", name)


def beside(m: Mutator) -> Mutation | None:
    """Stores of other versions, and what only looks like one."""
    path = m.site.cache / m.rng.choice(("sessions-v2", "sessions-v99", "sessions-vx"))
    if os.path.lexists(path):
        return None
    if m.rng.random() < 0.3:
        _put_node(m, path, ".", m.rng.choice(NODES))
        return Mutation("beside", "a node", "other", path.name)
    path.mkdir()
    inside = path / "STORE"
    if m.rng.random() < 0.5:
        inside.write_text('{"store": "llm-mtplx", "format": 2}')
        os.utime(inside, (1, 1))
        _put_node(m, path / "manifest.sqlite", "manifest.sqlite", m.rng.choice(NODES))
        os.utime(path, (1, 1))
    else:
        _put_node(m, inside, "STORE", m.rng.choice(NODES))
    return Mutation("beside", "", "other", path.name)


ALL: list[tuple[Callable[[Mutator], Mutation | None], int]] = [
    (flip_bit, 20),
    (overwrite, 12),
    (cut, 6),
    (extend, 4),
    (shift, 4),
    (replace, 5),
    (swap, 5),
    (delete, 3),
    (header, 24),
    (entry, 8),
    (marker, 2),
    (row, 24),
    (no_row, 3),
    (another_row, 8),
    (schema, 5),
    (node, 10),
    (hard_link, 2),
    (mode, 1),
    (stranger, 4),
    (no_folder, 2),
    (beside, 2),
]


def split_blob(data: bytes) -> tuple[dict[str, Any], bytes] | None:
    """Header and body of a whole file."""
    try:
        _, _, length, _, _, _ = PREAMBLE.unpack_from(data)
        head = json.loads(data[PREAMBLE.size : PREAMBLE.size + length])
    except (ValueError, struct.error):
        return None
    return (head, data[PREAMBLE.size + length :]) if isinstance(head, dict) else None


def join_blob(head: dict[str, Any], body: bytes, claim_true: bool) -> bytes:
    """A file whose checksums are right, whatever it says."""
    text = json.dumps(head).encode()
    text += b" " * (-(PREAMBLE.size + len(text)) % ALIGN)
    length = len(body) if claim_true else 2**40
    front = PREAMBLE.pack(MAGIC, FORMAT, len(text), length, xxhash.xxh3_64_intdigest(text), b"")
    front = front[:CHECKED]
    return front + xxhash.xxh3_128(front + text + body).digest() + text + body


def _name_again(head: dict[str, Any]) -> bool:
    """Give a header the key that follows from what it says."""
    try:
        make = block_key if head["kind"] == "block" else checkpoint_key
        head["key"] = make(bytes.fromhex(head["parent"]), pack_ids(head["ids"])).hex()
    except (ValueError, TypeError, KeyError, OverflowError):
        return False
    return True


def _pieces(head: dict[str, Any], body: bytes) -> list[bytes] | None:
    """The body cut into its sections; None where they do not lie raw."""
    sizes = {"float32": 4, "bfloat16": 2, "float16": 2}
    pieces, at = [], 0
    for section in head["sections"]:
        if section.get("packed") is not None or section["dtype"] not in sizes:
            return None
        size = sizes[section["dtype"]]
        for each in section["shape"]:
            size *= each
        pieces.append(body[at : at + size])
        at += size
    return pieces


def _somewhere(rng: random.Random, head: dict[str, Any]) -> tuple[Any, Any, list[Any]]:
    holder: Any = head
    path: list[Any] = []
    while True:
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        path.append(key)
        if not isinstance(holder[key], (dict, list)) or not holder[key] or rng.random() < 0.3:
            return holder, key, path
        holder = holder[key]


def _place(rng: random.Random, length: int) -> int:
    """Somewhere; near the beginning, where most of the meaning is, more often."""
    near = min(length, rng.choice((64, 256, 2048, length)))
    return rng.randrange(near)


def _read(m: Mutator, name: str) -> bytes:
    if not name:
        return b""
    path = m.path(name)
    return path.read_bytes() if path.stat().st_size < 1 << 24 else b""


class _index:
    """The index, to be changed; None where it is none any more."""

    def __init__(self, m: Mutator) -> None:
        self._m = m
        self._sql: sqlite3.Connection | None = None

    def __enter__(self) -> sqlite3.Connection | None:
        names = ("", "-wal", "-shm", "-journal")
        paths = [self._m.path(f"manifest.sqlite{name}") for name in names]
        if any(os.path.lexists(p) and (p.is_symlink() or not p.is_file()) for p in paths):
            return None
        if not paths[0].exists() or any(p.exists() and p.stat().st_size > 1 << 24 for p in paths):
            return None
        self._sql = sqlite3.connect(paths[0], isolation_level=None, timeout=0)
        self._sql.text_factory = lambda data: data.decode("utf-8", "replace")
        # What was damaged before may be a query that never ends.
        self._sql.set_progress_handler(lambda: 1, 10_000_000)
        try:
            self._sql.execute("PRAGMA synchronous = OFF")
            self._sql.execute("SELECT count(*) FROM blocks").fetchone()
        except sqlite3.Error:
            self._sql.close()
            self._sql = None
        return self._sql

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if self._sql is not None:
            self._sql.close()
        return isinstance(error, sqlite3.Error)  # too damaged already: another one, then


def _tables(sql: sqlite3.Connection) -> list[str]:
    ours = ("blocks", "checkpoints", "entries", "writing", "facts", "written", "migrations")
    there = {name for (name,) in sql.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return [name for name in ours if name in there]


def _allow_null(sql: sqlite3.Connection, table: str) -> bool:
    """Take NOT NULL from a table's columns, as a damaged schema has it."""
    try:
        sql.executescript(
            "PRAGMA writable_schema = ON;"
            "UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '')"
            f" WHERE name = '{table}'; PRAGMA writable_schema = RESET"
        )
    except sqlite3.Error:
        return False
    return True


def _hostile(m: Mutator, rows: list[tuple[Any, ...]], column: int) -> Any:
    """A value for a field: any type, any size, or one that is right elsewhere."""
    key = m.rng.choice(m.keys())
    same = [row[column] for row in rows]
    choices: list[Callable[[], Any]] = [
        lambda: None,
        m.number,
        m.number,
        m.text,
        lambda: m.rng.choice(JSON_TEXTS),
        lambda: m.rng.choice((b"", key[:31], key + b"\0", b"\0" * 32, m.rng.randbytes(32), key)),
        lambda: key,
        lambda: key.hex(),
        lambda: m.rng.choice(same) if same else 1,
        lambda: m.rng.choice(same) if same else 1,
        lambda: _near(m, m.rng.choice(same)) if same else 1,
    ]
    return m.rng.choice(choices)()


def _near(m: Mutator, value: Any) -> Any:
    """Almost the same."""
    if isinstance(value, int):
        near = value + m.rng.choice((-256, -1, 1, 256, 10**9))
        return near if abs(near) < HUGE else 0
    if isinstance(value, bytes) and value:
        at = m.rng.randrange(len(value))
        return value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
    return f"{value}x" if isinstance(value, str) else value


def _socket(path: Path) -> None:
    """Its path may be longer than one of a socket."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{folder}/s")
        os.rename("s", path.name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.mkfifo(path)
    finally:
        os.close(folder)
