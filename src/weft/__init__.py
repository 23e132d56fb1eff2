"""weft: recurrent sequence models on your own text.

    import weft
    model = weft.train_language("my.txt", "runs/mine")
    print(model.generate("Once upon"))
    print(weft.load("runs/mine").measure("other.txt").perplexity)
    print(weft.train_fill("my.txt", "runs/blanks").fill("i ___ hungry", n=5))
    print(weft.train_translate("pairs.tsv", "runs/fr").translate(["I am home."]))

Shapes, here and everywhere: B rows, T steps, I input, H hidden, G gate blocks, V vocabulary, L layers,
D directions, S source steps, K beam width, R = B*K. Batch first.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.cells import CELLS as CELLS
    from weft.cells import Cell as Cell
    from weft.config import load_config as load_config
    from weft.decoding import Sample as Sample
    from weft.decoding import beam_search as beam_search
    from weft.decoding import greedy as greedy
    from weft.errors import WeftError as WeftError
    from weft.nn import Bidirectional as Bidirectional
    from weft.nn import Recurrent as Recurrent
    from weft.nn import Stack as Stack
    from weft.nn import make_stack as make_stack
    from weft.nn.attention import Attention as Attention
    from weft.nn.conversion import from_torch as from_torch
    from weft.nn.conversion import to_torch as to_torch
    from weft.nn.crf import CRF as CRF
    from weft.nn.crf import bio_constraints as bio_constraints
    from weft.nn.crf import bioes_constraints as bioes_constraints
    from weft.tasks import load as load
    from weft.tasks.chain_training import start_hmm as start_hmm
    from weft.tasks.chain_training import train_hmm as train_hmm
    from weft.tasks.chain_training import train_ngram as train_ngram
    from weft.tasks.classify.config import ClassifyConfig as ClassifyConfig
    from weft.tasks.classify.predictor import resume_classify as resume_classify
    from weft.tasks.classify.predictor import start_classify as start_classify
    from weft.tasks.classify.predictor import train_classify as train_classify
    from weft.tasks.fill.config import FillConfig as FillConfig
    from weft.tasks.fill.predictor import resume_fill as resume_fill
    from weft.tasks.fill.predictor import start_fill as start_fill
    from weft.tasks.fill.predictor import train_fill as train_fill
    from weft.tasks.hmm.baum_welch import count_hmm as count_hmm
    from weft.tasks.hmm.baum_welch import fit_hmm as fit_hmm
    from weft.tasks.hmm.config import HmmConfig as HmmConfig
    from weft.tasks.hmm.model import HMM as HMM
    from weft.tasks.hmm.model import MISSING as MISSING
    from weft.tasks.lm.config import LmConfig as LmConfig
    from weft.tasks.lm.predictor import resume_language as resume_language
    from weft.tasks.lm.predictor import start_language as start_language
    from weft.tasks.lm.predictor import train_language as train_language
    from weft.tasks.ngram.config import NgramConfig as NgramConfig
    from weft.tasks.ngram.model import kneser_ney as kneser_ney
    from weft.tasks.ngram.model import modified_kneser_ney as modified_kneser_ney
    from weft.tasks.tag.config import TagConfig as TagConfig
    from weft.tasks.tag.task import resume_tag as resume_tag
    from weft.tasks.tag.task import start_tag as start_tag
    from weft.tasks.tag.task import train_tag as train_tag
    from weft.tasks.translate.config import TranslateConfig as TranslateConfig
    from weft.tasks.translate.task import resume_translate as resume_translate
    from weft.tasks.translate.task import start_translate as start_translate
    from weft.tasks.translate.task import train_translate as train_translate
    from weft.text.corpus import Corpus as Corpus
    from weft.text.parallel import Pairs as Pairs

__version__ = "0.1.0"

# Where each name of the package lives. It is imported when it is first asked for, so that `import weft` is quick
# and a command that needs no torch does not load it.
_HOMES = {
    "Attention": "nn.attention",
    "CELLS": "cells",
    "Cell": "cells",
    "ClassifyConfig": "tasks.classify.config",
    "FillConfig": "tasks.fill.config",
    "HmmConfig": "tasks.hmm.config",
    "LmConfig": "tasks.lm.config",
    "NgramConfig": "tasks.ngram.config",
    "TagConfig": "tasks.tag.config",
    "TranslateConfig": "tasks.translate.config",
    "load_config": "config",
    "CRF": "nn.crf",
    "bio_constraints": "nn.crf",
    "bioes_constraints": "nn.crf",
    "Sample": "decoding",
    "beam_search": "decoding",
    "greedy": "decoding",
    "WeftError": "errors",
    "from_torch": "nn.conversion",
    "to_torch": "nn.conversion",
    "HMM": "tasks.hmm.model",
    "MISSING": "tasks.hmm.model",
    "count_hmm": "tasks.hmm.baum_welch",
    "fit_hmm": "tasks.hmm.baum_welch",
    "kneser_ney": "tasks.ngram.model",
    "modified_kneser_ney": "tasks.ngram.model",
    "Bidirectional": "nn",
    "Recurrent": "nn",
    "Stack": "nn",
    "make_stack": "nn",
    "load": "tasks",
    "start_hmm": "tasks.chain_training",
    "train_hmm": "tasks.chain_training",
    "train_ngram": "tasks.chain_training",
    "resume_classify": "tasks.classify.predictor",
    "start_classify": "tasks.classify.predictor",
    "train_classify": "tasks.classify.predictor",
    "resume_fill": "tasks.fill.predictor",
    "start_fill": "tasks.fill.predictor",
    "train_fill": "tasks.fill.predictor",
    "resume_language": "tasks.lm.predictor",
    "start_language": "tasks.lm.predictor",
    "train_language": "tasks.lm.predictor",
    "resume_tag": "tasks.tag.task",
    "start_tag": "tasks.tag.task",
    "train_tag": "tasks.tag.task",
    "resume_translate": "tasks.translate.task",
    "start_translate": "tasks.translate.task",
    "train_translate": "tasks.translate.task",
    "Corpus": "text.corpus",
    "Pairs": "text.parallel",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    return getattr(importlib.import_module(f"weft.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
