"""The programs in examples/ run in their quick mode."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.paths import ROOT

EXAMPLES = ROOT / "examples"


def values(output, title):
    """The two columns of the line that begins with `title`."""
    line = next(line for line in output.splitlines() if line.strip().startswith(title))
    return [float(value) for value in re.findall(r"\d+\.\d+", line)]


def test_bidirectional_misuse():
    command = [sys.executable, str(EXAMPLES / "bidirectional_misuse.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    forward, both = values(done.stdout, "unseen text")
    assert both < 1.5 < 5 < forward, "the misused model looks far better"
    forward, both = values(done.stdout, "position 35")
    assert both > 0.9 * forward, "and is not, where the target is outside the window"
    assert values(done.stdout, "the target itself")[0] == 0, "an honest model does not see the target"
    assert values(done.stdout, "the target itself")[1] > 0.8, "the other one looks at little else"
    assert values(done.stdout, "1 after the target")[0] == 0
    assert "bidirectional" in done.stdout.splitlines()[-1]


def test_errors_accumulate(tmp_path):
    command = [sys.executable, str(EXAMPLES / "errors_accumulate.py"), "--out", str(tmp_path / "errors.svg")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    errors = [values(done.stdout, f"{ahead} ")[0] for ahead in (1, 4, 16, 64)]
    assert errors == sorted(errors)
    assert errors[0] < 0.23, "one step ahead the error is hardly larger than the noise"
    assert errors[3] > 2 * errors[0]
    assert "64 ahead" in (tmp_path / "errors.svg").read_text(encoding="utf-8")
