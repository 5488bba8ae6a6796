"""The documentation is short where it must be, its links lead somewhere, and it is up to date."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import PAGES, README, ROOT, name_of

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
MOST_LINES = 250


def prose(page: Path) -> str:
    """Without code, in which brackets mean something else."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE)
    names = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    assert len(names) == len(set(names)), f"{name_of(page)}: two headings have one anchor"
    return set(names)


def test_the_readme_is_one_sitting() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_are_alive(page: Path) -> None:
    dead = []
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert not dead


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in LINK.findall(prose(README))}
    assert set(PAGES) - {README} <= linked


def test_the_generated_parts_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cogapp", "--check", "-I", ".", *map(name_of, PAGES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nUpdate them with: make docs"
