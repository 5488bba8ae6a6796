"""Settings and options are bounded like any input: one line a process, no traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import llm
import pytest
from pydantic import ValidationError

from llm_mtplx.limits import Limits, limits
from llm_mtplx.options import MtplxOptions, stop_strings

FIELDS = list(Limits.model_fields)
HOSTILE = (
    "9" * 400,
    "9" * 5000,
    "1e999",
    "inf",
    "-inf",
    "nan",
    "-1",
    "lots",
    "24X",
    "0x10",
    "1_000_000_000_000_000_000_000",
    "9" * 30 + "T",
    " ",
    "\u0661" * 400,
    "\udcff",
    "[1]",
    "true",
)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", HOSTILE)
def test_no_value_breaks_anything(monkeypatch, caplog, field: str, value: str) -> None:
    monkeypatch.setenv(f"LLM_MTPLX_{field.upper()}", value)
    assert limits() == Limits()
    assert limits() == Limits()
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"LLM_MTPLX_{field.upper()}: " in line
    assert "Using the default, " in line
    assert len(line) < 300
    assert "\n" not in line


@pytest.mark.parametrize("value", [True, None, [], {}, -1, 1e999, float("nan"), 10**400, "", "x"])
@pytest.mark.parametrize("field", [name for name in FIELDS if name != "cache"])
def test_no_value_in_the_file_breaks_anything(user_path, caplog, field: str, value) -> None:
    if value is None and Limits.model_fields[field].default is None:
        pytest.skip("null is what it is without")
    file = user_path / "mtplx" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({field: value}))
    assert limits() == Limits()
    assert str(file) in caplog.text
    if len(str(value)) < 400:
        assert repr(field) in caplog.text


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("CACHE_MAX_SIZE", "lots", "'lots' is not a valid size; use e.g. 500M or 24G. Using"),
        ("BACKLOG_BYTES", "-1", "Using the default, 4G."),
        ("EXIT_SAVE_S", "inf", "'inf' is not a valid time in seconds; use e.g. 30 or 10m."),
        ("EXIT_SAVE_S", "1e999", "Using the default, 3 s."),
        ("MIN_TOKENS", "0", "use a whole number from 1 to 2,147,483,647"),
        ("CACHE", "maybe", "'maybe' is not valid; use on or off. Using the default, on."),
    ],
)
def test_the_line_says_what_is_used_instead(monkeypatch, caplog, name, value, words) -> None:
    monkeypatch.setenv(f"LLM_MTPLX_{name}", value)
    limits()
    assert words in caplog.text


def test_a_good_value_in_the_file_stands_in_for_a_bad_one(monkeypatch, caplog, user_path) -> None:
    file = user_path / "mtplx" / "settings.json"
    file.parent.mkdir()
    file.write_text('{"cache_max_size": "10G"}')
    monkeypatch.setenv("LLM_MTPLX_CACHE_MAX_SIZE", "lots")
    assert limits().cache_max_size == 10 << 30
    assert f"Using the one in {file}, 10G." in caplog.text


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("cache_max_sise", "cache_max_size"),
        ("LLM_MTPLX_MIN_TOKENS", "min_tokens"),
        ("exit-save-s", "exit_save_s"),
        ("ttl", "idle_ttl_s"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest(user_path, caplog, key, nearest) -> None:
    file = user_path / "mtplx" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({key: 1, "min_tokens": 77}))
    assert limits().min_tokens == 77
    limits()
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"{key!r} (did you mean {nearest!r}?)" in line


def command(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llm", *args],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_one_line_a_process(user_path: Path) -> None:
    file = user_path / "mtplx" / "settings.json"
    file.parent.mkdir()
    file.write_text("{")
    (file.parent / "models.json").write_text("{")
    done = command(
        *("-m", "mtplx-demo", "-o", "max_tokens", "4", "What is 2 + 3?"),
        LLM_MTPLX_CACHE_MAX_SIZE="9" * 400,
        LLM_MTPLX_EXIT_SAVE_S="inf",
        LLM_MTPLX_KEEP_ALIVE="nan",
        LLM_MTPLX_BLAS="/no/such/library.so",
    )
    assert done.returncode == 0
    assert done.stdout.strip()
    lines = done.stderr.splitlines()
    names = (
        ("CACHE_MAX_SIZE", "EXIT_SAVE_S", "KEEP_ALIVE", "BLAS") if sys.platform == "linux" else ()
    )
    assert [sum(name in line for line in lines) for name in names] == [1] * len(names)
    assert sum("settings.json" in line for line in lines) == 1
    assert sum("models.json" in line for line in lines) == 1
    assert len(lines) == len(names) + 2


@pytest.mark.parametrize(
    "args",
    [
        ["gc", "--max-size", "9" * 400],
        ["gc", "--max-size", "lots"],
        ["serve", "--keep-alive", "9" * 400],
        ["serve", "--timeout", "inf"],
        ["serve", "--unload-after", "-1"],
    ],
)
def test_what_commands_take_is_bounded(args: list[str]) -> None:
    done = command("mtplx", *args)
    assert done.returncode == 2
    assert "is not a valid" in done.stderr
    assert "Traceback" not in done.stderr


NUMBERS = [
    name for name in MtplxOptions.model_fields if name not in ("stop", "cache", "thinking", "draft")
]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1e999", "9" * 400, "9" * 5000, "x", ""])
@pytest.mark.parametrize("name", [*NUMBERS, "draft", "cache", "thinking"])
def test_options_are_bounded(name: str, value: str) -> None:
    with pytest.raises(ValidationError):
        MtplxOptions(**{name: value})


@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), 2.5, True, 6, -1, 10**400, [], "2.0", None.__class__]
)
def test_drafts_are_bounded(value: object) -> None:
    with pytest.raises(ValidationError):
        MtplxOptions(draft=value)


@pytest.mark.parametrize(
    "value",
    ['["a",', '["a"', "['a']", '["a", "b"', '["a"] x', "[", "[a, b]", '["a",]', '[ "', "[1]"],
)
def test_a_broken_list_of_stops_is_an_error(value: str) -> None:
    with pytest.raises(ValidationError):
        MtplxOptions(stop=value)


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("[END]", ("[END]",)),
        ("[/INST]", ("[/INST]",)),
        ('["a", "b"]', ("a", "b")),
        ('["["]', ("[",)),
        ("a[", ("a[",)),
        (["[", '["a",'], ("[", '["a",')),
    ],
)
def test_stops_that_are_fine(value: str | list[str], want: tuple[str, ...]) -> None:
    assert stop_strings(MtplxOptions(stop=value).stop) == want


def test_too_many_or_too_long_stops(user_path: Path) -> None:
    for value in (["a"] * 257, "a" * 5000, ["a" * 5000], json.dumps(["a"] * 1000)):
        with pytest.raises(ValidationError):
            MtplxOptions(stop=value)
    done = command("-m", "mtplx-demo", "-o", "stop", '["a",', "Hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert "begins like a JSON list but is not one" in done.stderr
    assert "Traceback" not in done.stderr


NOBODY = """
import os, pwd, sys

def nobody(uid):
    raise KeyError(uid)

pwd.getpwuid = nobody
os.environ.pop("HOME", None)
os.environ.pop("XDG_CACHE_HOME", None)
sys.argv = ["llm", *sys.argv[1:]]
from llm.cli import cli
cli()
"""
ASK = ("-m", "mtplx-demo", "-o", "max_tokens", "8", "What is 2 + 3?")


@pytest.mark.parametrize("named", [None, "~/cache", "~nobody-of-that-name/cache"])
def test_without_a_home_the_answer_comes(tmp_path: Path, named: str | None) -> None:
    """No HOME and no account, as in a container; llm itself then writes below where it is."""
    environment = {k: v for k, v in os.environ.items() if k != "LLM_USER_PATH"}
    if named is not None:
        environment["LLM_MTPLX_CACHE_DIR"] = named
    (tmp_path / "here").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", NOBODY, *ASK],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path / "here",
    )
    assert done.returncode == 0, done.stderr
    assert "5" in done.stdout
    (line,) = done.stderr.splitlines()
    assert "nothing is saved to disk" in line
    assert "Set HOME" in line
    assert not list((tmp_path / "here").rglob("sessions-v1"))


def test_where_the_registered_models_stand(user_path: Path) -> None:
    done = command("mtplx", "models", "--path")
    assert done.stdout == f"{llm.user_dir() / 'mtplx' / 'models.json'}\n"


@pytest.mark.parametrize("name", ["/no/such/folder", "./nothing", "~nobody-of-that-name/x"])
def test_adding_a_folder_that_is_not_there(name: str) -> None:
    done = command("mtplx", "add", name)
    assert done.returncode == 1
    assert "does not exist" in done.stderr
    assert "remove" not in done.stderr
    assert "Traceback" not in done.stderr
