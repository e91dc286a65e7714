"""Training of predictors of latency and throughput, for `skyhop.predict` to use.

>>> from skyhop import predict
>>> from skyhop_lab.predict.training import train
>>> data = predict.read_data(["victoria_1.csv.gz"])  # doctest: +SKIP
>>> models = train(data, ["xgboost"], "models")  # doctest: +SKIP

Training needs the libraries of the extra `skyhop-lab[predict]`.
"""
