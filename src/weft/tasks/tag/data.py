"""Tagged sentences or series: read, invalid spans repaired, words split for segmentation, stored in a run.

What was changed is reported in notes, with the file and line of the first case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from weft.data.buckets import hold_out
from weft.data.column import Column
from weft.errors import WeftError
from weft.series import ScaledSeries, SeriesColumns, SeriesSet, TimeSeries
from weft.series.examples import read_examples, same_channels
from weft.tasks.config import SERIES_EXAMPLES
from weft.tasks.example_kind import choose_input
from weft.tasks.origin import warn_new_tokens
from weft.tasks.plausibility import check_tagged, repeated, report_examples, report_single
from weft.tasks.stored_data import DEV_PART, TRAIN_PART, store, stored
from weft.tasks.tag.config import TagConfig, TagDataConfig
from weft.tasks.tag.lexicon import TEXT_LEXICONS, Lexicon, SeriesLexicon, TextLexicon, WordLexicon
from weft.tasks.tag.vocabulary import TaggerVocabulary
from weft.tasks.tag.word_split import make_split
from weft.text.conll import SentenceSource, TaggedSentence, count_noun, open_segmented, open_sentences
from weft.text.corpus import Corpus
from weft.text.fields import Tags
from weft.text.left_out import LeftOut
from weft.text.spans import (
    OUTSIDE,
    SCHEMES,
    WORD_SCHEME,
    Scheme,
    detect_scheme,
    repair_tags,
    split_tag,
    tags_to_spans,
    words_to_tags,
)
from weft.text.vocabulary import RESERVED, Vocabulary
from weft.training.run import DATA_FOLDER, Run, decoding

SHOWN = 10  # of many tags, in a message


class Reading(NamedTuple):
    """Sentences with valid tags of one scheme, if there is one, and notes on what was repaired."""

    sentences: list[TaggedSentence]
    scheme: Scheme | None
    notes: list[str]
    left_out: int = 0  # sentences that lack a word or a tag


def read_tagged(source: SentenceSource, config: TagDataConfig) -> Reading:
    """Sentences to train on, and the scheme of their tags."""
    if config.task == "segments":
        if str(config.tag_column):
            raise WeftError(
                f"column {config.tag_column} of the tags is given, and segmentation has no tags",
                expected="`data.task=segments`, or a column",
            )
        return read_like(source, config, WORD_SCHEME)
    sentences, notes, left_out = _open(source, config)
    check_tagged(sentences)
    return _reading(sentences, config, _scheme(sentences, config.scheme), notes, left_out)


class ReadSeries(NamedTuple):
    """Tagged series, as sentences whose words are their steps, and the set that they are from."""

    reading: Reading
    series: SeriesSet


def read_tagged_series(
    source: Any, config: TagDataConfig, scheme: Scheme | None = None, known: ScaledSeries | None = None
) -> ReadSeries:
    """Series with a tag for each step. The tag of a step that has no row is that of the step before it.

    Args:
        source: what `read_examples` reads.
        config: the columns and rules that are set.
        scheme: that of the training data.
        known: the field of the training data.
    """
    names: dict[str, Any] = {"id": config.id, "time": config.time, "target": config.channels}
    columns = SeriesColumns.of("auto", **{name: value or None for name, value in names.items()})
    if known is not None and known.columns.layout != "auto":
        columns = known.columns
    rules = {"freq": config.freq, "aggregate": config.aggregate}
    found = read_examples(source, columns, str(config.tag_column), each_step=True, rules=rules)
    if known is not None:
        same_channels(found.series, known.channels, source)
    left_out = LeftOut("data.strict", strict=config.strict, rows="series")
    sentences: list[TaggedSentence] = []
    for one, tags, place in zip(found.series, found.labels, found.places, strict=True):
        if len(tags) != len(one):
            raise WeftError(f"{place} has {len(one):,} steps and {len(tags):,} tags", expected="a tag for each step")
        if not all(tags):
            left_out.add(place, "tag of a step", expected="a tag for every step")
            continue
        steps: Any = tuple(map(tuple, one.target.tolist()))
        sentences.append(TaggedSentence(steps, tuple(tags), place, tuple(range(1, len(one) + 1))))
    left_out.report(len(found.places), "`data.tag_column=NAME`, if the tags are in another column")
    if not sentences:
        raise WeftError("no series has a tag for each of its steps", expected="series with tags")
    notes = ["; ".join(found.series.reading) + (f"; tags {found.column!r}" if found.column else "")]
    chosen = _scheme(sentences, config.scheme) if known is None else scheme
    return ReadSeries(_reading(sentences, config, chosen, notes, left_out.count), found.series)


def read_like(
    source: SentenceSource, config: TagDataConfig, scheme: Scheme | None, series: ScaledSeries | None = None
) -> Reading:
    """Sentences, or series, to evaluate on, with tags of the training data's scheme, or of none."""
    if series is not None:
        return read_tagged_series(source, config, scheme, series).reading
    sentences, notes, left_out = _open(source, config)
    if config.task == "segments":
        return Reading([as_characters(one) for one in sentences], WORD_SCHEME, notes, left_out)
    return _reading(sentences, config, scheme, notes, left_out)


def _open(source: SentenceSource, config: TagDataConfig) -> tuple[list[TaggedSentence], list[str], int]:
    """The sentences of a source, notes on how they were read, and how many were left out."""
    notes: list[str] = []
    left_out = LeftOut("data.strict", strict=config.strict, rows="sentences")
    if config.task == "segments":
        found = open_segmented(source, left_out)
    else:
        found = open_sentences(source, str(config.tag_column), str(config.word_column), left_out=left_out, notes=notes)
    return found, notes, left_out.count


def _reading(
    sentences: list[TaggedSentence], config: TagDataConfig, scheme: Scheme | None, notes: list[str], left_out: int
) -> Reading:
    checked = sentences if scheme is None else _checked(sentences, scheme, config, notes)
    return Reading(checked, scheme, notes, left_out)


def as_characters(sentence: TaggedSentence) -> TaggedSentence:
    """A segmented sentence as a sentence of characters, whose tags mark the words."""
    lines = tuple(line for word, line in zip(sentence.words, sentence.lines, strict=True) for _ in word)
    return TaggedSentence(
        tuple("".join(sentence.words)), tuple(words_to_tags(sentence.words)), sentence.location, lines
    )


def cut_long(
    sentences: Sequence[TaggedSentence], longest: int, scheme: Scheme | None, notes: list[str]
) -> list[TaggedSentence]:
    """Splits sentences into parts of at most `longest` words; a span that is cut becomes two."""
    found: list[TaggedSentence] = []
    cut = 0
    for sentence in sentences:
        words, tags, place, lines = sentence
        if len(words) > longest:
            cut += 1
            if cut == 1:
                notes.append(
                    f"{sentence.where(0)}: a sentence of {len(words):,} words is split into parts of {longest:,}"
                )
        for begin in range(0, len(words), longest):
            part = slice(begin, begin + longest)
            own = tags[part] if scheme is None or len(words) <= longest else tuple(repair_tags(tags[part], scheme))
            found.append(TaggedSentence(words[part], own, place, lines[part]))
    if cut > 1:
        notes[-1] += f" (and {cut - 1:,} more)"
    return found


def unknown_tags(sentences: Iterable[TaggedSentence], tags: Iterable[str]) -> dict[str, str]:
    """The tags that are not among the given ones, and the location of the first of each."""
    known = set(tags)
    found: dict[str, str] = {}
    for sentence in sentences:
        for place, tag in enumerate(sentence.tags):
            if tag not in known:
                found.setdefault(tag, sentence.where(place))
    return found


def extra_tag_notes(found: Mapping[str, str]) -> list[str]:
    """Notes on tags that the training data does not have, given the location of the first of each."""
    notes = [
        f"{where}: the tag {tag!r}, which is not in the training data, counts as wrong" for tag, where in found.items()
    ]
    return [*notes[:SHOWN], *([f"so do {count_noun(len(notes) - SHOWN, 'more tag')}"] if len(notes) > SHOWN else [])]


def _scheme(sentences: Sequence[TaggedSentence], wanted: str) -> Scheme | None:
    if wanted == "none":
        return None
    if wanted != "auto":
        return SCHEMES[wanted]
    where = unknown_tags(sentences, ())
    scheme = detect_scheme(where, where)
    if scheme is not None and scheme.marks_end:
        _one_scheme(sentences, scheme)
    return scheme


def _one_scheme(sentences: Sequence[TaggedSentence], scheme: Scheme) -> None:
    """Refuses a text that is BIO in one sentence and marks ends of spans in another: a repair would be arbitrary."""
    bio = SCHEMES["bio"]
    closing = next(
        sentence.where(place) + f" has {tag}"
        for sentence in sentences
        for place, tag in enumerate(sentence.tags)
        if tag[0] in (scheme.end, scheme.single) and tag != OUTSIDE
    )
    for sentence in sentences:
        tags = list(sentence.tags)
        if repair_tags(tags, scheme) != tags and repair_tags(tags, bio) == tags:
            span = next(
                one for one in tags_to_spans(tags) if repair_tags(tags, scheme)[one.end - 1] != tags[one.end - 1]
            )
            raise WeftError(
                f"{sentence.where(span.end - 1)}: {tags[span.end - 1]} ends a span, as in BIO, but {closing}, "
                f"as in {scheme.name.upper()}",
                expected="one scheme in all sentences",
                hint=f"`data.scheme={scheme.name}` to treat this as an error and repair it",
            )


def _check_tags(sentences: Sequence[TaggedSentence], scheme: Scheme) -> None:
    letters = {OUTSIDE, *scheme[1:]}
    for sentence in sentences:
        for place, tag in enumerate(sentence.tags):
            if split_tag(tag) is None or tag[0] not in letters:
                raise WeftError(
                    f"{sentence.where(place)}: the tag is {tag!r}",
                    expected=f"O, or one of {', '.join(dict.fromkeys(scheme[1:]))} and a label, as in B-PER "
                    f"(the scheme is {scheme.name})",
                )


def _checked(
    sentences: list[TaggedSentence], scheme: Scheme, config: TagDataConfig, notes: list[str]
) -> list[TaggedSentence]:
    """The sentences with invalid spans repaired and reported, or refused."""
    _check_tags(sentences, scheme)
    found: list[TaggedSentence] = []
    broken = 0
    for sentence in sentences:
        tags = tuple(repair_tags(sentence.tags, scheme))
        if tags != sentence.tags:
            place = next(at for at, (one, other) in enumerate(zip(tags, sentence.tags, strict=True)) if one != other)
            before = sentence.tags[place - 1] if place else "the beginning"
            what = f"{sentence.where(place)}: {sentence.tags[place]} after {before}"
            if config.invalid_spans == "refuse":
                raise WeftError(
                    what,
                    expected=f"{tags[place]}, by the scheme {scheme.name}",
                    hint="`data.invalid_spans=repair` to repair such spans",
                )
            if not broken:
                notes.append(f"{what} is read as {tags[place]}")
            broken += 1
        found.append(sentence._replace(tags=tags))
    if broken > 1:
        notes[-1] += f"; {count_noun(broken - 1, 'more invalid sentence')} repaired"
    return found


def store_tagged(
    source: SentenceSource,
    dev: SentenceSource | None,
    config: TagConfig,
    folder: Path,
    known: TaggerVocabulary | None = None,
    words: Vocabulary | None = None,
) -> Mapping[str, Any]:
    """Reads sentences to train on and to hold out, and stores them; returns the vocabulary of the run.

    `known` is the vocabulary of a run that is fine-tuned, `words` are the tokens of an encoder: words, or characters.
    """
    data = config.data
    series = known.series if known is not None else None
    lexicon: Lexicon | None = None if known is None else known.lexicon
    if known is None and choose_input(source, data) == SERIES_EXAMPLES:
        check_series_tagger(config, words)
        read, found = read_tagged_series(source, data)
        series = ScaledSeries.fit(found.series, found)
        lexicon = SeriesLexicon(series)
    else:
        read = read_tagged(source, data) if known is None else read_like(source, data, known.scheme, series)
    several = "sentences" if series is None else "series"
    train, notes = read.sentences, list(read.notes)
    tag_field = Tags.fit((one.tags for one in train), read.scheme) if known is None else known.tag_field
    tags = tag_field.tags
    if known is not None and (new := unknown_tags(train, tags)):
        raise _unknown_tag(new, tags, "")
    if dev is not None:
        held, extra = _open_dev(dev, config, read, tags, notes, series)
    else:
        extra = {}
        rows, held_rows = hold_out([one.words for one in train], data.holdout, config.train.seed)
        train, held = [read.sentences[row] for row in rows], [read.sentences[row] for row in held_rows]
    if again := repeated([one.words for one in read.sentences], several):
        notes.append(again)
    if data.task == "tags":
        spans = read.scheme is not None
        labels = ([span.label for span in tags_to_spans(one.tags)] if spans else one.tags for one in (*train, *held))
        report_single((label for row in labels for label in row), "labels of spans" if spans else "tags")
    known_examples, held_examples = ([(one.words, one.tags, one.where(0)) for one in part] for part in (train, held))
    report_examples(known_examples, held_examples, several)
    train = cut_long(train, data.max_length, read.scheme, notes)
    if series is not None:  # of the training part alone
        lexicon = lexicon if known is not None else SeriesLexicon(scaled_by(series, train))
    else:
        lexicon = TEXT_LEXICONS[data.task].build(train, data) if lexicon is None else lexicon
        assert not isinstance(lexicon, SeriesLexicon)
        if words is not None:
            lexicon = lexicon.with_words(words)
        if known is not None or words is not None:
            _warn_new_words(lexicon, train)
    assert lexicon is not None
    vocabulary = TaggerVocabulary(lexicon, tag_field).with_extra(extra)
    store(folder, TRAIN_PART, vocabulary.encode_training(train))
    if held:
        store(folder, DEV_PART, vocabulary.encode_tagged(held))
    return {"fields": vocabulary.to_json(), "reading": {"notes": notes}}


def load_sentences(run: Run, name: str, vocabulary: TaggerVocabulary) -> dict[str, Column]:
    """The encoded sentences of a part of a run's data."""
    ids = {
        "tags": len(vocabulary.tags) + len(vocabulary.extra_tags),
        "known": 2,
        **({} if vocabulary.series else {"words": len(vocabulary.lexicon.words)}),
    }
    columns = stored(run, name, ids)
    with decoding(run.path / DATA_FOLDER):
        rows = {len(column) for name, column in columns.items() if name != "spelling"}
        same = ["words", "tags"]  # for each word
        if "spelling" in columns:
            stored(run, name, {"forms": len(columns["spelling"])})
            same += ["known", "shapes", "forms"]
        values, series = columns["words"].values, vocabulary.series
        if series and (
            values.dtype != np.float32 or values.shape[1:] != (len(series.channels),) or np.isinf(values).any()
        ):
            raise ValueError("the values are not those of the channels")
        if len(rows) > 1 or any((columns[name].lengths != columns["words"].lengths).any() for name in same):
            raise ValueError("columns of different lengths")
    return columns


def tagger_corpus(raw: Corpus, source: SentenceSource, config: TagDataConfig) -> Corpus:
    """The training sentences and raw text, which is split into words as they are; characters as they stand.

    Reserved tokens of raw text, such as <unk>, stay whole.
    """
    sentences = read_tagged(source, config).sentences
    between = "" if config.task == "segments" else " "
    own = Corpus.from_texts("the training sentences", ["\n".join(between.join(one.words) for one in sentences)])
    if config.task == "segments":
        return own + raw
    lexicon = WordLexicon.build(sentences, config)
    split = make_split(
        "word", lambda word: max(lexicon.count(word), word in RESERVED), whole_hyphens=lexicon.whole_hyphens
    )
    return own + raw.with_lines(lambda line: " ".join(split(line)))


def check_series_tagger(config: TagConfig, words: Vocabulary | None) -> None:
    """Refuses settings that only taggers of text have."""
    wrong = "an encoder of text" if words is not None else "`data.word_column`" if config.data.word_column != "" else ""
    wrong = wrong or ("`data.task=segments`" if config.data.task == "segments" else "")
    if wrong:
        raise WeftError(f"{wrong} is given, and the data are series of numbers", expected="text, or none of it",
                        hint="`data.input=text`, if they are text")  # fmt: skip


def scaled_by(layout: ScaledSeries, sentences: Sequence[TaggedSentence]) -> ScaledSeries:
    """The field with the means and deviations of some series."""
    fitted = ScaledSeries.fit([TimeSeries.of(np.array(one.words, np.float64)) for one in sentences])
    return replace(layout, means=fitted.means, deviations=fitted.deviations)


def _open_dev(
    dev: SentenceSource,
    config: TagConfig,
    read: Reading,
    tags: Sequence[str],
    notes: list[str],
    series: ScaledSeries | None,
) -> tuple[list[TaggedSentence], dict[str, str]]:
    held = read_like(dev, config.data, read.scheme, series)
    extra = unknown_tags(held.sentences, tags)
    if extra and config.data.unknown_tags == "refuse":
        raise _unknown_tag(extra, tags, "`data.unknown_tags=count` to count them as wrong")
    notes += held.notes + extra_tag_notes(extra)
    return held.sentences, extra


def _unknown_tag(found: Mapping[str, str], tags: Sequence[str], hint: str) -> WeftError:
    tag, where = next(iter(found.items()))
    return WeftError(
        f"{where}: the tag {tag!r} is not among those trained on"
        + (f" (nor {count_noun(len(found) - 1, 'other')})" if len(found) > 1 else ""),
        expected=f"one of: {', '.join(tags)}",
        hint=hint,
    )


def _warn_new_words(lexicon: TextLexicon, sentences: Sequence[TaggedSentence]) -> None:
    """Reports the words, or of segmented text the characters, that the kept vocabulary lacks."""
    words = Counter(word for sentence in sentences for word in sentence.words)
    ids = lexicon.encode([list(words)])["words"][0]
    warn_new_tokens(
        {word: count for (word, count), id in zip(words.items(), ids, strict=True) if id == lexicon.words.unk_id},
        "words" if lexicon.task == "tags" else "characters",
    )
