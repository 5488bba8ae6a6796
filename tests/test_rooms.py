"""Arrows between the rooms go down only, and a room is entered by what it offers."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import llm_mtplx

ROOT = Path(llm_mtplx.__file__).parent

# What a room may import: anything on a lower floor. On the ground floor anything.
FLOORS = (
    {
        "errors",
        "settings",
        "limits",
        "jsonfile",
        "once",
        "protocol",
        "terminal",
        "debug",
        "interrupt",
        "options",
        "demo",
    },
    {"catalog"},
    {"coldstore", "architectures"},
    {"sessions", "speculative", "chat"},
    {"engine"},
    {"attach"},
    {"model", "messages", "commands", "server", "measure"},
    {"__init__"},
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
SAME_FLOOR = (0, 6)  # where rooms may know each other
CLOSED = {"coldstore"}  # entered through its __init__ alone


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """Of every module of ours that a file imports: the names of its path below the package."""
    package = ["llm_mtplx", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *(node.module or "").split(".")] if node.module else base
            names = [[*base, alias.name] for alias in node.names] if len(base) == 1 else [base]
        else:
            continue
        yield from (tuple(name[1:]) for name in names if name[0] == "llm_mtplx" and name[1:])


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_arrows_go_down(path: Path) -> None:
    room = path.relative_to(ROOT).with_suffix("").parts[0]
    for target, *inner in imports(path):
        if target == room:
            continue
        assert FLOOR[target] < FLOOR[room] or (
            FLOOR[target] == FLOOR[room] and FLOOR[room] in SAME_FLOOR
        ), f"{room} imports {target}"
        assert target not in CLOSED or not inner, f"{room} reaches into {target}.{inner[0]}"


def test_every_room_has_a_floor() -> None:
    rooms = {path.relative_to(ROOT).with_suffix("").parts[0] for path in FILES}
    assert rooms <= FLOOR.keys()
    assert FLOOR.keys() <= rooms
