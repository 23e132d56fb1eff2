"""Self-training: texts without labels are labelled by a trained classifier, the teacher, and trained on too.

The teacher may be of any size, or an ensemble: what it knows of the texts goes into the new classifier. With a teacher
that was trained on the same labelled texts, this is self-training.

Yarowsky 1995, "Unsupervised word sense disambiguation rivaling supervised methods".
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from weft.errors import WeftError, warn
from weft.tasks.classify.config import ClassifyDataConfig
from weft.tasks.classify.readers import Example, ExampleLayout, read_texts
from weft.training.run import open_run

if TYPE_CHECKING:
    from weft.tasks.classify.predictor import ClassifyPredictor

LABELLED_TIMES = 2  # how often each labelled text is read in an epoch, beside those that the teacher has labelled


def labelled_by_teacher(
    config: ClassifyDataConfig, layout: ExampleLayout, labelled: Collection[Example]
) -> list[Example]:
    """The texts of `data.unlabelled` with the labels that the run `data.teacher` predicts; none if there are no such.

    Texts without tokens are left out, and so are those of the labelled examples, which may be held out.

    Raises:
        WeftError: one of the two settings is missing, or the teacher is no classifier of the same labels.
    """
    if bool(config.unlabelled) != bool(config.teacher):
        given = "unlabelled" if config.unlabelled else "teacher"
        raise WeftError(
            f"`data.{given}` is given alone",
            expected="texts without labels, `data.unlabelled`, and `data.teacher`, the run that labels them",
            hint="train a classifier on the labelled texts first: it is the teacher",
        )
    if not config.unlabelled:
        return []
    teacher = _load_teacher(config.teacher, layout.labels)
    known = {row.value for row in labelled}
    read = read_texts(config.unlabelled, None, config, layout)
    for note in read.notes:
        warn(note)
    texts = [text for text in read.rows if text not in known]
    found = [
        Example(text, result.label, f"{config.unlabelled}: {text[:40]!r}")
        for text, result in zip(texts, teacher.classify(texts), strict=True)
        if result.tokens
    ]
    if not found:
        raise WeftError(f"{config.unlabelled} has no texts beside the labelled ones", expected="other texts")
    return found


def _load_teacher(path: str, labels: tuple[str, ...]) -> ClassifyPredictor:
    from weft.tasks import get_task

    run = open_run(path)
    if run.task != "classify":
        raise WeftError(f"{path} is a run of the task {run.task!r}", expected="a classifier as the teacher")
    teacher: ClassifyPredictor = get_task("classify").load(run)
    if set(teacher.labels) != set(labels):
        raise WeftError(
            f"the teacher {path} has the labels {', '.join(teacher.labels)}",
            expected=f"those of the labelled texts: {', '.join(labels)}",
        )
    return teacher
