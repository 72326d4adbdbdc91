"""Run packed binarized networks on the C++ core. Needs numpy and nothing else."""

from bitedge.runtime.box import boxed_models, find_model
from bitedge.runtime.context import Context, Memory
from bitedge.runtime.description import NodeInfo, ValueInfo
from bitedge.runtime.errors import RuntimeFault
from bitedge.runtime.kernels import Kernels, available_kernels, cpu_features, version
from bitedge.runtime.model import Model

__all__ = [
    "Context",
    "Kernels",
    "Memory",
    "Model",
    "NodeInfo",
    "RuntimeFault",
    "ValueInfo",
    "available_kernels",
    "boxed_models",
    "cpu_features",
    "find_model",
    "version",
]
