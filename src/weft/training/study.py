"""A study of Optuna: where it is stored, and which of its processes are alive."""

from __future__ import annotations

import shutil
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import WeftError
from weft.training.lock import is_locked, lock_run

if TYPE_CHECKING:
    from optuna import Study, Trial

JOURNAL = "study.journal"
ATTEMPTS = 5  # to open a study
HEARTBEAT_SECONDS = 20  # a trial in a database is taken over when its machine has been silent for three of these


def import_optuna() -> Any:
    """Optuna, without its warnings."""
    try:
        import optuna
    except ImportError as error:
        raise WeftError(
            "the search needs Optuna, which is not installed", expected="weft[tune]", hint="pip install 'weft[tune]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed to be used with Study.optimize")
    return optuna


def open_study(optuna: Any, task: str, out: Path, storage: str) -> Study:
    """Opens the study of a task: a journal in `out`, or in the database with the address `storage`."""
    sampler = optuna.samplers.TPESampler(n_startup_trials=6, multivariate=True, constant_liar=True)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1)
    storages = optuna.storages
    for attempt in range(ATTEMPTS):
        try:
            study: Study = optuna.create_study(
                storage=storages.RDBStorage(
                    storage,
                    heartbeat_interval=HEARTBEAT_SECONDS,
                    grace_period=3 * HEARTBEAT_SECONDS,
                    heartbeat_stale_trial_callback=storages.RetryHeartbeatStaleTrialCallback(max_retry=2),
                )
                if storage
                else storages.JournalStorage(storages.journal.JournalFileBackend(str(out / JOURNAL))),
                sampler=sampler,
                pruner=pruner,
                study_name=f"weft {task}",
                load_if_exists=True,
            )
            return study
        except Exception as error:  # of the database driver, of which there are many
            # Two processes that open a new database at once both create its tables, and one of them fails.
            if storage and type(error).__name__ in ("IntegrityError", "ProgrammingError") and attempt + 1 < ATTEMPTS:
                time.sleep(1)
                continue
            raise WeftError(
                f"the study cannot be opened: {str(error).strip().splitlines()[0]}",
                expected="the address of a database that can be reached, with its driver installed",
                hint="postgresql+psycopg2://user:password@host/name",
            ) from error
    raise AssertionError


@contextmanager
def process_lock(out: Path) -> Iterator[str]:
    """Holds a lock by which other processes see that this one is alive; gives the name of its folder."""
    folder = out / f".process-{uuid.uuid4().hex}"
    folder.mkdir()
    lock = lock_run(folder)
    try:
        yield folder.name
    finally:
        lock.release()
        shutil.rmtree(folder, ignore_errors=True)


def take_over(optuna: Any, study: Study, out: Path) -> None:
    """Repeats trials whose process has died: nobody holds its lock any more."""
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        process = out / str(trial.user_attrs.get("process"))
        if not process.exists() or is_locked(process):
            continue
        claimed = process.with_name(f"{process.name}-ended")
        try:
            process.rename(claimed)
        except OSError:
            continue  # another process repeats the trial
        shutil.rmtree(out / trial_folder(trial.number), ignore_errors=True)
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        study.enqueue_trial(trial.params)
        shutil.rmtree(claimed, ignore_errors=True)


def trial_folder(number: int) -> str:
    """The name of a trial's run directory."""
    return f"trial-{number:04d}"


@contextmanager
def beating(optuna: Any, study: Study, trial: Trial) -> Iterator[None]:
    """Tells a database that the trial is alive, as long as it is."""
    from optuna.storages._heartbeat import get_heartbeat_thread

    with get_heartbeat_thread(trial._trial_id, study._storage):
        yield
