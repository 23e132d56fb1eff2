"""The vocabulary of a model: an immutable mapping between tokens and ids, with counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat

from weft.errors import WeftError

UNK, PAD, BOS, EOS = "<unk>", "<pad>", "<bos>", "<eos>"
RESERVED = (UNK, PAD, BOS, EOS)


@dataclass(frozen=True)
class Vocabulary:
    """Tokens in the order of their ids, with their counts in the training text. The four reserved tokens come first.

    >>> vocabulary = Vocabulary.build({"the": 5, "cat": 2, "a": 2, "axolotl": 1}, min_count=2)
    >>> vocabulary.tokens
    ('<unk>', '<pad>', '<bos>', '<eos>', 'the', 'a', 'cat')
    >>> vocabulary.encode(["the", "axolotl"]), vocabulary.decode([4, 0])
    ([4, 0], ['the', '<unk>'])
    """

    tokens: tuple[str, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.tokens[: len(RESERVED)] != RESERVED:
            raise WeftError(
                f"the vocabulary begins with {', '.join(map(repr, self.tokens[: len(RESERVED)])) or 'nothing'}",
                expected=", ".join(RESERVED),
            )
        if len(self.counts) != len(self.tokens) or min(self.counts) < 0:
            raise WeftError(
                f"the vocabulary has {len(self.tokens)} tokens and {len(self.counts)} counts",
                expected="one count of 0 or more for each token",
            )
        if len(self._ids) != len(self.tokens):
            twice = next(token for index, token in enumerate(self.tokens) if self._ids[token] != index)
            raise WeftError(f"the vocabulary has {twice!r} twice", expected="different tokens")

    @classmethod
    def build(cls, counts: Mapping[str, int], *, min_count: int = 1, max_size: int | None = None) -> Vocabulary:
        """Build a vocabulary, most frequent tokens first, ties in the order of code points.

        Args:
            counts: the count of each token. Counts of dropped tokens are added to that of "<unk>".
            min_count: drop tokens with a lower count.
            max_size: the maximum size, reserved tokens included; None: no limit.
        """
        if min_count < 1:
            raise WeftError(f"min_count is {min_count}", expected="an integer of at least 1")
        if max_size is not None and max_size <= len(RESERVED):
            raise WeftError(f"max_size is {max_size}", expected=f"more than the {len(RESERVED)} reserved tokens")
        ordinary = {token: count for token, count in counts.items() if token not in RESERVED}
        ranked = sorted(ordinary, key=lambda token: (-ordinary[token], token))
        room = None if max_size is None else max_size - len(RESERVED)
        kept = [token for token in ranked[:room] if ordinary[token] >= min_count]
        kept_counts = [ordinary[token] for token in kept]
        dropped = sum(ordinary.values()) - sum(kept_counts)
        reserved_counts = [counts.get(UNK, 0) + dropped, *(counts.get(token, 0) for token in RESERVED[1:])]
        return cls((*RESERVED, *kept), (*reserved_counts, *kept_counts))

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self.tokens)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens: {' '.join(map(repr, self.tokens[4:8]))} ...)"

    def id(self, token: str) -> int:
        """The id of a token; unknown tokens have the id of "<unk>"."""
        return self._ids.get(token, self.unk_id)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The ids of tokens; unknown tokens become the id of "<unk>"."""
        return list(map(self._ids.get, tokens, repeat(self.unk_id)))

    def encode_known(self, tokens: Iterable[str]) -> list[int]:
        """The ids of tokens that the vocabulary has."""
        listed = list(tokens)
        if missing := self.unknown(listed):
            raise WeftError(f"the token {missing[0]!r} is not in the vocabulary", expected="tokens of the vocabulary")
        return self.encode(listed)

    def unknown(self, tokens: Iterable[str]) -> list[str]:
        """The different tokens that the vocabulary lacks, in the order of their first occurrence."""
        return [token for token in dict.fromkeys(tokens) if token not in self._ids]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The tokens of ids."""
        listed = list(ids)
        if listed and not 0 <= min(listed) <= max(listed) < len(self):
            wrong = next(one for one in listed if not 0 <= one < len(self))
            raise WeftError(f"there is no token with id {wrong}", expected=f"0 to {len(self) - 1}")
        return [self.tokens[one] for one in listed]

    @property
    def unk_id(self) -> int:
        return 0

    @property
    def eos_id(self) -> int:
        return 3

    def to_json(self) -> dict[str, object]:
        return {"tokens": list(self.tokens), "counts": list(self.counts)}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Vocabulary:
        """The inverse of `to_json`."""
        tokens, counts = data.get("tokens"), data.get("counts")
        if not _all_of(str, tokens) or not _all_of(int, counts):
            raise WeftError(
                "the data is not a stored vocabulary",
                expected="lists under the keys tokens (strings) and counts (integers)",
            )
        return cls(tuple(tokens), tuple(counts))  # type: ignore[arg-type]


def _all_of(kind: type, values: object) -> bool:
    """Whether `values` is a list of exactly this type; a bool does not count as an int."""
    return isinstance(values, Sequence) and not isinstance(values, str) and all(type(v) is kind for v in values)
