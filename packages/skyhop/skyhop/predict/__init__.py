"""Prediction of the latency and throughput of the next seconds, from the past and from orbits.

>>> from skyhop import predict
>>> data = predict.read_data(["victoria_1.csv.gz"])  # doctest: +SKIP
>>> predict.load_model("models/xgboost").test(data)  # doctest: +SKIP

`skyhop_lab.predict` trains models. Names are imported at their first use.
"""

from skyhop.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
