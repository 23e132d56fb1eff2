"""Reports data that do not look like a task's before training starts, and how they were understood.

What cannot be meant is refused; what is odd is a warning. Small data are never refused: a first try may be a few lines.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from weft.errors import WeftError, WeftWarning
from weft.text.conll import TaggedSentence, count_noun
from weft.text.corpus import Corpus
from weft.text.parallel import Pairs
from weft.text.tables import column_names
from weft.text.vocabulary import UNK
from weft.text.word_tokenizer import SpaceTokenizer, WordTokenizer

MANY_WORDS, LONG_SENTENCE = 50, 200  # tagged words from which on tags must recur, and one sentence is odd
FEW_LABELS, MANY_LABELS = 5, 50  # examples from which on one label must recur, and most must
FEW_PAIRS = 10
PRETOKENIZED = frozenset({UNK, "@-@", "@,@", "@.@", "-LRB-", "-RRB-"})  # words of pre-tokenized text, no others'
FIRST_LINES = 2000  # of a text, searched for them


def check_tagged(sentences: Sequence[TaggedSentence]) -> None:
    """Refuse what is not tagged words, such as prose: most tags occur once."""
    counts = Counter(tag for sentence in sentences for tag in sentence.tags)
    words, once = sum(counts.values()), sum(count == 1 for count in counts.values())
    first = sentences[0]
    read = f"{first.where(0)} is read as the word {first.words[0]!r} with the tag {first.tags[0]!r}"
    if words >= MANY_WORDS and (once > words / 5 or len(counts) > words / 2):
        raise WeftError(
            f"{first.location} does not look like tagged words: {read}, and there are {count_noun(len(counts), 'tag')} "
            f"for {count_noun(words, 'word')}",
            expected="a word and its tag in each line, a blank line after each sentence, and tags that recur",
            hint="`column=NUMBER`, if the tags are in another column; `weft train lm` for text without tags",
        )
    if len(sentences) == 1 and words >= LONG_SENTENCE:
        _warn(f"{read}; all {words:,} words are one sentence, because no blank line separates sentences")
    elif len(counts) == 1 and words >= MANY_WORDS:
        _warn(f"{read}; all {words:,} words have this tag")


def check_labelled(labels: Sequence[str], read: str, *, chosen: bool) -> None:
    """Refuse labels that hardly recur, such as the first words of prose.

    Args:
        labels: the label of each example.
        read: how the first example was understood.
        chosen: the user chose the column of the labels: then only warn.
    """
    counts = Counter(labels)
    once = sum(count == 1 for count in counts.values())
    all_different = len(labels) >= FEW_LABELS and once == len(labels)
    if not all_different and (len(labels) < MANY_LABELS or once <= len(labels) / 10):
        return
    what = f"{read}, and there are {len(counts):,} labels for {len(labels):,} texts"
    if chosen:
        _warn(f"{what}: most labels do not recur")
        return
    raise WeftError(
        f"the data does not look like texts with labels: {what}",
        expected="labels that recur",
        hint="`data.label_column=NAME`, if the labels are in another column; `weft train lm` for text without labels",
    )


def check_pairs(pairs: Pairs) -> None:
    """Refuse pairs that are not translations: most have two equal sides."""
    if len(pairs) < FEW_PAIRS:
        return
    read = f"{pairs.name} is read as the source {pairs.sources[0][:40]!r} and the target {pairs.targets[0][:40]!r}"
    equal = sum(source == target for source, target in zip(pairs.sources, pairs.targets, strict=True))
    if equal > 0.9 * len(pairs):
        raise WeftError(
            f"{read}, and {equal:,} of {len(pairs):,} pairs have two equal sides",
            expected="sentences with their translations",
            hint="`text.source_column=NUMBER` and `text.target_column=NUMBER`, if they are in other columns",
        )
    if equal > 0.3 * len(pairs):
        _warn(f"{read}; {equal:,} of {len(pairs):,} pairs have two equal sides")
    for side, texts in (("source", pairs.sources), ("target", pairs.targets)):
        if len(set(texts)) == 1:
            _warn(f"{read}; all {len(pairs):,} pairs have the same {side}")


def check_plain_text(corpus: Corpus) -> None:
    """Warn that a table is read as plain text, and name its columns."""
    for document in corpus.documents():
        if names := column_names(document):
            _warn(
                f"{document.location} looks like a table and is read as plain text, separators included: "
                f"`column=NAME` reads one of its columns ({', '.join(names)})"
            )
            return


def check_tokenization(corpus: Corpus, tokenizer: str) -> None:
    """Warn that a tokenizer of words splits the tokens of a text that is tokenized already."""
    if tokenizer not in (WordTokenizer.name, SpaceTokenizer.name):
        return
    document = next(corpus.documents())
    words = (word for line in islice(document.lines(), FIRST_LINES) for word in line.split())
    if marks := [mark for mark in dict.fromkeys(words) if mark in PRETOKENIZED]:
        _warn(
            f"{document.location} looks tokenized already: it contains {', '.join(marks)}, which the tokenizer "
            f"{tokenizer!r} splits: `text.tokenizer=whitespace` keeps its tokens and counts line ends as <eos>"
        )


def _warn(message: str) -> None:
    warnings.warn(message, WeftWarning, stacklevel=2)
