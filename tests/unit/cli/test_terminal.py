"""Control characters of labels, names and errors do not reach a terminal, whichever way they are printed."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from weft.metrics import CROSS_ENTROPY, PERPLEXITY
from weft.pictures import print_figure
from weft.pictures.figures import ColouredText, Curve, Curves
from weft.terminal import TerminalConsole, TerminalStream, escape_controls
from weft.training.loss import MeanLoss
from weft.training.progress import TrainingProgress
from weft.training.step import Step

HOSTILE = "\x1b]0;owned\x07\x1b[31m\x1bc\x9b2J\x7f\x08\r"
SHOWN = "\\x1b]0;owned\\x07\\x1b[31m\\x1bc\\x9b2J\\x7f\\x08\\x0d"

COMMANDS = ("\x1b]", "\x1bc", "\x9b", "\x7f", "\x07", "\x08")


def test_every_control_character_is_escaped():
    controls = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]
    assert [one for one in controls if escape_controls(one) == one] == ["\t", "\n"]
    assert escape_controls("line\r\n人 é\u00a0ok") == "line\r\n人 é\u00a0ok"
    assert escape_controls(HOSTILE) == SHOWN


def test_a_stream_is_written_to_as_before():
    raw = io.StringIO()
    stream = TerminalStream(raw)
    print("a", HOSTILE, file=stream, flush=True)
    stream.writelines(["b\n"])
    assert raw.getvalue() == f"a {SHOWN}\nb\n"
    assert not stream.isatty()
    with pytest.raises(TypeError):
        stream.write(b"")


def on_terminal(program):
    """What a program writes to a terminal that is its standard output and standard error."""
    master, slave = pty.openpty()
    process = subprocess.Popen([sys.executable, *program], stdout=slave, stderr=slave, stdin=slave)
    os.close(slave)
    parts = []
    while True:
        try:
            part = os.read(master, 1 << 16)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    os.close(master)
    process.wait()
    return b"".join(parts).decode()


def test_the_command_line_escapes(tmp_path):
    name = str(tmp_path / HOSTILE.replace("/", ""))
    found = on_terminal(["-m", "weft", "generate", name])
    assert SHOWN in found
    assert "\x1b" not in found
    assert "\x9b" not in found


@pytest.mark.parametrize(
    "figure",
    [
        ColouredText("title" + HOSTILE, (f"a{HOSTILE}", "b"), np.array([0.1, 0.2])),
        Curves("title", (Curve(f"a{HOSTILE}", np.array([0.0, 1.0]), np.array([1.0, 2.0])),)),
    ],
)
def test_figures_have_only_their_own_colours(figure):
    raw = io.StringIO()
    print_figure(TerminalConsole(file=raw, force_terminal=True, width=200, color_system="truecolor"), figure)
    found = raw.getvalue()
    assert "\x1b[" in found
    assert "\\x1b]0;owned" in found.replace("\n", "")
    assert not any(one in found for one in COMMANDS)


def test_what_is_printed_during_training_is_escaped(monkeypatch):
    raw = io.StringIO()
    monkeypatch.setattr(raw, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", TerminalStream(raw))
    monkeypatch.setenv("TERM", "xterm")
    with TrainingProgress(PERPLEXITY, CROSS_ENTROPY):
        print(f"weft: left out: {HOSTILE[:-1]}", file=sys.stderr)
    assert "left out" in raw.getvalue()
    assert not any(one in raw.getvalue() for one in COMMANDS)


def test_a_notebook_shows_one_line_that_changes(monkeypatch):
    """Also the last step, however soon it comes after the one before."""
    shown = []
    display = ModuleType("IPython.display")
    display.display = lambda *_, **__: SimpleNamespace(update=lambda data, raw: shown.append(data))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    progress = TrainingProgress(PERPLEXITY, CROSS_ENTROPY)
    for number in (1, 2, 3):
        progress.step(Step(number, 3, 1, MeanLoss(4.0, 2), 0.1, 0.1, end="finished" if number == 3 else ""))
    assert "step 3/3  loss 2.000" in shown[-1]["text/plain"]
    assert "step 3/3  loss 2.000" in shown[-1]["text/html"]
