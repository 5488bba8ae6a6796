"""A model of the store in a page: what one that never fails would answer.

It knows lines of ids and when they were used. Files, rows, locks and kills it does not know: to
whoever uses the store there must be none.
"""

from dataclasses import dataclass, field

Line = tuple[int, ...]


@dataclass
class ModelStore:
    tips: dict[str, set[Line]] = field(default_factory=dict)  # by conversation
    used: dict[Line, int] = field(default_factory=dict)  # when, by line; a shared one has one time

    def save(self, line: Line, conversation: str, now: int) -> None:
        self.tips.setdefault(conversation, set()).add(line)
        self.used[line] = now

    def restorable(self, line: Line) -> Line:
        """The longest kept line that ``line`` begins with."""
        kept = [tip for tip in self.used if line[: len(tip)] == tip]
        return max(kept, key=len, default=())

    def read(self, line: Line, now: int) -> Line:
        found = self.restorable(line)
        if found:
            self.used[found] = now
        return found

    def forget(self, conversation: str) -> None:
        gone = self.tips.pop(conversation, set())
        for tip in gone - {tip for tips in self.tips.values() for tip in tips}:
            del self.used[tip]

    def forget_unused(self, before: int) -> None:
        for name in [name for name in self.tips if self.last_use(name) < before]:
            self.forget(name)

    def last_use(self, conversation: str) -> int:
        return max(self.used[tip] for tip in self.tips[conversation])
