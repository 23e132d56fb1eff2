"""A trained fill-in-the-blank model in use: it fills the blanks of a text and is evaluated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from weft.data.windows import Tokens
from weft.decoding.blanks import FilledBlanks
from weft.errors import WeftError
from weft.metrics import TokenPredictions
from weft.tasks.fill.blanks import BLANKS, Blanked
from weft.tasks.lm.predictor import Adapt, Against
from weft.tasks.operation import EvaluationData, EvaluationReport, OperationInputs, Option, Strict, operation
from weft.tasks.predictor import NO_OPTIONS, ResultList, example_of
from weft.tasks.text_task import TextPredictor, unknown_note
from weft.text.arguments import check_text
from weft.text.vocabulary import RESERVED
from weft.text.word_tokenizer import WordTokenizer

if TYPE_CHECKING:
    from weft.tasks.lm.adapt import DynamicConfig

BEAM_WIDTH = 100  # partial answers kept while several blanks are filled one after the other


@dataclass(frozen=True)
class Answer:
    """One way to fill the blanks of a text: the token(s) of each blank, the whole text, and their joint probability."""

    fills: tuple[str, ...]
    text: str
    probability: float


@dataclass(frozen=True)
class FilledText:
    """A text with blanks and the ways to fill them, best first; none of an empty text."""

    text: str
    answers: Sequence[Answer]
    unknown: Sequence[str]

    def to_text(self, number: int) -> str:
        """A line for each answer: its probability, the content of the blanks, the whole text."""
        if not self.text.strip():
            return "\n"
        fills = [" | ".join(part if part.strip() else repr(part) for part in one.fills) for one in self.answers]
        wide = max(map(len, fills))
        lines = [
            f"{one.probability:7.2%}  {fill:{wide}}  {one.text}" for one, fill in zip(self.answers, fills, strict=True)
        ]
        return ("\n" if number else "") + "".join(line.replace("\n", "\\n") + "\n" for line in lines)

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "answers": [asdict(one) for one in self.answers], "unknown": self.unknown}


class BlankModel(Protocol):
    """A model that fills blanks: a bidirectional recurrent model, or an HMM."""

    @property
    def context(self) -> str: ...

    @property
    def blank(self) -> int:
        """The id of a missing token."""
        ...

    def fill_blanks(self, ids: Sequence[int], n: int, *, width: int, banned: Sequence[int] = ()) -> list[FilledBlanks]:
        """The `n` most probable ways to fill the blanks of one row, with their joint log-probabilities."""
        ...

    def predict_tokens(self, tokens: Tokens) -> TokenPredictions: ...


@dataclass(frozen=True, repr=False)
class FillPredictor(TextPredictor[TokenPredictions]):
    """A trained fill-in-the-blank model, ready for use."""

    model: BlankModel

    @property
    def example(self) -> str:
        return self.as_input(example_of(self.text_field, 5))

    def as_input(self, sentence: str) -> str:
        """The sentence with a blank in the place of its middle word."""
        words = sentence.split()
        words[len(words) // 2] = "___"
        return " ".join(words)

    def is_input(self, text: object) -> bool:
        """Whether a text has a blank in one of the ways to write it."""
        return isinstance(text, str) and bool(BLANKS.search(text))

    def missing_tokens(self, text: str, tokens: int) -> int:
        """How many tokens of a text are missing, if a blank stands for so many."""
        return sum(Blanked.read(text).widths(tokens))

    def fill(self, text: str, n: int = 5, *, tokens: int = 1, width: int = BEAM_WIDTH) -> ResultList[Answer]:
        """The `n` most probable ways to fill the blanks (`___`) of a text, best first.

        Args:
            text: A text with one or more blanks.
            n: How many answers to return at most.
            tokens: How many tokens a blank stands for; 0: as many as it has underscores.
            width: Beam width where several tokens are missing.

        Returns:
            Answers with their joint probabilities, which sum to 1 over all ways to fill the blanks with known tokens.
            With one missing token the result is exact; with several it is a beam search from left to right.
        """
        if n < 1:
            raise WeftError(f"{n} answers are wanted", expected="1 or more")
        blanked = Blanked.read(check_text(text))
        ids = blanked.ids(self.text_field, self.model.blank, tokens)
        answers: ResultList[Answer] = ResultList()
        for filled in self.model.fill_blanks(ids, n, width=width, banned=self._no_answers()):
            rest = iter(filled.ids)
            fills = [self.text_field.decode([next(rest) for _ in range(count)]) for count in blanked.widths(tokens)]
            answers.append(Answer(tuple(fills), blanked.filled(self.text_field, fills), math.exp(filled.log_prob)))
        return answers

    @operation(
        "fill",
        OperationInputs(
            "Texts with blanks, such as 'i ___ hungry'; - reads one text per line.",
            missing="there is no text to fill",
            example='weft fill RUN "i ___ hungry"',
        ),
    )
    def fill_texts(
        self,
        texts: Iterable[str],
        *,
        n_best: Annotated[int, Option("How many answers to show.", min=1)] = 5,
        tokens: Annotated[
            int, Option("How many tokens a blank stands for; 0: as many as it has underscores.", min=0)
        ] = 1,
        width: Annotated[int, Option("Beam width where several tokens are missing.", min=1)] = BEAM_WIDTH,
        adapt: Adapt = None,
    ) -> Iterator[FilledText]:
        """Fill the blanks of a text: the most probable answers and their probabilities. An empty line stays empty."""
        model = self if adapt is None else self.adapt(adapt)
        for text in texts:
            if text.strip():
                yield FilledText(text, model.fill(text, n_best, tokens=tokens, width=width), model.unknown(text))
            else:
                yield FilledText(text, (), ())

    def _no_answers(self) -> list[int]:
        """Tokens that fill no blank: the reserved symbols and, among words, the line break."""
        vocabulary = self.text_field.vocabulary
        names = (*RESERVED, "\n") if isinstance(self.text_field.tokenizer, WordTokenizer) else RESERVED
        return [vocabulary.id(name) for name in names if name in vocabulary]

    def unknown(self, text: str) -> list[str]:
        """The tokens around the blanks that are not in the vocabulary and are read as <unk>."""
        return Blanked.read(check_text(text)).unknown(self.text_field)

    def notes(self, texts: Iterable[str], options: Mapping[str, Any] = NO_OPTIONS) -> list[str]:
        return [unknown_note(unknown, repr(text)) for text in texts if text.strip() and (unknown := self.unknown(text))]

    def adapt(self, method: str = "dynamic", *, dynamic: DynamicConfig | None = None) -> FillPredictor:
        """A model whose weights follow the text. This one, and its run, are not changed.

        Args:
            method: "dynamic": dynamic evaluation.
            dynamic: Its parameters. None: the defaults, with a learning rate fitted to the run's held-out text.

        Returns:
            A FillPredictor. `evaluate` adapts to the text that it has predicted, `fill` to the known tokens of a text.

        Raises:
            WeftError: The model is an HMM or an ensemble, or the run has no stored text.
        """
        from weft.tasks.fill.adapt import adapt_filler

        return adapt_filler(self, method, dynamic=dynamic)

    @operation("evaluate", command="eval")
    def evaluation(
        self, data: EvaluationData = None, *, against: Against = (), adapt: Adapt = None, strict: Strict = False
    ) -> EvaluationReport:
        """Predictions of a hidden token, beside baselines and other runs."""
        from weft.tasks.compare import compare_runs

        return compare_runs(self, against, data, adapt, strict=strict)

    def score_tokens(self, tokens: Tokens) -> TokenPredictions:
        return self.predict_tokens(tokens)

    @property
    def read_context(self) -> str:
        return self.context
