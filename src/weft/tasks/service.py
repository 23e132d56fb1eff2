"""What a loaded model offers to a server: each task says it, and the server has code for none of them but `lm`.

A service is a set of capabilities. `TextService` maps texts to one record each, the record that the command line writes
with `--json`; the server batches the texts of several requests. A model of the next token (`generator`) generates,
embeds and has sessions. A task overrides `Task.serve`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from weft.config import from_dict
from weft.errors import unknown_name

if TYPE_CHECKING:
    from weft.tasks.lm.predictor import LmPredictor

JsonRecord = dict[str, Any]

MOST_ANSWERS = 100  # n-best lists and beams of a request


class Profile(Protocol):
    """What texts of one language look like."""

    def log_prob(self, text: str) -> float: ...


class Languages(NamedTuple):
    """The language codes of a translator."""

    source: str
    target: str


UNKNOWN_LANGUAGES = Languages("source", "target")  # of a translator whose languages are not known


def languages_in(name: str) -> Languages:
    """Language codes in the name of a run or a model, such as en-fr; a run directory does not record languages.

    >>> languages_in("runs-en-to-fr")
    Languages(source='en', target='fr')
    """
    found = re.search(r"(?<![a-z])([a-z]{2,3})[-_](?:to[-_])?([a-z]{2,3})(?![a-z])", name.lower())
    return Languages(found[1], found[2]) if found else UNKNOWN_LANGUAGES


@dataclass(frozen=True)
class TextService:
    """Texts to records.

    Attributes:
        capability: Its name, as the command line has it: "classify", "tag", ...
        options: A frozen dataclass of settings: the options of a request.
        predict: Texts and options to one record for each text, in their order. A record does not depend on the other
            texts.
        pipeline: The name that Hugging Face's clients have for it, such as "text-classification".
        parameters: Parameters of such a client: name to the option it stands for; None: it is accepted and ignored.
        to_pipeline: A record, and the parameters of the request, to the result that such a client expects.
        listed: Whether that result stands in a list where the request has one text.
        growth: How many times as large as a text its record may be, with options: a server has a limit.
        is_input: Whether an input of such a client is one for this service, where the model generates as well.
    """

    capability: str
    options: type[Any]
    predict: Callable[[Sequence[str], Any], list[JsonRecord]]
    pipeline: str
    parameters: Mapping[str, str | None]
    to_pipeline: Callable[[JsonRecord, Mapping[str, Any]], Any]
    listed: bool = False
    growth: Callable[[Any], int] = lambda options: 1
    is_input: Callable[[object], bool] = lambda text: True

    def read_options(self, given: Mapping[str, Any]) -> Any:
        """The options of a request.

        Raises:
            WeftError: An option is unknown, of a wrong type or out of range.
        """
        return from_dict(self.options, given)

    def read_parameters(self, given: Mapping[str, Any]) -> Any:
        """The options that parameters of a Hugging Face client stand for; its own options are accepted, too."""
        own = {entry.name for entry in dataclasses.fields(self.options)}
        options = {}
        for name, value in given.items():
            if name not in self.parameters and name not in own:
                raise unknown_name("parameter", name, [*self.parameters, *own])
            option = self.parameters.get(name, name)
            if option is not None and value is not None:
                options[option] = value
        return self.read_options(options)


@dataclass(frozen=True)
class Service:
    """The capabilities of a model.

    Attributes:
        texts: Its text services, the main one first.
        generator: The language model that generates text, or None.
        languages: What a translator translates from and to, or None.
        profiles: What texts of these two languages look like, to detect a language; None: it is not known.
        labels: The labels or tags that it predicts, or None.
        example: A short text that the model can read.
        to_example: A sentence of the run's own text as such an example; where that needs a blank, with a blank.
    """

    texts: tuple[TextService, ...] = ()
    generator: LmPredictor | None = None
    languages: Languages | None = None
    profiles: tuple[Profile, Profile] | None = None
    labels: tuple[str, ...] | None = None
    example: str = ""
    to_example: Callable[[str], str] = str

    @property
    def capabilities(self) -> tuple[str, ...]:
        return (*(("generate",) if self.generator else ()), *(one.capability for one in self.texts))

    def find(self, capability: str) -> TextService | None:
        """The text service of that name, or None."""
        return next((one for one in self.texts if one.capability == capability), None)
