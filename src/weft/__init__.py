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
    from weft.attention import Attention as Attention
    from weft.cells import CELLS as CELLS
    from weft.cells import Cell as Cell
    from weft.config import ClassifyConfig as ClassifyConfig
    from weft.config import FillConfig as FillConfig
    from weft.config import HmmConfig as HmmConfig
    from weft.config import LanguageConfig as LanguageConfig
    from weft.config import NgramConfig as NgramConfig
    from weft.config import TagConfig as TagConfig
    from weft.config import TranslateConfig as TranslateConfig
    from weft.config import load_config as load_config
    from weft.crf import CRF as CRF
    from weft.crf import bio_constraints as bio_constraints
    from weft.crf import bioes_constraints as bioes_constraints
    from weft.decode import Sample as Sample
    from weft.decode import beam as beam
    from weft.decode import greedy as greedy
    from weft.errors import WeftError as WeftError
    from weft.interop import from_torch as from_torch
    from weft.interop import to_torch as to_torch
    from weft.models.hmm import HMM as HMM
    from weft.models.hmm import MISSING as MISSING
    from weft.models.hmm_fit import count_hmm as count_hmm
    from weft.models.hmm_fit import fit_hmm as fit_hmm
    from weft.models.ngram import kneser_ney as kneser_ney
    from weft.models.ngram import modified_kneser_ney as modified_kneser_ney
    from weft.recurrent import Bidirectional as Bidirectional
    from weft.recurrent import Recurrent as Recurrent
    from weft.recurrent import Stack as Stack
    from weft.recurrent import make_stack as make_stack
    from weft.service import load as load
    from weft.service.chains import start_hmm as start_hmm
    from weft.service.chains import train_hmm as train_hmm
    from weft.service.chains import train_ngram as train_ngram
    from weft.service.classify import resume_classify as resume_classify
    from weft.service.classify import start_classify as start_classify
    from weft.service.classify import train_classify as train_classify
    from weft.service.fill import resume_fill as resume_fill
    from weft.service.fill import start_fill as start_fill
    from weft.service.fill import train_fill as train_fill
    from weft.service.language import resume_language as resume_language
    from weft.service.language import start_language as start_language
    from weft.service.language import train_language as train_language
    from weft.service.tag import resume_tag as resume_tag
    from weft.service.tag import start_tag as start_tag
    from weft.service.tag import train_tag as train_tag
    from weft.service.translate import resume_translate as resume_translate
    from weft.service.translate import start_translate as start_translate
    from weft.service.translate import train_translate as train_translate
    from weft.text.corpus import Corpus as Corpus
    from weft.text.parallel import Pairs as Pairs

__version__ = "0.1.0"

# Where each name of the package lives. It is imported when it is first asked for, so that `import weft` is quick
# and a command that needs no torch does not load it.
_HOMES = {
    "Attention": "attention",
    "CELLS": "cells",
    "Cell": "cells",
    "ClassifyConfig": "config",
    "FillConfig": "config",
    "HmmConfig": "config",
    "LanguageConfig": "config",
    "NgramConfig": "config",
    "TagConfig": "config",
    "TranslateConfig": "config",
    "load_config": "config",
    "CRF": "crf",
    "bio_constraints": "crf",
    "bioes_constraints": "crf",
    "Sample": "decode",
    "beam": "decode",
    "greedy": "decode",
    "WeftError": "errors",
    "from_torch": "interop",
    "to_torch": "interop",
    "HMM": "models.hmm",
    "MISSING": "models.hmm",
    "count_hmm": "models.hmm_fit",
    "fit_hmm": "models.hmm_fit",
    "kneser_ney": "models.ngram",
    "modified_kneser_ney": "models.ngram",
    "Bidirectional": "recurrent",
    "Recurrent": "recurrent",
    "Stack": "recurrent",
    "make_stack": "recurrent",
    "load": "service",
    "start_hmm": "service.chains",
    "train_hmm": "service.chains",
    "train_ngram": "service.chains",
    "resume_classify": "service.classify",
    "start_classify": "service.classify",
    "train_classify": "service.classify",
    "resume_fill": "service.fill",
    "start_fill": "service.fill",
    "train_fill": "service.fill",
    "resume_language": "service.language",
    "start_language": "service.language",
    "train_language": "service.language",
    "resume_tag": "service.tag",
    "start_tag": "service.tag",
    "train_tag": "service.tag",
    "resume_translate": "service.translate",
    "start_translate": "service.translate",
    "train_translate": "service.translate",
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
