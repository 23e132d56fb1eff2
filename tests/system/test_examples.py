"""The programs under examples/, as a reader runs them, in their quick mode."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def numbers(output, title):
    """The two columns of the line that begins so."""
    line = next(line for line in output.splitlines() if line.strip().startswith(title))
    return [float(number) for number in re.findall(r"\d+\.\d+", line)]


def test_bidirectional_misuse():
    command = [sys.executable, str(EXAMPLES / "bidirectional_misuse.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    forward, both = numbers(done.stdout, "text it has never seen")
    assert both < 1.5 < 5 < forward, "the misused model looks far better"
    forward, both = numbers(done.stdout, "place 35")
    assert both > 0.9 * forward, "and is not, where the answer is out of its sight"
    assert numbers(done.stdout, "the answer itself")[0] == 0, "an honest model does not see the answer"
    assert numbers(done.stdout, "the answer itself")[1] > 0.8, "the other one looks at little else"
    assert numbers(done.stdout, "1 after the answer")[0] == 0
    assert "bidirectional" in done.stdout.splitlines()[-1]
