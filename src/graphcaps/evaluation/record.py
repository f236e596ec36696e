"""Record of all folds of one seed: curves, configuration, data fingerprint, versions and hardware."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from graphcaps._io.atomic_write import escape_text
from graphcaps._io.read_limit import check_json
from graphcaps.config import RunConfig
from graphcaps.errors import DataError, GraphcapsError
from graphcaps.evaluation.epoch_records import EpochRecords
from graphcaps.evaluation.fold_metrics import FoldMetrics
from graphcaps.evaluation.graph_predictions import GraphPredictions
from graphcaps.evaluation.partition import Partition
from graphcaps.metrics import METRIC_TITLES, SelectionMetric
from graphcaps.nn.capsule_use import CapsuleUse

__all__ = ["PROTOCOLS", "DatasetFingerprint", "Protocol", "RecordKey", "SeedRecord", "read_key", "settings"]

Protocol = Literal["held-out", "paper"]
PROTOCOLS: tuple[Protocol, ...] = ("held-out", "paper")
_FORMAT = "graphcaps record 2"


@dataclass(frozen=True, order=True)
class RecordKey:
    """Identifies a record; a results store holds one record per key.

    Args:
        dataset, variant, protocol (str): Data set, model and protocol.
        seed (int): Seed of the training.
        division (int): Number of the division into folds; not written if it is 0, the folds of all published results.
            (default: 0)
    """

    dataset: str
    variant: str
    protocol: str
    seed: int
    division: int = 0

    def __str__(self) -> str:
        division = f", division {self.division}" if self.division else ""
        return f"{self.dataset}, {self.variant}, {self.protocol}, seed {self.seed}{division}"


@dataclass(frozen=True)
class DatasetFingerprint:
    """Identifies a data set by its sizes and by checksums of its class labels and of its content.

    Args:
        graphs, nodes, edges, classes (int): Number of each.
        y_sha256 (str): SHA-256 of the class labels in order.
        sha256 (str): SHA-256 of edges, class labels, node and edge labels, attributes and weights.
    """

    graphs: int
    nodes: int
    edges: int
    classes: int
    y_sha256: str
    sha256: str


@dataclass(frozen=True, repr=False)
class SeedRecord:
    """Curves of all folds of one seed, trained under one protocol.

    Args:
        key (RecordKey): Data set, variant, protocol and seed.
        config (RunConfig): The resolved configuration.
        data (DatasetFingerprint): The graphs it was trained on.
        folds_seed (int): Seed of the folds, not of the training.
        curves (EpochRecords): A row per fold, in the order of the folds.
        seconds (float): Training time; seeds trained together have equal shares of it.
        finished (str): Time of completion, UTC, as ``2026-01-31T12:00:00Z``.
        versions (dict): Versions and commit.
        hardware (str): Description of the device.
        notes (tuple): Remarks on the training, one sentence each.
        partition (Partition, optional): Groups or fixed split behind the folds; not written for plain stratified
            folds.
        patience (int, optional): Epochs without progress after which a fold stops; not written if all folds are
            trained to the last epoch.
        metric (str): Metric of the validation set that selects the epoch; not written if it is the loss.
        class_weight (str, optional): ``"balanced"`` if the losses weight classes inversely to their frequency in the
            training graphs of each fold; not written otherwise.
        metrics (FoldMetrics, optional): Further metrics of the test graphs at the held-out epoch; ``None`` in records
            of the protocol ``"paper"`` and of earlier versions.
        predictions (GraphPredictions, optional): Predictions at the held-out epoch, where they were asked for.
        capsule_use (tuple): Capsules in use of each fold after the last epoch; empty for models without capsules and in
            records of earlier versions.
        peak_memory (int, optional): Largest memory while the seed was trained, in bytes: allocated on a GPU, or of the
            process and its workers. Seeds trained together have the same. ``None`` where it was not measured.
    """

    key: RecordKey
    config: RunConfig
    data: DatasetFingerprint
    folds_seed: int
    curves: EpochRecords
    seconds: float
    finished: str
    versions: dict[str, str] = field(default_factory=dict)
    hardware: str = ""
    notes: tuple[str, ...] = ()
    partition: Partition | None = None
    patience: int | None = None
    metric: SelectionMetric = "loss"
    class_weight: str | None = None
    metrics: FoldMetrics | None = None
    predictions: GraphPredictions | None = None
    capsule_use: tuple[CapsuleUse, ...] = ()
    peak_memory: int | None = None

    def __post_init__(self) -> None:
        # Rounded as in the file, so that a record that is read back equals the original.
        object.__setattr__(self, "seconds", round(self.seconds, 3))

    def __repr__(self) -> str:
        return f"SeedRecord({self.key}: {self.curves.num_folds} folds, {self.curves.num_epochs} epochs)"

    @property
    def settings(self) -> dict[str, Any]:
        """All values that determine the results besides the key; equal for records that can be compared.

        ``folds_seed`` is that of division 0: it is equal for all divisions.
        """
        return settings(
            *(self.config, self.curves.num_folds, self.folds_seed - self.key.division, self.data),
            *(self.partition, self.patience),
            *(self.metric, self.class_weight),
        )

    # ------------------------------------------------------------------ saving
    def as_dict(self, *, curves: dict[str, Any] | None = None) -> dict[str, Any]:
        """JSON-safe; :meth:`from_dict` reads it back.

        Args:
            curves (dict, optional): Value written in place of the encoded curves.
        """
        return {
            "format": _FORMAT,
            **{name: value for name, value in vars(self.key).items() if name != "division" or value},
            "finished": self.finished,
            "seconds": self.seconds,
            **({} if self.peak_memory is None else {"peak_memory": self.peak_memory}),
            "hardware": self.hardware,
            "versions": self.versions,
            "notes": list(self.notes),
            "data": vars(self.data),
            "folds_seed": self.folds_seed,
            **({} if self.partition is None else {"partition": vars(self.partition)}),
            **({} if self.patience is None else {"patience": self.patience}),
            **({} if self.metric == "loss" else {"metric": self.metric}),
            **({} if self.class_weight is None else {"class_weight": self.class_weight}),
            "config": self.config.as_dict(),
            **({} if self.metrics is None else {"metrics": self.metrics.as_dict()}),
            **({"capsule_use": [asdict(use) for use in self.capsule_use]} if self.capsule_use else {}),
            "curves": self.curves.as_dict() if curves is None else curves,
            **({} if self.predictions is None else {"predictions": self.predictions.as_dict()}),
        }

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "record") -> SeedRecord:
        """Reads what :meth:`to_json` wrote.

        Raises:
            DataError: If the text is not a record; the message names ``where``.
        """
        check_json(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"), where)
        try:
            values = json.loads(text)
        except (ValueError, RecursionError, OverflowError) as error:
            raise DataError(where, "a record written by graphcaps", "invalid JSON") from error
        return cls.from_dict(values, where)

    @classmethod
    def from_dict(cls, values: Any, where: str = "record") -> SeedRecord:
        """Reads what :meth:`as_dict` returned."""
        key = read_key(values, where)
        _expect_types(values, _TYPES, where)
        _expect_types(values["data"], _DATA_TYPES, f"{where}, data")
        try:
            config = RunConfig.from_dict(values["config"], f"{where}, config")
        except (GraphcapsError, ValueError, OverflowError, RecursionError) as error:
            raise DataError(where, "a valid configuration", f"an invalid one ({error})") from error
        curves = EpochRecords.from_dict(values["curves"], where)
        metrics, predictions = values.get("metrics"), values.get("predictions")
        return cls(
            key,
            config,
            DatasetFingerprint(**{name: values["data"][name] for name in _DATA_TYPES}),
            values["folds_seed"],
            curves,
            _seconds(values["seconds"], where),
            values["finished"],
            {str(name): str(value) for name, value in values["versions"].items()},
            values["hardware"],
            tuple(str(note) for note in values["notes"]),
            Partition.from_dict(values["partition"], where) if "partition" in values else None,
            _whole_number(values, "patience", where),
            _metric(values.get("metric", "loss"), where),
            _class_weight(values.get("class_weight"), where),
            None if metrics is None else FoldMetrics.from_dict(metrics, curves.num_folds, where),
            None if predictions is None else GraphPredictions.from_dict(predictions, where),
            _capsule_use(values["capsule_use"], curves.num_folds, where) if "capsule_use" in values else (),
            _whole_number(values, "peak_memory", where),
        )


def read_key(values: Any, where: str) -> RecordKey:
    """The key of a record given as :meth:`SeedRecord.as_dict`.

    Raises:
        DataError: If the values are not a record of this format, or the key is incomplete.
    """
    name = values.get("format") if isinstance(values, Mapping) else None
    if name != _FORMAT:
        raise DataError(where, f"a record in the format '{_FORMAT}'", repr(name)[:60])
    _expect_types(values, _KEY_TYPES, where)
    if values["protocol"] not in PROTOCOLS:
        raise DataError(where, f"one of the protocols {', '.join(PROTOCOLS)}", repr(values["protocol"])[:60])
    for name in ("dataset", "variant"):
        if escape_text(values[name]) != values[name]:  # it is part of a file name
            raise DataError(where, f"a name in Unicode under '{name}'", f"'{escape_text(values[name])}'")
    division = values.get("division", 0)
    if type(division) is not int or division < 0:
        raise DataError(where, "a whole number from 0 on under 'division'", repr(division)[:60])
    names = (values["dataset"], values["variant"], values["protocol"])
    return RecordKey(*names, seed=values["seed"], division=division)


def settings(
    config: RunConfig,
    folds: int,
    folds_seed: int,
    data: DatasetFingerprint,
    partition: Partition | None = None,
    patience: int | None = None,
    metric: SelectionMetric = "loss",
    class_weight: str | None = None,
) -> dict[str, Any]:
    """All values that determine the results of a run, as a flat table.

    The file of a configuration is left out: equal values are the same run. Plain stratified folds have no entry
    ``partition``, a run without early stopping no entry ``patience``, one that selects by the loss no ``metric``, and
    one without class weights no ``class_weight``.
    """
    flat: dict[str, Any] = {}
    values = config.as_dict()
    for section in ("model", "features", "training"):
        flat |= {f"{section}.{name}": value for name, value in values[section].items()}
    flat |= {"folds": folds, "folds_seed": folds_seed}
    flat |= {} if partition is None else {"partition": partition.fingerprint}
    flat |= {} if patience is None else {"patience": patience}
    flat |= {} if metric == "loss" else {"metric": metric}
    flat |= {} if class_weight is None else {"class_weight": class_weight}
    return flat | {f"data.{name}": value for name, value in vars(data).items()}


_KEY_TYPES: dict[str, type | tuple[type, ...]] = {
    "dataset": str,
    "variant": str,
    "protocol": str,
    "seed": int,
}
_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("finished", "hardware"), str),
    "folds_seed": int,
    "seconds": (int, float),
    "notes": list,
    **dict.fromkeys(("versions", "data", "config", "curves"), dict),
}
_DATA_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("graphs", "nodes", "edges", "classes"), int),
    "y_sha256": str,
    "sha256": str,
}


def _whole_number(values: Mapping[str, Any], name: str, where: str) -> int | None:
    """An entry from 1 on; ``None`` if there is none."""
    if name not in values:
        return None
    value = values[name]
    if type(value) is not int or value < 1:
        raise DataError(where, f"a whole number from 1 on under '{name}'", repr(value)[:60])
    return value


def _metric(value: Any, where: str) -> SelectionMetric:
    for name in METRIC_TITLES:
        if value == name:
            return name
    raise DataError(where, f"one of {', '.join(METRIC_TITLES)} under 'metric'", repr(value)[:60])


def _class_weight(value: Any, where: str) -> str | None:
    if value not in (None, "balanced"):
        raise DataError(where, "'balanced' under 'class_weight'", repr(value)[:60])
    return None if value is None else "balanced"


def _capsule_use(value: Any, folds: int, where: str) -> tuple[CapsuleUse, ...]:
    entries = value if isinstance(value, list) and len(value) == folds else [None]
    uses = []
    for entry in entries:
        numbers = [entry.get(name) for name in ("in_use", "capsules")] if isinstance(entry, dict) else [None]
        if not all(type(number) is int and number >= 1 for number in numbers):
            expected = f"{folds} tables of in_use and capsules under 'capsule_use'"
            raise DataError(where, expected, repr(value)[:60])
        uses.append(CapsuleUse(*numbers))
    return tuple(uses)


def _seconds(value: int | float, where: str) -> float:
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not (math.isfinite(seconds) and seconds >= 0):
        raise DataError(where, "a finite number from 0 on under 'seconds'", f"{seconds}")
    return seconds


def _expect_types(
    values: Mapping[str, Any], types: Mapping[str, type | tuple[type, ...]], where: str
) -> None:
    for name, kind in types.items():
        if not isinstance(values.get(name), kind) or isinstance(values.get(name), bool):
            words = {str: "a text", int: "a whole number", list: "a list", dict: "a table"}
            expected = words.get(kind, "a number") if isinstance(kind, type) else "a number"
            raise DataError(where, f"{expected} under '{name}'", repr(values.get(name))[:60])
