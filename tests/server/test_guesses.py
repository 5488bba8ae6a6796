"""Wrong API keys are answered slower and slower, right ones at once."""

import pytest

from llm_mtplx.server import create_app, guard
from llm_mtplx.server.guesses import Guesses
from llm_mtplx.server.keys import make_key

from .client import ask


def test_the_first_are_free_and_the_others_one_a_second() -> None:
    guesses = Guesses()
    assert [guesses.delay("10.0.0.1", 100.0) for _ in range(8)] == [0, 0, 0, 0, 0, 1, 2, 3]
    assert guesses.delay("10.0.0.2", 100.0) == 0  # somebody else
    assert guesses.delay("10.0.0.1", 103.0) == 1  # three are paid for
    assert [guesses.delay("10.0.0.1", 1000.0) for _ in range(6)] == [0, 0, 0, 0, 0, 1]


def test_no_more_wait_than_may_and_no_more_clients_are_remembered() -> None:
    guesses = Guesses()
    delays = [guesses.delay("10.0.0.1", 0.0) for _ in range(1000)]
    assert delays[34] == Guesses.LONGEST_S and set(delays[35:]) == {None}
    for number in range(2 * Guesses.CLIENTS):
        guesses.delay(f"client {number}", 0.0)
    assert len(guesses._until) == Guesses.CLIENTS


def test_addresses_of_one_network_are_one_client() -> None:
    guesses = Guesses()
    assert [guesses.delay(f"fe80::{n}", 0.0) for n in range(6)][-1] == 1
    assert guesses.delay("fe81::1", 0.0) == 0


def test_seventy_wrong_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    key, slept = make_key(), list[float]()
    assert key
    app = create_app()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(guard.asyncio, "sleep", sleep)
    statuses = []
    for number in range(70):
        statuses.append(ask(app, "/v1/models", x_api_key=f"mtplx-{number}").status)
        before = len(slept)
        assert ask(app, "/v1/models", x_api_key=key).status == 200
        assert ask(app, "/v1/models").status == 401  # a browser's first try guesses nothing
        assert len(slept) == before
    assert set(statuses) == {401, 429} and statuses[-1] == 429
    assert max(slept) > 25
