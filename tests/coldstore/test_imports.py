"""The store runs where MLX is not installed."""

import ast
import sys
from pathlib import Path

import pytest

import llm_mtplx.coldstore

ROOM = Path(llm_mtplx.coldstore.__file__).parent
ALLOWED = sys.stdlib_module_names | {"numpy", "pydantic", "xxhash", "zstandard"}


FILES = sorted(ROOM.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOM)))
def test_a_module_imports_only_what_the_room_may(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert {name.name.split(".")[0] for name in node.names} <= ALLOWED
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert (node.module or "").split(".")[0] in ALLOWED
        elif isinstance(node, ast.ImportFrom):
            # Never out of the room.
            assert node.level <= len(path.relative_to(ROOM).parts)
    assert len(path.read_text().splitlines()) < 400
