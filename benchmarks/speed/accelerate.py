"""Published recurrent models before and after `weft.accelerate`: writes benchmarks/records/accelerate.json.

    python -m benchmarks.speed.accelerate [NAME ...] [--seconds 4] [--again]

Each package gets an environment of its own in the cache folder, with this interpreter's torch; nothing else is
downloaded and the weights are random. A row that was measured is kept there, so an interrupted run continues; `--again`
measures it anew. Needs an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from tools.pages import write_pages
from tools.records import stamp, write
from weft.engine import description

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "weft" / "accelerate"
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}


class Package(NamedTuple):
    title: str
    pins: tuple[str, ...]  # of pip; () runs in this environment
    alone: bool = True  # without its dependencies: the model needs only torch


PACKAGES = {
    "flair": Package("flair, SequenceTagger", ("flair==0.15.1",), alone=False),
    "stanza": Package("stanza, part-of-speech tagger", ("stanza==1.15.0",), alone=False),
    "word_language_model": Package("word language model", ()),
    "easyocr": Package("easyocr, text recogniser", ("easyocr==1.7.2",)),
    "openunmix": Package("Open-Unmix, source separation", ("openunmix==1.3.0",)),
}


def python_of(name: str) -> Path:
    """The interpreter of the package's environment, made at the first use."""
    package, folder = PACKAGES[name], CACHE / name
    if not package.pins:
        return Path(sys.executable)
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    venv.create(folder, clear=True, symlinks=True)
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    own = [path for path in sys.path if path.endswith("site-packages")] or [sysconfig.get_path("purelib")]
    (site / "base.pth").write_text("\n".join([str(ROOT / "src"), *own]) + "\n", encoding="utf-8")
    pins = folder / "pins.txt"
    pins.write_text(f"torch=={version('torch').partition('+')[0]}\n", encoding="utf-8")
    alone = ["--no-deps"] if package.alone else []
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "-c", str(pins)]
    subprocess.run([*pip, *alone, *package.pins], check=True)
    (folder / "complete").touch()
    return python


def measure(name: str, seconds: float) -> dict[str, Any]:
    command = [str(python_of(name)), "-m", "benchmarks.speed.accelerate_models", name, "--seconds", str(seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    for kind, bound in TOLERANCE.items():
        if max(result[kind]) > bound:
            raise SystemExit(f"{name}: {kind} results differ by {max(result[kind]):.1e}; expected at most {bound:.0e}")
    return {**result, **stamp(["benchmarks/speed/accelerate_models.py"])}


def record(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What benchmarks/records/accelerate.json keeps: milliseconds. Its stamp is that of the model measured first."""
    first = min(results.values(), key=lambda row: str(row["date"]))
    models = []
    for name, row in results.items():
        times = {}
        for kind in ("train", "inference"):
            before, after = row[kind]
            times[kind] = {
                "before": round(before * 1e3, 1),
                "after": round(after * 1e3, 1),
                "ratio": round(before / after, 2),
            }
        described = "as the README of pytorch/examples describes it"
        models.append(
            {
                "model": PACKAGES[name].title,
                **times,
                "recurrent share": round(row["share"], 2),
                **{kind: row[kind] for kind in TOLERANCE},
                "package": f"{name} {row['version']}" if PACKAGES[name].pins else described,
                "million parameters": round(row["parameters"] / 1e6, 1),
                "one call reads": row["batch"],
            }
        )
    return {
        "command": "python -m benchmarks.speed.accelerate",
        **{name: first[name] for name in ("commit", "date", "depends")},
        "machine": f"{first['threads']} thread, {description()}",
        "versions": f"torch {version('torch')}, Python {platform.python_version()}",
        "models": models,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PACKAGES)}; all without")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--prepare", action="store_true", help="make the environments only")
    given = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    for name in given.names or PACKAGES:
        stored = CACHE / f"{name}.json"
        if given.prepare:
            python_of(name)
        elif given.again or not stored.exists():
            stored.write_text(json.dumps(measure(name, given.seconds)), encoding="utf-8")
            print(name, "measured", flush=True)
    results = {name: json.loads(p.read_text()) for name in PACKAGES if (p := CACHE / f"{name}.json").exists()}
    if results and not given.prepare:
        write("accelerate", record(results))
        write_pages()


if __name__ == "__main__":
    main()
