"""The README's tables, from the committed results."""

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
    rows = [("tokens", "a step's writes", "restore and a step's writes")]
    for tokens, told in _results("restore")["ram"].items():
        step, restored = told["step_ms"], told["restore_and_write_ms"]
        rows.append((f"{int(tokens):,}", f"{step:.1f} ms", f"{restored:.1f} ms"))
    return _table(rows)


def continue_table() -> str:
    """One line a length: seconds to the first words of a whole ``llm -c`` process."""
    rows = [("tokens before", "restored", "from the SSD", "`-o cache off`", "ratio")]
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
        f"{turns['turns']} turns of 300 tokens, whose ends were spread over a block of 256, wrote "
        f"{turns['largest_share']:.0%} at most of their own rows, one block and one state, in at "
        f"most {turns['most_files']} files. To find nothing beside 100 conversations of 100,000 "
        f"tokens takes {lookup['first_ms']:.1f} milliseconds in a process that has just begun."
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
    rows = [("step, milliseconds", "llm-mtplx", "mlx-lm")]
    for step, spent in ours.items():
        rows.append((step, f"{spent:.0f}", f"{theirs[step]:.0f}" if step in theirs else ""))
    lines = [
        f"A tokenizer of 248,320 tokens is read in {tokenizer['llm-mtplx']:.1f} s, by mlx-lm in"
        f" {tokenizer['mlx-lm']:.1f} s."
    ]
    for length, rates in told["prefill"]["tokens_per_s"].items():
        base = rates["mlx-lm"]
        lines.append(
            f"Of {length} tokens: {base:.0f} a second in mlx-lm, "
            f"{rates['llm-mtplx without head'] / base:.2f} times that in llm-mtplx without the "
            f"head's history, {rates['llm-mtplx'] / base:.2f} with it."
        )
    return "\n".join([_table(rows), *lines]) + "\n"


def serve_lines() -> str:
    """What attaching and serving cost, from the committed results."""
    told = _results("serve")
    calls, many = told["calls"], told["many"]
    first, over = calls["first_output_s"], told["per_token"]["over_engine"]
    through = f"{100 * over['http']:.1f} %" if over["http"] > 0 else "nothing that can be measured"
    asked = many["clients"] * many["turns"]
    lost = asked - many["answered"]
    words = (
        f"`llm -c` says its first words after {first['attached']:.2f} s with an engine and"
        f" {first['not_attached']:.2f} s without one, where `llm --help` takes"
        f" {first['help']:.2f} s. A token costs {100 * over['attached']:.0f} % more than in the"
        f" engine alone on its way through the socket, {through} through the"
        f" server. {many['clients']} clients with {many['turns']} turns each lost"
        f" {lost or 'none'} of {asked} requests; the slowest waited"
        f" {many['slowest_to_median_client']:.2f} times as long as the median, and"
        f" {100 * many['cached_share']:.0f} % of the prompts were"
        " not read again. The same requests to both servers, one after the other:"
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
        f"With {opening['conversations']} conversations of {opening['tokens_each']:,} tokens in it,"
        f" opening the store and finding one takes {times['known']:.1f} milliseconds, finding none"
        f" {times['unknown']:.1f}. Packing leaves {100 * codec['packed_share']:.0f} % of a block;"
        f" one core packs {rates['pack']:.2f} and unpacks {rates['unpack']:.2f} GB/s, where it"
        f" copies {rates['copy']:.1f}.",
        "",
        _removal_line(told["eviction"], told["garbage"]),
        "",
        f"A conversation of {talk['turns']} turns and {talk['tokens']:,} tokens of a 27B model:",
        "",
        "| kept by | GB written | GB kept | files | seconds a turn |",
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
        outcome = "no answer and no restored state differed from a cold run's, "
        outcome += "and nothing outside the store was touched"
    words = (
        f"The last run of `make fuzz` [damaged {told['mutated_stores']:,} stores]"
        f"(benchmarks/results/fuzz.json) and used each: in {told['turns']:,} turns {outcome}."
    )
    return textwrap.fill(words, 100) + "\n"


def _removal_line(evicted: dict[str, Any], garbage: dict[str, Any]) -> str:
    save, restore = evicted["save_ms"], evicted["restore_ms"]
    with_it, without = (
        [each[k]["median"] for each in (save, restore)] for k in ("with", "without")
    )
    worst = max(save["worst_delay"], restore["worst_delay"])
    return (
        f"While a process evicts {evicted['files']:,} files, {_gb(evicted)}, a save in another one"
        f" takes {with_it[0]:.1f} milliseconds instead of {without[0]:.1f}, a restore"
        f" {with_it[1]:.1f} instead of {without[1]:.1f}; of {2 * evicted['turns']:,} none came more"
        f" than {worst:.0f} later than the median without. `llm mtplx gc` reports"
        f" {garbage['files']:,} files that nobody needs, {_gb(garbage)}, in"
        f" {garbage['report_s']:.1f} seconds and removes them in {garbage['removal_s']:.0f},"
        f" holding the index for {garbage['longest_hold_ms']:.0f} milliseconds at a time at most."
        " (These files are sparse.)"
    )


def _gb(told: dict[str, Any]) -> str:
    return f"{told['apparent_bytes'] / 1e9:.0f} GB"
