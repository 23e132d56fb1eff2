"""Checks a release: what the source archive holds, and that the wheel works in an empty environment.

    python -m tests.dist sdist dist/weft-*.tar.gz     the archive has exactly the files that git has
    python -m tests.dist wheel dist/weft-*.whl        alone, it trains and predicts, and has the engine

`make dist` builds both and runs both checks.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
MADE = ("PKG-INFO", "setup.cfg", "src/weft.egg-info/")  # what setuptools adds

SMOKE = """
import weft
from weft.engine import library

assert library() is not None, "the engine is not in the wheel"
text = weft.Corpus.from_texts("smoke", ["It was the best of times, it was the worst of times.\\n" * 50])
sets = ["model.hidden_size=16", "batch.size=4", "train.epochs=1"]
model = weft.train_lm(text, "runs/python", weft.load_config(weft.LmConfig, sets=sets))
print(weft.load("runs/python").generate("It was", tokens=10))
"""


def archive_files(archive: Path) -> set[str]:
    """The files of a source archive, relative to its one folder."""
    with tarfile.open(archive) as tar:
        return {member.name.partition("/")[2] for member in tar.getmembers() if member.isfile()}


def tracked_files() -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}


def check_sdist(archive: Path) -> None:
    found, tracked = archive_files(archive), tracked_files()
    missing = sorted(tracked - found)
    added = sorted(name for name in found - tracked if not name.startswith(MADE))
    if missing or added:
        sys.exit(f"{archive.name}: missing {missing or 'nothing'}, not in git {added or 'nothing'}; see MANIFEST.in")
    print(f"{archive.name}: the {len(tracked)} files of git")


def check_wheel(wheel: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=True)
        python = folder / "env" / "bin" / "python"
        # Only the wheel itself: not this checkout, whatever the environment says.
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHONPATH", "WEFT_"))}

        def run(*command: str | Path) -> None:
            subprocess.run([str(part) for part in command], cwd=folder, env=environment, check=True)

        install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*install, "--constraint", ROOT / "constraints.txt", wheel.resolve())
        run(python, "-c", SMOKE)
        (folder / "my.txt").write_text("It was the best of times, it was the worst of times.\n" * 50, encoding="utf-8")
        weft = folder / "env" / "bin" / "weft"
        sets = ("--set", "model.hidden_size=16", "--set", "batch.size=4", "--set", "train.epochs=1")
        run(weft, "train", "lm", "--data", "my.txt", "--out", "runs/cli", *sets)
        run(weft, "generate", "runs/cli", "--prompt", "It was", "--tokens", "10")
        run(weft, "eval", "runs/cli")
    print(f"{wheel.name}: installed in an empty environment, trained and predicted from Python and the command line")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("sdist", "wheel"))
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    {"sdist": check_sdist, "wheel": check_wheel}[options.kind](options.file)


if __name__ == "__main__":
    main()
