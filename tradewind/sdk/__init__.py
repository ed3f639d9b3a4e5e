"""The SDK: a training loop that lives through changes of the world. It needs torch and the standard library.

- `run.py` is what a script holds; `assembly.py` puts its parts together.
- `training.py` is the training thread. It computes (`data/`), exchanges each step (`exchange.py`, with `buckets.py`,
  `control_words.py` and `update.py`), and enters worlds (`starting.py`, `joining.py`).
- `trainer/` decides where this trainer stands in the changing world: a pure core, and a shell for its threads.
  `worlds.py` connects it to the worker-agent (`agent/`), to process groups (`groups/`) and to transfers of the state.
- `training_state/` is all that must survive; it goes to joining workers by `transfer/` and to disk by `checkpoints.py`.
"""
