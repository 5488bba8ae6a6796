"""Loading the plugin is nearly free and pulls in nothing heavy."""

import json
import os
import re
import subprocess
import sys

import pytest

HEAVY = ("mlx", "mlx_lm", "transformers", "tokenizers", "numpy", "huggingface_hub", "torch")


def run(code: str, *flags: str, plugins: str = "llm-mtplx") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *flags, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "LLM_LOAD_PLUGINS": plugins},
    )


def heavy_modules(code: str, plugins: str = "llm-mtplx") -> set[str]:
    report = f"\nimport json, sys; print(json.dumps([n for n in {HEAVY!r} if n in sys.modules]))"
    return set(json.loads(run(code + report, plugins=plugins).stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def llms_own() -> set[str]:
    """llm's own dependencies import numpy where it is installed."""
    return heavy_modules("import llm.cli, llm; llm.get_models()", plugins="")


def test_hooks_import_nothing_heavy(llms_own: set[str]) -> None:
    code = """
import llm.cli
from llm import get_models
assert any(model.model_id == "mtplx-demo" for model in get_models())
"""
    assert heavy_modules(code) - llms_own == set()


def test_the_package_itself_imports_nothing_heavy() -> None:
    added = "import sys, llm; before = set(sys.modules); import llm_mtplx; import llm_mtplx.model"
    report = f"; print([n for n in {HEAVY!r} if n in sys.modules.keys() - before])"
    assert run(added + report).stdout.strip() == "[]"


def test_commands_that_need_no_model_import_nothing_heavy(llms_own: set[str]) -> None:
    code = """
from click.testing import CliRunner
from llm.cli import cli
for command in (["models"], ["status"], ["forget", "--all"], ["gc"], ["--help"]):
    assert CliRunner().invoke(cli, ["mtplx", *command]).exit_code == 0, command
"""
    assert heavy_modules(code) - llms_own == set()


def test_cost_is_a_small_part_of_llms_own() -> None:
    """Own modules' self time in ``-X importtime`` plus the hooks, beside llm's imports in the same
    process: about 8 milliseconds of a second. The best of some runs, to be rid of what else the
    machine does.
    """
    code = """
import time, click, llm.cli, llm_mtplx
from llm import get_models
get_models()
started = time.perf_counter()
llm_mtplx.register_models(lambda *models, aliases: None)
llm_mtplx.register_commands(click.Group())
print((time.perf_counter() - started) * 1e6)
"""

    def share() -> float:
        done = run(code, "-X", "importtime")
        lines = re.findall(r"import time:\s+(\d+) \|\s+(\d+) \|\s+(\S+)", done.stderr)
        own = [int(alone) for alone, _, name in lines if name.startswith("llm_mtplx")]
        (llms,) = (int(whole) for _, whole, name in lines if name == "llm.cli")
        assert own
        return (sum(own) + float(done.stdout)) / llms

    shares: list[float] = []
    while len(shares) < 6 and min(shares, default=1.0) >= 0.015:
        shares.append(share())
    assert min(shares) < 0.015
