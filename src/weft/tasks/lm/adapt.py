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
from weft.tasks.lm.cache import CacheConfig, CacheModel, CacheReader, fit_cache
from weft.tasks.lm.dynamic import RATE_TOKENS, DynamicConfig, DynamicModel, best_rate, gradient_rms
from weft.tasks.lm.interpolation import Interpolation, likelihood, networks_of
from weft.tasks.lm.model import LanguageModel
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
    """How a model adapts."""

    dynamic: DynamicConfig | None = None  # the parameters of dynamic evaluation; None: the weights stay
    cache: CacheConfig | None = None
    cache_weight: float = CACHE_WEIGHT  # in the interpolation

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
    outputs: Tensor  # (T, H) of the stack
    log_probs: Tensor  # (T, V) of the next token
    targets: Tensor  # (T,) the next token


class AdaptedModel(nn.Module):
    """A recurrent language model that adapts to the text it reads.

    As a `Stepper` it has the trained weights and, if there is one, the cache; `after` returns the model with weights
    that have adapted to a text. `rms` are the statistics of the gradient, for the rule `rms`.
    """

    context = "left"

    def __init__(self, network: LanguageModel, adaptation: Adaptation, rms: Sequence[Tensor] | None = None) -> None:
        super().__init__()
        self.network, self.adaptation, self.rms = network, adaptation, rms
        self.stepper = self._stepper(network)

    def _stepper(self, network: LanguageModel) -> TokenModel:
        cache, weight = self.adaptation.cache, self.adaptation.cache_weight
        return network if cache is None else Interpolation([network, CacheModel(network, cache)], [1 - weight, weight])

    def initial_state(self, rows: int) -> Any:
        return self.stepper.initial_state(rows)

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.stepper.step(ids, state)

    def select(self, state: Any, rows: Tensor) -> Any:
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

    def _reader(self) -> CacheReader | None:
        cache = self.adaptation.cache
        return None if cache is None else CacheReader(cache, self.network.vocabulary_size)

    def token_log_probs(self, tokens: Tokens) -> Array:
        reader, weight, found = self._reader(), self.adaptation.cache_weight, []
        for outputs, log_probs, targets in self.segments(tokens):
            own: Array = log_probs.gather(1, targets[:, None])[:, 0].double().numpy()
            if reader is not None:
                with np.errstate(divide="ignore"):
                    both = np.stack([own, np.log(reader.read(outputs, targets).numpy())], 1)
                own = LINEAR.join_targets(both, [1 - weight, weight])
            found.append(own)
        return np.concatenate(found) if found else np.zeros(0)

    def next_probs(self, tokens: Tokens) -> Iterator[Array]:
        reader, weight = self._reader(), self.adaptation.cache_weight
        for outputs, log_probs, targets in self.segments(tokens):
            probs = log_probs.double().exp()
            if reader is not None:
                probs = (1 - weight) * probs + weight * reader.read_all(outputs, targets)
            yield probs.numpy()

    def evaluate(self, tokens: Tokens) -> Likelihood:
        return likelihood(self.token_log_probs(tokens))

    def predict_tokens(self, tokens: Tokens) -> TokenPredictions:
        nats, correct, count = 0.0, 0, 0
        for probs in self.next_probs(tokens):
            targets = np.asarray(tokens[count + 1 : count + 1 + len(probs)])
            nats -= float(np.log(probs[np.arange(len(probs)), targets]).sum())
            correct += int((probs.argmax(1) == targets).sum())
            count += len(probs)
        return TokenPredictions(Likelihood(nats, count), correct)


@torch.no_grad()
def read_static(network: LanguageModel, tokens: Tokens, segment: int = 256) -> Iterator[ReadSegment]:
    """Reads a text in segments, from left to right."""
    for outputs, targets in network.read_segments(tokens, segment):
        yield ReadSegment(outputs.cpu(), network.log_probs(outputs).cpu(), targets)


@torch.enable_grad()
def read_dynamic(adapted: DynamicModel, tokens: Tokens, segment: int) -> Iterator[ReadSegment]:
    """The same; the weights are updated after each segment."""
    for outputs, targets in adapted.model.read_segments(tokens, segment):
        log_probs = adapted.model.log_probs(outputs).cpu()
        adapted.update(_mean_loss(log_probs, targets))
        yield ReadSegment(outputs.detach().cpu(), log_probs.detach(), targets)


def _mean_loss(log_probs: Tensor, targets: Tensor) -> Tensor:
    return -log_probs.gather(1, targets[:, None]).mean()


@dataclass(frozen=True, repr=False)
class AdaptedLmPredictor(LmPredictor):
    """A language model that adapts to the text it reads; `LmPredictor.adapt` makes it."""

    adaptation: Adaptation = Adaptation()

    def _new_tokens(
        self, starts: Sequence[Sequence[int]], tokens: int | None, sampler: Sampler, seed: int
    ) -> Iterator[list[int]]:
        if self.adaptation.dynamic is None:
            yield from super()._new_tokens(starts, tokens, sampler, seed)
            return
        # Each prompt has weights of its own, so each text is generated as if it were the only one.
        rows = [
            LmPredictor(self.run, adapted_to(self.model, start), self.text_field)._new_tokens(
                [start], tokens, sampler, seed
            )
            for start in starts
        ]
        for new in zip_longest(*rows, fillvalue=[NO_TOKEN]):
            yield [token for row in new for token in row]


def adapted_to(model: Any, tokens: Sequence[int]) -> TokenModel:
    """The model, or each network of an interpolation, with weights that have adapted to a text."""
    if isinstance(model, Interpolation):
        return model.with_members([adapted_to(member, tokens) for member in model.members])
    adapted: TokenModel = model.after(tokens)
    return adapted


def adapt(
    predictor: LmPredictor,
    method: str = "both",
    *,
    dynamic: DynamicConfig | None = None,
    cache: CacheConfig | None = None,
    cache_weight: float | None = None,
) -> AdaptedLmPredictor:
    if method not in ADAPTATIONS:
        raise unknown_name("the way to adapt", method, ADAPTATIONS)
    run, networks = predictor.run, networks_of(predictor.model)
    if not networks:
        raise WeftError(
            f"{run.path} is a run of the task {run.task!r}, which cannot adapt",
            expected="a run of `weft train lm` or `weft train fill`",
            hint="`weft mix`, which has a cache, for other language models",
        )
    wanted = Adaptation(
        (dynamic or DynamicConfig()) if method != "cache" else None,
        (cache or CacheConfig()) if method != "dynamic" else None,
        CACHE_WEIGHT if cache_weight is None else cache_weight,
    )
    statistics = [gradient_statistics(network, run, wanted.dynamic) for network in networks]
    if is_stored(run, DEV_PART) and len(dev := held_out_tokens(run, predictor.text_field)) > 1:
        network, rms = networks[0], statistics[0]

        def nats(config: DynamicConfig) -> float:
            return AdaptedModel(network, Adaptation(config), rms).evaluate(dev[: RATE_TOKENS + 1]).nats

        if dynamic is None and wanted.dynamic is not None:
            wanted = replace(wanted, dynamic=best_rate(wanted.dynamic, nats))
        if cache is None and wanted.cache is not None:
            read = list(AdaptedModel(network, wanted, rms).segments(dev[: CACHE_TOKENS + 1]))
            own = torch.cat([log_probs.gather(1, targets[:, None]).double() for _, log_probs, targets in read])
            segments = [(outputs, targets) for outputs, _, targets in read]
            fitted = fit_cache(segments, own.numpy(), network.vocabulary_size, wanted.cache.size)
            wanted = replace(wanted, cache=fitted.config, cache_weight=float(fitted.weights[-1]))
    models = [AdaptedModel(network, wanted, rms) for network, rms in zip(networks, statistics, strict=True)]
    whole = predictor.model
    model = whole.with_members(models) if isinstance(whole, Interpolation) else models[0]
    return AdaptedLmPredictor(run, model, predictor.text_field, wanted)


def gradient_statistics(network: LanguageModel, run: Run, config: DynamicConfig | None) -> list[Tensor] | None:
    """The statistics of the gradient on parts of the run's stored text, if the weights adapt."""
    if config is None:
        return None
    segment = config.segment

    def losses(model: LanguageModel) -> Iterator[Tensor]:
        tokens, length = stored_tokens(run, network.vocabulary_size), segment * SEGMENTS
        for begin in np.linspace(0, max(0, len(tokens) - length - 1), CHUNKS).astype(int):
            for outputs, targets in model.read_segments(tokens[begin : begin + length + 1], segment):
                yield _mean_loss(model.log_probs(outputs).cpu(), targets)

    return gradient_rms(network, config, losses)
