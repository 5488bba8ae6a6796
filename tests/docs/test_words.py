"""What users can see is plain English: no turn of phrase that has to be read twice."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import llm_mtplx

from .pages import PAGES, name_of

PACKAGE = Path(llm_mtplx.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
STILTED = re.compile(r"\b(told|otherwise than|shall|nobody needs|by itself)\b", re.IGNORECASE)
ENGLISH = "you are told why"


def is_stilted(text: str) -> bool:
    return STILTED.search(text.replace(ENGLISH, "")) is not None


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Every string that may be shown: not the docstrings, except those of commands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    unseen = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            unseen.add(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(
            "command" in ast.unparse(each) or "group" in ast.unparse(each)
            for each in node.decorator_list
        ):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                unseen.discard(first.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in unseen:
            yield node.lineno, node.value


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_strings_of_the_program(path: Path) -> None:
    assert not [f"{line}: {text}" for line, text in strings(path) if is_stilted(text)]


def test_the_status_page() -> None:
    text = (PACKAGE / "server" / "dashboard.html").read_text(encoding="utf-8")
    page, _, script = text.partition("<script>")
    shown = [page, *re.findall(r'"[^"\n]*"|`[^`]*`', re.sub(r"\$\{[^}]*\}", "", script))]
    assert not [each for each in shown if is_stilted(each)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_documentation(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if is_stilted(line)]
