"""Spans that others of their kind stand for while training (Dai, Adel 2020).

What is said of one place may be said of another: so every sentence is met with other names in it each time, and a name
is learned from all the sentences that it could stand in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from weft.data.buckets import IntArray, Ragged
from weft.text.spans import Span, tags_to_spans

PLACES = ("words", "shapes", "forms", "tags")  # the columns that have a number for each place of a sentence


class MentionReplacement:
    """Draws sentences of the columns in which a `share` of the spans has been replaced.

    What stands for a span is any of its kind, as often as it is in the text. Chance is torch's, which a run saves.
    """

    def __init__(self, columns: Mapping[str, Ragged], tags: Sequence[str], share: float) -> None:
        self.columns, self.share = columns, share
        self.begins = columns["tags"].ends - columns["tags"].lengths
        self.spans: list[list[Span]] = []  # of each sentence, in places of all the text
        self.kinds: dict[str, list[Span]] = {}
        for row, begin in enumerate(self.begins.tolist()):
            found = tags_to_spans([tags[number] for number in columns["tags"][row].tolist()])
            self.spans.append([Span(span.label, begin + span.start, begin + span.end) for span in found])
            for span in self.spans[row]:
                self.kinds.setdefault(span.label, []).append(span)

    def draw(self, rows: IntArray) -> dict[str, Ragged]:
        """The columns of these sentences alone, as they are this time."""
        pieces: list[IntArray] = []
        lengths = []
        for row in rows.tolist():
            place, end, length = int(self.begins[row]), int(self.columns["tags"].ends[row]), 0
            own = self.spans[row]
            chances, choices = torch.rand(2, len(own)).tolist()
            for span, chance, choice in zip(own, chances, choices, strict=True):
                same = self.kinds[span.label]
                other = same[int(choice * len(same))] if chance < self.share else span
                pieces += [np.arange(place, span.start), np.arange(other.start, other.end)]
                length += span.start - place + other.end - other.start
                place = span.end
            pieces.append(np.arange(place, end))
            lengths.append(length + end - place)
        index, ends = np.concatenate(pieces), np.cumsum(lengths, dtype=np.int64)
        drawn = {name: Ragged(self.columns[name].values[index], ends) for name in PLACES}
        return {**drawn, "spelling": self.columns["spelling"]}
