"""The tables of README.md and docs/, from the committed results."""

import json
import textwrap
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
DEPTHS = ("1", "2", "3", "4", "5")


def decode_table() -> str:
    """One line a model, BLAS and kind of prompt: plain tokens/s, then ratios by depth."""
    lines = [
        "| model | BLAS | prompts | mlx-lm | plain | " + " | ".join(f"draft {d}" for d in DEPTHS),
        "| --- " * (5 + len(DEPTHS)),
    ]
    for file in sorted(RESULTS.glob("decode-*.json")):
        report = json.loads(file.read_text())
        for blas, runs in report["runs"].items():
            for run in runs:
                lines += [_line(run, blas, kind) for kind in ("easy", "hard")]
    return "\n".join(line + " |" for line in lines) + "\n"


def _line(run: dict[str, Any], blas: str, kind: str) -> str:
    rates, ratios = run[kind]["tokens_per_s"], run[kind]["ratio_to_plain"]
    cells = [run["model"], blas, kind, f"{rates['mlx-lm']:.1f}", f"{rates['0']:.1f}"]
    cells += [f"{ratios[depth]:.2f}x" for depth in DEPTHS]
    return "| " + " | ".join(cells)


def adaptive_table() -> str:
    """One line a model, BLAS and kind of prompt: the best fixed depth, and adaptive depth."""
    rows = [("model", "BLAS", "prompts", "plain", "best fixed", "adaptive", "of the best fixed")]
    for file in sorted(RESULTS.glob("adaptive-*.json")):
        for run in json.loads(file.read_text())["runs"]:
            for kind in ("easy", "hard", "mixed"):
                told = run[kind]
                rates, best = told["tokens_per_s"], told["best_fixed"]
                fixed = f"draft {best}: {rates[str(best)] / rates['0']:.2f}x" if best else "plain"
                rows.append(
                    (
                        run["model"],
                        file.stem.removeprefix("adaptive-"),
                        kind,
                        f"{rates['0']:.1f}",
                        fixed,
                        f"{rates['adaptive'] / rates['0']:.2f}x",
                        f"{told['adaptive_to_best']:.2f}",
                    )
                )
    return _table(rows)


def restore_table() -> str:
    """One line a length and store: seconds to a restored state, and what a turn writes."""
    rows = [
        ("tokens", "state", "store", "cold", "warm", "memory", "+300 tokens", "written", "files")
    ]
    for tokens, run in _results("restore")["ssd"].items():
        for name, told in run.items():
            cells = [f"{int(tokens):,}", f"{told['state_mb']:,.0f} MB", f"{name}"]
            cells += [f"{told['cold_s']:.2f} s", f"{told['warm_s']:.2f} s"]
            cells.append(f"{told['rss_ratio']:.2f}x")
            turn = told.get("turn")
            cells += [f"{turn['s']:.2f} s", f"{turn['mb']:.0f} MB"] if turn else ["", ""]
            cells.append(f"{turn['files']:,}" if turn else "")
            rows.append(tuple(cells))
    return _table(rows)


def ram_table() -> str:
    """One line a length: a step, and a step that begins with taking the session out."""
    rows = [("tokens", "one decode step", "restore, then one decode step")]
    for tokens, told in _results("restore")["ram"].items():
        step, restored = told["step_ms"], told["restore_and_write_ms"]
        rows.append((f"{int(tokens):,}", f"{step:.1f} ms", f"{restored:.1f} ms"))
    return _table(rows)


def continue_table() -> str:
    """One line a length: seconds to the first words of a whole ``llm -c`` process."""
    rows = [("prompt tokens", "restored", "from disk", "`-o cache off`", "speedup")]
    for told in _results("continue")["runs"].values():
        warm, cold = told["first_words_s"]["ssd"], told["first_words_s"]["off"]
        cells = [f"{told['restored'] + told['prefilled']:,}", f"{told['restored']:,}"]
        rows.append((*cells, f"{warm:.1f} s", f"{cold:.1f} s", f"{cold / warm:.1f}x"))
    return _table(rows)


def turn_words() -> str:
    """What turns write and a miss takes, in words."""
    told = _results("restore")
    turns, lookup = told["turns"], told["lookup"]
    text = (
        f"{turns['turns']} turns of 300 tokens, ending at different offsets within a block of 256, "
        f"each wrote at most {turns['largest_share']:.0%} of the size of their own rows, one block "
        f"and one state, in at most {turns['most_files']} files. In a new process, an unsuccessful "
        f"lookup among 100 conversations of 100,000 tokens takes {lookup['first_ms']:.1f} ms."
    )
    return textwrap.fill(text, 100) + "\n"


def _results(name: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return told


def _table(rows: list[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in rows]
    lines.insert(1, "| " + " | ".join("---" for _ in rows[0]) + " |")
    return "\n".join(lines) + "\n"


def measured_on(name: str) -> str:
    """What the results of that name were measured on."""
    told = _results(name)
    machine, versions = told["machine"], told["versions"]
    words = (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['os'].split()[0]}, "
        f"mlx {versions['mlx']}, mlx-lm {versions['mlx-lm']}"
    )
    return f"{words}, mtplx {told['mtplx']}" if "mtplx" in told else words


def load_lines() -> str:
    """Loading by step, reading a large tokenizer, and prefill, beside mlx-lm."""
    told = _results("load")
    ours, theirs, tokenizer = told["load"]["llm-mtplx"], told["load"]["mlx-lm"], told["tokenizer_s"]
    rows = [("step (ms)", "llm-mtplx", "mlx-lm")]
    for step, spent in ours.items():
        rows.append((step, f"{spent:.0f}", f"{theirs[step]:.0f}" if step in theirs else ""))
    lines = [
        f"A tokenizer with 248,320 tokens loads in {tokenizer['llm-mtplx']:.1f} s"
        f" (mlx-lm: {tokenizer['mlx-lm']:.1f} s).",
        "",
    ]
    for length, rates in told["prefill"]["tokens_per_s"].items():
        base = rates["mlx-lm"]
        lines.append(
            f"- Prefill of {length} tokens: {base:.0f} tokens/s in mlx-lm; llm-mtplx reaches "
            f"{rates['llm-mtplx without head'] / base:.2f} times that without the head's history, "
            f"{rates['llm-mtplx'] / base:.2f} times with it."
        )
    return "\n".join([_table(rows), *lines]) + "\n"


def serve_lines() -> str:
    """What attaching and serving cost, from the committed results."""
    told = _results("serve")
    calls, many = told["calls"], told["many"]
    first, over = calls["first_output_s"], told["per_token"]["over_engine"]
    through = f"{100 * over['http']:.1f} % more" if over["http"] > 0 else "no measurable time"
    asked = many["clients"] * many["turns"]
    lost = asked - many["answered"]
    words = (
        f"- `llm -c` prints its first words after {first['attached']:.2f} s with a running engine"
        f" and {first['not_attached']:.2f} s without one. `llm --help` alone takes"
        f" {first['help']:.2f} s.\n"
        f"- Compared with the engine alone, a token takes {100 * over['attached']:.0f} % more time"
        f" through the socket and {through} through the server.\n"
        f"- {many['clients']} clients with {many['turns']} turns each:"
        f" {lost or 'none'} of {asked} requests failed, the slowest client waited"
        f" {many['slowest_to_median_client']:.2f} times as long as the median client, and"
        f" {100 * many['cached_share']:.0f} % of the prompt tokens were restored from the cache."
        "\n\nThe same requests, sent to both servers one after the other:"
    )
    names = ("model", "answers", "clients", "server", "tokens/s", "first token", "p95", "cached")
    rows = [names]
    for run in told["peer"]:
        cells = [run["model"], f"{run.get('max_tokens', 48)} tokens", f"{run['clients']}"]
        cells += [run["server"], f"{run['tokens_per_s']:.1f}"]
        cells += [f"{run['first_token_p50_s']:.2f} s", f"{run['first_token_p95_s']:.2f} s"]
        rows.append((*cells, f"{100 * run['cached_share']:.0f} %"))
    return f"{words}\n\n{_table(rows)}"


def batch_table() -> str:
    """Several conversations in one forward, from the committed results."""
    told = _results("batch")
    rows = [
        (
            "threads",
            "prompts",
            "conversations",
            "mlx-lm",
            "one by one",
            "depth 0",
            "1",
            "3",
            "by load",
        )
    ]
    for blas, run in told["runs"].items():
        for kind in ("easy", "hard"):
            for count, each in run[kind].items():
                rates, ratios = each["tokens_per_s"], each["to_mlx_lm"]
                alone = max(rate for name, rate in rates.items() if name.startswith("alone"))
                ours = [f"batch {depth}" for depth in (0, 1, 3)] + ["batch by load"]
                cells = [blas.rsplit("-", 1)[-1], kind, count, f"{rates['mlx-lm']:.1f}"]
                cells += [f"{alone:.1f}"]
                cells += [f"{rates[name]:.1f} ({ratios[name]:.2f}x)" for name in ours]
                rows.append(tuple(cells))
    return _table(rows)


def copy_lines() -> str:
    """Copied drafts, from the committed results."""
    told = _results("copy")
    index = told["index"]
    rows = [
        ("head", "texts", "head alone", "head and copies", "ratio", "least", "copied tokens right")
    ]
    for head in ("right", "noisy"):
        for kind, run in told[head].items():
            rates, copied = run["tokens_per_s"], run["copied"]
            right = (
                f"{100 * run['copies_accepted'] / copied:.0f} % of {copied:,}" if copied else "none"
            )
            cells = [head, kind, f"{rates['head']:.1f} tokens/s", f"{rates['both']:.1f} tokens/s"]
            rows.append((*cells, f"{run['both_to_head']:.2f}x", f"{run['least']:.2f}x", right))
    return (
        f"{_table(rows)}\n\nThe index of 100,000 tokens takes {index['bytes'] / 1e6:.0f} MB, and"
        f" {index['us_a_token_one_by_one']:.1f} microseconds a token."
    )


def store_lines() -> str:
    """What the store costs and what a conversation writes, from the committed results."""
    told = _results("store")
    opening, codec, talk = told["opening"], told["codec"], told["conversation"]
    times, rates = opening["open_and_lookup_ms"], codec["gb_per_s"]
    lines = [
        f"Lookup: with {opening['conversations']} conversations of {opening['tokens_each']:,}"
        f" tokens, opening the store and finding a conversation takes {times['known']:.1f} ms, and"
        f" an unsuccessful lookup {times['unknown']:.1f} ms.",
        "",
        f"Packing: a packed block has {100 * codec['packed_share']:.0f} % of its size. One core"
        f" packs {rates['pack']:.2f} GB/s and unpacks {rates['unpack']:.2f} GB/s; it copies"
        f" {rates['copy']:.1f} GB/s.",
        "",
        _removal_line(told["eviction"], told["garbage"]),
        "",
        f"A conversation of {talk['turns']} turns and {talk['tokens']:,} tokens with a 27B model:",
        "",
        "| saved by | GB written | GB on disk | files | seconds per turn |",
        "| --- | --- | --- | --- | --- |",
    ]
    ours = talk["llm-mtplx"]
    rows = [("llm-mtplx", ours)]
    rows.append(("the same, ten minutes later", {**ours, **ours["kept_after_upkeep"]}))
    packed = {"written_bytes": ours["written_bytes"] + ours["written_by_compaction_bytes"]}
    rows.append(("the same, idle for a day", {**ours, **packed, **ours["kept_when_idle"]}))
    if "mtplx" in talk:
        rows.append((f"mtplx {talk['mtplx_version']}, cold tier", talk["mtplx"]))
    rows.append(("`save_prompt_cache` every turn", talk["save_prompt_cache"]))
    for name, row in rows:
        written, kept = (f"{row[key] / 1e9:.2f}" for key in ("written_bytes", "kept_bytes"))
        lines.append(f"| {name} | {written} | {kept} | {row['files']:,} | {row['turn_s']:.2f} |")
    return "\n".join(lines) + "\n"


def fuzz_line() -> str:
    """What the last run of the fuzzer counted."""
    told = _results("fuzz")
    failures = told["failures"]
    outcome = f"{failures} of them failed"
    if not failures:
        outcome = "no answer and no restored state differed from those of a cold run, "
        outcome += "and nothing outside the store was touched"
    words = (
        f"The last run of `make fuzz` [damaged {told['mutated_stores']:,} stores]"
        "(../benchmarks/results/fuzz.json) and used each one: in "
        f"{told['turns']:,} turns, {outcome}."
    )
    return textwrap.fill(words, 100) + "\n"


def _removal_line(evicted: dict[str, Any], garbage: dict[str, Any]) -> str:
    save, restore = evicted["save_ms"], evicted["restore_ms"]
    with_it, without = (
        [each[k]["median"] for each in (save, restore)] for k in ("with", "without")
    )
    worst = max(save["worst_delay"], restore["worst_delay"])
    return (
        f"Eviction: while one process evicts {evicted['files']:,} files ({_gb(evicted)}), a save in"
        f" another process takes {with_it[0]:.1f} ms instead of {without[0]:.1f} ms, and a restore"
        f" {with_it[1]:.1f} ms instead of {without[1]:.1f} ms. Of {2 * evicted['turns']:,} saves"
        f" and restores, none was more than {worst:.0f} ms slower than the median"
        " without eviction.\n\n"
        f"Garbage collection: `llm mtplx gc` lists {garbage['files']:,} unused files"
        f" ({_gb(garbage)}) in {garbage['report_s']:.1f} s and deletes them in"
        f" {garbage['removal_s']:.0f} s. It never locks the index for more than"
        f" {garbage['longest_hold_ms']:.0f} ms. (The files in these two tests are sparse.)"
    )


def _gb(told: dict[str, Any]) -> str:
    return f"{told['apparent_bytes'] / 1e9:.0f} GB"


def summary_table() -> str:
    """What has been measured, in six rows."""
    decode = _results("decode-openblas-1")["runs"]["openblas-1"]
    largest = next(run for run in decode if run["model"] == "540MB")
    easy, hard = (largest[kind]["ratio_to_plain"] for kind in ("easy", "hard"))
    longest = list(_results("continue")["runs"].values())[-1]
    warm, cold = longest["first_words_s"]["ssd"], longest["first_words_s"]["off"]
    tokens, restored = list(_results("restore")["ssd"].items())[-1]
    ours, turn = restored["ours"], restored["ours"]["turn"]
    served = _results("serve")
    first = served["calls"]["first_output_s"]
    rates = {
        (run["clients"], run["server"]): f"{run['tokens_per_s']:.1f}"
        for run in served["peer"]
        if run["model"] == "320MB"
    }
    pairs = [f"{rates[n, 'llm-mtplx']} and {rates[n, 'mlx_lm.server']}" for n in (1, 4)]
    return _table(
        [
            ("what", "result"),
            (
                "Decoding with drafts, 540 MB model, compared with decoding without",
                f"{max(easy.values()):.2f} times as fast where drafts are right, "
                f"{hard['1']:.2f} times at depth 1 where two in five first drafts are wrong",
            ),
            (
                f"`llm -c` in a new process, {longest['restored']:,} tokens restored, 320 MB model",
                f"first words after {warm:.1f} s, {cold:.1f} s with `-o cache off`",
            ),
            (
                f"Restoring {int(tokens):,} tokens of a 27B-shaped state "
                f"({ours['state_mb'] / 1e3:.1f} GB) from disk",
                f"{ours['cold_s']:.1f} s, every byte verified",
            ),
            (
                "Saving one more turn of 300 tokens of it",
                f"{turn['mb']:.0f} MB in {turn['files']} files, in the background",
            ),
            (
                "`llm -c` with a running engine, demo model",
                f"first words after {first['attached']:.2f} s, {first['not_attached']:.2f} s"
                " without an engine",
            ),
            (
                "Server compared with mlx_lm.server, 320 MB model, tokens/s",
                f"one client {pairs[0]}, four clients {pairs[1]}",
            ),
        ]
    )
