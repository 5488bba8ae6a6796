"""README.md, CONTRIBUTING.md and the pages of docs/."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))
