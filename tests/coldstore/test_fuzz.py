"""A few hundred damaged stores; `make fuzz` takes a hundred thousand."""

from .fuzz import Fuzz, told

MUTATIONS = 300


def test_a_damaged_store_is_used() -> None:
    """The seed is always the same: what fails here fails again."""
    fuzz = Fuzz(MUTATIONS, seed=20, jobs=1, quiet=True)
    fuzz.run()
    assert not fuzz.failures, "\n".join(map(told, fuzz.failures))
    assert fuzz.done == MUTATIONS
    totals = fuzz.totals()
    assert totals["turns"] > MUTATIONS
    assert totals["forwarded"]
    assert sum(totals["reasons"].values()) > MUTATIONS / 4
    assert len(totals["mutations"]) > 15
