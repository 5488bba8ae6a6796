"""What a model choice depends on: this machine's memory and its chip."""

import os
import re
import subprocess
import sys
from functools import cache


def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@cache
def chip() -> str:
    """Such as ``Apple M2 Pro``; empty where this is no Mac or the system does not say."""
    if sys.platform != "darwin":
        return ""
    try:
        asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(asked, capture_output=True, text=True, timeout=5).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def prefers_float16(chip: str) -> bool:
    """M1 and M2 compute bfloat16 slowly."""
    return re.search(r"\bM[12]\b", chip) is not None
