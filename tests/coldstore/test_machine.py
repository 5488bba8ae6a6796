"""Ten thousand steps of made-up histories agree with the model; `make soak` takes a million."""

import pytest

from .machine import StoreMachine, run


# From Python 3.12 on, forking beside other threads warns.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_ten_thousand_steps() -> None:
    before = StoreMachine.steps.total()
    while StoreMachine.steps.total() - before < 10_000:
        run(50, 100)
