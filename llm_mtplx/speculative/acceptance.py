"""Which drafts stay."""

from collections.abc import Sequence


def accept(drafts: Sequence[int], own: Sequence[int]) -> int:
    """How many ``drafts`` are what the trunk chose itself.

    ``own`` [depth + 1]: its choices after the primary and after each draft. The one after the
    accepted drafts comes next: the bonus if all were accepted, else the correction.
    """
    accepted = 0
    while accepted < len(drafts) and drafts[accepted] == own[accepted]:
        accepted += 1
    return accepted
