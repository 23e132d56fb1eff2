"""Which variant of the engine a machine runs, by what its system says of the CPU."""

from __future__ import annotations

import importlib
import platform
import sys

import pytest

from weft import machine

CPUS = {
    "x86_64": [
        ("flags\t\t: fpu sse2", "baseline"),
        ("flags\t\t: fpu avx2 fma", "avx2"),
        ("flags\t\t: fpu avx512_bf16 avx512_vnni", "baseline"),  # never without what stands before it
        ("flags : avx2 fma avx512f avx512dq avx512bw avx512vl avx512_bf16 avx512_vnni", "avx512_bf16"),
    ],
    "aarch64": [
        ("Features\t: fp asimd", "neon"),
        ("Features\t: fp asimd asimdhp asimddp", "neon_dot"),
        ("Features\t: fp asimd asimddp i8mm bf16", "neon_bf16"),
    ],
}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.delenv("WEFT_ENGINE", raising=False)
    yield
    monkeypatch.undo()
    importlib.reload(machine)


@pytest.mark.parametrize(("name", "flags", "best"), [(name, *row) for name, rows in CPUS.items() for row in rows])
def test_the_best_variant_of_a_cpu(name, flags, best, tmp_path, monkeypatch):
    cpu = tmp_path / "cpuinfo"
    cpu.write_text(f"processor\t: 0\n{flags}\nprocessor\t: 1\n{flags}\n")
    monkeypatch.setattr(platform, "machine", lambda: name)
    monkeypatch.setattr(sys, "platform", "linux")
    importlib.reload(machine)
    monkeypatch.setattr(machine, "CPU_INFO", cpu)
    assert machine.variants()[0] == best


def test_a_mac_with_arm_asks_its_kernel(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    importlib.reload(machine)
    monkeypatch.setattr(sys, "platform", "darwin")
    answers = {b"hw.optional.arm.FEAT_DotProd": 1}  # an Apple M1

    class System:
        def sysctlbyname(self, name, value, size, new, new_size):
            if name not in answers:
                return -1
            value._obj.value = answers[name]
            return 0

    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: System())
    assert machine.variants() == ["neon_dot", "neon"]
