"""Data augmentation by mention replacement (Dai and Adel 2020, "An analysis of simple data augmentation for NER").

In training, spans of a sentence are replaced by random spans of the same label from the training data, so a name is
learned from many contexts and a context with many names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from weft.data.column import Column, IntArray
from weft.text.spans import Span, tags_to_spans

TOKEN_COLUMNS = ("words", "shapes", "forms", "tags")  # the columns with a value for each token


class MentionReplacement:
    """Samples sentences in which spans are replaced. Random numbers come from torch's generator, which a run saves.

    Args:
        columns: the encoded training data.
        tags: the names of the tags.
        probability: the probability that a span is replaced. The replacement is drawn from all spans of the same label,
            each occurrence with equal probability.
    """

    def __init__(self, columns: Mapping[str, Column], tags: Sequence[str], probability: float) -> None:
        self.columns, self.probability = columns, probability
        self.begins = columns["tags"].ends - columns["tags"].lengths
        self.spans: list[list[Span]] = []  # of each sentence, as positions in the whole data
        self.by_label: dict[str, list[Span]] = {}
        for row, begin in enumerate(self.begins.tolist()):
            found = tags_to_spans([tags[number] for number in columns["tags"][row].tolist()])
            self.spans.append([Span(span.label, begin + span.start, begin + span.end) for span in found])
            for span in self.spans[row]:
                self.by_label.setdefault(span.label, []).append(span)

    def sample(self, rows: IntArray) -> dict[str, Column]:
        """Returns the columns of the given sentences, with spans replaced at random."""
        pieces: list[IntArray] = []
        lengths = []
        for row in rows.tolist():
            position, end, length = int(self.begins[row]), int(self.columns["tags"].ends[row]), 0
            own = self.spans[row]
            uniforms, choices = torch.rand(2, len(own)).tolist()
            for span, uniform, choice in zip(own, uniforms, choices, strict=True):
                candidates = self.by_label[span.label]
                new = candidates[int(choice * len(candidates))] if uniform < self.probability else span
                pieces += [np.arange(position, span.start), np.arange(new.start, new.end)]
                length += span.start - position + new.end - new.start
                position = span.end
            pieces.append(np.arange(position, end))
            lengths.append(length + end - position)
        index, ends = np.concatenate(pieces), np.cumsum(lengths, dtype=np.int64)
        sampled = {name: Column(self.columns[name].values[index], ends) for name in TOKEN_COLUMNS}
        return {**sampled, "spelling": self.columns["spelling"]}
