"""``bench``: every way starts where its number says, and nothing of the user's is touched."""

import json

from llm_mtplx.commands.bench import table
from llm_mtplx.measure.bench import bench
from llm_mtplx.settings import cache_dir

from ..dictated import small_model
from ..llm_command import ok


def test_every_way_starts_where_it_says() -> None:
    done = bench(small_model(), prompt_tokens=64, tokens=8, repeats=2)
    assert done.restored["cold"] == 0
    assert 64 < done.restored["ram"] == done.restored["ssd"] < done.prompt_tokens
    assert done.decode_tokens_per_s.keys() == {"0", "1", "auto"}
    assert len(done.drafted) == len(done.accepted) == 1
    assert 0 < done.drafted[0] <= 2 * 7
    assert done.accepted[0] <= done.drafted[0]
    shown = "\n".join(table("small", done))
    assert shown.count(f"{done.restored['ram']:,} restored") == 2
    assert f"{done.accepted[0]} of {done.drafted[0]}" in shown
    assert all(f"\n{draft} " in shown for draft in ("plain", "draft 1", "draft auto"))


def test_the_command() -> None:
    few = ("--prompt-tokens", "32", "--tokens", "8", "--repeats", "1")
    report = json.loads(ok("mtplx", "bench", *few, "--json"))
    assert report["model"] == "mtplx-demo"
    assert report["tokens"] == 8
    assert report["first_token_s"].keys() == {"cold", "ram", "ssd"}
    assert not cache_dir().exists()
