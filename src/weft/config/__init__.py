"""Settings: strict, typed, the same from Python, a TOML file and `--set a.b=c`."""

from weft.config.chains import HmmConfig, HmmModelConfig, HmmTrainConfig, NgramConfig, NgramModelConfig
from weft.config.classify import (
    ClassifyConfig,
    ClassifyModelConfig,
    ClassifyTextConfig,
    ClassifyTrainConfig,
    ExampleBatchConfig,
    LabelledConfig,
)
from weft.config.common import ModelConfig, TextConfig, TrainConfig
from weft.config.fill import FillBatchConfig, FillConfig, FillModelConfig, FillTextConfig
from weft.config.language import BatchConfig, BpttConfig, LanguageConfig, LanguageModelConfig, LanguageTrainConfig
from weft.config.pairs import PairTextConfig
from weft.config.strict import changed, from_dict, load_config, setting, to_dict, to_toml
from weft.config.tag import TagBatchConfig, TagConfig, TagDataConfig, TagModelConfig, TagTrainConfig
from weft.config.translate import (
    TranslateBatchConfig,
    TranslateConfig,
    TranslateModelConfig,
    TranslateTextConfig,
    TranslateTrainConfig,
)

__all__ = [
    "BatchConfig",
    "BpttConfig",
    "ClassifyConfig",
    "ClassifyModelConfig",
    "ClassifyTextConfig",
    "ClassifyTrainConfig",
    "ExampleBatchConfig",
    "FillBatchConfig",
    "FillConfig",
    "FillModelConfig",
    "FillTextConfig",
    "HmmConfig",
    "HmmModelConfig",
    "HmmTrainConfig",
    "LabelledConfig",
    "LanguageConfig",
    "LanguageModelConfig",
    "LanguageTrainConfig",
    "ModelConfig",
    "NgramConfig",
    "NgramModelConfig",
    "PairTextConfig",
    "TagBatchConfig",
    "TagConfig",
    "TagDataConfig",
    "TagModelConfig",
    "TagTrainConfig",
    "TextConfig",
    "TrainConfig",
    "TranslateBatchConfig",
    "TranslateConfig",
    "TranslateModelConfig",
    "TranslateTextConfig",
    "TranslateTrainConfig",
    "changed",
    "from_dict",
    "load_config",
    "setting",
    "to_dict",
    "to_toml",
]
