"""Service files that keep an engine running from login on."""

import os
import shlex
import sys
from collections.abc import Sequence
from xml.sax.saxutils import escape

NAME = "llm-mtplx"

_SYSTEMD = """\
# Save as ~/.config/systemd/user/{name}.service, then:
# systemctl --user enable --now {name}
[Unit]
Description=llm-mtplx engine

[Service]
{environment}ExecStart={command}
Restart=on-failure

[Install]
WantedBy=default.target
"""

_LAUNCHD = """\
<?xml version="1.0" encoding="UTF-8"?>
<!-- Save as ~/Library/LaunchAgents/{name}.plist, then:
     launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/{name}.plist -->
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN"
    "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
    <key>Label</key>
    <string>{name}</string>
    <key>ProgramArguments</key>
    <array>
{arguments}
    </array>
{environment}    <key>RunAtLoad</key>
    <true/>
    <key>KeepAlive</key>
    <dict>
        <key>SuccessfulExit</key>
        <false/>
    </dict>
</dict>
</plist>
"""


def service_file(kind: str, options: Sequence[str]) -> str:
    """For ``launchd`` or ``systemd``: this Python's ``llm mtplx serve`` with ``options``, and with
    what in this environment says where things live and what the limits are."""
    told_here = {name: os.environ[name] for name in sorted(os.environ) if _counts(name)}
    command = [sys.executable, "-m", "llm", "mtplx", "serve", *options]
    if kind == "systemd":
        # systemd expands %, and $ in commands.
        told = " ".join(_systemd_word(word).replace("$", "$$") for word in command)
        lines = [f"Environment={_systemd_word(f'{k}={v}')}\n" for k, v in told_here.items()]
        return _SYSTEMD.format(name=NAME, command=told, environment="".join(lines)).rstrip("\n")
    arguments = "\n".join(f"        <string>{escape(word)}</string>" for word in command)
    pairs = "".join(
        f"        <key>{escape(k)}</key>\n        <string>{escape(v)}</string>\n"
        for k, v in told_here.items()
    )
    environment = (
        f"    <key>EnvironmentVariables</key>\n    <dict>\n{pairs}    </dict>\n" if pairs else ""
    )
    return _LAUNCHD.format(name=NAME, arguments=arguments, environment=environment).rstrip("\n")


def _counts(name: str) -> bool:
    return name.startswith("LLM_MTPLX_") or name in ("LLM_USER_PATH", "HF_HOME", "HF_HUB_CACHE")


def _systemd_word(word: str) -> str:
    return shlex.quote(word).replace("%", "%%")
