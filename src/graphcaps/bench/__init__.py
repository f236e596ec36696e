"""Measures the speed of training on this machine: epochs, phases of a step, and growth with the size of a graph.

Epochs and phases are those of training itself. A computation beside it, such as the sampled loss, is timed only after
its check against a reference.
"""

from graphcaps.bench.measurements import CheckError, make_measurement, merge_measurements, read_measurements
from graphcaps.bench.phases import PhaseTime, StepTime, time_phases
from graphcaps.bench.roofline import Ceilings, Count, StepSizes, count_phases, measure_ceilings, step_sizes
from graphcaps.bench.scaling import SIZES, Scaling, measure_scaling, scaling_measurements
from graphcaps.bench.speed import Speed, measure_speed

__all__ = [
    "SIZES",
    "Ceilings",
    "CheckError",
    "Count",
    "PhaseTime",
    "Scaling",
    "Speed",
    "StepSizes",
    "StepTime",
    "count_phases",
    "make_measurement",
    "measure_ceilings",
    "measure_scaling",
    "measure_speed",
    "merge_measurements",
    "read_measurements",
    "scaling_measurements",
    "step_sizes",
    "time_phases",
]
