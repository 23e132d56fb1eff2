"""Language models that adapt to the text they read: by dynamic evaluation, by a neural cache, or by both.

The trained model is not changed. In evaluation each token is predicted from the text before it only. In generation the
weights adapt to the prompt and then stay; the cache holds the prompt and the text generated so far.

Dynamic evaluation reads the text in segments. Each is predicted with the present weights w; then these take one step
down the gradient g of its cross-entropy, and are drawn back to the trained weights w_0:

    w <- w - learning_rate g / (r + eps)
    w <- w + decay r / mean(r) (w_0 - w)        (the factor of w_0 - w is at most 1)

r is the root mean square of each weight's gradient over segments of the training text ("rms"). With r = 1 and eps = 0
these are plain gradient steps ("sgd"). No token is predicted by weights that have seen it.

The neural cache prefers tokens that followed similar states of the text just read:

    P_cache(w | h_t) is proportional to the sum over i < t, x_(i+1) = w, of exp(theta h_t . h_i)

h_t is the output of the recurrent stack after t tokens. The sum runs over the last `size` tokens. A cache has no
weights: it is interpolated with a trained model, and its two parameters are fitted to held-out text.

Krause, Kahembwe, Murray and Renals 2018, "Dynamic evaluation of neural sequence models".
Grave, Joulin and Usunier 2017, "Improving neural language models with a continuous cache".
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from weft.cells import State
from weft.data.windows import Tokens
from weft.decoding import NO_TOKEN, Sampler
from weft.errors import WeftError, unknown_name
from weft.metrics import Likelihood, TokenPredictions
from weft.tasks.lm.interpolation import Interpolation, likelihood, networks_of
from weft.tasks.lm.model import LanguageModel
from weft.tasks.lm.predictor import LmPredictor, TokenModel
from weft.tasks.mixture import LINEAR, Array
from weft.tasks.stored_data import DEV_PART, is_stored
from weft.tasks.text_task import held_out_tokens, stored_tokens
from weft.training.run import Run


@dataclass(frozen=True)
class DynamicConfig:
    """The parameters of dynamic evaluation.

    Attributes:
        learning_rate: The size of a step. With `rms` a typical change of a weight.
        decay: How strongly the weights are drawn back to the trained ones after each segment.
        segment: Tokens between two updates.
        rule: `rms` or `sgd`.
    """

    learning_rate: float = 0.001
    decay: float = 0.002
    segment: int = 20
    rule: str = "rms"

    def __post_init__(self) -> None:
        if not self.learning_rate >= 0 or not 0 <= self.decay <= 1 or self.segment < 1:
            raise WeftError(
                f"learning_rate={self.learning_rate}, decay={self.decay}, segment={self.segment}",
                expected="a learning rate from 0 on, a decay of 0 to 1, segments of 1 token or more",
            )
        if self.rule not in ("rms", "sgd"):
            raise WeftError(f"the rule is {self.rule!r}", expected="rms or sgd")


RATES = (0.3, 1.0, 3.0)  # times the given learning rate: the candidates of a fit
RATE_TOKENS = 4000  # of the held-out text, to which the learning rate is fitted
RELATIVE_EPS = 2.0  # eps, as a share of mean(r): weights with small gradients, such as rare words, move slowly


class DynamicModel:
    """A copy of a trained model whose weights follow the text; `rms` is what `gradient_rms` returned."""

    def __init__(self, model: nn.Module, config: DynamicConfig, rms: Sequence[Tensor] | None = None) -> None:
        if (rms is None) != (config.rule == "sgd"):
            raise WeftError(f"rule={config.rule} and {'no ' * (rms is None)}statistics", expected="rms with statistics")
        self.model: Any = copy.deepcopy(model).eval()
        self.weights = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.trained = [weight.detach().clone() for weight in self.weights]
        if rms is None:
            self.scales = [torch.tensor(config.learning_rate) for _ in self.weights]
            self.pulls = [torch.full_like(weight, config.decay) for weight in self.trained]
            return
        mean = sum(float(one.sum()) for one in rms) / max(1, sum(one.numel() for one in rms))
        mean = max(mean, 1e-30)
        self.scales = [config.learning_rate / (one + RELATIVE_EPS * mean) for one in rms]
        self.pulls = [(config.decay * one / mean).clamp(max=1) for one in rms]

    @torch.no_grad()
    def update(self, loss: Tensor) -> None:
        """Takes one step down the gradient of a loss that the model has computed, a mean over tokens."""
        self.model.zero_grad()
        with torch.enable_grad():
            loss.backward()  # type: ignore[no-untyped-call]
        for weight, trained, scale, pull in zip(self.weights, self.trained, self.scales, self.pulls, strict=True):
            if weight.grad is not None:
                weight.addcmul_(weight.grad, scale, value=-1)
            weight.lerp_(trained, pull)


def gradient_rms(
    model: nn.Module, config: DynamicConfig, losses: Callable[[Any], Iterable[Tensor]]
) -> list[Tensor] | None:
    """The root mean square of the gradient of each weight, for the rule `rms`.

    `losses` maps a copy of the model to losses of segments, each a mean over tokens, computed one by one.
    """
    if config.rule != "rms":
        return None
    reader = copy.deepcopy(model).eval()
    weights = [parameter for parameter in reader.parameters() if parameter.requires_grad]
    totals, count = [torch.zeros_like(weight) for weight in weights], 0
    with torch.enable_grad():
        for loss in losses(reader):
            reader.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for total, weight in zip(totals, weights, strict=True):
                if weight.grad is not None:
                    total += weight.grad.square()
            count += 1
    if not count:
        raise WeftError("there is no text to compute the gradients of", expected="at least 2 tokens")
    return [(total / count).sqrt() for total in totals]


def best_rate(config: DynamicConfig, nats: Callable[[DynamicConfig], float]) -> DynamicConfig:
    """Selects a learning rate near that of `config` by the negative log-likelihood of RATE_TOKENS of held-out text."""
    candidates = [replace(config, learning_rate=config.learning_rate * rate) for rate in RATES]
    found = [nats(one) for one in candidates]
    return candidates[int(np.argmin(np.where(np.isfinite(found), found, np.inf)))]


# theta times the mean squared norm of the outputs: so the candidates do not depend on the size of the model.
CANDIDATES = (0.0, 4.0, 8.0, 16.0, 32.0)

Segment = tuple[Tensor, Tensor]  # outputs (T, H) of the stack, and the token (T,) that followed each of them


@dataclass(frozen=True)
class CacheConfig:
    """The parameters of a cache.

    Attributes:
        size: How many of the last tokens it holds.
        theta: How strongly similar states are preferred; 0: a unigram model of the last tokens.
    """

    size: int = 2000
    theta: float = 0.3

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 <= self.theta < float("inf"):
            raise WeftError(f"a cache of size {self.size} with theta {self.theta}", expected="size 1, theta 0, or more")


class CacheReader:
    """Reads a text in segments and computes the cache's probability of each next token, without entries 1 / V."""

    def __init__(self, config: CacheConfig, vocabulary_size: int) -> None:
        self.config, self.vocabulary_size = config, vocabulary_size
        self.keys: Tensor | None = None  # (n, H) outputs
        self.tokens = torch.zeros(0, dtype=torch.long)  # (n,) the token that followed each of them

    def read(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The probabilities (T,) of a segment's targets, in double precision; 0 where the cache does not have one."""
        first = not len(self.tokens)
        shares, tokens = self._attend(outputs, targets)
        probs = (shares * (tokens == targets[:, None])).sum(1)
        if first:
            probs[:1] = 1 / self.vocabulary_size
        return probs

    def read_all(self, outputs: Tensor, targets: Tensor) -> Tensor:
        first = not len(self.tokens)
        shares, tokens = self._attend(outputs, targets)
        probs = shares.new_zeros(len(targets), self.vocabulary_size)
        probs.scatter_add_(1, tokens.expand(len(targets), -1), shares)
        if first:
            probs[:1] = 1 / self.vocabulary_size
        return probs

    def _attend(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Adds T entries. Returns the shares (T, n) of all entries, 0 of those that are not before it, and tokens."""
        size = self.config.size
        keys = outputs if self.keys is None else torch.cat([self.keys, outputs])
        tokens = torch.cat([self.tokens, targets])
        steps = torch.arange(len(targets))[:, None] + len(self.tokens)  # (T, 1) the number of each target's entry
        entries = torch.arange(len(tokens))
        inside = (entries < steps) & (entries >= steps - size)  # (T, n)
        scores = (self.config.theta * (outputs @ keys.t())).double().masked_fill(~inside, -torch.inf)
        self.keys, self.tokens = keys[-size:], tokens[-size:]
        return scores.softmax(1).masked_fill(~inside, 0), tokens


class CacheState(NamedTuple):
    """The state of a cache: that of the network, its last output, and the entries, which grow with the text."""

    network: State
    output: Tensor  # (R, 1, H); (R, 0, H) before any token
    keys: Tensor  # (R, n, H)
    tokens: Tensor  # (R, n)


class CacheModel(nn.Module):
    """The distribution of a cache over the outputs of a recurrent language model, as a part of an interpolation.

    Without entries it is the uniform distribution. A token that the cache does not have has probability 0.
    """

    context = "left"

    def __init__(self, network: LanguageModel, config: CacheConfig) -> None:
        super().__init__()
        self.network, self.config = network, config

    def initial_state(self, rows: int) -> CacheState:
        empty = torch.zeros(rows, 0, self.network.stack.output_size)
        return CacheState(self.network.initial_state(rows), empty, empty, torch.zeros(rows, 0, dtype=torch.long))

    @torch.no_grad()
    def step(self, ids: Tensor, state: CacheState) -> tuple[Tensor, CacheState]:
        keys, tokens = state.keys, state.tokens
        if state.output.shape[1]:
            keys = torch.cat([keys, state.output], 1)[:, -self.config.size :]
            tokens = torch.cat([tokens, ids[:, None]], 1)[:, -self.config.size :]
        x = self.network.embed(ids[:, None].to(self.network.device))
        outputs, network = self.network.stack(x, state.network)
        outputs = outputs.cpu()
        size = self.network.vocabulary_size
        if keys.shape[1]:
            scores = self.config.theta * (keys @ outputs.transpose(1, 2))[:, :, 0]  # (R, n)
            probs = torch.zeros(len(ids), size, dtype=torch.float64)
            probs.scatter_add_(1, tokens, scores.double().softmax(-1))
        else:
            probs = torch.full((len(ids), size), 1 / size, dtype=torch.float64)
        return probs.log(), CacheState(network, outputs, keys, tokens)

    def select(self, state: CacheState, rows: Tensor) -> CacheState:
        return CacheState(self.network.select(state.network, rows), *(part[rows] for part in state[1:]))

    @torch.no_grad()
    def next_probs(self, tokens: Tokens) -> Iterator[Array]:
        reader = CacheReader(self.config, self.network.vocabulary_size)
        for outputs, targets in self.network.read_segments(tokens):
            yield reader.read_all(outputs.cpu(), targets).numpy()

    @torch.no_grad()
    def token_log_probs(self, tokens: Tokens) -> Array:
        return cache_log_probs(self.network.read_segments(tokens), self.config, self.network.vocabulary_size)


def cache_log_probs(segments: Iterator[Segment] | Sequence[Segment], config: CacheConfig, size: int) -> Array:
    """The log-probabilities (N,) of the tokens of segments by a cache over `size` tokens that reads them in order."""
    reader = CacheReader(config, size)
    probs = [reader.read(outputs.cpu(), targets) for outputs, targets in segments]
    with np.errstate(divide="ignore"):
        found: Array = np.log(torch.cat(probs).numpy()) if probs else np.zeros(0)
    return found


class FittedCache(NamedTuple):
    """The parameters of a cache, and what it does on the text that they were fitted to."""

    config: CacheConfig
    log_probs: Array  # (N,) of each token by the cache
    weights: Array  # (K + 1,) of the other models and of the cache


def fit_cache(segments: Sequence[Segment], log_probs: Array, vocabulary_size: int, size: int) -> FittedCache:
    """Selects theta from CANDIDATES by the likelihood of the interpolation with other models.

    `segments` are N tokens as the network has read them, `log_probs` (N, K) what the other models give to these.
    """
    if not segments:
        raise WeftError("there is no text to fit the cache to", expected="at least 2 tokens")
    norm = float(torch.cat([outputs.square().sum(1) for outputs, _ in segments]).mean())
    best: tuple[float, FittedCache] | None = None
    for candidate in CANDIDATES:
        config = CacheConfig(size, candidate / max(norm, 1e-12))
        found = cache_log_probs(segments, config, vocabulary_size)
        joined = np.concatenate([log_probs, found[:, None]], 1)
        weights = LINEAR.fit_to(joined)
        value = float(LINEAR.join_targets(joined, weights).sum())
        if best is None or value > best[0]:
            best = value, FittedCache(config, found, weights)
    assert best is not None
    return best[1]


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
