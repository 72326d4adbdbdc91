"""Optimizers for binarized networks: Bop and Bop2ndOrder, Adam for the rest, schedules, a switch and telemetry."""

from .adam import AdamRule, LatentRule
from .advice import OptimizerWarning
from .bop import Bop, BopRule
from .bop2nd import Bop2ndOrder, Bop2ndRule
from .cema import Cema, CemaRule
from .model_optimizer import ModelOptimizer
from .registry import RULES
from .schedule import SCHEDULES, Constant, Cosine, Exponential, Geometric, Polynomial, Schedule, as_schedule
from .schedules import Schedules
from .switch import Switch
from .telemetry import LayerFlips, Report, Telemetry, flip_measure, noise_flip_ratio

__all__ = [
    "RULES",
    "SCHEDULES",
    "AdamRule",
    "Bop",
    "Bop2ndOrder",
    "Bop2ndRule",
    "BopRule",
    "Cema",
    "CemaRule",
    "Constant",
    "Cosine",
    "Exponential",
    "Geometric",
    "LatentRule",
    "LayerFlips",
    "ModelOptimizer",
    "OptimizerWarning",
    "Polynomial",
    "Report",
    "Schedule",
    "Schedules",
    "Switch",
    "Telemetry",
    "as_schedule",
    "flip_measure",
    "noise_flip_ratio",
]
