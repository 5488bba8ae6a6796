import pytest

from llm_mtplx.architectures.mtp_head import MTPHead
from llm_mtplx.architectures.trunk import Trunk

from ..tiny import random_trunk_and_head


@pytest.fixture(scope="session")
def tiny() -> tuple[Trunk, MTPHead]:
    return random_trunk_and_head()
