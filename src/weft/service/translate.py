"""Translation: train a translator on sentence pairs, load it, let it translate, measure it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from weft.buckets import Buckets, Numbers, Padded, Ragged, hold_out, in_batches, load_columns, pad, save_columns
from weft.cells import State
from weft.config import TranslateConfig, from_dict
from weft.decode import Hypothesis, beam
from weft.errors import WeftError
from weft.metrics import Likelihood, Translations
from weft.models.base import Loss
from weft.models.translator import BEGIN, Sentences, Translator
from weft.run import Run
from weft.service.training import Prepared, Store, Task, Training, device, resume_training, start_training
from weft.text.codec import Codec
from weft.text.parallel import PairCodec, Pairs, make_codecs, open_pairs
from weft.text.subwords import SubwordTokenizer
from weft.text.vocabulary import EOS, RESERVED, UNK
from weft.train import Evaluation, Trainer

TRAIN, DEV = "data/train.npz", "data/dev.json"
END = RESERVED.index(EOS)
LENGTH_PENALTY = 0.75
TOKENS, ROWS = 1 << 15, 1280  # source tokens and hypotheses that are held at a time while translating


def start_translate(
    source: str | Pairs, out: str | Path, config: TranslateConfig, *, dev: str | Pairs | None = None
) -> Training:
    """Prepare the pairs, make the run directory with all that resuming needs, and stand before the first step."""
    return start_training(TRANSLATE, source, out, config, dev=dev)


def train_translate(
    source: str | Pairs, out: str | Path, config: TranslateConfig | None = None, *, dev: str | Pairs | None = None
) -> Translating:
    """Train a translator to the end, in silence, and load it. `start_translate` lets you watch."""
    training = start_translate(source, out, config or TranslateConfig(), dev=dev)
    for _ in training.trainer.run():
        pass
    return load_translate(training.run)


def resume_translate(run: Run, config: TranslateConfig | None = None, *, source: str | None = None) -> Training:
    """Stand where the run's last save stood; see `resume_training`."""
    return resume_training(TRANSLATE, run, config, source=source)


def _opened(source: str | Pairs, config: TranslateConfig) -> Pairs:
    text = config.text
    if isinstance(source, Pairs):
        return source
    return open_pairs(source, source_column=text.source_column, target_column=text.target_column)


def _open(source: str | Pairs, dev: str | Pairs | None, config: TranslateConfig) -> Store:
    """Equal sources stay on one side, with all their translations: else the model would be asked what it was told."""
    pairs = _opened(source, config)
    if config.text.limit:
        pairs = Pairs(pairs.name, pairs.sources[: config.text.limit], pairs.targets[: config.text.limit])
    if not len(pairs):
        raise WeftError(f"{pairs.name} has no pairs", expected="sentences with their translations")
    if dev is not None:
        train, held = pairs, _opened(dev, config)
    else:
        rows, held_rows = hold_out(pairs.sources, config.text.holdout, config.train.seed)
        train, held = _rows(pairs, rows), _rows(pairs, held_rows)

    def store(data: Path) -> Mapping[str, Any]:
        codec = make_codecs(config.text, train)
        columns = {
            "source": Ragged.of(map(codec.source.encode, train.sources)),
            "target": Ragged.of(map(codec.target.encode, train.targets)),
        }
        save_columns(data / Path(TRAIN).name, columns)
        if len(held):  # as text, since that is what translations are compared with
            text = json.dumps({"sources": held.sources, "targets": held.targets}, ensure_ascii=False)
            (data / Path(DEV).name).write_text(text, encoding="utf-8")
        return codec.to_json()

    return store


def _rows(pairs: Pairs, rows: Sequence[int]) -> Pairs:
    return Pairs(pairs.name, [pairs.sources[row] for row in rows], [pairs.targets[row] for row in rows])


def held_out_pairs(run: Run) -> Pairs:
    """The pairs of a run's own that its model was not trained on."""
    if not run.has(DEV):
        raise WeftError(f"{run.path} holds out no pairs", expected="pairs to measure on", hint="--data PATH")
    text = json.loads((run.path / DEV).read_text(encoding="utf-8"))
    return Pairs(f"held out of {run.path}", text["sources"], text["targets"])


def _prepare(run: Run, config: TranslateConfig) -> Prepared:
    codec = PairCodec.from_json(run.vocabulary)
    columns = load_columns(run.path / TRAIN)
    lengths = np.stack([columns[name].lengths for name in ("source", "target")], 1)
    short = np.flatnonzero(lengths.max(1) <= config.text.max_tokens)
    if not len(short):
        raise WeftError(
            f"every pair has more than {config.text.max_tokens} tokens on a side",
            expected="some that have fewer",
            hint=f"--set text.max_tokens={int(lengths.max(1).min())}",
        )

    def collate(numbers: Numbers) -> Sentences:
        rows = short[numbers]
        return sentences([columns["source"][row] for row in rows], [columns["target"][row] for row in rows])

    buckets = Buckets(lengths[short] + 1, config.batch.tokens, config.batch.size, config.train.seed, collate)
    model = _model(codec, config).to(device(config.train.device))
    dev = held_out_pairs(run) if run.has(DEV) else None
    translating = Translating(run, model, codec, config)

    def objective(batch: Sentences, carried: State) -> Loss:
        done = trainer.place.step / max(1, trainer.total)
        return model.loss(batch, smoothing=config.train.smoothing, sampling=config.train.sampling * done)

    def evaluate() -> Evaluation:
        assert dev is not None
        likelihood, found = translating.likelihood(dev), translating.measure(dev, beam=1)
        facts = {"bleu": found.bleu, "exact": found.exact, "perplexity": likelihood.perplexity}
        return Evaluation(likelihood.nats_per_token, {"nats": likelihood.nats_per_token, **facts})

    trainer = Trainer(model, buckets, objective, config.train, evaluate=None if dev is None else evaluate, run=run)
    sizes = dict.fromkeys([len(codec.source.vocabulary), len(codec.target.vocabulary)])
    about = (
        f"{len(short):,} pairs to train on ({lengths[short, 0].sum():,} and {lengths[short, 1].sum():,} "
        f"{codec.source.tokenizer.level} tokens), {0 if dev is None else len(dev):,} held out, "
        f"{'joint vocabulary' if codec.joint else 'vocabularies'} of {' and '.join(f'{size:,}' for size in sizes)}"
    )
    if left := len(lengths) - len(short):
        about += f"; {left:,} pairs of more than {config.text.max_tokens} tokens left out"
    return Prepared(trainer, None, about)


TRANSLATE = Task("translate", TranslateConfig, _open, _prepare, "bleu")


def _model(codec: PairCodec, config: TranslateConfig) -> Translator:
    return Translator(len(codec.source.vocabulary), len(codec.target.vocabulary), config.model)


def sentences(sources: Sequence[Sequence[int] | Numbers], targets: Sequence[Sequence[int] | Numbers]) -> Sentences:
    """Encoded pairs as a batch: both sides end with <eos>."""
    return Sentences(pad([[*row, END] for row in sources]), pad([[*row, END] for row in targets]))


@dataclass(frozen=True)
class Translation:
    """One way to translate a sentence."""

    text: str
    score: float  # log_prob / length^alpha
    log_prob: float
    tokens: tuple[str, ...]  # of the translation, the end included
    source: tuple[str, ...]  # tokens of the source as the model read it, the end included
    attention: tuple[tuple[float, ...], ...] = ()  # of each token, over the source's; where the model attends
    cut: int = 0  # tokens of the source that were beyond the limit, and not read


@dataclass(frozen=True)
class Translating:
    """A trained translator, ready for use."""

    run: Run
    model: Translator
    codec: PairCodec
    config: TranslateConfig

    def translate(
        self,
        texts: Sequence[str],
        *,
        beam: int = 5,
        length_penalty: float = LENGTH_PENALTY,
        copy_unknown: bool = False,
    ) -> list[str]:
        """The best translation of each text; a beam of 1 is greedy. See `n_best`."""
        found = self.n_best(texts, 1, beam=beam, length_penalty=length_penalty, copy_unknown=copy_unknown)
        return [best[0].text for best in found]

    def n_best(
        self,
        texts: Sequence[str],
        n: int,
        *,
        beam: int = 5,
        length_penalty: float = LENGTH_PENALTY,
        copy_unknown: bool = False,
        attention: bool = False,
    ) -> list[list[Translation]]:
        """Up to `n` translations of each text, best first, by log P / length^length_penalty.

        All texts are translated in batches of similar length. A translation never has <unk> in it, unless
        `copy_unknown` lets the model write one, and puts the source token in its place that it attends to most.
        """
        if copy_unknown and not self.model.attends:
            raise WeftError(
                f"copying unknown words from a model with model.decoder={self.config.model.decoder}",
                expected="a model with attention, which says where a word comes from",
                hint="train with model.decoder=attend_after",
            )
        sources = [self._read(text) for text in texts]
        banned = [RESERVED.index(name) for name in RESERVED if name != EOS and not (copy_unknown and name == UNK)]
        options = _Options(n, beam, length_penalty, banned, aligned=attention or copy_unknown)
        lengths = np.array([len(source.ids) for source in sources])

        def run(rows: Numbers) -> list[list[Translation]]:
            return self._translate([sources[row] for row in rows], options)

        return in_batches(lengths, run, tokens=TOKENS // beam, rows=max(1, ROWS // beam))

    @torch.no_grad()
    def _translate(self, sources: list[_Source], options: _Options) -> list[list[Translation]]:
        self.model.eval()
        rows = pad([source.ids for source in sources])
        found = beam(
            self.model.stepper(rows),
            [[BEGIN]] * len(sources),
            width=options.beam,
            tokens=[most_tokens(len(source.ids)) for source in sources],
            end=END,
            alpha=options.length_penalty,
            n_best=options.n,
            banned=options.banned,
        )
        weights = self._weights(rows, found) if options.aligned else None
        return [
            [self._written(source, hypothesis, () if weights is None else next(weights)) for hypothesis in hypotheses]
            for source, hypotheses in zip(sources, found, strict=True)
        ]

    def _weights(self, rows: Padded, found: Sequence[Sequence[Hypothesis]]) -> Iterator[Weights]:
        """The attention of all translations, each over its own source, by reading them once more, all at once."""
        owners = torch.tensor([row for row, hypotheses in enumerate(found) for _ in hypotheses])
        targets = pad([[*one.ids, END] if one.ended else one.ids for hypotheses in found for one in hypotheses])
        weights = self.model.align(Sentences(Padded(rows.ids[owners], rows.lengths[owners]), targets))
        for row, owner, length in zip(weights, owners, targets.lengths, strict=True):
            yield tuple(map(tuple, row[:length, : rows.lengths[owner]].tolist()))

    def _written(self, source: _Source, found: Hypothesis, weights: Weights) -> Translation:
        codec = self.codec.target
        tokens = codec.vocabulary.decode(found.ids)
        for place, token in enumerate(tokens):
            if token == UNK and weights and len(source.tokens) > 1:
                attended = weights[place][:-1]  # not the end
                tokens[place] = source.tokens[attended.index(max(attended))]
        text = codec.tokenizer.join(tokens)
        ends = (EOS,) if found.ended else ()
        return Translation(
            text.strip(), found.score, found.log_prob, (*tokens, *ends), source.tokens, weights, source.cut
        )

    def _read(self, text: str) -> _Source:
        codec, most = self.codec.source, self.config.text.max_tokens
        tokens = split_whole(codec, text)
        ids = codec.encode(text)
        return _Source([*ids[:most], END], (*tokens[:most], EOS), max(0, len(ids) - most))

    def unknown(self, text: str) -> list[str]:
        """The tokens of a text that the model does not know and reads as <unk>."""
        return self.codec.source.unknown(text)

    @torch.no_grad()
    def likelihood(self, pairs: Pairs) -> Likelihood:
        """How well the model foretells the tokens of given translations, ends included."""
        self.model.eval()
        sources = [self._read(source).ids[:-1] for source in pairs.sources]
        targets = [self.codec.target.encode(target) for target in pairs.targets]
        lengths = np.array([[len(source), len(target)] for source, target in zip(sources, targets, strict=True)]) + 1

        def run(rows: Numbers) -> list[float]:
            batch = sentences([sources[row] for row in rows], [targets[row] for row in rows])
            nats: list[float] = self.model.nats(batch).double().sum(1).tolist()
            return nats

        return Likelihood(sum(in_batches(lengths, run)), int(lengths[:, 1].sum()))

    def measure(self, source: str | Pairs, *, beam: int = 5, length_penalty: float = LENGTH_PENALTY) -> Translations:
        """Translate the sources of pairs, and hold the results against their targets: a path, a name, or Pairs."""
        pairs = _opened(source, self.config)
        # Pairs of the same source need its translation once.
        different = list(dict.fromkeys(pairs.sources))
        texts = self.translate(different, beam=beam, length_penalty=length_penalty)
        found = dict(zip(different, texts, strict=True))
        normal = self.codec.target.normalizer
        return Translations.of([found[source] for source in pairs.sources], map(normal, pairs.targets))

    def measure_held_out(self, *, beam: int = 5, length_penalty: float = LENGTH_PENALTY) -> Translations:
        """The same for the pairs of its own that the model was not trained on."""
        return self.measure(held_out_pairs(self.run), beam=beam, length_penalty=length_penalty)


Weights = tuple[tuple[float, ...], ...]


class _Source(NamedTuple):
    """A sentence as the model reads it, its end included."""

    ids: list[int]
    tokens: tuple[str, ...]
    cut: int


class _Options(NamedTuple):
    n: int
    beam: int
    length_penalty: float
    banned: list[int]
    aligned: bool


def most_tokens(source: int) -> int:
    """The longest translation that is looked for, the end included, of so many source tokens."""
    return 2 * source + 10


def split_whole(codec: Codec, text: str) -> list[str]:
    """The tokens of a text, those without a number too: where sub-words say <unk>, the character that stands there."""
    text = codec.normalizer(text)
    tokens = codec.tokenizer.split(text)
    if codec.tokenizer.level != SubwordTokenizer.level or UNK not in tokens:
        return tokens
    place = 0
    for number, token in enumerate(tokens):
        if token == UNK and not text.startswith(UNK, place):
            tokens[number] = text[place]
        place += len(tokens[number])
    return tokens


def load_translate(run: Run) -> Translating:
    """The model of a run, with its best weights (or its newest, while there are no best ones)."""
    codec, config = PairCodec.from_json(run.vocabulary), from_dict(TranslateConfig, run.config)
    model = _model(codec, config)
    model.load_state_dict(run.weights())
    return Translating(run, model.eval(), codec, config)
