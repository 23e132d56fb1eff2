"""Checks a release: what the source archive holds, and that the wheel works in an empty environment.

    python -m tools.dist sdist dist/weft-*.tar.gz     the archive has exactly the files that git has
    python -m tools.dist wheel dist/weft-*.whl        alone, it trains and predicts, and has the engine
    python -m tools.dist install dist/weft-*.whl      every way to install that the README names, and `make demo`

`make dist` builds both and runs the first two. The third takes a quarter of an hour and needs uv. With `--torch FILE`,
that build of torch is installed first, and uv runs without `--torch-backend cpu`, which asks torch's own index.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

MADE = ("PKG-INFO", "setup.cfg", "src/weft.egg-info/")  # what setuptools adds
PIP_INSTALL = ("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
LARGEST_LIBRARY = 2 << 20  # bytes; without debug information and symbols one has 1.2 million
COMPILERS = re.compile(r"(^|-)(cc|c\+\+|c89|c99|gcc|g\+\+|cpp|clang|clang\+\+)(-[\d.]+)?$")

ENGINE = """
from weft.engine import library

assert library() is not None, "the engine was not installed"
"""
NO_ENGINE = """
from weft.engine import library

assert library() is None, "the engine was installed without a compiler"
"""
SMOKE = """
import weft

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


def clean_environment(folder: Path, *, compiler: bool = True) -> dict[str, str]:
    """Variables of a new shell in which the environment folder/env is active: nothing of this checkout."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "WEFT_", "MAKE", "MFLAGS"))
    }
    path = f"{folder / 'env' / 'bin'}{os.pathsep}"
    if compiler:
        path += kept["PATH"]
    else:
        programs = folder / "programs"  # all of the machine's, without compilers
        programs.mkdir()
        for program in (file for name in kept["PATH"].split(os.pathsep) for file in sorted(Path(name).glob("*"))):
            if not COMPILERS.search(program.name) and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
        path += str(programs)
    return {**kept, "PATH": path, "VIRTUAL_ENV": str(folder / "env")}


def try_out(folder: Path, environment: dict[str, str], *, engine: bool = True) -> None:
    """Trains and predicts from Python and the command line, in `folder`, with the weft installed in folder/env."""

    def run(*command: str) -> None:
        subprocess.run(command, cwd=folder, env=environment, check=True)

    expected = ENGINE if engine else NO_ENGINE
    run("python", "-c", expected + SMOKE)
    (folder / "my.txt").write_text("It was the best of times, it was the worst of times.\n" * 50, encoding="utf-8")
    sets = ("--set", "model.hidden_size=16", "--set", "batch.size=4", "--set", "train.epochs=1")
    run("weft", "train", "lm", "--data", "my.txt", "--out", "runs/cli", *sets)
    run("weft", "generate", "runs/cli", "--prompt", "It was", "--tokens", "10")
    run("weft", "eval", "runs/cli")


def check_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        libraries = {file.filename: file.file_size for file in archive.infolist() if file.filename.endswith(".so")}
    assert all(size < LARGEST_LIBRARY for size in libraries.values()), f"not stripped: {libraries}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=True)
        environment = clean_environment(folder)
        constraints = ("--constraint", str(ROOT / "constraints.txt"))
        subprocess.run([*PIP_INSTALL, *constraints, str(wheel.resolve())], cwd=folder, env=environment, check=True)
        try_out(folder, environment)
    print(f"{wheel.name}: installed in an empty environment, trained and predicted from Python and the command line")


def installations(page: str) -> list[str]:
    """The commands of the README that install weft, without their comments."""
    section = page.partition("\n## Install\n")[2].partition("\n## ")[0]
    return [line.partition(" #")[0].strip() for line in re.findall(r"^\$ (.*)", section, flags=re.M)]


def check_installations(wheel: Path, torch: str | None) -> None:
    """Each command of the README in an empty environment, from a clone also without a compiler; and `make demo`."""
    for command in installations((ROOT / "README.md").read_text(encoding="utf-8")):
        for compiler in (True,) if command.endswith(".whl") else (True, False):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                venv.create(folder / "env", with_pip=True)
                subprocess.run(["git", "clone", "--quiet", str(ROOT), "clone"], cwd=folder, check=True)
                shutil.copy(wheel, folder)
                environment = clean_environment(folder, compiler=compiler)
                where = folder if command.endswith(".whl") else folder / "clone"
                run = command.replace("--torch-backend cpu ", "") if torch else command
                if torch:
                    subprocess.run([*PIP_INSTALL, torch], env=environment, check=True)
                began = time.monotonic()
                subprocess.run(["bash", "-c", run], cwd=where, env=environment, check=True, stdout=subprocess.DEVNULL)
                seconds = time.monotonic() - began
                try_out(folder, environment, engine=compiler)
            print(f"{run}: works{'' if compiler else ' without a compiler'}, installed in {seconds:.0f} s", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["git", "clone", "--quiet", str(ROOT), "clone"], cwd=folder, check=True)
        environment = clean_environment(folder)
        if torch:
            venv.create(folder / "clone" / ".venv", with_pip=True)
            subprocess.run([folder / "clone" / ".venv" / "bin" / "python", *PIP_INSTALL[1:], torch], check=True)
        subprocess.run(["make", "demo"], cwd=folder / "clone", env=environment, check=True, stdout=subprocess.DEVNULL)
    print("make demo: works")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("sdist", "wheel", "install"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--torch", metavar="FILE", help="a wheel of torch to install first")
    options = parser.parse_args()
    if options.kind == "install":
        check_installations(options.file.resolve(), options.torch)
    else:
        {"sdist": check_sdist, "wheel": check_wheel}[options.kind](options.file)


if __name__ == "__main__":
    main()
