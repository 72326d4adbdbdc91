"""Optimizers for binarized networks: Bop, Bop2ndOrder and other flip rules, Adam, schedules, a switch and telemetry."""

from .adam import AdamRule, LatentRule
from .advice import OptimizerWarning
from .bop import Bop, BopRule
from .bop2nd import Bop2ndOrder, Bop2ndRule
from .cascade import CascadedBop2nd, CascadeRule
from .cema import Cema, CemaRule
from .diode import Diode, DiodeRule
from .model_optimizer import ModelOptimizer
from .registry import RULES
from .schedule import SCHEDULES, Constant, Cosine, Exponential, Geometric, Polynomial, Schedule, Triangle, as_schedule
from .schedules import Schedules
from .sgd import LatentSgdRule, SgdRule
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
    "CascadeRule",
    "CascadedBop2nd",
    "Cema",
    "CemaRule",
    "Constant",
    "Cosine",
    "Diode",
    "DiodeRule",
    "Exponential",
    "Geometric",
    "LatentRule",
    "LatentSgdRule",
    "LayerFlips",
    "ModelOptimizer",
    "OptimizerWarning",
    "Polynomial",
    "Report",
    "Schedule",
    "Schedules",
    "SgdRule",
    "Switch",
    "Telemetry",
    "Triangle",
    "as_schedule",
    "flip_measure",
    "noise_flip_ratio",
]
