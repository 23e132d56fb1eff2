"""Language models that adapt to the text they read: by dynamic evaluation, by a neural cache, or by both.

The trained model is not changed. In evaluation each token is predicted from the text before it only. In generation the
weights adapt to the prompt and then stay; the cache holds the prompt and the text generated so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from weft.data.windows import Tokens
from weft.decoding import NO_TOKEN, Sampler
from weft.errors import WeftError, unknown_name
from weft.metrics import Likelihood, TokenPredictions
from weft.nn import map_state
from weft.tasks.lm.cache import SEGMENT, CacheConfig, CacheModel, CacheReader
from weft.tasks.lm.cache_fitting import fit_cache
from weft.tasks.lm.dynamic import RATE_TOKENS, DynamicConfig, DynamicModel, best_rate, gradient_rms
from weft.tasks.lm.interpolation import Interpolation, join_networks, likelihood
from weft.tasks.lm.model import LanguageModel
from weft.tasks.lm.ngram_mixture import NgramMixture
from weft.tasks.lm.predictor import LmPredictor, TokenModel
from weft.tasks.mixture import LINEAR, Array
from weft.tasks.stored_data import DEV_PART, is_stored
from weft.tasks.text_task import held_out_tokens, stored_tokens
from weft.training.run import Run

ADAPTATIONS = ("dynamic", "cache", "both")
CHUNKS, SEGMENTS = 8, 32  # of the training text, for the statistics of the gradient
CACHE_TOKENS = 10_000  # of the held-out text, for the parameters of the cache
CACHE_WEIGHT = 0.1  # of the cache in the interpolation, without held-out text


@dataclass(frozen=True)
class Adaptation:
    """How a model adapts.

    Attributes:
        dynamic: The parameters of dynamic evaluation; None: the weights stay.
        cache: The parameters of the cache; None: there is none.
        cache_weight: The weight of the cache in the interpolation.
    """

    dynamic: DynamicConfig | None = None
    cache: CacheConfig | None = None
    cache_weight: float = CACHE_WEIGHT

    def __post_init__(self) -> None:
        if not 0 <= self.cache_weight <= 1:
            raise WeftError(f"cache_weight is {self.cache_weight}", expected="0 to 1")

    def describe(self) -> dict[str, Any]:
        """The parameters as plain data."""
        found = {f"dynamic_{name}": value for name, value in vars(self.dynamic).items()} if self.dynamic else {}
        if self.cache is not None:
            found |= {f"cache_{name}": value for name, value in vars(self.cache).items()}
            found["cache_weight"] = self.cache_weight
        return found


class ReadSegment(NamedTuple):
    """A segment of a text as the model has read it."""

    outputs: Tensor  # (T, H) of the stack
    log_probs: Tensor  # (T, V) of the next token
    targets: Tensor  # (T,) the next token


class AdaptedModel(nn.Module):
    """A recurrent language model that adapts to the text it reads.

    As a `Stepper` it has the trained weights and, if there is one, the cache; `after` returns the model with weights
    that have adapted to a text.

    Args:
        network: the trained model.
        adaptation: how it adapts.
        rms: the statistics of the gradient, for the rule `rms`.
    """

    def __init__(self, network: LanguageModel, adaptation: Adaptation, rms: Sequence[Tensor] | None = None) -> None:
        super().__init__()
        self.network, self.adaptation, self.rms = network, adaptation, rms
        self.stepper = self._stepper(network)

    context = "left"

    def _stepper(self, network: LanguageModel) -> TokenModel:
        cache, weight = self.adaptation.cache, self.adaptation.cache_weight
        return network if cache is None else Interpolation([network, CacheModel(network, cache)], [1 - weight, weight])

    def initial_state(self, rows: int) -> Any:
        """Returns the state before any token."""
        return self.stepper.initial_state(rows)

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Reads ids (R,). Returns log-probabilities (R, V) of the next token, and the new state."""
        return self.stepper.step(ids, state)

    def select(self, state: Any, rows: Tensor) -> Any:
        """Returns the state of the given rows, which may repeat."""
        return self.stepper.select(state, rows)

    def after(self, tokens: Sequence[int]) -> TokenModel:
        """The model whose weights have adapted to a text. It has read nothing yet."""
        if self.adaptation.dynamic is None:
            return self.stepper
        adapted = DynamicModel(self.network, self.adaptation.dynamic, self.rms)
        for _ in read_dynamic(adapted, np.asarray(tokens), self.adaptation.dynamic.segment):
            pass
        return self._stepper(adapted.model.requires_grad_(False))

    def segments(self, tokens: Tokens) -> Iterator[ReadSegment]:
        """Reads a text from left to right and adapts to each segment after it was predicted."""
        dynamic = self.adaptation.dynamic
        if dynamic is None:
            return read_static(self.network, tokens)
        return read_dynamic(DynamicModel(self.network, dynamic, self.rms), tokens, dynamic.segment)

    def token_log_probs(self, tokens: Tokens) -> Array:
        """Computes log P of each token but the first of (N,), given all tokens before it: (N - 1,)."""
        reader = self._reader()
        found = []
        for outputs, log_probs, targets in self.segments(tokens):
            own = log_probs.gather(1, targets[:, None])[:, 0].double().numpy()
            found.append(own if reader is None else self._interpolate(own, reader.read(outputs, targets).numpy()))
        return np.concatenate(found) if found else np.zeros(0)

    def _reader(self) -> CacheReader | None:
        cache = self.adaptation.cache
        return None if cache is None else CacheReader(cache, self.network.vocabulary_size)

    def _interpolate(self, own: Array, cache: Array) -> Array:
        weight = self.adaptation.cache_weight
        with np.errstate(divide="ignore"):
            return LINEAR.join_targets(np.stack([own, np.log(cache)], 1), [1 - weight, weight])

    def evaluate(self, tokens: Tokens) -> Likelihood:
        """Computes the likelihood of the tokens (N,), each given all tokens before it."""
        return likelihood(self.token_log_probs(tokens))

    def predict_tokens(self, tokens: Tokens) -> TokenPredictions:
        """As `evaluate`, and counts how often the most probable token is the true one."""
        reader, weight = self._reader(), self.adaptation.cache_weight
        nats, correct, count = 0.0, 0, 0
        for outputs, log_probs, targets in self.segments(tokens):
            probs = log_probs.double().exp()
            if reader is not None:
                probs = (1 - weight) * probs + weight * reader.read_all(outputs, targets)
            nats -= float(probs.gather(1, targets[:, None]).log().sum())
            correct += int((probs.argmax(1) == targets).sum())
            count += len(targets)
        return TokenPredictions(Likelihood(nats, count), correct)


@torch.no_grad()
def read_static(network: LanguageModel, tokens: Tokens, segment: int = SEGMENT) -> Iterator[ReadSegment]:
    """Reads a text in segments, from left to right."""
    network.eval()
    ids, state = _as_ids(tokens), None
    for begin in range(0, len(ids) - 1, segment):
        read, state = _read(network, ids[begin : begin + segment + 1], state)
        yield read


def read_dynamic(adapted: DynamicModel[LanguageModel], tokens: Tokens, segment: int) -> Iterator[ReadSegment]:
    """The same; the weights are updated after each segment."""
    ids, state = _as_ids(tokens), None
    for begin in range(0, len(ids) - 1, segment):
        with torch.enable_grad():
            read, state = _read(adapted.model, ids[begin : begin + segment + 1], state)
            loss = -read.log_probs.gather(1, read.targets[:, None]).mean()
        state = map_state(Tensor.detach, state)
        adapted.update(loss)
        yield ReadSegment(read.outputs.detach(), read.log_probs.detach(), read.targets)


def _as_ids(tokens: Tokens) -> Tensor:
    return torch.from_numpy(np.asarray(tokens).astype(np.int64))


def _read(network: LanguageModel, ids: Tensor, state: Any) -> tuple[ReadSegment, Any]:
    """Reads all of ids (T + 1,) but the last."""
    outputs, state = network.stack(network.embed(ids[None, :-1].to(network.device)), state)
    return ReadSegment(outputs[0].cpu(), network.log_probs(outputs[0]).cpu(), ids[1:]), state


@dataclass(frozen=True, repr=False)
class AdaptedLmPredictor(LmPredictor):
    """A language model that adapts to the text it reads; `LmPredictor.adapt` makes it."""

    adaptation: Adaptation = Adaptation()

    def _new_tokens(
        self, starts: Sequence[Sequence[int]], tokens: int | None, sampler: Sampler, seed: int
    ) -> Iterator[list[int]]:
        if self.adaptation.dynamic is None:
            return super()._new_tokens(starts, tokens, sampler, seed)
        return self._new_tokens_each(starts, tokens, sampler, seed)

    def _new_tokens_each(
        self, starts: Sequence[Sequence[int]], tokens: int | None, sampler: Sampler, seed: int
    ) -> Iterator[list[int]]:
        """Each prompt has weights of its own, so each text is generated as if it were the only one."""
        rows = [
            LmPredictor(self.run, adapted_to(self.model, start), self.text_field)._new_tokens(
                [start], tokens, sampler, seed
            )
            for start in starts
        ]
        for new in zip_longest(*rows, fillvalue=[NO_TOKEN]):
            yield [token for row in new for token in row]


def adapted_to(model: TokenModel, tokens: Sequence[int]) -> TokenModel:
    """The model, or each network of an interpolation, with weights that have adapted to a text."""
    if isinstance(model, Interpolation):
        return Interpolation([adapted_to(one, tokens) for one in model.models], model.weights)
    return model.after(tokens) if isinstance(model, AdaptedModel) else model


def adapt(
    predictor: LmPredictor,
    method: str = "both",
    *,
    dynamic: DynamicConfig | None = None,
    cache: CacheConfig | None = None,
    cache_weight: float | None = None,
) -> AdaptedLmPredictor:
    """A language model that adapts to the text it reads. See `LmPredictor.adapt`."""
    if method not in ADAPTATIONS:
        raise unknown_name("the way to adapt", method, ADAPTATIONS)
    networks = _networks(predictor)
    wanted = Adaptation(
        (dynamic or DynamicConfig()) if method != "cache" else None,
        (cache or CacheConfig()) if method != "dynamic" else None,
        CACHE_WEIGHT if cache_weight is None else cache_weight,
    )
    run = predictor.run
    statistics = [gradient_statistics(network, run, wanted.dynamic) for network in networks]
    if is_stored(run, DEV_PART):
        dev = held_out_tokens(run, predictor.text_field)
        if dynamic is None and wanted.dynamic is not None:
            wanted = replace(
                wanted, dynamic=fit_rate(networks[0], wanted.dynamic, statistics[0], dev[: RATE_TOKENS + 1])
            )
        if cache is None and wanted.cache is not None:
            wanted = fit_adapted_cache(networks[0], wanted, statistics[0], dev[: CACHE_TOKENS + 1])
    models = [AdaptedModel(network, wanted, rms) for network, rms in zip(networks, statistics, strict=True)]
    model: TokenModel = models[0] if len(models) == 1 else join_networks(models)
    if isinstance(predictor.model, NgramMixture):
        model = predictor.model.replace_networks(models)
    return AdaptedLmPredictor(run, model, predictor.text_field, wanted)


def _networks(predictor: LmPredictor) -> list[LanguageModel]:
    """The networks of a recurrent language model: one, or the members of an ensemble."""
    model = predictor.model
    found = getattr(model, "members", ()) or (model,)
    networks = [one for one in found if isinstance(one, LanguageModel)]
    if len(networks) < len(found):
        raise WeftError(
            f"{predictor.run.path} is a run of the task {predictor.run.task!r}, which cannot adapt",
            expected="a run of `weft train lm` or `weft train fill`",
            hint="`weft mix`, which has a cache, for other language models",
        )
    return networks


def gradient_statistics(network: LanguageModel, run: Run, config: DynamicConfig | None) -> list[Tensor] | None:
    """The root mean square of each weight's gradient on the run's stored text, for the rule `rms`."""
    if config is None or config.rule != "rms":
        return None
    tokens, segment = stored_tokens(run, network.vocabulary_size), config.segment

    def losses(model: LanguageModel) -> Iterator[Tensor]:
        length = segment * SEGMENTS
        for begin in np.linspace(0, max(0, len(tokens) - length - 1), CHUNKS).astype(int):
            ids, state = _as_ids(tokens[begin : begin + length + 1]), None
            for at in range(0, len(ids) - 1, segment):
                read, state = _read(model, ids[at : at + segment + 1], state)
                state = map_state(Tensor.detach, state)
                yield -read.log_probs.gather(1, read.targets[:, None]).mean()

    return gradient_rms(network, losses)


def fit_rate(network: LanguageModel, config: DynamicConfig, rms: Sequence[Tensor] | None, dev: Tokens) -> DynamicConfig:
    """Selects the learning rate by the likelihood of held-out text."""

    def nats(one: DynamicConfig) -> float:
        return AdaptedModel(network, Adaptation(one), rms).evaluate(dev).nats

    return best_rate(config, nats) if len(dev) > 1 else config


def fit_adapted_cache(
    network: LanguageModel, wanted: Adaptation, rms: Sequence[Tensor] | None, dev: Tokens
) -> Adaptation:
    """Fits theta and the weight of the cache to held-out text, which the network reads as it will read other text."""
    if len(dev) < 2:
        return wanted
    assert wanted.cache is not None
    own, segments = [], []
    for outputs, log_probs, targets in AdaptedModel(network, wanted, rms).segments(dev):
        own.append(log_probs.gather(1, targets[:, None]).double())
        segments.append((outputs, targets))
    fitted = fit_cache(segments, torch.cat(own).numpy(), network.vocabulary_size, wanted.cache.size)
    return replace(wanted, cache=fitted.config, cache_weight=float(fitted.weights[-1]))
