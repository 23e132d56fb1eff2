"""A trained translator in use: translations with their scores and attention weights, and its evaluation."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch

from weft import html
from weft.data.buckets import in_batches, pad
from weft.data.column import IntArray
from weft.decoding import Hypothesis, beam_search
from weft.errors import WeftError, warn
from weft.metrics import Likelihood, Translations
from weft.metrics.bleu import bleu_of_sums
from weft.metrics.paired import ExampleStatistics, ratio
from weft.tasks.operation import EvaluationData, EvaluationReport, OperationInputs, Option, Strict, operation
from weft.tasks.predictor import NO_OPTIONS, ResultList, TaskPredictor, example_of
from weft.tasks.stored_data import DEV_PART, is_stored
from weft.tasks.text_task import unknown_note
from weft.tasks.translate.config import TranslateConfig
from weft.tasks.translate.data import held_out_pairs, read_pairs
from weft.tasks.translate.language_detection import LanguageProfile, load_profiles
from weft.tasks.translate.model import BOS_ID, TranslationBatch, Translator, TranslatorMixture, last_weights
from weft.text.columns import read_rows
from weft.text.parallel import SOURCE_NAMES, PairFields, Pairs, PairSource
from weft.text.subword_tokenizer import SubwordTokenizer
from weft.text.tables import TEXT_NAMES
from weft.text.text_field import Text
from weft.text.vocabulary import EOS, RESERVED, UNK
from weft.training.run import Run

END = RESERVED.index(EOS)
LENGTH_PENALTY = 1.0
TOKENS, ROWS = 1 << 16, 2560  # source tokens and hypotheses in a batch


def make_translator(fields: PairFields, config: TranslateConfig) -> Translator:
    return Translator(len(fields.source.vocabulary), len(fields.target.vocabulary), config.model)


def sentences(
    sources: Sequence[Sequence[int] | IntArray], targets: Sequence[Sequence[int] | IntArray]
) -> TranslationBatch:
    """Encoded pairs as a batch; both sides end with <eos>."""
    return TranslationBatch(pad([[*row, END] for row in sources]), pad([[*row, END] for row in targets]))


Beam = Annotated[int, Option("Beam width; 1: greedy search.", min=1)]
Weights = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Translation:
    """One translation of a sentence."""

    text: str
    score: float  # log_prob / length^alpha
    log_prob: float
    tokens: tuple[str, ...]  # of the translation, <eos> included
    source: tuple[str, ...]  # tokens of the source as the model read it, <eos> included
    attention: Weights = ()  # of each token over the source tokens, where requested
    cut: int = 0  # tokens of the source beyond text.max_tokens, which were not read

    def _repr_html_(self) -> str:
        """The translation and, where it was recorded, its attention over the source, for notebooks."""
        title = html.heading(self.text, {"log probability": f"{self.log_prob:.2f}", "score": f"{self.score:.2f}"})
        if not self.attention:
            return html.box(title)
        rows = []
        for token, weights in zip(self.tokens, self.attention, strict=True):
            notes = [f"{token} from {source}: {share:.3f}" for source, share in zip(self.source, weights, strict=True)]
            shown = [f"{share:.2f}".lstrip("0") if share >= 0.005 else "" for share in weights]
            rows.append((token, list(zip(shown, weights, notes, strict=True))))
        return html.box(title + html.table(rows, self.source, "from"))


@dataclass(frozen=True)
class TranslatedText:
    """The translations of a text, best first; none of an empty text."""

    text: str
    translations: Sequence[Translation]
    unknown: Sequence[str]
    scored: bool = False  # show each translation with its score
    attention: bool = False  # and which source tokens each token attends to

    def to_text(self, number: int) -> str:
        if not self.scored:
            return (self.translations[0].text.replace("\n", " ") if self.translations else "") + "\n"
        return (
            ("\n" if number else "") + "\n".join(line for one in self.translations for line in self._lines(one)) + "\n"
        )

    def _lines(self, found: Translation) -> Iterator[str]:
        yield f"{found.score:8.4f}  {found.text}"
        wide = max(map(len, found.tokens))
        for token, weights in zip(found.tokens, found.attention if self.attention else (), strict=False):
            top = sorted(range(len(weights)), key=lambda place: -weights[place])[:3]
            sources = "   ".join(f"{found.source[place].strip()} {weights[place]:.2f}" for place in top)
            yield f"{'':10}{token.strip():{wide}}  <- {sources}"

    def to_json(self) -> dict[str, Any]:
        translations = [asdict(one) for one in self.translations]
        return {"source": self.text, "translations": translations, "unknown": self.unknown}


class _Source(NamedTuple):
    """A sentence as the model reads it, <eos> included."""

    ids: list[int]
    tokens: tuple[str, ...]
    cut: int


class _Options(NamedTuple):
    n: int
    beam: int
    length_penalty: float
    banned: list[int]
    attention: bool  # record the weights
    prefix: list[int]


@dataclass(frozen=True, repr=False)
class TranslatePredictor(TaskPredictor):
    """A trained translator, ready for use."""

    run: Run
    model: Translator | TranslatorMixture
    fields: PairFields
    config: TranslateConfig

    @property
    def text_field(self) -> Text:
        """The field of the texts to translate."""
        return self.fields.source

    @property
    def example(self) -> str:
        return example_of(self.text_field, 5).strip()

    @property
    def language_profiles(self) -> tuple[LanguageProfile, ...]:
        """What texts of both languages look like, to detect a language; empty: the run does not know it."""
        return load_profiles(self.run) or ()

    def translate(
        self, texts: Iterable[Any], *, beam: int = 5, length_penalty: float = LENGTH_PENALTY, copy_unknown: bool = False
    ) -> ResultList[str]:
        """The best translation of each text, "" of one that is empty or missing. See `n_best` for the arguments."""
        found = self.n_best(texts, 1, beam=beam, length_penalty=length_penalty, copy_unknown=copy_unknown)
        best = (alternatives[0].text if alternatives else "" for alternatives in found)
        return ResultList(best, index=found.row_index, column="translation")

    @operation(
        "translate",
        OperationInputs(
            "Sentences to translate; - reads one per line from standard input.",
            "Sentences to translate, one per line: a path, .gz, or - for standard input.",
            missing="there is no text to translate",
            example='weft translate RUN "I am home.", or weft translate RUN --file sentences.txt',
        ),
    )
    def translate_texts(
        self,
        texts: Iterable[str],
        *,
        beam: Beam = 5,
        length_penalty: Annotated[
            float, Option("Exponent of the length in the score log P / length^x; larger favours longer outputs.", min=0)
        ] = LENGTH_PENALTY,
        n_best: Annotated[int, Option("How many translations to show of each, with scores.", min=1)] = 1,
        copy_unknown: Annotated[bool, Option("Replace an unknown word by the source word it attends to most.")] = False,
        attention: Annotated[bool, Option("Show which source tokens each token attends to.")] = False,
        prefix: Annotated[tuple[str, ...], Option("A target token that the translation begins with; repeatable.")] = (),
    ) -> Iterator[TranslatedText]:
        """Translate sentences: one line for each, in their order."""
        texts = list(texts)
        found = self.n_best(
            texts,
            n_best,
            beam=max(beam, n_best),
            length_penalty=length_penalty,
            copy_unknown=copy_unknown,
            attention=attention,
            prefix=prefix,
        )
        for text, best in zip(texts, found, strict=True):
            yield TranslatedText(text, best, self.unknown(text), n_best > 1 or attention, attention)

    def n_best(
        self,
        texts: Iterable[Any],
        n: int,
        *,
        beam: int = 5,
        length_penalty: float = LENGTH_PENALTY,
        copy_unknown: bool = False,
        attention: bool = False,
        prefix: Sequence[str] = (),
    ) -> ResultList[ResultList[Translation]]:
        """The best translations of each text, in batches of similar length.

        Args:
            texts: Sentences to translate: a list, Series, array or generator, or a table such as a DataFrame, of which
                the source column of the training data is read, or one with a usual name.
            n: How many translations to return for each; none for a text that is empty or missing.
            beam: Beam width; 1 is greedy search.
            length_penalty: The score is log P / length^length_penalty; larger values favour longer outputs.
            copy_unknown: Let the model write <unk>, and replace it by the source token it attends to most.
            attention: Also return the attention weights.
            prefix: Target tokens that every translation begins with.

        Returns:
            Up to `n` translations of each text, best first.
        """
        if (copy_unknown or attention) and not self.model.has_attention:
            raise WeftError(
                f"{self.run.path} was trained with model.decoder={self.config.model.decoder}",
                expected="a decoder with attention, which says where a word comes from",
                hint="a run trained with `model.decoder=attend_after`",
            )
        for name, number in (("n", n), ("beam", beam)):
            if not isinstance(number, int) or number < 1:
                raise WeftError(f"translate: {name} is {number!r}", expected="a whole number, 1 or more")
        if not (math.isfinite(length_penalty) and length_penalty >= 0):
            raise WeftError(f"translate: length_penalty is {length_penalty}", expected="a number, 0 or more")
        (like,) = self.run.column_names("source")
        rows_given = read_rows(texts, like, (*SOURCE_NAMES, *TEXT_NAMES))
        texts = rows_given.texts()
        sources = [self._read(text) for text in texts if text.strip()]
        self._warn_cut(sources)
        banned = [RESERVED.index(name) for name in RESERVED if name != EOS and not (copy_unknown and name == UNK)]
        for token in prefix:
            if token not in self.fields.target.vocabulary or token in RESERVED:
                raise WeftError(f"translate: the prefix has {token!r}", expected="tokens of the target vocabulary")
        begin = self.fields.target.vocabulary.encode(prefix)
        options = _Options(n, beam, length_penalty, banned, attention=attention or copy_unknown, prefix=begin)
        lengths = np.array([len(source.ids) for source in sources])

        def run(rows: IntArray) -> list[list[Translation]]:
            return self.translate_batch([sources[row] for row in rows], options)

        found = iter(in_batches(lengths, run, max_tokens=max(1, TOKENS // beam), size=max(1, ROWS // beam)))
        results = (ResultList(next(found) if text.strip() else ()) for text in texts)
        return ResultList(results, index=rows_given.index)

    def _warn_cut(self, sources: Sequence[_Source]) -> None:
        """Warns that some texts are read in part."""
        long, limit = [source for source in sources if source.cut], self.config.text.max_tokens
        if not long:
            return
        begin = self.fields.source.tokenizer.join(long[0].tokens[: min(limit, 10)])[:40]
        others = f"; so for {len(long) - 1:,} more" if len(long) > 1 else ""
        warn(
            f"{begin!r}... has {limit + long[0].cut} tokens; only the first {limit} are translated "
            f"(text.max_tokens={limit}){others}"
        )

    @torch.no_grad()
    def translate_batch(self, sources: list[_Source], options: _Options) -> list[list[Translation]]:
        self.model.eval()
        rows = pad([source.ids for source in sources])
        stepper: Any = self.model.stepper(rows)
        found = beam_search(
            stepper,
            [[BOS_ID, *options.prefix]] * len(sources),
            width=options.beam,
            tokens=[most_tokens(len(source.ids)) for source in sources],
            end=END,
            alpha=options.length_penalty,
            n_best=options.n,
            banned=options.banned,
            record=last_weights if options.attention else None,
        )
        return [
            [self._translation(source, self._with_prefix(source, one, options)) for one in hypotheses]
            for source, hypotheses in zip(sources, found, strict=True)
        ]

    def _with_prefix(self, source: _Source, found: Hypothesis, options: _Options) -> Hypothesis:
        """A continuation of a prefix as a whole translation: scored, and with weights, from its first token on."""
        if not options.prefix:
            return found
        ids = [*options.prefix, *found.ids]
        batch = TranslationBatch(pad([source.ids]), pad([[*ids, END]]))
        length = len(ids) + found.ended
        log_prob = -float(self.model.token_losses(batch)[0, :length].double().sum())
        weights = self.model.attention_weights(batch)[0, :length].cpu() if options.attention else None
        return Hypothesis(tuple(ids), log_prob, log_prob / length**options.length_penalty, found.ended, weights)

    def _translation(self, source: _Source, found: Hypothesis) -> Translation:
        target = self.fields.target
        tokens = target.vocabulary.decode(found.ids)
        # Sources of a batch are padded: the weights of a hypothesis cover the longest of them.
        weights = () if found.recorded is None else found.recorded[:, : len(source.ids)].tolist()
        for place, token in enumerate(tokens):
            if token == UNK and weights and len(source.tokens) > 1:
                attended = weights[place][:-1]  # not <eos>
                tokens[place] = source.tokens[attended.index(max(attended))]
        text = target.tokenizer.join(tokens)
        ends = (EOS,) if found.ended else ()
        return Translation(
            text.strip(),
            found.score,
            found.log_prob,
            (*tokens, *ends),
            source.tokens,
            tuple(map(tuple, weights)),
            source.cut,
        )

    def _read(self, text: str) -> _Source:
        source, most = self.fields.source, self.config.text.max_tokens
        tokens = split_whole(source, text)
        ids = source.vocabulary.encode(tokens[:most])
        return _Source([*ids, END], (*tokens[:most], EOS), max(0, len(tokens) - most))

    def unknown(self, text: str) -> list[str]:
        """The tokens of a text that are not in the vocabulary and are read as <unk>."""
        return self.fields.source.unknown(text)

    def notes(self, texts: Iterable[str], options: Mapping[str, Any] = NO_OPTIONS) -> list[str]:
        """What a user should know about these texts: their unknown tokens."""
        return [unknown_note(unknown, repr(text)) for text in texts if (unknown := self.unknown(text))]

    @torch.no_grad()
    def sentence_likelihoods(self, pairs: Pairs) -> list[Likelihood]:
        """The likelihood of the tokens of each given translation, <eos> included."""
        self.model.eval()
        sources = [self._read(source).ids[:-1] for source in pairs.sources]
        targets = [self.fields.target.encode(target) for target in pairs.targets]
        lengths = np.array([[len(source), len(target)] for source, target in zip(sources, targets, strict=True)]) + 1

        def run(rows: IntArray) -> list[float]:
            batch = sentences([sources[row] for row in rows], [targets[row] for row in rows])
            nats: list[float] = self.model.token_losses(batch).double().sum(1).tolist()
            return nats

        nats = in_batches(lengths, run) if len(pairs) else []
        return [Likelihood(one, int(length[1])) for one, length in zip(nats, lengths, strict=False)]

    def likelihood(self, pairs: Pairs) -> Likelihood:
        """The likelihood of all tokens of given translations, <eos> included."""
        return sum(self.sentence_likelihoods(pairs), Likelihood(0.0, 0))

    def read(self, source: PairSource, *, strict: bool = False) -> Pairs:
        """Pairs to evaluate on, read in the same way as the training data; see `evaluate`."""
        return read_pairs(
            source, self.config, like=tuple(filter(None, self.run.column_names("source", "target"))), strict=strict
        )

    def evaluate(
        self, source: PairSource, *, beam: int = 5, length_penalty: float = LENGTH_PENALTY, strict: bool = False
    ) -> Translations:
        """Translates the sources of pairs and compares the results with their targets.

        Args:
            source: A path, a name, Pairs, pairs of strings, or a table: a DataFrame, a data set, a dict of columns,
                dicts.
            beam: Beam width; see `n_best`.
            length_penalty: See `n_best`.
            strict: Refuse pairs of which a side is empty, which are left out and reported otherwise.
        """
        pairs = self.read(source, strict=strict)
        # A source that occurs in several pairs is translated once.
        different = list(dict.fromkeys(pairs.sources))
        texts = self.translate(different, beam=beam, length_penalty=length_penalty)
        found = dict(zip(different, texts, strict=True))
        return Translations.of([found[source] for source in pairs.sources], map(self._as_written, pairs.targets))

    def _as_written(self, text: str) -> str:
        """A reference as it is compared: normalized and, with the space tokenizer, with spaces between its tokens."""
        target = self.fields.target
        text = target.normalizer(text)
        return target.tokenizer.join(target.tokenizer.split(text)) if target.tokenizer.name == "space" else text

    @operation("evaluate", command="eval")
    def evaluation(self, data: EvaluationData = None, *, beam: Beam = 5, strict: Strict = False) -> EvaluationReport:
        """BLEU, chrF and exact matches."""
        pairs = None if data is None else self.read(data, strict=strict)
        found = self.evaluate_held_out(beam=beam) if pairs is None else self.evaluate(pairs, beam=beam)
        scores = {"bleu": found.bleu, "chrf": found.chrf, "exact": found.exact}
        lines = [
            f"BLEU         {found.bleu:.2f}",
            f"chrF         {found.chrf:.2f}",
            f"exact match  {found.exact:.2%}",
            f"{len(found):,} pairs, beam {beam}; {found.signature()}",
        ]
        left_out = {} if pairs is None else {"left_out": pairs.left_out}
        record = {"pairs": len(found), **left_out, "beam": beam, **scores, "signature": found.signature()}
        return self.report(record, lines, [f"{data}: {pairs.reading}"] if pairs and pairs.reading else [])

    def evaluate_held_out(self, *, beam: int = 5, length_penalty: float = LENGTH_PENALTY) -> Translations:
        """Evaluates on the run's own held-out pairs."""
        return self.evaluate(held_out_pairs(self.run), beam=beam, length_penalty=length_penalty)

    def held_out_metrics(self) -> dict[str, float]:
        return pair_metrics(self, held_out_pairs(self.run)) if is_stored(self.run, DEV_PART) else {}

    def held_out_texts(self) -> Iterator[str]:
        return iter(held_out_pairs(self.run).sources if is_stored(self.run, DEV_PART) else ())

    def held_out_statistics(self) -> tuple[ExampleStatistics, ...]:
        """BLEU of greedy translations, as evaluations during training have it, and the cross-entropy of references."""
        pairs = held_out_pairs(self.run)
        found, nats = self.evaluate(pairs, beam=1), self.sentence_likelihoods(pairs)
        references = _digest(found.references)
        target = _digest(self.fields.target.to_json())
        sums = np.array([[one.nats, one.count] for one in nats], dtype=np.float64).reshape(len(nats), 2)
        entropy = f"cross_entropy|target vocabulary:{target}"
        return (
            ExampleStatistics(
                "bleu", "sentence", f"BLEU|references:{references}", found.bleu_statistics(), bleu_of_sums
            ),
            ExampleStatistics("cross_entropy", "sentence", entropy, sums, ratio, higher_is_better=False),
        )


def pair_metrics(predictor: TranslatePredictor, pairs: Pairs) -> dict[str, float]:
    """The metrics of greedy translations, and the likelihood of the references."""
    likelihood, found = predictor.likelihood(pairs), predictor.evaluate(pairs, beam=1)
    metrics = {"bleu": found.bleu, "exact": found.exact, "perplexity": likelihood.perplexity}
    return {"cross_entropy": likelihood.cross_entropy, **metrics}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=False, sort_keys=True).encode()).hexdigest()[:12]


def most_tokens(source: int) -> int:
    """The longest translation searched for, <eos> included, of a source with so many tokens."""
    return 2 * source + 10


def split_whole(text_field: Text, text: str) -> list[str]:
    """The tokens of a text, unknown ones included: where the subword tokenizer has <unk>, the character itself."""
    text = text_field.normalizer(text)
    tokens = text_field.tokenizer.split(text)
    if text_field.tokenizer.name != SubwordTokenizer.name or UNK not in tokens:
        return tokens
    place = 0
    for number, token in enumerate(tokens):
        if token == UNK:
            tokens[number] = text[place]
        place += len(tokens[number])
    return tokens
