"""One server for all modules here, started as a user starts it."""

from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest

from ..folders import save_random_model
from ..resident import resident
from .client import Client


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="session")
def server(home: Path) -> Iterator[Client]:
    """Serves the demo model and `endless`, whose answers have no end; two may wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLM_USER_PATH", str(home))
        from llm_mtplx.catalog.entries import Entry, add_entry

        folder = save_random_model(home / "models" / "endless")
        add_entry(Entry("mtplx/models/endless", folder, ("endless",)))
        with resident(home, "--port", "0", "--max-waiting", "2", "--parallel", "1") as process:
            address = process.first_line.split(" at ")[1].split(". ")[0]
            yield Client(address)


@pytest.fixture
def oai(server: Client) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(server: Client) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.address, api_key="none", max_retries=0) as client:
        yield client
