"""The environment of a trainer is that of `python script.py`."""

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.host.agent import Agent, alive, wait_gone

FACTS = """
    import json, os, pickle, signal, sys
    class Thing: pass
    main = sys.modules["__main__"]
    print(json.dumps({
        "env": dict(os.environ),
        "cwd": os.getcwd(),
        "argv": sys.argv,
        "orig_argv": sys.orig_argv[1:],
        "path": sys.path,
        "name": __name__,
        "file": __file__,
        "package": __package__,
        "spec": __spec__ and __spec__.name,
        "loader": type(__loader__).__name__,
        "main_file": main.__file__,
        "same": main.__dict__ is globals(),
        "names": sorted(name for name in globals()),
        "pickled": type(pickle.loads(pickle.dumps(Thing()))) is Thing,
        "sigint": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "sigterm": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
        "sigchld": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "stdin": sys.stdin.read(),
        "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
        "leads": os.getpid() == os.getpgrp() == os.getsid(0),
    }))
"""


def facts_of(host: Agent, **fork: Any) -> dict[str, Any]:
    generation = host.fork(**fork)
    assert host.finish(generation)["code"] == 0, host.lines(generation, stream="stderr")
    facts: dict[str, Any] = json.loads(host.lines(generation)[0])
    return facts


def facts_of_python(*arguments: str, cwd: Path, env: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, *arguments]
    ran = subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True
    )
    facts: dict[str, Any] = json.loads(ran.stdout)
    return facts


ENV = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "RANK": "0",
    "LOSS_ÜNIT": "nats ✓",
    "EMPTY": "",
}
ONLY_OURS = {"fds", "leads"}


def test_a_script_sees_what_python_would_show_it(host: Agent) -> None:
    script = host.script(FACTS)
    ours = facts_of(host, script=script, argv=["--lr", "0.1", ""], env=lambda _: ENV, cwd=script.parent)
    pythons = facts_of_python(str(script), "--lr", "0.1", "", cwd=script.parent, env=ENV)
    assert {name: ours[name] for name in ours.keys() - ONLY_OURS} == {
        name: pythons[name] for name in pythons.keys() - ONLY_OURS
    }
    assert ours["leads"]


def test_a_script_given_relative_to_its_folder_sees_what_python_would_show_it(host: Agent) -> None:
    script = host.script(FACTS)
    cwd = script.parent.parent
    relative = str(script.relative_to(cwd))
    ours = facts_of(host, script=relative, env=lambda _: ENV, cwd=cwd)
    pythons = facts_of_python(relative, cwd=cwd, env=ENV)
    assert {name: ours[name] for name in ours.keys() - ONLY_OURS} == {
        name: pythons[name] for name in pythons.keys() - ONLY_OURS
    }


def test_a_module_sees_what_python_would_show_it(host: Agent) -> None:
    script = host.script(FACTS, name="train.py")
    package = script.parent / "project"
    package.mkdir()
    (package / "__init__.py").write_text("")
    script.rename(package / "train.py")
    ours = facts_of(host, module="project.train", argv=["x"], env=lambda _: ENV, cwd=script.parent)
    pythons = facts_of_python("-m", "project.train", "x", cwd=script.parent, env=ENV)
    assert {name: ours[name] for name in ours.keys() - ONLY_OURS} == {
        name: pythons[name] for name in pythons.keys() - ONLY_OURS
    }


def test_a_folder_with_a_main_module_runs(host: Agent) -> None:
    script = host.script(FACTS, name="__main__.py")
    ours = facts_of(host, script=script.parent, env=lambda _: ENV, cwd=script.parent.parent)
    pythons = facts_of_python(str(script.parent), cwd=script.parent.parent, env=ENV)
    assert {name: ours[name] for name in ours.keys() - ONLY_OURS} == {
        name: pythons[name] for name in pythons.keys() - ONLY_OURS
    }


def test_the_environment_is_exactly_what_was_given_also_for_programs_it_starts(host: Agent) -> None:
    script = host.script("""
        import subprocess
        print(subprocess.run(["/usr/bin/env"], capture_output=True, text=True, check=True).stdout)
    """)
    generation = host.fork(script, env=lambda _: ENV)
    assert host.finish(generation)["code"] == 0
    assert sorted(filter(None, host.lines(generation))) == sorted(f"{name}={value}" for name, value in ENV.items())


def test_pythonpath_of_the_trainer_is_searched_after_the_scripts_folder(host: Agent) -> None:
    library = host.script("NAME = 'library'", name="from_pythonpath.py")
    script = host.script("import from_pythonpath, shadow; print(from_pythonpath.NAME, shadow.NAME)")
    (script.parent / "shadow.py").write_text("NAME = 'script'")
    (library.parent / "shadow.py").write_text("NAME = 'library'")
    generation = host.fork(script, env=lambda _: {"PYTHONPATH": str(library.parent)})
    host.finish(generation)
    assert host.lines(generation) == ["library script"]


def test_nothing_of_the_hosts_is_open_in_a_trainer_but_its_own_pipes_and_stacks(host: Agent) -> None:
    script = host.script("""
        import os, time
        print(*sorted(os.readlink(f"/proc/self/fd/{fd}").partition(":")[0] for fd in os.listdir("/proc/self/fd")
              if os.path.exists(f"/proc/self/fd/{fd}")))
    """)
    generation = host.fork(script, ranks=3)
    for rank in range(3):
        host.finish(generation, rank)
        [line] = host.lines(generation, rank)
        assert line.split() == ["/dev/null", "/memfd", "pipe", "pipe", "pipe"]


def test_ranks_of_one_host_draw_different_random_numbers(host: Agent) -> None:
    script = host.script("""
        import random, numpy, torch
        print(random.random(), torch.rand(1).item(), numpy.random.rand(), flush=True)
    """)
    generation = host.fork(script, ranks=3)
    for rank in range(3):
        host.finish(generation, rank)
    drawn = [host.lines(generation, rank)[0].split() for rank in range(3)]
    assert all(len(set(numbers)) == 3 for numbers in zip(*drawn, strict=True))


def test_the_number_of_threads_is_what_the_environment_asks_for(host: Agent) -> None:
    script = host.script(
        "import torch; print(torch.get_num_threads(), torch.ones(300, 300).mm(torch.ones(300, 300))[0, 0].item())"
    )
    generation = host.fork(script, ranks=2, env=lambda rank: {"OMP_NUM_THREADS": str(rank + 1)})
    for rank in range(2):
        host.finish(generation, rank)
        assert host.lines(generation, rank) == [f"{rank + 1} 300.0"]


def test_lines_arrive_while_the_script_runs(host: Agent) -> None:
    generation = host.fork(host.script("import time; print('started'); time.sleep(600)"))
    host.wait_for_line(generation, "started")
    assert alive(host.wait_for("forked", generation)["pid"])


def test_both_streams_arrive_whole_and_in_order(host: Agent) -> None:
    script = host.script(r"""
        import sys
        for number in range(5000):
            print("out", number)
            print("err", number, file=sys.stderr)
        sys.stdout.buffer.write(b"bad \xff byte\nlong " + b"x" * 100_000 + b"\nunended")
    """)
    generation = host.fork(script)
    host.finish(generation)
    *out, bad, long, last = host.lines(generation)
    assert out == [f"out {number}" for number in range(5000)]
    assert host.lines(generation, stream="stderr") == [f"err {number}" for number in range(5000)]
    assert (bad, last) == ("bad \ufffd byte", "unended")
    assert long.startswith("long xxx")
    assert long.endswith("x … [34469 bytes cut]")


def test_a_flood_that_the_agent_does_not_read_makes_the_trainer_wait_and_the_host_not_grow(host: Agent) -> None:
    script = host.script("""
        import sys
        line = "x" * 1000
        for number in range(40_000):
            print(line)
        print("end")
    """)

    def resident_kb() -> int:
        status = Path(f"/proc/{host.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    before = resident_kb()
    generation = host.fork(script)
    pid = host.wait_for("forked", generation)["pid"]
    assert _written_when_it_stands_still(pid) < 40_000_000
    assert resident_kb() - before < 16 * 1024
    host.finish(generation)
    lines = host.lines(generation)
    assert len(lines) == 40_001
    assert lines[-1] == "end"
    assert resident_kb() - before < 16 * 1024


def _written_when_it_stands_still(pid: int) -> int:
    counts = [-1]
    for _ in range(600):
        time.sleep(0.05)
        counts.append(int(Path(f"/proc/{pid}/io").read_text().partition("wchar:")[2].split()[0]))
        if counts[-1] > 100_000 and len(set(counts[-10:])) == 1:
            break
    return counts[-1]


def test_reports_of_every_rank_arrive_in_order(host: Agent) -> None:
    script = host.script("""
        import os, tradewind
        for step in range(2000):
            tradewind.report(step, loss=float("nan") if step == 1 else step / 2, samples=int(os.environ["RANK"]))
            if step % 100 == 0: print(step)
    """)
    generation = host.fork(script, ranks=2, env=lambda rank: {"RANK": str(rank)})
    for rank in range(2):
        assert host.finish(generation, rank)["code"] == 0
        reported = [
            report
            for message in host.messages
            if message["type"] == "progress" and (message["generation"], message["rank"]) == (generation, rank)
            for report in message["reports"]
        ]
        steps = [report["step"] for report in reported]
        assert steps == sorted(set(steps))
        assert steps[-1] == 1999
        assert all(report["loss"] == (None if report["step"] == 1 else report["step"] / 2) for report in reported)
        assert {report["samples"] for report in reported} == {rank}


def test_hyperparameters_reach_the_script(host: Agent) -> None:
    script = host.script("import tradewind; print(tradewind.hyperparameters()['given']['layers'])")
    generation = host.fork(script, env=lambda _: {"TRADEWIND_HYPERPARAMETERS": '{"given": {"layers": 2}}'})
    host.finish(generation)
    assert host.lines(generation) == ["2"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_workers_serve_a_trainer(host: Agent, method: str) -> None:
    script = host.script("""
        import sys, torch
        class Squares(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, i): return torch.tensor(i * i)
        if __name__ == "__main__":
            how = {"num_workers": 1, "multiprocessing_context": sys.argv[1]}
            loader = torch.utils.data.DataLoader(Squares(), batch_size=4, **how)
            print([batch.tolist() for batch in loader])
    """)
    generation = host.fork(script, argv=[method])
    assert host.finish(generation)["code"] == 0, host.lines(generation, stream="stderr")
    assert host.lines(generation) == ["[[0, 1, 4, 9], [16, 25, 36, 49]]"]


def test_processes_that_a_trainer_spawns_import_its_script_and_nothing_of_the_host(host: Agent) -> None:
    script = host.script("""
        import multiprocessing, os, sys
        class Answer:
            def __init__(self, value): self.value = value
        def work(value):
            return Answer(value + 1), sorted(name for name in sys.modules if name.startswith("tradewind"))
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                answer, modules = pool.apply(work, (41,))
            print(answer.value, modules)
    """)
    generation = host.fork("train.py", cwd=script.parent)
    assert host.finish(generation)["code"] == 0, host.lines(generation, stream="stderr")
    assert host.lines(generation) == ["42 []"]


def test_threads_and_exit_handlers_finish_before_the_process_ends(host: Agent) -> None:
    script = host.script("""
        import atexit, sys, threading, time
        atexit.register(lambda: print("handler", sys.modules["__main__"].NAME))
        NAME = "train"
        threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
        sys.stdout.write("main, ")
    """)
    generation = host.fork(script)
    assert host.finish(generation)["code"] == 0
    assert host.lines(generation) == ["main, thread", "handler train"]


def test_the_host_runs_no_thread_that_a_fork_would_lose(host: Agent) -> None:
    generation = host.fork(host.script("print(1)"))
    host.finish(generation)
    assert len(list(Path(f"/proc/{host.process.pid}/task").iterdir())) == 1


def test_a_progress_bar_is_seen_while_the_script_still_runs(host: Agent) -> None:
    script = host.script("""
        import sys, time
        for percent in (10, 20):
            sys.stderr.write(f"\\r{percent}%")
            sys.stderr.flush()
        time.sleep(600)
    """)
    generation = host.fork(script)
    host.wait_for_line(generation, "20%")
    host.send(type="stop", generation=generation, grace_s=5)
    assert host.finish(generation)["signal"] == "SIGTERM"
    assert host.lines(generation, stream="stderr")[-1] == "20%"
    assert host.lines(generation, stream="stderr").count("20%") == 1


def test_a_program_is_executed_without_python(host: Agent, tmp_path: Path) -> None:
    text = 'echo "$RANK|$0|$(pwd)|$1"; trap; exit 7'
    argv = ["-c", text, "me", "an argument"]
    generation = host.fork("sh", program=True, argv=argv, cwd=tmp_path, env=lambda rank: {"RANK": str(rank)})
    assert host.finish(generation)["code"] == 7
    assert host.lines(generation) == [f"0|me|{tmp_path}|an argument"]


def test_a_program_ends_when_it_is_told_to(host: Agent) -> None:
    generation = host.fork("sleep", program=True, argv=["600"])
    pid = host.wait_for("forked", generation)["pid"]
    host.send(type="stop", generation=generation, grace_s=5)
    assert host.finish(generation)["signal"] == "SIGTERM"
    wait_gone([pid])


@pytest.mark.parametrize(("mode", "code", "error"), [(None, 127, errno.ENOENT), (0o644, 126, errno.EACCES)])
def test_a_program_that_cannot_be_executed_is_reported(
    host: Agent, tmp_path: Path, mode: int | None, code: int, error: int
) -> None:
    if mode is not None:
        (tmp_path / "train.sh").write_text("#!/bin/sh\n")
        (tmp_path / "train.sh").chmod(mode)
    exited = host.finish(host.fork("./train.sh", program=True, cwd=tmp_path))
    assert exited["code"] == code
    assert exited["tail"][0].startswith("tradewind: ")
    assert exited["tail"][0].endswith(f" './train.sh': [Errno {error}] {os.strerror(error)}")
