"""Accuracy of splitting raw text into the words of treebanks.

    python -m benchmarks.quality.splits

For each test set: the fraction of sentences whose words are restored after joining them by spaces, and, if the file has
raw text, the fraction of raw sentences that are split into exactly their words, by the word tokenizer alone and by a
tagger trained on the training set.
"""

from __future__ import annotations

from benchmarks.quality.rows import data
from weft.tasks.tag.config import TagDataConfig
from weft.tasks.tag.lexicon import WordLexicon
from weft.tasks.tag.word_split import make_split
from weft.text.conll import read_conll, table_sentences
from weft.text.corpus import Corpus
from weft.text.word_tokenizer import WordTokenizer

FILES = {
    "en_ewt": ("en_ewt-ud-train.conllu.gz", "en_ewt-ud-test.conllu.gz"),
    "wnut17": ("wnut17train.conll", "emerging.test.annotated"),
}
TEXT = "# text = "


def main() -> None:
    for folder, names in FILES.items():
        train, test = (read_conll(next(Corpus.open(data("tag", folder, name)).documents())) for name in names)
        count = WordLexicon.build(table_sentences(train), TagDataConfig()).count
        words = [list(one.words) for one in table_sentences(test)]
        raw = [line.strip().removeprefix(TEXT) for line in test.lines if line.startswith(TEXT)]
        for name, split in (
            ("print", WordTokenizer().split),
            *((name, make_split(name, count)) for name in ("word", "space")),
        ):
            counts = [("joined by spaces", sum(split(" ".join(row)) == row for row in words))]
            if raw:
                counts.append(("raw", sum(split(text) == row for text, row in zip(raw, words, strict=True))))
            found = ", ".join(f"{what} {correct / len(words):.4f}" for what, correct in counts)
            print(f"{folder:8} {name:6} {found} of {len(words):,}")


if __name__ == "__main__":
    main()
