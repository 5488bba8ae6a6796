"""Service files that keep an engine running from login on."""

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
ExecStart={command}
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
    <key>RunAtLoad</key>
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
    """For ``launchd`` or ``systemd``: this Python's ``llm mtplx serve`` with ``options``."""
    command = [sys.executable, "-m", "llm", "mtplx", "serve", *options]
    if kind == "systemd":
        # systemd expands % and $.
        told = " ".join(_systemd_word(word) for word in command)
        return _SYSTEMD.format(name=NAME, command=told).rstrip("\n")
    arguments = "\n".join(f"        <string>{escape(word)}</string>" for word in command)
    return _LAUNCHD.format(name=NAME, arguments=arguments).rstrip("\n")


def _systemd_word(word: str) -> str:
    return shlex.quote(word).replace("%", "%%").replace("$", "$$")
