"""A trained tagger in use: it tags words, finds words, and is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from weft.chains import Stretch
from weft.config import from_dict
from weft.data.buckets import IntArray, Ragged, in_batches, load_columns, take
from weft.errors import WeftError
from weft.metrics.tagging import WordScores
from weft.nn.crf import TagPath
from weft.tasks.tag.config import TagConfig
from weft.tasks.tag.data import SHOWN, Reading, read_like, strange_notes, unknown_tags
from weft.tasks.tag.encoder import collate
from weft.tasks.tag.knowledge import HELD_OUT, Knowledge, TagScores, measure
from weft.tasks.tag.lexicon import WordLexicon
from weft.tasks.tag.model import Tagger, keep_apart
from weft.tasks.tag.word_split import make_split
from weft.text.conll import Source, TaggedSentence
from weft.text.spans import OUTSIDE, Span, tags_to_spans, tags_to_words
from weft.training.run import Run


@dataclass(frozen=True)
class TaggedText:
    """Words with their tags; how sure the model is of each, and of all of them together."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    confidence: tuple[float, ...]
    probability: float
    spans: tuple[Span, ...] | None  # where the tags are spans


@dataclass(frozen=True)
class SegmentedText:
    """The words of a text; how sure the model is of both ends of each, and of all of them together."""

    words: tuple[str, ...]
    confidence: tuple[float, ...]
    probability: float


Text = str | Sequence[str]
Told = TypeVar("Told")
SegmentedPath = tuple[list[Stretch], tuple[float, ...], float]  # words as places, their chances, and that of all


@dataclass(frozen=True)
class Tagging:
    """A trained tagger, ready for use."""

    run: Run
    model: Tagger
    knowledge: Knowledge

    @property
    def task(self) -> str:
        return self.knowledge.lexicon.task

    @property
    def tags(self) -> tuple[str, ...]:
        return self.knowledge.tags

    @property
    def unspaced(self) -> str | None:
        """A word of training that raw text does not show, if there are many: then it is to be cut by spaces."""
        lexicon = self.knowledge.lexicon
        return lexicon.unspaced if isinstance(lexicon, WordLexicon) else None

    def tag(self, texts: Iterable[Text], *, split: str = "word") -> list[TaggedText]:
        """The likeliest tags of each text: a list of words, or plain text, which is cut into words first.

        `split` is a name of SPLITS: "word" cuts as print and the training words have it, "space"
        takes what stands between spaces.
        """
        return [best for (best,) in self.n_best(texts, 1, split=split)]

    def n_best(self, texts: Iterable[Text], n: int, *, split: str = "word") -> list[list[TaggedText]]:
        """The `n` likeliest sequences of tags of each text, likeliest first; fewer where there are fewer."""
        self._is("tags", "tag", "segment")
        _check_count(n)
        assert isinstance(self.knowledge.lexicon, WordLexicon)
        cut = make_split(split, self.knowledge.lexicon.count)
        words = [cut(text) if isinstance(text, str) else text for text in check_texts(texts, "tag")]
        output = self.model.output

        def tell(scores: Tensor, lengths: Tensor) -> list[tuple[list[TagPath], IntArray]]:
            """The likeliest tags of each text, and the chance of each tag at each place (T, K)."""
            shares = output.marginals(scores, lengths).cpu().numpy()
            paths = self._likeliest(scores, lengths, n)
            return [(one, shares[row, : len(one[0].tags)]) for row, one in enumerate(paths)]

        found = self._tell(words, tell)
        return [
            [self._tagged(row, path, shares) for path in paths]
            for row, (paths, shares) in zip(words, found, strict=True)
        ]

    def segment(self, texts: Iterable[str]) -> list[list[str]]:
        """The words of each text; where it has white space, a word ends."""
        found = self._tell_characters(texts, self.model.output.decode)
        return [tags_to_words(text, [self.tags[tag] for tag in path.tags]) for text, path in found]

    def segment_n_best(self, texts: Iterable[str], n: int) -> list[list[SegmentedText]]:
        """The `n` likeliest ways to cut each text into words, likeliest first; fewer where there are fewer."""
        _check_count(n)

        def tell(scores: Tensor, lengths: Tensor) -> list[list[SegmentedPath]]:
            paths = self._likeliest(scores, lengths, n)
            flat = [(row, path) for row, ways in enumerate(paths) for path in ways]
            stretches = [[(one.start, one.end) for one in tags_to_spans(self._names(path))] for _, path in flat]
            rows = torch.tensor([row for row, _ in flat])
            wanted = [(path.tags, stretch) for (_, path), stretch in zip(flat, stretches, strict=True)]
            chances = self.model.output.stretches(scores[rows.to(scores.device)], wanted, lengths[rows])
            found: list[list[SegmentedPath]] = [[] for _ in paths]
            for (row, path), stretch, chance in zip(flat, stretches, chances, strict=True):
                found[row].append((stretch, tuple(chance), math.exp(path.log_prob)))
            return found

        return [
            [SegmentedText(tuple(text[b:e] for b, e in words), sure, chance) for words, sure, chance in ways]
            for text, ways in self._tell_characters(texts, tell)
        ]

    def _likeliest(self, scores: Tensor, lengths: Tensor, n: int) -> list[list[TagPath]]:
        if n == 1:
            return [[path] for path in self.model.output.decode(scores, lengths)]
        return self.model.output.n_best(scores, n, lengths)

    def _tell_characters(
        self, texts: Iterable[str], tell: Callable[[Tensor, Tensor], list[Told]]
    ) -> list[tuple[str, Told]]:
        """The characters of each text, and what is told of their scores. No tags join what a space divides."""
        self._is("segments", "segment", "tag")
        pieces = [text.split() for text in check_texts(texts, "segment", words=False)]
        characters = ["".join(row) for row in pieces]
        starts = Ragged.from_rows([int(not at) for piece in row for at in range(len(piece))] for row in pieces)
        return list(zip(characters, self._tell(characters, tell, starts), strict=True))

    @torch.no_grad()
    def _tell(
        self,
        words: Sequence[Sequence[str]],
        tell: Callable[[Tensor, Tensor], list[Told]],
        starts: Ragged | None = None,
    ) -> list[Told]:
        """What is told of the scores and lengths of each text, in batches; at its starts a span begins for certain."""
        for place, row in enumerate(words, start=1):
            if not len(row):
                raise WeftError(f"text {place} of {len(words)} is empty", expected="at least one word")
        columns = self.knowledge.encode(words)
        self.model.eval()

        def run(rows: IntArray) -> list[Told]:
            inputs = collate(columns, rows)
            scores = self.model(inputs)
            if starts is not None:
                scores = keep_apart(scores, take(starts, rows).ids, self.tags)
            return tell(scores, inputs.lengths)

        return in_batches(columns["words"].lengths, run)

    def _names(self, path: TagPath) -> list[str]:
        return [self.tags[number] for number in path.tags]

    def _tagged(self, words: Sequence[str], path: TagPath, shares: IntArray) -> TaggedText:
        tags = tuple(self._names(path))
        confidence = shares[np.arange(len(tags)), path.tags].tolist()
        spans = tuple(tags_to_spans(tags)) if self.knowledge.scheme else None
        return TaggedText(tuple(words), tags, tuple(confidence), math.exp(path.log_prob), spans)

    def _is(self, task: str, what: str, other: str) -> None:
        if self.task != task:
            raise WeftError(
                f"{self.run.path} was trained for {self.task}, and is to {what}",
                expected=f"a model trained with data.task={task}",
                hint=f".{other}(...)",
            )

    def read(self, source: Source, *, column: str = "") -> Reading:
        """Sentences to measure on, and notes on what was repair_tags and on tags that the model cannot give.

        The column of their tags is the one of training, or the one that is given.
        """
        config = from_dict(TagConfig, self.run.config).data
        if column and self.task == "segments":
            raise WeftError(f"{self.run.path} finds words, which have no column of tags", expected="no --column")
        config = replace(config, invalid_spans="repair", tag_column=column or config.tag_column)
        read = read_like(source, config, self.knowledge.scheme)
        strange = unknown_tags(read.sentences, self.tags)
        there = {tag for sentence in read.sentences for tag in sentence.tags}
        if there - {OUTSIDE} <= strange.keys() and strange:  # nothing but O is no mistake where O is a tag
            tag, where = next(iter(strange.items()))
            known = ", ".join(self.tags[:SHOWN]) + (", ..." if len(self.tags) > SHOWN else "")
            raise WeftError(
                f"{where}: the tag is {tag!r}, and like all others here it is none of those trained on",
                expected=f"some of: {known}",
                hint="--column, if the tags are in another one",
            )
        return read._replace(notes=read.notes + strange_notes(strange))

    def score(self, sentences: Sequence[TaggedSentence]) -> TagScores | WordScores:
        """How good the model's tags are, held against the sentences' own."""
        knowledge = self.knowledge._replace(strange=tuple(unknown_tags(sentences, self.tags)))
        return measure(self.model, knowledge, knowledge.encode_tagged(sentences))

    def measure(self, source: Source, *, column: str = "") -> TagScores | WordScores:
        """How good the model's tags are on other sentences: a path, a name, a Corpus, or (words, tags) pairs."""
        return self.score(self.read(source, column=column).sentences)

    def measure_held_out(self) -> TagScores | WordScores:
        """The same for the sentences that were held out while training."""
        if not self.run.has(HELD_OUT):
            raise WeftError(f"{self.run.path} holds out nothing", expected="data to measure on", hint="--data PATH")
        return measure(self.model, self.knowledge, load_columns(self.run.path / HELD_OUT))


def _check_count(n: int) -> None:
    if n < 1:
        raise WeftError(f"the {n} likeliest are wanted", expected="1 or more")


def check_texts(texts: Any, call: str, *, words: bool = True) -> list[Any]:
    """The texts, if they are texts: each a string or, where `words` may be given, a list of words."""
    what = "strings, or lists of words" if words else "strings"
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise WeftError(f"the texts are a {type(texts).__name__}", expected=f"a list of {what}", hint=f"{call}([text])")
    found = list(texts)
    for place, text in enumerate(found, start=1):
        if isinstance(text, str):
            continue
        if not words or not isinstance(text, Sequence) or isinstance(text, bytes):
            raise WeftError(f"text {place} of {len(found)} is a {type(text).__name__}", expected=what)
        for at, word in enumerate(text, start=1):
            if not isinstance(word, str) or not word.strip():
                given = f"a {type(word).__name__}" if not isinstance(word, str) else "empty"
                raise WeftError(f"word {at} of text {place} is {given}", expected="a string that is not empty")
    return found


def load_tag(run: Run) -> Tagging:
    """The model of a run, with its best weights (or its newest, while there are no best ones)."""
    knowledge = Knowledge.from_json(run.vocabulary)
    config = from_dict(TagConfig, run.config)
    model = Tagger(knowledge.lexicon, knowledge.tags, knowledge.scheme, config.model)
    model.load_state_dict(run.weights())
    return Tagging(run, model.eval(), knowledge)
