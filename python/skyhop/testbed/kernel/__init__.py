"""The kernel service: what runs may have done as root, and nothing else.

`service` serves typed requests (`requests`) on a Unix socket; `network` and `uplinks` give a run
its device, `congestion`, `queues` and `settings` change what is the run's alone; `journal` has
every change on the disk before it is made, so that a service that was killed undoes it when it
returns.
`client` is what executor and agent use.
"""
