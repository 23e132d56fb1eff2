"""The runs of mixtures: how a mixture of language models is loaded.

The run directory of a mixture has its parts as run directories of their own, so it needs nothing beside itself:

    weights.safetensors     the weights of the parts; in its metadata, the parts and the parameters of the cache
    parts/1/, parts/2/ ...  the parts without their data and checkpoints
    data/dev.tokens.npy     the text that the weights were fitted to
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.errors import WeftError
from weft.metrics import PERPLEXITY
from weft.tasks import get_task
from weft.tasks.inspection import Inspection
from weft.tasks.lm.cache import CacheConfig, CacheModel
from weft.tasks.lm.inspection import inspect_steps
from weft.tasks.lm.interpolation import Interpolation, networks_of
from weft.tasks.lm.model import LanguageModel
from weft.tasks.lm.predictor import LmPredictor, NextTokenModel, TokenModel
from weft.tasks.mix.config import MixConfig
from weft.tasks.task import RunKind
from weft.tasks.text_task import TextTask
from weft.text.text_field import Text
from weft.training.run import WEIGHTS, Run, decoding, open_run

PARTS_FOLDER = "parts"  # the folder of the parts
PART_TASKS = ("lm", "ngram", "hmm")
MOST_PARTS = 100


class MixedRun(RunKind[MixConfig, LmPredictor]):
    """Interpolates language models that are trained already."""

    name = "mix"
    summary = "Interpolate language models."
    predictors = (LmPredictor,)
    metric = PERPLEXITY
    data_help, dev_help = TextTask.data_help, TextTask.dev_help
    config_class = MixConfig

    def load(self, run: Run) -> LmPredictor:
        tensors, metadata = run.load(WEIGHTS)
        with decoding(run.file(WEIGHTS)):
            weights, cache = tensors["weights"].double().tolist(), metadata["cache"]
            config = CacheConfig(int(cache["size"]), float(cache["theta"])) if cache else None
            count = len(weights) - bool(cache)
        if not 1 <= count <= MOST_PARTS:
            raise WeftError(f"{run.path} has {count} parts", expected=f"1 to {MOST_PARTS}")
        text_field = run.field("text", Text)
        models: list[NextTokenModel] = [self._load_part(run, number, text_field) for number in range(1, count + 1)]
        if config is not None:
            network = first_network(models)
            if network is None:
                raise WeftError(
                    f"{run.path} has no recurrent model for its cache",
                    expected="a run of `weft train lm` among its parts",
                )
            models.append(CacheModel(network, config))
        return LmPredictor(run, Interpolation(models, weights), text_field)

    def _load_part(self, run: Run, number: int, text_field: Text) -> TokenModel:
        part = open_run(run.path / PARTS_FOLDER / str(number))
        if part.task not in PART_TASKS:
            raise WeftError(f"{part.path} is a run of the task {part.task!r}", expected=" or ".join(PART_TASKS))
        predictor = get_task(part.task).load(part)
        if predictor.text_field.vocabulary.tokens != text_field.vocabulary.tokens:
            raise WeftError(f"{part.path} has another vocabulary than {run.path}", expected="the same one")
        model: TokenModel = predictor.model
        return model

    def inspect(self, predictor: LmPredictor, text: str) -> Inspection:
        return inspect_steps(predictor, text)


def first_network(models: Sequence[NextTokenModel]) -> LanguageModel | None:
    """The network whose outputs a cache compares."""
    return next((network for model in models for network in networks_of(model)), None)


TASK = MixedRun()
