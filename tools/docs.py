"""The generated parts of README.md and docs/: what cog blocks there print."""

import ast
import json
import re
from pathlib import Path

from click.testing import CliRunner
from llm.cli import cli
from pydantic import BaseModel

from llm_mtplx.catalog.known import PACKS, Download
from llm_mtplx.coldstore import DROP_REASONS
from llm_mtplx.limits import Limits
from llm_mtplx.options import MtplxOptions
from llm_mtplx.sessions.reasons import Reason

ROOT = Path(__file__).parents[1]
GIB = 1 << 30

# What to do where less was restored than could have been.
REMEDIES = {
    "nothing_stored": "Nothing; later prompts that begin like this one are restored.",
    "too_short": "Nothing. `LLM_MTPLX_MIN_TOKENS` changes the limit.",
    "weights_changed": "Nothing; the state is saved again. The old one is evicted in time.",
    "cache_off": "Leave out `-o cache`, or set `-o cache on`.",
    "template_rewrites": "Nothing; this is a property of the model.",
    "history_edited": "Nothing; only the part before the edit can be restored.",
    "between_checkpoints": "Nothing; the prompt is restored up to the last common checkpoint.",
    "evicted": "Raise `LLM_MTPLX_RAM_MAX_BYTES`, or turn saving to disk on.",
    "idle": "Raise `LLM_MTPLX_IDLE_TTL_S`, or turn saving to disk on.",
    "oversized": "Raise `LLM_MTPLX_RAM_PER_SESSION_BYTES`, or turn saving to disk on.",
    "fingerprint_pending": "Wait: large weights are hashed once, in the background.",
    "fingerprint_failed": "Look at the message on stderr: a model file cannot be read.",
    "corrupt_block": "Nothing; the next turn saves it again. If it recurs, check the disk.",
    "corrupt_checkpoint": "Nothing; the next turn saves it again. If it recurs, check the disk.",
    "corrupt_index": "Nothing; the index is repaired. If it recurs, check the disk.",
    "file_gone": "Nothing; the next turn saves it again.",
    "layout_refused": "Nothing; the state is dropped and saved again.",
    "rebuilding": "Wait; the rebuild runs in the background. `llm mtplx gc` does it at once.",
    "store_busy": "Nothing; the prompt does not wait for the lock.",
    "store_unavailable": "See `llm mtplx status` for the cause: permissions, a read-only disk, ...",
    "other_version": "Update llm-mtplx, or choose another `LLM_MTPLX_CACHE_DIR`.",
    "not_a_store": "Choose another `LLM_MTPLX_CACHE_DIR`.",
}

# Why a turn's state was not saved.
DROPS = {
    "backlog_full": "too many bytes are waiting to be written (`LLM_MTPLX_BACKLOG_BYTES`)",
    "disk_full": "the operating system reported a full disk",
    "low_disk": "less than 10 GiB are free on the disk",
    "write_budget": "the hourly write budget is used up (`LLM_MTPLX_WRITE_BUDGET_PER_HOUR`)",
    "no_room": "the store is full and everything in it is in use (`LLM_MTPLX_CACHE_MAX_SIZE`)",
    "line_gone": "the state it continues from was removed meanwhile; the next turn saves it again",
    "store_read_only": "the store's directory or disk is read-only",
    "store_busy": "another process has locked the store's index",
    "store_unavailable": "the store cannot be opened or written",
    "other_version": "the store's format is not supported by this version",
    "not_a_store": "the cache directory contains something other than a store",
    "write_failed": "any other error; `llm mtplx status` and `/health` show its text",
    "closed": "the process ended before the write began (`LLM_MTPLX_EXIT_SAVE_S`)",
    "fingerprint_pending": "the model's weights are still being identified",
    "fingerprint_failed": "the model's weights could not be identified: a file cannot be read",
}


def table(*rows: tuple[str, ...]) -> str:
    """A Markdown table; the first row is its head."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, f"| {' | '.join('---' for _ in rows[0])} |")
    return "\n".join(lines) + "\n"


def help_of(*names: str) -> str:
    """What ``llm mtplx NAME --help`` prints, as a block."""
    shown = _shown("mtplx", *names, "--help")
    return f"```text\n$ llm {' '.join(('mtplx', *names))} --help\n{shown}```\n"


def commands() -> str:
    """The list of commands from ``llm mtplx --help``, as a block."""
    listed = _shown("mtplx", "--help").split("Commands:\n")[1]
    return f"```text\n{listed}```\n"


def models() -> str:
    rows = [("model", "download", "memory", "repository", "on M1 and M2")]
    for pack in PACKS:
        sibling = f"[FP16]({_page(pack.float16)})" if pack.float16 else "the same"
        main = pack.bfloat16
        link = f"[{main.repo.split('/')[1]}]({_page(main)})"
        size, memory = f"{main.size / 1e9:.1f} GB", f"{main.peak_gib:.1f} GiB"
        rows.append((f"`{pack.model_id}`", size, memory, link, sibling))
    return table(*rows)


def options() -> str:
    rows = [("option", "values", "meaning")]
    for name, schema in MtplxOptions.model_json_schema()["properties"].items():
        values = []
        for kind in schema["anyOf"]:
            if "enum" in kind:
                values += [f"`{value}`" for value in kind["enum"]]
            elif "const" in kind:
                values.append(f"`{kind['const']}`")
            elif kind["type"] != "null":
                bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}
                limits = [f"{sign} {kind[key]:g}" for key, sign in bounds.items() if key in kind]
                values.append(" ".join([kind["type"], ", ".join(limits)]).strip())
        rows.append((f"`{name}`", ", ".join(values), schema["description"]))
    return table(*rows)


def reasons() -> str:
    assert REMEDIES.keys() == {reason.value for reason in Reason}
    rows = [(f"`{reason.value}`", reason.meaning, REMEDIES[reason.value]) for reason in Reason]
    return table(("reason", "meaning", "what to do"), *rows)


def drops() -> str:
    assert DROPS.keys() == set(DROP_REASONS)
    return table(("reason", "meaning"), *((f"`{name}`", DROPS[name]) for name in DROP_REASONS))


def settings() -> str:
    rows = [("setting", "default", "meaning")]
    for name, field in Limits.model_fields.items():
        default = f"{field.default}"
        if field.default is None:
            default = f"depends on the {'model' if name == 'min_tokens' else 'machine'}"
        elif isinstance(field.default, int) and field.default >= GIB:
            default = f"{field.default // GIB}G"
        rows.append((f"`LLM_MTPLX_{name.upper()}`", default, field.description or ""))
    return table(*rows)


def api_fields() -> str:
    """Of every API route: the fields that are read, and those that are ignored."""
    from llm_mtplx.server import chat_completions, completions, messages, responses
    from llm_mtplx.server.openapi import POSTS

    ignored = {
        "/v1/chat/completions": chat_completions.IGNORED,
        "/v1/completions": completions.IGNORED,
        "/v1/responses": responses.IGNORED,
        "/v1/messages": messages.IGNORED,
    }
    rows = [("route", "supported", "ignored")]
    for path, names in ignored.items():
        rows.append((f"`{path}`", _names(fields_of(POSTS[path])), _names(names)))
    return table(*rows)


def fields_of(body: type[BaseModel]) -> list[str]:
    return sorted(field.alias or name for name, field in body.model_fields.items())


def clients() -> str:
    """The programs that ``make clients`` runs, and their versions."""
    package = json.loads((ROOT / "tests/clients/package.json").read_text())
    project = (ROOT / "pyproject.toml").read_text()
    python = re.findall(r"^clients = \[(.*)\]$", project, re.MULTILINE)[0]
    pinned = dict(package["dependencies"])
    pinned |= dict(re.findall(r'"([a-z-]+)(?:\[.*?\])?==([\d.]+)"', python))
    return table(("client", "version"), *((f"`{name}`", v) for name, v in sorted(pinned.items())))


def packages() -> str:
    """What the packages of llm_mtplx/ are for, by the first line of their docstrings."""
    rows = [("package", "purpose")]
    for path in sorted((ROOT / "llm_mtplx").glob("*/__init__.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        purpose = text.split("\n\n")[0].replace("\n", " ").replace("``", "`")
        rows.append((f"`{path.parent.name}/`", purpose))
    return table(*rows)


def _shown(*args: str) -> str:
    """Of the width of a terminal of 80 columns, whatever the one here has."""
    return CliRunner().invoke(cli, args, prog_name="llm", terminal_width=78).stdout


def _names(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _page(download: Download) -> str:
    return f"https://huggingface.co/{download.repo}"
