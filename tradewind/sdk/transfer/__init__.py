"""How the training state gets to a joining worker while the other ranks continue training.

At the joining worker:
    receiver = Receiver()
    port, token = receiver.listen(generation, address, peers, world_size)  # senders need both
    receiver.restart(generation)                 # when it is in that world
    snapshot = receiver.wait(timeout_s)          # of the state before step snapshot.step; receiver.failed says why not
    state.load(snapshot.header, snapshot.data)   # then it applies the recorded steps, and when it is level at step k:
    receiver.ask_admission(k, state.fingerprint())
    receiver.wait_admission(timeout_s)           # or admitted(), admission; UNKNOWN: ask again
    receiver.stop_listening()                    # when it has a share

At each rank that has the state:
    streamer = Streamer(fingerprints)
    streamer.prepare(destination, nbytes, of)    # ahead of the switch: connects; both sides make memory ready. Not on
                                                 # the training thread: starting threads takes milliseconds
    job = StreamJob(destination, generation, step, shard, of, state, header=state.header() if shard == 0 else None)
    streamer.offer(job)                          # at the switch; returns at once
    job.copied.wait(timeout_s) or job.abandon()  # before the next optimizer step
    fingerprints[k] = state.fingerprint()        # after each step, while somebody joins
"""
