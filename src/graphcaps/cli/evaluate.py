"""``graphcaps evaluate``: cross-validation of a model on one or more data sets."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from graphcaps.cli.cluster_options import RayAddress, cluster_progress, open_cluster
from graphcaps.cli.data_options import Fractions, Json, Root, SplitBy, describe_single_split
from graphcaps.cli.fold_options import (
    FOLDS,
    FirstSplitSeed,
    Folds,
    GroupsBy,
    RepeatFolds,
    Seeds,
    check_folds,
    check_seeded,
    check_seeds,
    load_with_splits,
    named_groups,
)
from graphcaps.cli.interrupts import suggest_resume
from graphcaps.cli.ledger_tables import show_ledgers
from graphcaps.cli.output import (
    format_size,
    note,
    option,
    print_json,
)
from graphcaps.cli.output_files import RawText, check_output_file, check_output_folder, write_json
from graphcaps.cli.progress import cross_validation_progress
from graphcaps.cli.reader_options import takes_reader_options
from graphcaps.cli.run_options import (
    BatchSize,
    ClassWeight,
    Companion,
    Device,
    Ensemble,
    Epochs,
    LearningRate,
    MaxNodes,
    Metric,
    ModelName,
    Precision,
    Preset,
    Settings,
    check_committee,
    configure,
    describe_preset,
    selection_metric,
)
from graphcaps.cli.tracking_options import Log, note_log, open_log
from graphcaps.errors import ArgumentError, GraphcapsError, count_noun

if TYPE_CHECKING:
    from graphcaps.config import CommitteeConfig
    from graphcaps.data.datasets.loading import LoadedDataset
    from graphcaps.data.splits.folds import Split
    from graphcaps.data.store import GraphStore
    from graphcaps.evaluation import CrossValidation, Ledger
    from graphcaps.evaluation.committee_results import CommitteeResults
    from graphcaps.evaluation.mixture_results import MixtureResults
    from graphcaps.execution import RayExecutor
    from graphcaps.training import CallbackError

__all__ = ["evaluate"]

_MAX_VARIANT_LENGTH = 100
_MAX_CLASSES = 10  # in a sentence


@takes_reader_options()
def evaluate(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="Data sets, TU folders or zips, or your own files (docs/inputs.md)."
        ),
    ],
    root: Root = None,
    preset: Preset = None,
    protocol: Annotated[
        str, option("--protocol", metavar="NAME", help="held-out, paper or both.")
    ] = "held-out",
    model: ModelName = None,
    settings: Settings = None,
    variant: Annotated[
        str | None, option("--variant", metavar="NAME", help="Name in the results. Default: the model.")
    ] = None,
    seeds: Seeds = 1,
    ensemble: Ensemble = None,
    companion: Companion = None,
    folds: Folds = FOLDS,
    groups: GroupsBy = None,
    split: SplitBy = None,
    repeat: RepeatFolds = None,
    seed: FirstSplitSeed = None,
    fractions: Fractions = None,
    patience: Annotated[
        int | None,
        option(
            "--patience",
            metavar="N",
            min=0,
            help="Stop a fold after N epochs (of at least ten steps) without improvement; 0: never (default). "
            "Not with protocol paper.",
        ),
    ] = None,
    metric: Metric = None,
    class_weight: ClassWeight = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    max_nodes: MaxNodes = None,
    precision: Precision = None,
    device: Device = "auto",
    ray: RayAddress = None,
    baseline: Annotated[
        bool | None,
        option(
            "--baseline/--no-baseline",
            help="Also fit a forest and the largest class on the same folds. Default: for your own graphs.",
        ),
    ] = None,
    group: Annotated[
        int | None,
        option(
            "--group", metavar="N", help="Limit of models trained together. Default: what fits in memory."
        ),
    ] = None,
    out: Annotated[Path | None, option("--out", metavar="DIR", help="Folder for the records.")] = None,
    predictions: Annotated[
        Path | None,
        option(
            "--predictions",
            metavar="FILE.csv",
            help="Write the probabilities of each validation and test graph, with seed, fold and split.",
        ),
    ] = None,
    raw_text: RawText = False,
    resume: Annotated[
        bool, option("--resume", help="Keep finished records in DIR and continue unfinished ones.")
    ] = False,
    checkpoint_every: Annotated[
        int | None,
        option(
            "--checkpoint-every",
            metavar="EPOCHS",
            min=1,
            help="Epochs between checkpoints. Default: the first epoch, then one every 20 seconds.",
        ),
    ] = None,
    log: Log = None,
    as_json: Json = False,
    *,
    reader: dict[str, Any],
) -> None:
    """Cross-validate a model; all folds and seeds are trained together.

    Protocol held-out trains on eight of ten folds, selects the epoch on the ninth and tests on the tenth; it
    gives the held-out accuracy. Protocol paper trains on nine folds and selects the epoch on the test folds, as
    the published results do (C, C*); these are upper bounds. both runs the two.

    A forest and the largest class on the same folds show what the graphs give without a network (--no-baseline).

    --ensemble 5 trains five times as many seeds and adds the held-out result of their committees.

    --companion wl-forest also fits a forest on the same folds and adds its held-out result and that of its mixture
    with the network. --preset best does both.

    --repeat 5 repeats the cross-validation in five divisions into folds: one division of a few hundred graphs says
    little. --groups keeps duplicates or other groups in one fold. --split trains one fixed split instead of folds;
    --split scaffold --repeat 10 trains ten splits by scaffold, under ten seeds.
    """
    from graphcaps.config import CommitteeConfig

    _check_options(out, variant, seeds * (ensemble or 1))
    _check_committee(CommitteeConfig(ensemble or 1, companion), protocol)
    _check_predictions(predictions, names, protocol, groups, split)
    selection, weights = selection_metric(metric, "evaluate"), _class_weight(class_weight)
    check_folds("evaluate", names, folds, groups, split, protocol)
    check_seeded("evaluate", split, repeat, seed, repeats_folds=True)
    divisions = (repeat or 1) if split is None else 1
    loggers = open_log(log, "evaluate")
    from graphcaps.data.readers.row_rules import describe_copies_in_folds
    from graphcaps.evaluation import CrossValidation, Ledger, ResultsStore
    from graphcaps.evaluation.fold_learning import fold_learning_warning
    from graphcaps.training.auto_config import check_network_options

    loaded = load_with_splits("evaluate", names, root, reader, split, repeat, seed, fractions)
    results = None if out is None else ResultsStore(out)
    executor = open_cluster(context, ray, log=log)
    validations = []
    for dataset, fixed_splits in loaded:  # all options are checked before the first training
        store = dataset.store
        config = configure(
            store, preset=preset, model=model,
            epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, max_nodes=max_nodes,
            precision=precision, settings=settings, ensemble=ensemble, companion=companion,
        )  # fmt: skip
        network_options = {
            "--group": group,
            "--patience": patience,
            "--metric": metric,
            "--class-weight": class_weight,
            "--checkpoint-every": checkpoint_every,
            "--log": log,
        }
        check_network_options(config, network_options, "options")
        committee = check_committee(config, store, ensemble, companion)
        check_seeds("evaluate", seeds * committee.members)
        _check_committee(committee, protocol, config.source)
        if groups is None and not fixed_splits and (copies := describe_copies_in_folds(store.smiles)):
            note(f"{store.name}: {copies}")
        grouping = named_groups(groups, dataset)
        of_dataset = [
            CrossValidation(
                store, config, folds=folds, seeds=seeds, protocol=protocol, device=device, group=group,
                variant=variant, results=results, resume=resume, checkpoint_every=checkpoint_every,
                groups=grouping, split=fixed_splits or None, patience=patience or None,
                metric=selection, class_weight=weights, predictions=predictions is not None, callbacks=loggers,
                division=division, executor=executor,
            )
            for division in range(divisions)
        ]  # fmt: skip
        if groups is not None and of_dataset[0].partition is None:
            note(f"{store.name}: no two graphs share a group ({groups}), so the folds are the ordinary ones.")
        validations.append((dataset, of_dataset))
    ledgers: list[Ledger] = []
    callback_errors: list[CallbackError] = []
    baselines: dict[str, list[Ledger]] = {}
    committees: dict[str, CommitteeResults] = {}
    mixtures: dict[str, MixtureResults] = {}
    with ExitStack() as locks:
        for validation in (each for _, of_dataset in validations for each in of_dataset):
            locks.enter_context(validation.lock())  # all of them before the first training
        for _, of_dataset in validations if executor is not None else ():
            _describe_run(of_dataset, preset)
        if executor is not None:
            _train_on_cluster(
                [each for _, of_dataset in validations for each in of_dataset], executor, out, as_json
            )
        for dataset, of_dataset in validations:
            if executor is None:
                _describe_run(of_dataset, preset)
            runs = [
                _run(each, f"{number}/{divisions}" if divisions > 1 else "", out, as_json, callback_errors)
                for number, each in enumerate(of_dataset, 1)
            ]
            ledger = Ledger.join(runs)
            ledgers.append(ledger)
            members = of_dataset[0].members
            if members > 1:
                committees[ledger.dataset] = ledger.committees(members)
            if ledger.companions:
                mixtures[ledger.dataset] = ledger.mixture(members)
            is_wanted = dataset.store.catalogue_name is None and not of_dataset[0].is_classical
            if is_wanted if baseline is None else baseline:
                baselines[ledger.dataset] = _run_baselines(of_dataset)
            if class_weight is None and (warning := fold_learning_warning(ledger, of_dataset)):
                note(warning)
            if ledger.capsule_warning:
                note(f"{ledger.dataset}: {ledger.capsule_warning}")
            if out is not None:
                beside = committees.get(ledger.dataset), mixtures.get(ledger.dataset)
                _write_summary(out, ledger, baselines.get(ledger.dataset, []), dataset, *beside)
            if predictions is not None:
                _write_predictions(predictions, ledger, dataset, of_dataset[0].splits, raw_text=raw_text)
            note_log(loggers)
    if as_json:
        keys = [(ledger, ledger.dataset) for ledger in ledgers]
        print_json(
            [
                _summary(each, baselines.get(name, []), committees.get(name), mixtures.get(name))
                for each, name in keys
            ]
        )
    else:
        show_ledgers(ledgers, baselines, committees, mixtures, out)
    if callback_errors:  # last: an exception in a callback loses nothing
        raise callback_errors[0]


# Options


def _check_options(out: Path | None, variant: str | None, seeds: int) -> None:
    """Rejects, before anything is read or trained, what cannot be written at the end."""
    if variant is not None and len(variant) > _MAX_VARIANT_LENGTH:
        expected = f"have at most {_MAX_VARIANT_LENGTH} characters"
        raise ArgumentError("evaluate", "--variant", expected, f"{len(variant)}")
    check_seeds("evaluate", seeds)
    if out is not None:
        check_output_folder(out)


def _check_committee(committee: CommitteeConfig, protocol: str, preset: str = "") -> None:
    """Rejects committees whose epochs, and companions whose weight, would be selected on test graphs.

    Args:
        committee (CommitteeConfig): Members and companion.
        protocol (str): The value of ``--protocol``.
        preset (str): The preset that they are of; "" for those of options. (default: "")
    """
    if protocol == "held-out":
        return
    got = f"--protocol {protocol}"
    fix = f"It is of the preset '{preset}'; --ensemble 1 --companion none leave it out." if preset else ""
    if committee.members > 1:
        expected = "come with --protocol held-out, whose epochs are not selected on test graphs"
        raise ArgumentError("evaluate", "--ensemble", expected, got, fix)
    if committee.companion is not None:
        expected = "come with --protocol held-out, whose validation graphs choose the weight"
        raise ArgumentError("evaluate", "--companion", expected, got, fix)


def _check_predictions(path: Path | None, names: list[str], protocol: str, *read: str | None) -> None:
    """Rejects a file of predictions that cannot be written, that is also ``read``, or that would hold nothing."""
    if path is None:
        return
    if path.suffix.lower() != ".csv":
        raise ArgumentError("evaluate", "--predictions", "end in .csv", f"'{path.name}'")
    if len(names) > 1:
        raise ArgumentError("evaluate", "--predictions", "come with one data set", f"{len(names)} data sets")
    if protocol != "held-out":
        expected = "come with --protocol held-out, whose epoch is not selected on test graphs"
        raise ArgumentError("evaluate", "--predictions", expected, f"--protocol {protocol}")
    check_output_file(path, *names, *read)


def _class_weight(name: str | None) -> Literal["balanced"] | None:
    if name not in (None, "balanced"):
        raise ArgumentError("evaluate", "--class-weight", "be 'balanced'", f"'{name}'")
    return None if name is None else "balanced"


# Training


def _describe_run(validations: Sequence[CrossValidation], preset: str | None) -> None:
    """Says what is trained on a data set, and the classes of its folds or splits."""
    validation = validations[0]
    name, config, seeds = validation.store.name, validation.config, len(validation.seeds)
    folds, partition = validation.folds.num_folds, validation.partition
    unit = "split" if partition is not None and partition.kind != "groups" else "fold"
    divisions = f"{count_noun(len(validations), 'division')} × " if len(validations) > 1 else ""
    runs = f"{'one split' if folds == 1 else count_noun(folds, unit)} × {count_noun(seeds, 'seed')}"
    if validation.members > 1:
        committees = count_noun(seeds // validation.members, "committee")
        runs += f" ({committees} of {validation.members} members)"
    if (
        unit == "fold"
        and folds != FOLDS
        and "held-out" in validation.protocols
        and not validation.is_classical
    ):
        runs += f" (held-out: {count_noun(folds - 2, 'fold')} to train on, 1 to select the epoch, 1 to test)"
    note(f"{name}: {divisions}{runs}, {config.model}, {describe_preset(validation.store, config, preset)}.")
    if validation.class_counts is not None and partition is not None:
        what = "Folds" if partition.kind == "groups" else "Split" if folds == 1 else "Splits"
        note(f"{what} ({partition.by}):\n{validation.class_counts.table()}")
        if folds == 1 and (sentence := describe_single_split(validation.splits[0], "add --repeat 10.")):
            note(sentence)
    if validation.class_weight is not None:
        note(_describe_weights(validation.store))
    if sentence := _describe_inner(validations):
        note(sentence)
    finished = sum(len(each.finished) for each in validations)
    if finished:
        total = len(validations) * len(validation.protocols) * seeds
        note(f"{name}: {finished} of {total} records are finished.")


def _describe_inner(validations: Sequence[CrossValidation]) -> str:
    """How many further models choose the weights of companions; "" if none is left to train."""
    from graphcaps.training.companion_weights import MIN_VALIDATION

    all_runs = [each.companion_runs for each in validations if each.companion_runs is not None]
    inner = [(runs, runs.inner[0]) for runs in all_runs if runs.inner]
    folds = sum(len(set(runs.fold_of_inner)) for runs, _ in inner)
    total = sum(each.folds.num_folds for each in validations)
    unfinished = [
        (len(network.seeds) - len(network.finished), network.folds.num_folds) for _, network in inner
    ]
    models = sum(seeds * splits for seeds, splits in unfinished)
    if not models:
        return ""
    members = validations[0].members
    of_one = (
        f" They are single models; the weights apply to the mean of {members} members." if members > 1 else ""
    )
    return (
        f"{validations[0].store.name}: the weights are chosen on out-of-fold predictions of the training graphs "
        f"in {folds} of {count_noun(total, 'fold')}, which have fewer than {MIN_VALIDATION} validation graphs. "
        f"{count_noun(models, 'further model')} {'is' if models == 1 else 'are'} trained for it.{of_one}"
    )


def _run(
    validation: CrossValidation,
    division: str,
    out: Path | None,
    quiet: bool,
    callback_errors: list[CallbackError],
) -> Ledger:
    """Trains one division of a data set with a progress bar; Ctrl-C says how to continue.

    An exception in a callback that follows a complete cross-validation is added to ``callback_errors``.

    Args:
        validation (CrossValidation): What is trained.
        division (str): Number of the division for the progress bar, such as ``2/5``; "" for the only one.
        out (Path, optional): Folder of results.
        quiet (bool): Draw no progress bar.
        callback_errors (list): Gets an exception in a callback.
    """
    from graphcaps.evaluation import Ledger
    from graphcaps.training import CallbackError

    name = validation.store.name
    total = len(validation.protocols) * len(validation.seeds)
    with suggest_resume(out):
        if len(validation.finished) < total and not validation.is_classical:
            if problem := validation.checkpoints.write_problem():
                note(problem)
            validation.prepare()
            if validation.division == 0:
                note(_describe_memory(validation))
        title = f"{name} division {division}" if division else ""
        try:
            with cross_validation_progress(title, variant=validation.variant, quiet=quiet) as update:
                return validation.run(update)
        except CallbackError as error:
            if not isinstance(error.result, Ledger):
                raise
            callback_errors.append(error)
            return error.result


def _train_on_cluster(
    validations: Sequence[CrossValidation], executor: RayExecutor, out: Path | None, quiet: bool
) -> None:
    """Trains all cells of all data sets at a time; the records are then complete. Ctrl-C says how to continue."""
    from graphcaps.evaluation.joint_training import train_together

    parts = [part for validation in validations for part in validation.parts]
    with suggest_resume(out), cluster_progress(quiet=quiet) as update:
        train_together(parts, executor, on_progress=update)


def _describe_weights(store: GraphStore) -> str:
    """The class weights of the whole data set; those of a fold are of its training graphs."""
    from graphcaps.training.class_weights import balanced_class_weights

    assert store.y is not None
    weights = balanced_class_weights(store.y, store.num_classes).tolist()
    shown = [f"'{name}' {weight:.3g}" for name, weight in zip(store.class_names, weights, strict=True)]
    more = f", … ({len(shown)} classes)" if len(shown) > _MAX_CLASSES else ""
    return f"{store.name}: class weights (balanced) {', '.join(shown[:_MAX_CLASSES])}{more}."


def _run_baselines(validations: Sequence[CrossValidation]) -> list[Ledger]:
    """The ledgers of simple models on the same folds, the better one first; notes why one is missing."""
    from graphcaps.evaluation import Ledger
    from graphcaps.training.baseline import baseline_configs

    validation, ledgers = validations[0], []
    for config in baseline_configs(validation.store):
        if config.model == validation.config.model:
            continue
        try:
            ledgers.append(Ledger.join([each.baseline(config).run() for each in validations]))
        except GraphcapsError as error:
            note(f"The baseline {config.model} could not be fitted: {error}")
        except KeyboardInterrupt:
            note("Stopped the baseline; --no-baseline leaves it out.")
            break
    return ledgers


def _describe_memory(validation: CrossValidation) -> str:
    """How many models are trained together, and the memory that they need."""
    assert validation.memory_estimate is not None
    assert validation.group is not None
    together = min(validation.group, validation.folds.num_folds * len(validation.seeds))
    count = "one model at a time" if together == 1 else f"{together} models together"
    memory = format_size(validation.memory_estimate.bytes_for(together))
    return f"{validation.store.name}: training {count}, about {memory} of memory."


# Results


def _summary(
    ledger: Ledger,
    baselines: Sequence[Ledger],
    committee: CommitteeResults | None,
    mixture: MixtureResults | None,
) -> dict[str, Any]:
    """The summary of a ledger, with the results of committees, companions and simple models on the same folds."""
    names = ("variant", "figures", "metrics", "seconds")
    rows = [{name: each.summary()[name] for name in names} for each in baselines]
    committees = {} if committee is None else {"committee": committee.as_dict()}
    mixtures = {} if mixture is None else {"companion": mixture.as_dict()}
    return ledger.summary() | committees | mixtures | ({"baselines": rows} if rows else {})


def _write_summary(
    out: Path,
    ledger: Ledger,
    baselines: Sequence[Ledger],
    loaded: LoadedDataset,
    committee: CommitteeResults | None,
    mixture: MixtureResults | None,
) -> None:
    """Writes the summary of the records: results, configuration, versions and source of the graphs."""
    from graphcaps.evaluation.results_store import file_name

    source = {"source": None if loaded.source is None else str(loaded.source)}
    path = out / f"{file_name(ledger.dataset, ledger.variant)}.summary.json"
    write_json(path, _summary(ledger, baselines, committee, mixture) | source)


def _write_predictions(
    path: Path,
    ledger: Ledger,
    loaded: LoadedDataset,
    splits: Sequence[Split] = (),
    *,
    raw_text: bool,
) -> None:
    """Writes a row per seed, fold and graph."""
    from graphcaps._io.atomic_write import write_atomically
    from graphcaps.evaluation.graph_predictions import predictions_csv

    store, metadata = loaded.store, loaded.metadata
    ids = None if metadata is None else metadata.ids
    records = [record for record in ledger.of("held-out") if record.predictions is not None]
    kept = [(record.key.seed, each) for record in records if (each := record.predictions) is not None]
    text = predictions_csv(
        kept,
        store.class_names,
        ids=ids,
        smiles=store.smiles,
        split_seeds=[split.seed for split in splits if split.seed is not None],
        divisions=[record.key.division for record in records] if len(ledger.divisions) > 1 else (),
        raw_text=raw_text,
    )
    write_atomically(path, text)
    note(f"Predictions of {sum(len(predictions) for _, predictions in kept):,} rows: {path}")
