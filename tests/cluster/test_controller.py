"""The controller as a process, with real processes for workers, on a real bus."""

import os
import shutil
import signal
from contextlib import suppress

import msgspec

from agents.cluster import machine
from agents.cluster.commands import epoch_is_over
from agents.cluster.reconcile import slower_starts
from agents.cluster.shell import taken_over
from agents.cluster.state import Known, KnownPlace, Rules, uid_of
from messages import subjects
from messages.clusters import Answer, KeepWorkers, Presence, RemoveWorkers, WorkerTemplate
from messages.ids import Epoch, WorkerId
from messages.workers import StopWorker, WorkerHeartbeat
from runtime.children import parent_of
from runtime.errors import NoAnswer
from runtime.nats_server import NatsServer
from tests.cluster.builders import a_status
from tests.cluster.conftest import CLUSTER, JOB, Bench, environment_of, is_running
from tests.cluster.stand_in_worker import LAST_WORDS
from tests.conftest import eventual_answer, eventually
from tests.escaping import escape_source, escaped


async def test_keeps_the_count_and_replaces_a_killed_worker_that_is_reported_gone(bench: Bench) -> None:
    await bench.start_and_hear()
    assert (await bench.keep(3)).ok
    workers = await bench.until_alive(3)
    victim, pid = next(iter(workers.items()))
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: victim in bench.gone, what="the killed worker is reported gone")
    assert "SIGKILL" in bench.gone[victim]
    survivors = await bench.until_alive(3)
    assert victim not in survivors and len(set(survivors) & set(workers)) == 2
    seqs = [heartbeat.seq for heartbeat in bench.topologies]
    assert seqs == sorted(set(seqs))


async def test_a_stopped_worker_is_silent_and_can_be_removed_and_a_count_of_zero_ends_the_rest(bench: Bench) -> None:
    await bench.start_and_hear(end_grace_s=1.0)
    await bench.keep(2)
    workers = await bench.until_alive(2)
    frozen, pid = next(iter(workers.items()))
    os.kill(pid, signal.SIGSTOP)
    await eventually(
        lambda: [observation.worker for observation in bench.seen(Presence.SILENT)] == [frozen], what="it is silent"
    )
    assert is_running(pid) and len(bench.alive) == 1
    assert (await bench.ask(RemoveWorkers(JOB, (frozen,), "silent"))).ok
    await eventually(lambda: frozen in bench.gone, what="it is gone")
    assert not is_running(pid)
    assert bench.topologies[-1].keeps == {JOB: 1}
    await bench.keep(0)
    await eventually(lambda: set(workers) <= set(bench.gone), what="all are gone")
    await eventually(lambda: not any(map(is_running, workers.values())), what="and so are their processes")
    assert bench.topologies[-1].keeps == {}


async def test_what_a_killed_worker_leaves_behind_is_ended_too(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1, env={"STAND_IN_HAS_CHILD": "1"})
    worker, pid = next(iter((await bench.until_alive(1)).items()))
    left = [other for other in machine.of_place(uid_of(worker), pid) if other != pid]
    assert left
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: worker in bench.gone, what="it is gone")
    await eventually(lambda: not any(map(is_running, left)), what="and so is what it had started")


async def test_what_a_killed_worker_leaves_is_ended_though_it_carries_no_mark_and_nothing_of_another_is(
    bench: Bench, escape: str
) -> None:
    await bench.start_and_hear()
    await bench.keep(2, env={"STAND_IN_RUNS": escape_source(escape)})
    workers = await bench.until_alive(2)
    worker, pid = next(iter(workers.items()))
    [left] = [other for other in escaped(escape) if parent_of(other) == pid]
    [spared] = [other for other in escaped(escape) if other != left]
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: worker in bench.gone, what="it is gone")
    await eventually(lambda: not is_running(left), what="and so is what it had started")
    await bench.until_alive(2)
    assert is_running(spared)
    await bench.keep(0)
    await eventually(lambda: not escaped(escape), what="nothing is left")


async def test_what_a_worker_left_behind_while_no_controller_was_there_is_ended_by_the_next(bench: Bench) -> None:
    first = await bench.start_and_hear()
    await bench.keep(1, env={"STAND_IN_HAS_CHILD": "1"})
    worker, pid = next(iter((await bench.until_alive(1)).items()))
    left = [other for other in machine.of_place(uid_of(worker), pid) if other != pid]
    first.kill()
    await first.wait()
    os.kill(pid, signal.SIGKILL)
    assert left and all(map(is_running, left))
    await bench.start_and_hear()
    await eventually(lambda: worker in bench.gone, what="it is gone")
    assert not any(map(is_running, left))


async def test_a_worker_that_dies_at_once_is_reported_with_its_last_words_and_not_started_in_a_hurry(
    bench: Bench,
) -> None:
    await bench.start_and_hear()
    await bench.keep(1, env={"STAND_IN_DIES": "1"})
    await eventually(lambda: len(bench.gone) >= 3, what="three died")
    assert all(why.endswith(f"3: {LAST_WORDS}") for why in bench.gone.values())
    first_pause = slower_starts(Rules().backoff_s)
    await eventually(lambda: first_pause in bench.said(0), what="the log tells why it waits")


async def test_what_a_worker_wrote_is_kept_if_it_did_not_end_well_and_said_where(bench: Bench) -> None:
    controller = await bench.start_and_hear()
    await bench.keep(2)
    workers = await bench.until_alive(2)
    killed, _ = workers
    os.kill(workers[killed], signal.SIGKILL)
    await eventually(lambda: killed in bench.gone, what="the killed one is reported")
    others = await bench.until_alive(2)
    await bench.keep(0)
    await eventually(lambda: set(others) <= set(bench.gone), what="the others have left")
    controller.send_signal(signal.SIGTERM)
    assert await controller.wait() == 0
    [kept] = bench.outputs()
    assert kept.endswith(f"/{uid_of(killed)}.log")
    reported = {line for line in bench.said(0).splitlines() if "place_ended" in line and kept in line}
    assert len(reported) == 1
    assert bench.settings.run_dir in bench.said(0).partition("cluster_controller_stopped")[2]


async def test_of_adopted_workers_only_those_that_went_when_told_leave_nothing_they_wrote(bench: Bench) -> None:
    first = await bench.start_and_hear()
    await bench.keep(2)
    workers = await bench.until_alive(2)
    first.kill()
    await first.wait()
    controller = await bench.start_and_hear()
    assert await bench.until_alive(2) == workers
    killed, _ = workers
    os.kill(workers[killed], signal.SIGKILL)
    await eventually(lambda: killed in bench.gone, what="the killed one is reported")
    others = await bench.until_alive(2)
    await bench.keep(0)
    await eventually(lambda: set(others) <= set(bench.gone), what="the others have left")
    controller.send_signal(signal.SIGTERM)
    assert await controller.wait() == 0
    [kept] = bench.outputs()
    assert kept.endswith(f"/{uid_of(killed)}.log")


async def test_an_interpreter_that_is_not_there_is_reported_not_fatal(bench: Bench) -> None:
    controller = await bench.start_and_hear(worker_command=("/nonexistent/python",))
    await bench.keep(1)
    await eventually(lambda: any("could not be started" in why for why in bench.gone.values()), what="it is reported")
    assert controller.returncode is None


async def test_a_restarted_controller_adopts_what_a_killed_one_left_and_sees_it_end(bench: Bench) -> None:
    first = await bench.start_and_hear()
    await bench.keep(3)
    workers = await bench.until_alive(3)
    first.kill()
    await first.wait()
    lost = next(iter(workers))
    os.kill(workers[lost], signal.SIGKILL)
    assert all(is_running(pid) for worker, pid in workers.items() if worker != lost)

    await bench.start_and_hear()
    await eventually(lambda: lost in bench.gone, what="the one that died meanwhile is reported")
    adopted = await bench.until_alive(3)
    assert len(set(adopted) & set(workers)) == 2
    next_lost = next(iter(set(adopted) & set(workers)))
    os.kill(workers[next_lost], signal.SIGKILL)
    await eventually(lambda: next_lost in bench.gone, what="the end of an adopted worker is seen")
    await bench.until_alive(3)


async def test_a_process_that_was_started_but_whose_pid_was_not_saved_is_found_by_its_uid(bench: Bench) -> None:
    first = await bench.start_and_hear()
    await bench.keep(1)
    workers = await bench.until_alive(1)
    first.kill()
    await first.wait()
    known = await bench.known()
    without_pid = tuple(msgspec.structs.replace(place, pid=0, birth="") for place in known.places)
    await bench.put_known(msgspec.json.encode(msgspec.structs.replace(known, places=without_pid)))
    await bench.start_and_hear()
    assert await bench.until_alive(1) == workers
    assert bench.gone == {}


async def test_a_number_that_now_belongs_to_another_process_is_never_touched(bench: Bench) -> None:
    bystander = await bench.start_by_hand("bystander")
    worker = WorkerId("wbeforex1-aaaa")
    place = KnownPlace("wbeforex1", JOB, pid=bystander.pid, birth="another-boot/1", worker=worker)
    await bench.put_known(msgspec.json.encode(Known(incarnation="before", places=(place,))))
    await bench.start_and_hear()
    await eventually(lambda: worker in bench.gone, what="the place is reported gone")
    assert is_running(bystander.pid)


async def test_a_record_that_cannot_be_read_does_not_hinder_the_start_and_workers_are_recognised(bench: Bench) -> None:
    first = await bench.start_and_hear()
    await bench.keep(1)
    workers = await bench.until_alive(1)
    first.kill()
    await first.wait()
    await bench.put_known(b"\xff not a record")
    await bench.start_and_hear()
    assert await bench.until_alive(1) == workers
    worker, pid = next(iter(workers.items()))
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: worker in bench.gone, what="its end is seen although the record was lost")


async def test_sigterm_ends_all_workers_and_the_next_controller_starts_as_many(bench: Bench) -> None:
    controller = await bench.start_and_hear()
    await bench.keep(2)
    workers = await bench.until_alive(2)
    controller.terminate()
    assert await controller.wait() == 0
    assert not any(map(is_running, workers.values()))
    assert set(workers) <= set(bench.gone)
    await bench.start_and_hear()
    assert not set(await bench.until_alive(2)) & set(workers)


async def test_workers_that_ignore_sigterm_are_killed_after_the_grace_and_at_once_on_a_second_signal(
    bench: Bench,
) -> None:
    patient = await bench.start_and_hear(end_grace_s=1.0)
    await bench.keep(2, env={"STAND_IN_STAYS": "1"})
    workers = await bench.until_alive(2)
    patient.terminate()
    await patient.wait()
    assert not any(map(is_running, workers.values()))

    hurried = await bench.start_and_hear(end_grace_s=20.0)
    workers = await bench.until_alive(2)
    hurried.terminate()
    await eventually(lambda: "place_ends" in bench.said(1), what="it has begun to end them")
    hurried.terminate()
    await hurried.wait()
    assert not any(map(is_running, workers.values()))


async def test_keep_workers_leaves_them_to_the_next_controller(bench: Bench) -> None:
    controller = await bench.start_and_hear(keep_workers=True)
    await bench.keep(2)
    workers = await bench.until_alive(2)
    controller.terminate()
    assert await controller.wait() == 0
    assert all(map(is_running, workers.values()))
    await bench.start_and_hear()
    assert await bench.until_alive(2) == workers


async def test_a_second_controller_of_the_same_cluster_is_refused_with_a_sentence(bench: Bench) -> None:
    first = await bench.start_and_hear()
    second = await bench.start()
    assert await second.wait() == 2
    refusal = taken_over(CLUSTER)
    assert f"Error: {refusal.message}\nTry: {refusal.hint}\n" in bench.said(1)
    assert "Traceback" not in bench.said(1)
    assert first.returncode is None


async def test_a_controller_that_slept_through_its_replacement_retires_and_ends_nobody(bench: Bench) -> None:
    first = await bench.start_and_hear()
    await bench.keep(1)
    workers = await bench.until_alive(1)
    os.kill(first.pid, signal.SIGSTOP)
    second = await bench.start_and_hear()
    await bench.until_alive(1)
    os.kill(first.pid, signal.SIGCONT)
    await bench.keep(2)
    assert await first.wait() == 2
    assert second.returncode is None
    assert all(map(is_running, workers.values()))


async def test_after_the_bus_lost_its_data_the_next_master_is_obeyed(bench: Bench, nats_server: NatsServer) -> None:
    bucket = await bench.bus.bucket(subjects.STATE_BUCKET)
    old = await bucket.put(subjects.LEADER_KEY, b"{}")
    controller = await bench.start_and_hear()
    assert (await bench.keep(1, epoch=old)).ok
    workers = await bench.until_alive(1)
    await nats_server.kill()
    shutil.rmtree(nats_server.folder)
    await nats_server.start()
    new = await bucket.put(subjects.LEADER_KEY, b"{}")
    assert new > old

    async def is_obeyed() -> bool:
        with suppress(NoAnswer):  # the controller may come back later than this test
            return (await bench.keep(2, epoch=new)).ok
        return False

    await eventual_answer(is_obeyed)
    assert not (await bench.keep(3, epoch=old)).ok
    assert workers.items() <= (await bench.until_alive(2)).items(), "the worker of before is kept"
    controller.kill()
    await controller.wait()
    await bench.start_and_hear()
    assert (await bench.keep(2, epoch=new)).ok


async def test_malformed_and_foolish_commands_are_refused_and_change_nothing(bench: Bench) -> None:
    controller = await bench.start_and_hear(max_workers=5)
    await bench.keep(1, epoch=4)
    await bench.until_alive(1)
    for command, epoch, expected in (
        (KeepWorkers(JOB, -3, WorkerTemplate()), 4, "-3"),
        (KeepWorkers(JOB, 6, WorkerTemplate()), 4, "room for 5"),
        (KeepWorkers(JOB, 2, WorkerTemplate()), 3, epoch_is_over(Epoch(3), Epoch(4))),
        (KeepWorkers(JOB, 2, WorkerTemplate(slots=0)), 4, "template.slots"),
    ):
        answer = await bench.ask(command, epoch)
        assert not answer.ok and expected in answer.why
    other = await bench.bus.request(subjects.cluster_command(CLUSTER), StopWorker("wrong place"), 10.0)
    assert isinstance(other.message, Answer) and not other.message.ok and "worker.stop" in other.message.why
    stolen = WorkerHeartbeat(a_status("somebody-else"))
    bench.bus.publish(subjects.worker_heartbeat(CLUSTER, a_status("someone-aaaa").worker), stolen)
    assert (await bench.keep(1, epoch=4)).ok
    assert len(await bench.until_alive(1)) == 1
    assert controller.returncode is None


async def test_workers_started_by_hand_are_adopted_counted_and_asked_to_go(bench: Bench) -> None:
    await bench.start_and_hear()
    by_hand = await bench.start_by_hand("byhand")
    await bench.until_alive(1)
    await bench.keep(2)
    workers = await bench.until_alive(2)
    assert sorted(uid_of(worker) == "byhand" for worker in workers) == [False, True]
    await bench.keep(0)
    assert await by_hand.wait() == 0
    await eventually(lambda: set(workers) <= set(bench.gone), what="both are gone")


async def test_a_bus_that_goes_away_and_comes_back_costs_no_worker(bench: Bench, nats_server: NatsServer) -> None:
    await bench.start_and_hear()
    await bench.keep(2)
    workers = await bench.until_alive(2)
    await nats_server.kill()
    heard = len(bench.topologies)
    await nats_server.start()
    await eventually(lambda: len(bench.topologies) > heard + 2, what="topologies again")
    later = bench.topologies[heard:]
    assert {observation.worker for heartbeat in later for observation in heartbeat.workers} == set(workers)
    assert await bench.until_alive(2) == workers


async def test_the_output_of_each_worker_is_kept_in_a_file_of_its_own(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1, env={"STAND_IN_DIES": "1"})
    await eventually(lambda: bench.gone, what="it died")
    uid = uid_of(next(iter(bench.gone)))
    assert bench.output_of(uid) == f"{LAST_WORDS}\n"


async def test_with_echo_workers_write_where_the_controller_does(bench: Bench) -> None:
    await bench.start_and_hear(echo=True)
    await bench.keep(1, env={"STAND_IN_DIES": "1"})
    await eventually(lambda: "there is no such module" in bench.said(0), what="the worker's output")


async def test_a_worker_gets_what_its_template_gives_but_not_what_would_change_the_agents_interpreter(
    bench: Bench,
) -> None:
    await bench.start_and_hear(region="here")
    await bench.keep(1, env={"GIVEN": "42", "PYTHONPATH": "/nonexistent", "TRADEWIND_NATS_URL": "nats://x"})
    pid = next(iter((await bench.until_alive(1)).values()))
    environment = environment_of(pid)
    assert environment["GIVEN"] == "42" and environment["TRADEWIND_REGION"] == "here"
    assert environment.get("PYTHONPATH") != "/nonexistent"
    assert environment["TRADEWIND_NATS_URL"] == bench.settings.nats_url
