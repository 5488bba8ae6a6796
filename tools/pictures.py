"""The pictures in docs/, taken in a real browser: the server's status page, and a bench.

    uv run python -m tools.pictures

Needs Chromium. The demo model answers in an empty user directory.
"""

import html
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LLM = (sys.executable, "-m", "llm")
SYSTEM = "You are a helpful assistant. You answer in short and polite sentences."
QUESTIONS = (
    "My name is Tamsin. What is the capital of France?",
    "What is my name?",
    "Count from 1 to 40.",
    "Tell me a story.",
    "What is the capital of Peru?",
)
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 1.2rem 1.5rem; background: #1b1f24; color: #d7dde4; }}
pre {{ margin: 0; font: 14px/1.45 "DejaVu Sans Mono", Menlo, monospace; }}
</style><pre>{text}</pre>"""


def main() -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("Chromium is not installed.")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as user_path:
        os.environ["LLM_USER_PATH"] = user_path
        with served() as address:
            talk(address)
            shoot(browser, address, "status-page", "1000,900")
        shown = subprocess.run(
            [*LLM, "mtplx", "bench"], stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        page = Path(user_path) / "bench.html"
        text = html.escape(f"$ llm mtplx bench\n{shown}")
        page.write_text(PAGE.format(text=text), encoding="utf-8")
        lines = text.count("\n") + 1
        shoot(browser, page.as_uri(), "bench", f"900,{38 + 21 * lines}")


@contextmanager
def served() -> Iterator[str]:
    """The address of a server of its own."""
    command = [*LLM, "mtplx", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().split(" at ")[1].split(". ")[0]
        finally:
            process.terminate()


def talk(address: str) -> None:
    messages = [{"role": "system", "content": SYSTEM}]
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        body = {"model": "mtplx-demo", "messages": messages, "temperature": 0}
        request = urllib.request.Request(
            f"{address}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            messages.append(json.load(answer)["choices"][0]["message"])


def shoot(browser: str, address: str, name: str, size: str) -> None:
    flags = ["--headless", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=4000"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium refuses to run as root with it
    picture = PICTURES / f"{name}.png"
    subprocess.run(
        [browser, *flags, f"--window-size={size}", f"--screenshot={picture}", address],
        stderr=subprocess.DEVNULL,
        check=True,
    )
    print(picture.relative_to(ROOT))


if __name__ == "__main__":
    main()
