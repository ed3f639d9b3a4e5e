"""The SDK: a training loop that keeps running when the world changes. It needs torch and the standard library.

- `run.py` is the API for scripts; `assembly.py` connects the parts of a run.
- `training.py` is the training thread. It computes (`data/`), exchanges each step (`exchange.py`, with `buckets.py`,
  `control_words.py` and `update.py`), and enters worlds (`starting.py`, `joining.py`).
- `trainer/` decides which world this trainer is in and what it computes: a pure core, and a shell for its threads.
  `worlds.py` connects it to the worker-agent (`agent/`), to process groups (`groups/`) and to transfers of the state.
- `training_state/` is all state that must survive. `transfer/` sends it to joining workers, `checkpoints.py` writes it
  to disk.
"""
