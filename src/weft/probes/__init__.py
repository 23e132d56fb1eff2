"""Probes: what happens inside a trained model, as plain data with names.

A probe takes a loaded run and a text and returns a frozen dataclass: `to_dict()` is ready for JSON, `records()` are
rows with names, `to_dataframe()` is a pandas table of them.

    import weft
    from weft import probes
    model = weft.load("runs/mine")
    probes.surprisal(model, "The value of").nats
    probes.activations(model, "The value of").layers[0].gates["f"]     # (T, H)

surprisal        -log P of each token, the entropy, the best alternatives
compare_surprisal   the surprisal of two models, laid over the same text
activations      every gate and state of every layer and direction
gradient_flow    the norm of dL_t/dh_s for all s <= t
step_jacobians   norm and spectral radius of dh_t/dh_(t-1)
gradient_terms   dh_t/dw as the explicit sum over earlier steps
connectivity     the influence of each input position on each prediction
evidence         which tokens speak for a prediction: occlusion, integrated gradients, n-grams, pooling weights
attention, beam  attention weights; every hypothesis of a beam search
posterior        forward, backward, marginals, Viterbi path of an HMM or a CRF
top_passages, select_units, correlate_units   what single units respond to
forecast         a series with its forecast over the dates, baselines and residuals
confusion        how often each label was predicted for each true label
probe_texts      a probe on a batch of texts
summarize_run, metric_curves, compare_run_results    runs side by side

What looks at layers takes a network that is at hand, too, in the place of a run: a `weft.tasks.inspection.Network`.
Layers and units are numbered from 0, as in torch.
"""

from weft.probes.activations import Activations, LayerActivations, activations
from weft.probes.attention import Attention, BeamSearch, attention, beam
from weft.probes.batch import ProbeBatch, probe_texts
from weft.probes.confusion import ConfusionMatrix, confusion
from weft.probes.connectivity import Connectivity, connectivity, integrated_gradients
from weft.probes.evidence import Evidence, evidence
from weft.probes.forecast import Forecast, forecast
from weft.probes.gradient_flow import GradientFlow, LayerGradients, flow_by_autograd, gradient_flow
from weft.probes.jacobian import GradientTerms, StepJacobians, gradient_terms, step_jacobians
from weft.probes.laid_over import SurprisalComparison, compare_surprisal
from weft.probes.posterior import Posterior, posterior
from weft.probes.result import ProbeResult
from weft.probes.surprisal import Surprisal, surprisal
from weft.probes.units import (
    TopPassages,
    UnitCorrelations,
    UnitSelection,
    correlate_units,
    select_units,
    top_passages,
)
from weft.tasks.runs import RunComparison, RunSummary, compare_run_results, find_runs, metric_curves, summarize_run

__all__ = [
    "Activations",
    "Attention",
    "BeamSearch",
    "ConfusionMatrix",
    "Connectivity",
    "Evidence",
    "Forecast",
    "GradientFlow",
    "GradientTerms",
    "LayerActivations",
    "LayerGradients",
    "Posterior",
    "ProbeBatch",
    "ProbeResult",
    "RunComparison",
    "RunSummary",
    "StepJacobians",
    "Surprisal",
    "SurprisalComparison",
    "TopPassages",
    "UnitCorrelations",
    "UnitSelection",
    "activations",
    "attention",
    "beam",
    "compare_run_results",
    "compare_surprisal",
    "confusion",
    "connectivity",
    "correlate_units",
    "evidence",
    "find_runs",
    "flow_by_autograd",
    "forecast",
    "gradient_flow",
    "gradient_terms",
    "integrated_gradients",
    "metric_curves",
    "posterior",
    "probe_texts",
    "select_units",
    "step_jacobians",
    "summarize_run",
    "surprisal",
    "top_passages",
]
