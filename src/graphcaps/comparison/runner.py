"""Trains several models on the same folds of one or more data sets.

:func:`compare` is the public entry point. Every cell, one model on one data set, is a cross-validation of its own, so
that records can be kept, reused and merged. A cell that fails leaves the others as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from graphcaps._io.file_lock import lock_file
from graphcaps.comparison.comparison import Comparison, ComparisonCell, choose_baseline
from graphcaps.config import RunConfig
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError, GraphcapsError, UsageError, shorten
from graphcaps.evaluation.cross_validation import CrossValidation
from graphcaps.evaluation.divisions import Groups, build_folds
from graphcaps.evaluation.fold_learning import fold_learning_warning
from graphcaps.evaluation.joint_training import GroupEpoch, JointProgress, train_together
from graphcaps.evaluation.record import PROTOCOLS, RecordKey
from graphcaps.evaluation.results_store import ResultsStore
from graphcaps.execution.cell import Executor
from graphcaps.execution.local_executor import LocalExecutor
from graphcaps.models.classical import ClassicalModel
from graphcaps.models.lookup import find_model, is_classical, model_names, suggest_models
from graphcaps.presets.model_presets import comparison_config
from graphcaps.reproduction.paper_systems import PAPER_SYSTEMS
from graphcaps.training.auto_config import check_run_types

__all__ = ["CellProgress", "ComparedData", "ComparisonRun", "choose_models", "compare"]

ProtocolChoice = Literal["held-out", "paper", "both"]


@dataclass(frozen=True, eq=False)
class ComparedData:
    """A data set of a comparison, with the folds or splits that all models share.

    Args:
        store (GraphStore): Graphs with class labels.
        groups (optional): Groups that stay in one fold, as in :func:`graphcaps.cross_validate`.
        split (optional): Fixed splits in place of folds, as there.
    """

    store: GraphStore
    groups: Groups | None = None
    split: Split | Sequence[Split] | None = None


@dataclass(frozen=True)
class CellProgress:
    """Progress of a comparison.

    Args:
        dataset, model (str): The cell.
        number, of (int): Number of the cell, from 1, and number of cells.
        config (RunConfig): Settings of the model.
        epoch (GroupEpoch, optional): The epoch that ended; ``None`` when the cell starts or is finished.
        cell (ComparisonCell, optional): The result, when the cell is finished.
    """

    dataset: str
    model: str
    number: int
    of: int
    config: RunConfig
    epoch: GroupEpoch | None = None
    cell: ComparisonCell | None = None


def compare(
    stores: GraphStore | Sequence[GraphStore],
    models: str | Sequence[str],
    *,
    seeds: int = 1,
    protocol: ProtocolChoice = "held-out",
    baseline: str | None = None,
    folds: int = 10,
    groups: Groups | None = None,
    split: Split | Sequence[Split] | None = None,
    epochs: int | None = None,
    device: str = "auto",
    results: ResultsStore | str | Path | None = None,
    resume: bool = False,
    on_progress: Callable[[CellProgress], object] | None = None,
    executor: Executor | None = None,
) -> Comparison:
    """Trains and tests several models on the same folds, and compares them.

    HGCN takes its preset for the graphs, other models their published settings
    (:func:`graphcaps.presets.model_presets.comparison_config`). A model that cannot be trained on a data set is listed
    with the reason; the others are trained.

    Args:
        stores (GraphStore or sequence): One or more data sets, with class labels.
        models (str or sequence): Names of models, such as ``"hgcn,gin,wl-forest"``; ``"paper"`` stands for the systems
            of the paper's tables, ``"all"`` for every registered model that can read the graphs.
        seeds (int): Number of seeds; they are 0, 1, 2, … (default: 1)
        protocol (str): ``"held-out"``, ``"paper"`` or ``"both"``. (default: "held-out")
        baseline (str, optional): Model that the others are tested against. (default: "hgcn" if it is among the models,
            else the first)
        folds (int): Number of folds. (default: 10)
        groups (sequence or str, optional): Groups that stay in one fold, as in :func:`graphcaps.cross_validate`.
        split (Split or sequence, optional): Fixed splits in place of folds, as there; for one data set.
        epochs (int, optional): Number of epochs of all networks. (default: that of each model's settings)
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``; classical models run on the CPU. (default: "auto")
        results (ResultsStore or path, optional): Folder for records and checkpoints.
        resume (bool): Keep finished records of ``results`` and continue unfinished trainings. (default: ``False``)
        on_progress (callable, optional): Called with a :class:`CellProgress` when a cell starts, after every epoch, and
            when it is finished.
        executor (Executor, optional): Where the models are trained, such as a
            :class:`graphcaps.execution.RayExecutor`. (default: in this process)

    Returns:
        Comparison: Results of every cell, tests and ranks.

    Raises:
        GraphcapsError: If a model is unknown, or the graphs cannot be split; raised before training starts.
    """
    listed = [stores] if isinstance(stores, GraphStore) else list(stores)
    if split is not None and len(listed) > 1:
        raise ArgumentError("compare", "split", "come with one data set", f"{len(listed)} data sets")
    run = ComparisonRun(
        [ComparedData(store, groups, split) for store in listed],
        models.split(",") if isinstance(models, str) else models,
        seeds=seeds,
        protocol=protocol,
        baseline=baseline,
        folds=folds,
        epochs=epochs,
        device=device,
        results=results if isinstance(results, ResultsStore) or results is None else ResultsStore(results),
        resume=resume,
        executor=executor,
    )
    return run.run(on_progress)


class ComparisonRun:
    """A comparison: arguments are checked on construction, training starts with :meth:`run`.

    Arguments are those of :func:`compare`, except that folds and splits stand with each data set, and

    Args:
        precision (str, optional): Precision of matrix products on a GPU. (default: that of each model's settings)
    """

    def __init__(
        self,
        data: Sequence[ComparedData],
        models: Iterable[str],
        *,
        seeds: int = 1,
        protocol: str = "held-out",
        baseline: str | None = None,
        folds: int = 10,
        epochs: int | None = None,
        precision: str | None = None,
        device: str = "auto",
        results: ResultsStore | None = None,
        resume: bool = False,
        executor: Executor | None = None,
    ) -> None:
        if not data:
            raise ArgumentError("compare", "stores", "be at least one data set", "none")
        for each in data:
            check_run_types(each.store, RunConfig(), "compare")
        names = [each.store.name for each in data]
        for name in names:
            if names.count(name) > 1:
                raise ArgumentError("compare", "stores", "have different names", f"'{name}' twice")
        if type(seeds) is not int or seeds < 1:
            raise ArgumentError("compare", "seeds", "be a whole number from 1 on", seeds)
        if protocol not in (*PROTOCOLS, "both"):
            expected = f"be one of {', '.join(PROTOCOLS)}, both"
            raise ArgumentError("compare", "protocol", expected, repr(protocol))
        if epochs is not None and (type(epochs) is not int or epochs < 1):
            raise ArgumentError("compare", "epochs", "be a whole number from 1 on", epochs)
        self.executor = LocalExecutor() if executor is None else executor
        self.executor.choose_device(device, "compare")
        self.data, self.models = tuple(data), choose_models(models, [each.store for each in data])
        self.baseline = choose_baseline(self.models, baseline, "compare")
        self.seeds, self.protocol, self.folds = seeds, protocol, folds
        self.epochs, self.precision, self.device = epochs, precision, device
        self.results, self.resume = results, resume
        self.protocols = tuple(each for each in PROTOCOLS if protocol in (each, "both"))
        for each in data:  # what no model can be trained on is refused before the first training
            with_validation = "held-out" in self.protocols
            build_folds(each.store, folds, each.groups, each.split, with_validation=with_validation)
        if resume and results is None:
            raise ArgumentError("compare", "resume", "come with a folder of results", "none")
        if results is not None and not resume:
            self._require_no_records(results)

    def config(self, store: GraphStore, model: str) -> RunConfig:
        """The settings of a model for a data set."""
        config = comparison_config(store, model)
        if is_classical(model):
            return config
        return config.with_training(epochs=self.epochs, precision=self.precision)

    def run(
        self,
        on_progress: Callable[[CellProgress], object] | None = None,
        on_cluster: Callable[[JointProgress], object] | None = None,
    ) -> Comparison:
        """Trains what has no record yet and returns the comparison of all cells.

        Args:
            on_progress (callable, optional): As in :func:`compare`.
            on_cluster (callable, optional): Called when a cell starts or ends on a cluster.

        Raises:
            DataError: If another process runs a comparison in the same folder of results.
        """
        pairs = [(data, model) for data in self.data for model in self.models]
        with nullcontext() if self.results is None else _lock(self.results):
            trained = {} if self.executor.is_local else self._train_together(pairs, on_cluster)
            cells = [
                self.run_cell(data, model, on_progress, number, len(pairs), trained.get((data, model)))
                for number, (data, model) in enumerate(pairs, 1)
            ]
        return Comparison(cells, baseline=self.baseline)

    def _train_together(
        self,
        pairs: Sequence[tuple[ComparedData, str]],
        on_cluster: Callable[[JointProgress], object] | None,
    ) -> dict[tuple[ComparedData, str], CrossValidation | Exception]:
        """The cross-validation of each pair, trained on the cluster, or why it failed."""
        found: dict[tuple[ComparedData, str], CrossValidation | Exception] = {}
        for data, model in pairs:
            try:
                found[data, model] = self._validation(data, model, self.config(data.store, model))
            except (
                Exception
            ) as error:  # a model may raise anything, and the other models are still to be trained
                found[data, model] = error
        validations = [each for each in found.values() if isinstance(each, CrossValidation)]
        errors: dict[CrossValidation, Exception] = {}
        train_together(validations, self.executor, on_progress=on_cluster, errors=errors)
        for pair, each in found.items():
            if isinstance(each, CrossValidation) and each in errors:
                if isinstance(errors[each], UsageError):  # of the cluster, such as other versions on a node
                    raise errors[each]
                found[pair] = errors[each]
        return found

    def _validation(self, data: ComparedData, model: str, config: RunConfig) -> CrossValidation:
        return CrossValidation(
            data.store,
            config,
            folds=self.folds,
            seeds=self.seeds,
            protocol=self.protocol,
            device="auto" if is_classical(model) else self.device,
            variant=model,
            results=self.results,
            resume=self.resume,
            groups=data.groups,
            split=data.split,
            executor=self.executor,
        )

    def run_cell(
        self,
        data: ComparedData,
        model: str,
        on_progress: Callable[[CellProgress], object] | None = None,
        number: int = 1,
        of: int = 1,
        trained: CrossValidation | Exception | None = None,
    ) -> ComparisonCell:
        """Trains one model on one data set. An exception becomes the failure of the cell; Ctrl-C is raised.

        Args:
            data (ComparedData): The data set.
            model (str): Name of the model.
            on_progress (callable, optional): As in :func:`compare`.
            number, of (int): Number of the cell, from 1, and number of cells. (default: 1)
            trained (CrossValidation or Exception, optional): One that is trained already, or why it failed.
        """
        name, config = data.store.name, RunConfig(model=model)

        def report(epoch: GroupEpoch | None = None, cell: ComparisonCell | None = None) -> None:
            if on_progress is not None:
                on_progress(CellProgress(name, model, number, of, config, epoch, cell))

        try:
            config = self.config(data.store, model)
            report()
            if isinstance(trained, Exception):
                raise trained
            validation = trained or self._validation(data, model, config)
            ledger = validation.run(report)
            learns = model != "majority"  # which predicts the largest class by definition
            warning = fold_learning_warning(ledger, [validation], model) if learns else ""
            cell = ComparisonCell(name, model, ledger, warning=warning)
        except Exception as error:  # a model may raise anything, and the other models are still to be trained
            cell = ComparisonCell(name, model, None, describe_failure(error))
        report(cell=cell)
        return cell

    def _require_no_records(self, results: ResultsStore) -> None:
        for data in self.data:
            for model in self.models:
                for protocol in self.protocols:
                    key = RecordKey(data.store.name, model, protocol, 0)
                    if key in results:
                        fix = "Add --resume to keep it, or name another folder."
                        raise DataError(results.path(key), "no record yet", f"one of {key}", fix=fix)


def choose_models(names: Iterable[str], stores: Sequence[GraphStore]) -> tuple[str, ...]:
    """Names of models, with ``"paper"`` and ``"all"`` replaced by those that they stand for; each once.

    Args:
        names (iterable): Names of models, ``"paper"`` or ``"all"``.
        stores (sequence): The data sets. ``"all"`` leaves out models that read SMILES where no data set has them.

    Raises:
        ArgumentError: If there is no such model; the message lists similar names.
    """
    known = model_names()
    chosen: list[str] = []
    for name in (each.strip() for each in names):
        if name == "paper":
            chosen += [system.model for system in reversed(PAPER_SYSTEMS) if system.model in known]
        elif name == "all":
            has_smiles = any(store.smiles is not None for store in stores)
            readable = [each for each in known if has_smiles or not _reads_smiles_only(each)]
            chosen += sorted(readable, key=lambda each: (each != "hgcn", each))
        elif name in known:
            find_model(name)  # a package that cannot be imported is an error
            chosen.append(name)
        elif name:
            fix = suggest_models(name, [*known, "paper", "all"])
            raise ArgumentError("compare", "models", "name models, 'paper' or 'all'", repr(name), fix)
    if not chosen:
        raise ArgumentError("compare", "models", "name at least one model, or 'paper' or 'all'", "none")
    return tuple(dict.fromkeys(chosen))


def describe_failure(error: Exception) -> str:
    """Why a cell failed, in one line."""
    text = str(error) if isinstance(error, GraphcapsError) else f"{type(error).__name__}: {error}"
    return shorten(" ".join(text.split()), 500)


def _lock(results: ResultsStore) -> AbstractContextManager[None]:
    """Refuses a second comparison in a folder: each would train what the other trains, and write the same page."""
    results.folder.mkdir(parents=True, exist_ok=True)
    fix = "Wait until it has ended, or name another folder."
    refusal = DataError(results.folder, "another process is running a comparison in this folder", fix=fix)
    return lock_file(results.folder / "comparison", refusal=refusal)


def _reads_smiles_only(name: str) -> bool:
    model = find_model(name)
    return issubclass(model, ClassicalModel) and model.inputs == {"smiles"}
