"""Prediction of the latency and throughput of the next seconds, from the past and from orbits.

>>> from skyhop import predict
>>> data = predict.read_data(["victoria_1.csv.gz"])  # doctest: +SKIP
>>> predict.load_model("models/xgboost").test(data)  # doctest: +SKIP

`skyhop_lab.predict` trains models. Names are imported at their first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skyhop.predict.ahead import rates_ahead, rates_along_path
    from skyhop.predict.frame import read_frame, write_frame
    from skyhop.predict.live import Live
    from skyhop.predict.model import Evaluation, Model, load_model
    from skyhop.predict.sources import Data, Options, read_data

__all__ = [
    "Data",
    "Evaluation",
    "Live",
    "Model",
    "Options",
    "load_model",
    "rates_ahead",
    "rates_along_path",
    "read_data",
    "read_frame",
    "write_frame",
]

_HOMES = {
    "Data": "sources",
    "Live": "live",
    "Model": "model",
    "Options": "sources",
    "Evaluation": "model",
    "rates_along_path": "ahead",
    "load_model": "model",
    "rates_ahead": "ahead",
    "read_data": "sources",
    "read_frame": "frame",
    "write_frame": "frame",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"skyhop.predict.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'skyhop.predict' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
