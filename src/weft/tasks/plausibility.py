"""Reports data that do not look like a task's before training starts, and how they were understood.

What cannot be meant is refused; what is odd is a warning. Small data are never refused: a first try may be a few lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from itertools import islice

from weft.errors import WeftError, warn
from weft.text.conll import TaggedSentence, count_noun
from weft.text.corpus import Corpus
from weft.text.parallel import Pairs
from weft.text.tables import column_names
from weft.text.vocabulary import UNK
from weft.text.word_tokenizer import SpaceTokenizer, WordTokenizer

MANY_WORDS, LONG_SENTENCE = 50, 200  # tagged words from which on tags must recur, and one sentence is odd
FEW_LABELS, MANY_LABELS = 5, 50  # examples from which on one label must recur, and most must
FEW_PAIRS = 10
MOST_SHOWN = 5  # labels that a report names
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
        warn(f"{read}; all {words:,} words are one sentence, because no blank line separates sentences")
    elif len(counts) == 1 and words >= MANY_WORDS:
        warn(f"{read}; all {words:,} words have this tag")


def check_labelled(labels: Sequence[str], read: str, *, chosen: bool, what: str = "texts") -> None:
    """Refuse labels that hardly recur, such as the first words of prose.

    Only warns where the user has `chosen` the column of the labels. `read` says how the first example was understood.
    """
    counts = Counter(labels)
    once = sum(count == 1 for count in counts.values())
    all_different = len(labels) >= FEW_LABELS and once == len(labels)
    if not all_different and (len(labels) < MANY_LABELS or once <= len(labels) / 10):
        return
    found = f"{read}, and there are {len(counts):,} labels for {len(labels):,} {what}"
    if chosen:
        warn(f"{found}: most labels do not recur")
        return
    raise WeftError(
        f"the data does not look like {what} with labels: {found}",
        expected="labels that recur",
        hint="`data.label_column=NAME`, if the labels are in another column; `weft train lm` for text without labels",
    )


def report_examples(
    train: Sequence[tuple[Hashable, object, str]], held_out: Sequence[tuple[Hashable, object, str]], what: str
) -> None:
    """Warn of texts that are in training and held-out data, and of equal texts with different labels.

    An example is its text, its label or labels, and its place; `what` is what the texts are called, in the plural.
    """
    report_shared([text for text, _, _ in train], [text for text, _, _ in held_out], what)
    first: dict[Hashable, tuple[object, str]] = {}
    conflicts: dict[Hashable, str] = {}
    for text, label, place in (*train, *held_out):
        its_label, its_place = first.setdefault(text, (label, place))
        if label != its_label:
            conflicts.setdefault(text, f"{its_place} and {place}")
    if conflicts:
        places = next(iter(conflicts.values()))
        warn(f"{len(conflicts):,} of {len(first):,} different {what} have several labels, as in {places}")


def report_shared(train: Iterable[Hashable], held_out: Collection[Hashable], what: str) -> None:
    """Warn of texts that are in training and held-out data."""
    known = set(train)
    if shared := sum(text in known for text in held_out):
        warn(f"{shared:,} of {len(held_out):,} held-out {what} are in the training data, too: the score is optimistic")


def repeated(texts: Sequence[Hashable], what: str) -> str:
    """How many texts repeat others, in words; "" if none does."""
    count = len(texts) - len(set(texts))
    return f"{count:,} of {len(texts):,} {what} repeat others" if count else ""


def report_single(labels: Iterable[str], what: str) -> None:
    """Warn of labels that occur once: they can be learnt or held out, but not both."""
    counts = Counter(labels)
    once = [repr(label) for label, count in counts.items() if count == 1]
    if once:
        shown = ", ".join(once[:MOST_SHOWN]) + (", ..." if len(once) > MOST_SHOWN else "")
        share = "all" if len(once) == len(counts) else f"{len(once):,} of"
        warn(f"{share} {len(counts):,} {what} occur once: {shown}; what occurs once is learnt or measured, not both")


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
        warn(f"{read}; {equal:,} of {len(pairs):,} pairs have two equal sides")
    for side, texts in (("source", pairs.sources), ("target", pairs.targets)):
        if len(set(texts)) == 1:
            warn(f"{read}; all {len(pairs):,} pairs have the same {side}")


def check_plain_text(corpus: Corpus) -> None:
    """Warn that a table is read as plain text, and name its columns."""
    for document in corpus.documents():
        if names := column_names(document):
            warn(
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
        warn(
            f"{document.location} looks tokenized already: it contains {', '.join(marks)}, which the tokenizer "
            f"{tokenizer!r} splits: `text.tokenizer=whitespace` keeps its tokens and counts line ends as <eos>"
        )
