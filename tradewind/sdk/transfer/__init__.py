"""Transfer of the training state to a joining rank while the other ranks continue training.

On the joining rank:
    receiver = Receiver()
    port, token = receiver.listen(generation, address, peers, world_size)  # senders need both
    receiver.restart(generation)                 # when it is in that world
    snapshot = receiver.wait(timeout_s)          # the state before step snapshot.step; receiver.failed has the error
    state.load(snapshot.header, snapshot.data)   # then it replays the recorded steps up to step k
    receiver.ask_admission(k, state.fingerprint())
    receiver.wait_admission(timeout_s)           # or admitted(), admission; UNKNOWN: ask again
    receiver.stop_listening()                    # when it has a share

On each rank that has the state:
    streamer = Streamer(fingerprints)
    streamer.prepare(destination, nbytes, of)    # before the switch: connects; both sides allocate memory. Not on the
                                                 # training thread: starting threads takes milliseconds
    job = StreamJob(destination, generation, step, shard, of, state, header=state.header() if shard == 0 else None)
    streamer.offer(job)                          # at the switch; returns at once
    job.copied.wait(timeout_s) or job.abandon()  # before the next optimizer step
    fingerprints[k] = state.fingerprint()        # after each step, while a rank joins
"""
