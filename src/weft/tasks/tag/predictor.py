"""A trained tagger in use: it tags words, segments text into words, tags tables, and is evaluated."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from weft import html
from weft.chains import Segment
from weft.config import from_dict
from weft.data.buckets import in_batches, take
from weft.data.column import Column, IntArray
from weft.errors import WeftError
from weft.metrics import Confusion
from weft.metrics.paired import ExampleStatistics
from weft.metrics.tagging import WordScores
from weft.nn.crf import TagPath
from weft.series import TimeSeries
from weft.series.examples import given_series
from weft.tasks.operation import (
    EvaluationData,
    EvaluationReport,
    Operation,
    OperationInputs,
    Option,
    ReadInputs,
    Strict,
    operation,
)
from weft.tasks.predictor import NO_OPTIONS, ResultList, TaskPredictor
from weft.tasks.stored_data import DEV_PART, is_stored
from weft.tasks.tag.config import TagConfig
from weft.tasks.tag.data import SHOWN, Reading, extra_tag_notes, load_sentences, read_like, unknown_tags
from weft.tasks.tag.encoder import collate
from weft.tasks.tag.evaluation import (
    TagScores,
    evaluate_tagger,
    score_lines,
    tag_confusion,
    tag_metrics,
    tag_statistics,
)
from weft.tasks.tag.lexicon import WordLexicon
from weft.tasks.tag.model import Tagger, TaggerMixture, forbid_continuation
from weft.tasks.tag.table import TableToTag, read_tables, write_tables
from weft.tasks.tag.vocabulary import TaggerVocabulary
from weft.tasks.tag.word_split import make_split
from weft.text.columns import read_rows
from weft.text.conll import SentenceSource, TaggedSentence
from weft.text.corpus import Corpus
from weft.text.dataframes import is_missing
from weft.text.spans import OUTSIDE, Span, tags_to_spans, tags_to_words
from weft.text.tables import TEXT_NAMES
from weft.text.word_tables import WORD_NAMES
from weft.training.run import Run


@dataclass(frozen=True)
class TaggedText:
    """Words with their tags, the probability of each tag, and that of all tags together."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    confidence: tuple[float, ...]
    probability: float
    spans: tuple[Span, ...] | None  # where the tags are spans

    def _repr_html_(self) -> str:
        """The words with their spans or tags, for notebooks."""
        notes = [f"{tag}: {share:.3f}" for tag, share in zip(self.tags, self.confidence, strict=True)]
        if self.spans is None:
            return html.box(html.words_with_tags(self.words, self.tags, notes))
        return html.box(html.marked_spans(self.words, self.spans, notes))


@dataclass(frozen=True)
class SegmentedText:
    """The words of a text, the probability of each (of both its ends), and that of all words together."""

    words: tuple[str, ...]
    confidence: tuple[float, ...]
    probability: float

    def _repr_html_(self) -> str:
        """The words, for notebooks; uncertain ones are darker."""
        notes = [f"probability {share:.3f}" for share in self.confidence]
        return html.box(html.shaded_tokens(self.words, [1 - share for share in self.confidence], notes))


Confidence = Annotated[bool, Option("Write the probability of each tag, or of each segmented word.")]


@dataclass(frozen=True)
class TextTags:
    """The tags of a text, the most probable ones first; none of a blank text."""

    text: str
    paths: Sequence[TaggedText]
    spans: bool  # whether tags are spans
    ranked: bool  # whether several were asked for

    def to_text(
        self,
        number: int,
        *,
        inline: Annotated[bool, Option("Write word/TAG, one sentence per line.")] = False,
        confidence: Confidence = False,
    ) -> str:
        lines = []
        for rank, path in enumerate(self.paths, start=1):
            head = f"{rank}\t{path.probability:.4f}" if self.ranked else ""
            probabilities = [f"{value:.4f}" for value in path.confidence]
            rows = list(zip(path.words, path.tags, *([probabilities] if confidence else []), strict=True))
            if inline:
                lines.append(f"{head}{head and chr(9)}{' '.join(map('/'.join, rows))}")
            else:
                lines += [*([f"# {head}"] if head else []), *map("\t".join, rows), ""]
        return "\n".join(lines or [""]) + "\n"

    def to_json(self) -> dict[str, Any]:
        blank = {"tags": [], "confidence": [], **({"spans": []} if self.spans else {}), "probability": 1.0}
        words = self.paths[0].words if self.paths else ()
        return _record(self.text, words, list(map(_tags, self.paths)) or [blank], self.ranked)


@dataclass(frozen=True)
class TextSegments:
    """The words of a text of a batch, the most probable ones first; none of a blank text."""

    text: str
    place: int
    batch: _SegmentedBatch

    @property
    def paths(self) -> Sequence[SegmentedText]:
        return self.batch.paths[self.place]

    @property
    def ranked(self) -> bool:
        return self.batch.count > 1

    def to_text(self, number: int, *, confidence: Confidence = False) -> str:
        if not (confidence or self.ranked):
            return f"{' '.join(self.batch.words[self.place])}\n"
        lines = []
        for rank, path in enumerate(self.paths, start=1):
            head = f"{rank}\t{path.probability:.4f}\t" if self.ranked else ""
            pairs = zip(path.words, path.confidence, strict=True)
            lines.append(head + " ".join(f"{word}/{value:.4f}" if confidence else word for word, value in pairs))
        return "\n".join(lines or [""]) + "\n"

    def to_json(self) -> dict[str, Any]:
        paths: list[dict[str, Any]] = [
            {"words": one.words, "confidence": _rounded(one.confidence), "probability": one.probability}
            for one in self.paths
        ] or [{"words": (), "confidence": [], "probability": 1.0}]
        return _record(self.text, paths[0]["words"], paths, self.ranked)


@dataclass(frozen=True)
class _SegmentedBatch:
    """Texts that are segmented when their words are asked for, or their probabilities, which take longer."""

    model: TagPredictor
    texts: Sequence[str]
    count: int

    @cached_property
    def words(self) -> Sequence[Sequence[str]]:
        return self.model.segment(self.texts)

    @cached_property
    def paths(self) -> Sequence[Sequence[SegmentedText]]:
        return self.model.segment_n_best(self.texts, self.count)


def _record(text: str, words: Sequence[str], paths: list[dict[str, Any]], ranked: bool) -> dict[str, Any]:
    return {"text": text, "words": words, **paths[0], **({"n_best": paths} if ranked else {})}


def _tags(path: TaggedText) -> dict[str, Any]:
    record: dict[str, Any] = {"tags": path.tags, "confidence": _rounded(path.confidence)}
    if path.spans is not None:
        record["spans"] = [{**span._asdict(), "words": path.words[span.start : span.end]} for span in path.spans]
    return {**record, "probability": path.probability}


def _rounded(shares: Iterable[float]) -> list[float]:
    return [round(share, 6) for share in shares]


TEXTS = OperationInputs(
    "Texts; - reads one sentence per line.",
    "A file with one sentence per line, or with --columns a table.",
    missing="there is no text to tag",
    example='weft tag RUN "some text", or weft tag RUN --file sentences.txt',
)
TextOrWords = str | Sequence[str]
FloatArray = np.ndarray[Any, np.dtype[np.float32]]
_Decoded = TypeVar("_Decoded")
SegmentedPath = tuple[
    list[Segment], tuple[float, ...], float
]  # words as (begin, end), their probabilities, that of all


@dataclass(frozen=True, repr=False)
class TagPredictor(TaskPredictor):
    """A trained tagger, ready for use."""

    run: Run
    model: Tagger | TaggerMixture
    vocabulary: TaggerVocabulary

    @property
    def task(self) -> str:
        return self.vocabulary.lexicon.task

    @property
    def tags(self) -> tuple[str, ...]:
        return self.vocabulary.tags

    @property
    def example(self) -> str:
        if self.vocabulary.series is not None:
            return json.dumps(self.vocabulary.series.example)
        words = [word for word in self.vocabulary.lexicon.words.tokens if word.isalpha()]
        return ("" if self.task == "segments" else " ").join(words[:6])

    @property
    def unspaced(self) -> str | None:
        """A training word that the word tokenizer would split, if there are many such: text needs `split="space"`."""
        lexicon = self.vocabulary.lexicon
        return lexicon.unspaced if isinstance(lexicon, WordLexicon) else None

    def tag(self, texts: Iterable[Any], *, split: str = "word") -> ResultList[TaggedText]:
        """Predicts the tags of each text; none of one that is empty or missing.

        Args:
            texts: Each a list of words, or a string, which is split into words first. They are in a list, Series, array
                or generator, or in a table such as a DataFrame with a column of words or of text.
            split: How to split strings: "word" by the word tokenizer and the training words, "space" at spaces.
        """
        found = self.n_best(texts, 1, split=split)
        none = TaggedText((), (), (), 1.0, () if self.vocabulary.scheme else None)
        return ResultList((paths[0] if paths else none for paths in found), index=found.row_index)

    @property
    def operations(self) -> Mapping[str, Operation]:
        other = "tag" if self.task == "segments" else "segment"
        known = {name: one for name, one in super().operations.items() if name != other}
        if self.vocabulary.series is None:
            return known
        inputs = OperationInputs(
            "Series, each a JSON list of numbers, or of steps of several channels.",
            "A file of series: a long table, .ts or arrays.",
            missing="there is no series to tag",
            example="weft tag RUN '[[1, 2], [3, 4]]', or weft tag RUN --file series.csv",
            schema=self.vocabulary.series.schema["properties"]["y"],
        )
        return {**known, "tag": replace(known["tag"], inputs=inputs)}

    @operation("tag", TEXTS)
    def tag_texts(
        self,
        texts: Iterable[Any],
        *,
        n_best: Annotated[int, Option("How many tag sequences to write for each sentence.", min=1)] = 1,
        split: Annotated[
            str,
            Option(
                "How to split texts into words: word, by the word tokenizer; space, at spaces.",
                choices=("word", "space"),
            ),
        ] = "word",
    ) -> Iterator[TextTags]:
        """Tag the words of each sentence, or segment it into words if the model was trained to.

        Tags are written as columns: word, tag. A blank line stays blank. A CoNLL-U table is returned with its tag
        column filled in, any other table with a column added, as conlleval reads it.
        """
        if self.vocabulary.series is not None:
            for paths in self.n_best(texts, n_best, split=split):
                yield TextTags(" ".join(paths[0].words), paths, self.vocabulary.scheme is not None, n_best > 1)
            return
        texts = list(texts)
        if split != "word" and not all(isinstance(text, str) for text in texts):
            raise WeftError("the input is a table, and `split` is for texts", expected="one of the two")
        for text, paths in zip(texts, self.n_best(texts, n_best, split=split), strict=True):
            shown = text if isinstance(text, str) else " ".join(text)
            yield TextTags(shown, paths, self.vocabulary.scheme is not None, n_best > 1)

    @operation("segment", TEXTS, command="tag")
    def segment_texts(
        self,
        texts: Iterable[Any],
        *,
        n_best: Annotated[int, Option("How many segmentations to write for each text.", min=1)] = 1,
    ) -> list[TextSegments]:
        """Segment each text into words. A blank line stays blank."""
        batch = _SegmentedBatch(self, list(texts), n_best)
        return [TextSegments(text, place, batch) for place, text in enumerate(batch.texts)]

    def read_inputs(
        self,
        operation: Operation,
        texts: Sequence[str],
        file: str | None,
        *,
        columns: Annotated[
            bool, Option("The input is a table with one word per row: CoNLL-U or other columns.")
        ] = False,
        column: Annotated[
            str | None,
            Option(
                "--columns: put the tags there. Without it: in CoNLL-U where the training tags were, else in a new "
                "column."
            ),
        ] = None,
    ) -> ReadInputs:
        if self.vocabulary.series is not None:
            if columns or column is not None:
                raise WeftError("`columns` or `column` is given, and the model reads series", expected="neither")
            if file is None:
                return super().read_inputs(self.operations[operation.name], texts, None)
            return ReadInputs(given_series(file, self.vocabulary.series, each_step=True))
        if not columns:
            if column is not None:
                raise WeftError("there is a `column` without `columns`", expected="a table that has it")
            if not all(text.strip() for text in texts):
                raise WeftError("the text is empty", expected="at least one word")
            return super().read_inputs(operation, texts, file)
        if texts and tuple(texts) != ("-",):
            raise WeftError(
                "`columns` reads a table, and texts are given", expected="`file=TABLE`, or - for standard input"
            )
        tables = list(read_tables(self, file or "-"))
        words = [sentence for table in tables for sentence in table.words]
        return ReadInputs(words, (), partial(self._write_tables, tables, column or ""))

    def _write_tables(
        self, tables: Sequence[TableToTag], column: str, records: Sequence[TextTags], options: Mapping[str, Any]
    ) -> Iterator[str]:
        """The tables with their tags, or the sentences in another form."""
        if options["inline"] or options["n_best"] > 1:
            for number, record in enumerate(records):
                yield record.to_text(number, inline=options["inline"], confidence=options["confidence"])
            return
        yield from write_tables(self, tables, [one.paths[0] for one in records], column, options["confidence"])

    def n_best(self, texts: Iterable[Any], n: int, *, split: str = "word") -> ResultList[ResultList[TaggedText]]:
        """The `n` most probable tag sequences of each text, best first; fewer where there are fewer. See `tag`."""
        self._is("tags", "tag", "segment")
        _check_count(n)
        (words, index), output = self._words(texts, split), self.model.output
        names = self._step_names(words)

        def decode(scores: Tensor, lengths: Tensor) -> list[tuple[list[TagPath], IntArray]]:
            """The best tags of each text, and the marginal probability of each tag at each word (T, K)."""
            shares = output.marginals(scores, lengths).cpu().numpy()
            paths = self._best_paths(scores, lengths, n)
            return [(one, shares[row, : len(one[0].tags)]) for row, one in enumerate(paths)]

        found = iter(self._decode([row for row in words if row], decode))
        results: ResultList[ResultList[TaggedText]] = ResultList(index=index)
        for row, called in zip(words, names, strict=True):
            if row:
                paths, shares = next(found)
                results.append(ResultList(self._tagged(called, path, shares) for path in paths))
            else:
                results.append(ResultList())
        return results

    def marginals(self, texts: Iterable[Any], *, split: str = "word") -> list[FloatArray]:
        """The marginal probability of every tag at every word of each text: (T, K) each, in the order of `tags`."""
        self._is("tags", "tag", "segment")
        words, _ = self._words(texts, split)

        def decode(scores: Tensor, lengths: Tensor) -> list[FloatArray]:
            found = self.model.output.marginals(scores, lengths).cpu().numpy()
            return [row[:length] for row, length in zip(found, lengths.tolist(), strict=True)]

        found = iter(self._decode([row for row in words if row], decode))
        return [next(found) if row else np.zeros((0, len(self.tags)), np.float32) for row in words]

    def _words(self, texts: Iterable[Any], split: str) -> tuple[list[Sequence[str]], Any]:
        """The words of each text, none where it is missing, and the index of the texts; or steps of series."""
        lexicon = self.vocabulary.lexicon
        if self.vocabulary.series is not None:
            if split != "word":
                raise WeftError("`split` is given, and the model reads series", expected="no `split`")
            return [SeriesSteps.of(one) for one in given_series(texts, self.vocabulary.series, each_step=True)], None
        assert isinstance(lexicon, WordLexicon)
        cut = make_split(split, lexicon.count, whole_hyphens=lexicon.whole_hyphens)
        found, index = check_sentences(texts, "tag")
        return [cut(text) if isinstance(text, str) else text for text in found], index

    def _step_names(self, words: Sequence[Sequence[str]]) -> list[Sequence[str]]:
        """What the words of each text are called; the steps of a series by their times."""
        field = self.vocabulary.series
        return [field.names(row.series) if field and isinstance(row, SeriesSteps) else row for row in words]

    def segment(self, texts: Iterable[Any]) -> ResultList[list[str]]:
        """Segments each text into words. White space always ends a word. A text that is empty or missing has none."""
        found, index = self._decode_characters(texts, self.model.output.decode)
        words = ([] if path is None else tags_to_words(text, self._names(path)) for text, path in found)
        return ResultList(words, index=index, column="words")

    def segment_n_best(self, texts: Iterable[Any], n: int) -> ResultList[ResultList[SegmentedText]]:
        """The `n` most probable segmentations of each text, best first; fewer where there are fewer."""
        _check_count(n)

        def decode(scores: Tensor, lengths: Tensor) -> list[list[SegmentedPath]]:
            paths = self._best_paths(scores, lengths, n)
            flat = [(row, path) for row, ways in enumerate(paths) for path in ways]
            stretches = [[(one.start, one.end) for one in tags_to_spans(self._names(path))] for _, path in flat]
            rows = torch.tensor([row for row, _ in flat])
            wanted = [(path.tags, stretch) for (_, path), stretch in zip(flat, stretches, strict=True)]
            probabilities = self.model.output.segment_probabilities(
                scores[rows.to(scores.device)], wanted, lengths[rows]
            )
            found: list[list[SegmentedPath]] = [[] for _ in paths]
            for (row, path), stretch, values in zip(flat, stretches, probabilities, strict=True):
                found[row].append((stretch, tuple(values), math.exp(path.log_prob)))
            return found

        found, index = self._decode_characters(texts, decode)
        return ResultList(
            (
                ResultList(
                    SegmentedText(tuple(text[b:e] for b, e in words), each, whole) for words, each, whole in paths or ()
                )
                for text, paths in found
            ),
            index=index,
        )

    def _best_paths(self, scores: Tensor, lengths: Tensor, n: int) -> list[list[TagPath]]:
        if n == 1:
            return [[path] for path in self.model.output.decode(scores, lengths)]
        return self.model.output.n_best(scores, n, lengths)

    def _decode_characters(
        self, texts: Iterable[Any], decode: Callable[[Tensor, Tensor], list[_Decoded]]
    ) -> tuple[list[tuple[str, _Decoded | None]], Any]:
        """Decodes the characters of each text, None of an empty one, with their index. No word spans white space."""
        self._is("segments", "segment", "tag")
        given, index = check_sentences(texts, "segment", words=False)
        pieces = [text.split() for text in given]
        characters = ["".join(row) for row in pieces]
        full = [row for row in pieces if row]
        starts = Column.from_rows([int(not at) for piece in row for at in range(len(piece))] for row in full)
        found = iter(self._decode([text for text in characters if text], decode, starts))
        return [(text, next(found) if text else None) for text in characters], index

    @torch.no_grad()
    def _decode(
        self,
        words: Sequence[Sequence[str]],
        decode: Callable[[Tensor, Tensor], list[_Decoded]],
        starts: Column | None = None,
    ) -> list[_Decoded]:
        """Scores each text, in batches, and decode the scores; a span begins at each of the `starts`."""
        columns = self.vocabulary.encode(words)
        self.model.eval()

        def run(rows: IntArray) -> list[_Decoded]:
            inputs = collate(columns, rows)
            scores = self.check_finite(self.model(inputs))
            if starts is not None:
                scores = forbid_continuation(scores, take(starts, rows).ids, self.tags)
            return decode(scores, inputs.lengths)

        return in_batches(columns["words"].lengths, run)

    def _names(self, path: TagPath) -> list[str]:
        return [self.tags[number] for number in path.tags]

    def _tagged(self, words: Sequence[str], path: TagPath, shares: IntArray) -> TaggedText:
        tags = tuple(self._names(path))
        confidence = shares[np.arange(len(tags)), path.tags].tolist()
        spans = tuple(tags_to_spans(tags)) if self.vocabulary.scheme else None
        return TaggedText(tuple(words), tags, tuple(confidence), math.exp(path.log_prob), spans)

    def _is(self, task: str, what: str, other: str) -> None:
        if self.task != task and (self.task, task) != ("series", "tags"):
            raise WeftError(
                f"{self.run.path} was trained for {self.task}, and is to {what}",
                expected=f"a model trained with data.task={task}",
                hint=f".{other}(...)",
            )

    def read(self, source: SentenceSource, *, column: str = "", strict: bool = False) -> Reading:
        """Sentences to evaluate on, and notes on what was repaired and on tags the model does not have.

        Args:
            source: A path, `-`, "grammar", a Corpus, (words, tags) pairs, or a table: a DataFrame, a data set, a dict
                of columns, dicts.
            column: The column of the tags, where it is not that of the training data.
            strict: Refuse sentences that lack a word or a tag, which are left out and reported otherwise.
        """
        config = from_dict(TagConfig, self.run.config).data
        if column and self.task == "segments":
            raise WeftError(f"{self.run.path} segments text and has no tags", expected="no `column`")
        config = replace(
            config, invalid_spans="repair", tag_column=column or config.tag_column, strict=strict or config.strict
        )
        read = read_like(source, config, self.vocabulary.scheme, self.vocabulary.series)
        strange = unknown_tags(read.sentences, self.tags)
        there = {tag for sentence in read.sentences for tag in sentence.tags}
        if there - {OUTSIDE} <= strange.keys() and strange:  # all O is valid where O is a tag
            tag, where = next(iter(strange.items()))
            known = ", ".join(self.tags[:SHOWN]) + (", ..." if len(self.tags) > SHOWN else "")
            raise WeftError(
                f"{where}: the tag is {tag!r}, and like all others here it is not among the training tags",
                expected=f"some of: {known}",
                hint="`column`, if the tags are in another one",
            )
        return read._replace(notes=read.notes + extra_tag_notes(strange))

    def tag_table(self, source: str | Path | Corpus, *, column: str = "", confidence: bool = False) -> Iterator[str]:
        """Tags a table with one word per row: CoNLL-U, or any other columns.

        Args:
            source: A path, `-` for standard input, or a Corpus.
            column: Where to put the tags, by name or number. Without it: in CoNLL-U the column of the training tags,
                in other tables a new last one.
            confidence: Add the probability of each tag: to MISC in CoNLL-U, else as one more column.

        Yields:
            The lines of the table, with their line ends; all else in them is as it was.
        """
        tables = list(read_tables(self, source))
        found = self.tag([words for table in tables for words in table.words])
        return write_tables(self, tables, found, column, confidence)

    def read_table(self, source: str | Path | Corpus) -> list[tuple[str, ...]]:
        """The words of each sentence of a table, from the column that held them in the training data."""
        return [words for table in read_tables(self, source) for words in table.words]

    def notes(self, texts: Iterable[TextOrWords] = (), options: Mapping[str, Any] = NO_OPTIONS) -> list[str]:
        """What a user should know about raw text for this tagger: whether its words need spaces."""
        words_given = any(not isinstance(text, str) for text in texts)
        if words_given or options.get("split") == "space" or not self.unspaced:
            return []
        return [
            f"{self.run.path} was trained on words such as {self.unspaced}, and text is split into single characters: "
            "put spaces between words and give `split=space`"
        ]

    def score(self, sentences: Sequence[TaggedSentence]) -> TagScores | WordScores:
        """Compares predicted tags with those of the sentences."""
        vocabulary = self.vocabulary.with_extra(unknown_tags(sentences, self.tags))
        return evaluate_tagger(self.model, vocabulary, vocabulary.encode_tagged(sentences))

    def confusion(self, source: SentenceSource | None = None) -> Confusion:
        """How often each tag was predicted for each true tag, on other sentences or on the held-out ones."""
        if source is None:
            return tag_confusion(self.model, self.vocabulary, load_sentences(self.run, DEV_PART, self.vocabulary))
        sentences = self.read(source).sentences
        vocabulary = self.vocabulary.with_extra(unknown_tags(sentences, self.tags))
        return tag_confusion(self.model, vocabulary, vocabulary.encode_tagged(sentences))

    def evaluate(self, source: SentenceSource, *, column: str = "", strict: bool = False) -> TagScores | WordScores:
        """Evaluates on other sentences; see `read`."""
        return self.score(self.read(source, column=column, strict=strict).sentences)

    @operation("evaluate", command="eval")
    def evaluation(
        self,
        data: EvaluationData = None,
        *,
        column: Annotated[
            str | None, Option("The column of the tags in --data, if it is not that of the training data.")
        ] = None,
        strict: Strict = False,
    ) -> EvaluationReport:
        """Accuracy, and F1 of spans or of words."""
        notes: list[str] = []
        left_out = {}
        if data is not None:
            read = self.read(data, column=column or "", strict=strict)
            notes, found, left_out = read.notes, self.score(read.sentences), {"left_out": read.left_out}
        elif column is not None:
            raise WeftError("there is a `column` without `source`", expected="the table that has it")
        else:
            found = self.evaluate_held_out()
        record: dict[str, Any] = {"score": found.score(), **found.metrics(), **left_out, "signature": found.signature()}
        if isinstance(found, TagScores) and found.spans is not None:
            record["labels"] = {label: vars(one) | {"f1": one.f1} for label, one in sorted(found.spans.labels.items())}
        return self.report(record, score_lines(found, "word" if self.vocabulary.series is None else "step"), notes)

    def evaluate_held_out(self) -> TagScores | WordScores:
        """Evaluates on the run's own held-out sentences."""
        return evaluate_tagger(self.model, self.vocabulary, load_sentences(self.run, DEV_PART, self.vocabulary))

    def held_out_metrics(self) -> dict[str, float]:
        return tag_metrics(self.evaluate_held_out()) if is_stored(self.run, DEV_PART) else {}

    def held_out_texts(self) -> Iterator[str]:
        if is_stored(self.run, DEV_PART):
            columns = load_sentences(self.run, DEV_PART, self.vocabulary)
            for row in range(len(columns["words"])):
                yield self.vocabulary.lexicon.spell(columns, row)

    def held_out_statistics(self) -> tuple[ExampleStatistics, ...]:
        columns = load_sentences(self.run, DEV_PART, self.vocabulary)
        return tag_statistics(self.model, self.vocabulary, columns)


class SeriesSteps(tuple[Any, ...]):
    """The steps of a series, a tuple of values each, which stand for the words of a text."""

    series: TimeSeries

    @classmethod
    def of(cls, series: TimeSeries) -> SeriesSteps:
        found = cls(map(tuple, series.target.tolist()))
        found.series = series
        return found


def _check_count(n: int) -> None:
    if n < 1:
        raise WeftError(f"n is {n}", expected="1 or more")


def check_sentences(texts: Any, call: str, *, words: bool = True) -> tuple[list[Any], Any]:
    """The texts, "" where one is missing, and their index; each is a string or, with `words`, a list of words."""
    what = "strings, or lists of words" if words else "strings"
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise WeftError(f"the texts are a {type(texts).__name__}", expected=f"a list of {what}", hint=f"{call}([text])")
    rows = read_rows(texts, names=(*WORD_NAMES, *TEXT_NAMES) if words else TEXT_NAMES)
    found = ["" if is_missing(text) else text for text in rows.values]
    for place, text in enumerate(found, start=1):
        if isinstance(text, str):
            continue
        if not words or not isinstance(text, Sequence) or isinstance(text, bytes):
            raise WeftError(f"text {place} of {len(found)} is a {type(text).__name__}", expected=what)
        for at, word in enumerate(text, start=1):
            if not isinstance(word, str) or not word.strip():
                given = f"a {type(word).__name__}" if not isinstance(word, str) else "empty"
                raise WeftError(f"word {at} of text {place} is {given}", expected="a string that is not empty")
    return found, rows.index
