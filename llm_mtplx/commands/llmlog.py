"""What llm's own log knows of our turns. Only reads it; imports no MLX."""

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import llm

# llm has kept turns and conversations under either name.
_CONVERSATIONS = ("conversations", "threads")
_TURNS = (("responses", "conversation_id"), ("turns", "thread_id"))


@dataclass
class Reuse:
    """How much of some turns' prompts was not read again."""

    turns: int = 0
    prompt_tokens: int = 0
    restored: int = 0
    miss_reasons: Counter[str] = field(default_factory=Counter)

    @property
    def hit_rate(self) -> float | None:
        """The share of prompt tokens that came from RAM or SSD."""
        return self.restored / self.prompt_tokens if self.prompt_tokens else None


def conversation_names() -> dict[str, str]:
    """Conversation ids and what llm calls them."""
    names: dict[str, str] = {}
    with _log() as database:
        for table in _CONVERSATIONS:
            with contextlib.suppress(sqlite3.Error):
                names |= dict(database.execute(f"SELECT id, name FROM {table}"))
    return {key: name for key, name in names.items() if name}


def reuse() -> dict[str, Reuse]:
    """Of each conversation, all its turns with a model of ours."""
    found: dict[str, Reuse] = {}
    with _log() as database:
        for table, conversation in _TURNS:
            with contextlib.suppress(sqlite3.Error):
                rows = database.execute(
                    f"SELECT {conversation}, json_extract(response_json, '$.cache.restored'), "
                    "json_extract(response_json, '$.cache.prefilled'), "
                    f"json_extract(response_json, '$.cache.miss_reason') FROM {table} "
                    "WHERE json_extract(response_json, '$.mtp.rounds') IS NOT NULL"
                )
                for name, restored, prefilled, reason in rows:
                    each = found.setdefault(name, Reuse())
                    each.turns += 1
                    each.restored += restored
                    each.prompt_tokens += restored + prefilled
                    each.miss_reasons.update([reason] if reason else [])
    return found


def total(each: Iterable[Reuse]) -> Reuse:
    whole = Reuse()
    for part in each:
        whole.turns += part.turns
        whole.prompt_tokens += part.prompt_tokens
        whole.restored += part.restored
        whole.miss_reasons += part.miss_reasons
    return whole


@contextlib.contextmanager
def _log() -> Iterator[sqlite3.Connection]:
    """llm's database; an empty one where there is none or it cannot be opened."""
    path = Path(llm.user_dir()) / "logs.db"
    try:
        database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error:
        database = sqlite3.connect(":memory:")
    with contextlib.closing(database):
        yield database
