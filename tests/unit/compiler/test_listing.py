"""What `python -m weft.compiler` prints of a cell."""

from __future__ import annotations

import re

import pytest

from tests.paths import ROOT
from weft.cells import CELLS, find_cell
from weft.compiler.__main__ import print_listing
from weft.compiler.listing import listing

PARTS = ["step", "graph: one step; a value is a vector of H", "derivative of one step", "instructions of inference",
         "instructions of training", "instructions of the backward pass"]  # fmt: skip


def parts(text):
    titles = re.findall(r"^== (.*)$", text, flags=re.M)
    return dict(zip(titles, re.split(r"^== .*$", text, flags=re.M)[1:], strict=True))


@pytest.mark.parametrize("name", CELLS)
def test_every_value_is_computed_before_it_is_used(name):
    found = parts(listing(find_cell(name)(8, 8)))
    assert list(found) == PARTS
    for title, letter in ((PARTS[1], "v"), (PARTS[2], "g")):
        known = set()
        computed = [line.split(" = ") for line in found[title].splitlines() if re.match(rf"{letter}\d+ = ", line)]
        for value, expression in computed:
            assert set(re.findall(rf"\b{letter}\d+", expression)) <= known
            known.add(value)
        results = re.findall(rf"^(?:\w+'|d \S+|\w+\[\d+\]) = .*?\b({letter}\d+)$", found[title], flags=re.M)
        assert set(results) <= known


def test_a_gru_s_candidate_is_a_product_of_its_own_blocks():
    found = parts(listing(find_cell("gru")(8, 8)))
    assert "p0.0 = x0 + bias_hh[0:H] + weight_hh[0:H] @ h\n" in found[PARTS[1]]
    assert "p0.2 = bias_hh[2H:3H] + weight_hh[2H:3H] @ h\n" in found[PARTS[1]]
    assert "    NEW_STATE[0] = multiply_add " in found[PARTS[3]] or "NEW_STATE[0] = add " in found[PARTS[3]]
    assert "product 0: D_OPERAND[0] = D_PRODUCT[0] times 3 blocks of weights, transposed\n" in found[PARTS[5]]


def test_the_page_of_the_engine_has_the_listing_of_the_lstm():
    page = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")
    assert f"```text\n{listing(find_cell('lstm')(8, 8))}```\n" in page


def test_the_program_prints_cells_by_name_and_of_files(capsys):
    print_listing(["lstm"])
    assert capsys.readouterr().out == listing(find_cell("lstm")(8, 8))
    print_listing([f"{ROOT / 'examples' / 'own_cell.py'}:PeepholeLSTMCell"])
    assert "peephole" in capsys.readouterr().out


CUMULATIVE = """
import torch
from weft.cells import Candidate, Cell, HiddenState

class Cumulative(Cell):
    blocks = 1
    def step(self, x_proj, state):
        h = torch.cumsum(x_proj, -1)
        return HiddenState(h), Candidate(h)
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lstn", r"cell 'lstn' is not known; expected one of: rnn, .*Try: lstm"),
        ("missing.py:Own", r"missing\.py"),
        ("own.py:Own", r"in own\.py the cell 'Own' is not known; expected one of: Cumulative"),
        ("own.py:Cumulative", r"`cumsum` is not an operation of the engine \(.*own\.py, line 8\)"),
        ("own.py", r"CELL is 'own\.py'; expected FILE\.py:CLASS"),
    ],
)
def test_a_cell_that_cannot_be_compiled_is_named(name, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(CUMULATIVE)
    with pytest.raises(SystemExit) as ended:
        print_listing([name])
    assert ended.value.code == 2
    assert re.search(message, capsys.readouterr().err)
