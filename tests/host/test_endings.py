"""The end of trainers, by themselves and on command, and its reports."""

import errno
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host.agent import Agent, alive, wait_gone
from tradewind.host.connection import AgentConnection
from tradewind.host.diagnosis import missing_module
from tradewind.host.loop import ALREADY_RUNNING, Host
from tradewind.host.output import Tail
from tradewind.host.process import Pipe, TrainerProcess, code_and_signal
from tradewind.host.trainer import NOT_REGULAR, cannot_enter
from tradewind.protocol.host import TrainerSpec

TRACEBACK = "Traceback (most recent call last):"
WHY = "its peers wait"

SAME_AS_PYTHON = {
    "returns": "print('done')",
    "exits with a code": "import sys; sys.exit(7)",
    "exits with a big code": "import sys; sys.exit(256 + 3)",
    "exits with a sentence": "import sys; sys.exit('no data')",
    "exits without a code": "raise SystemExit",
    "exits hard": "import os; os._exit(5)",
    "raises": "def f():\n    return 1 / 0\nf()\n",
    "raises while another is handled": "try:\n    {}['a']\nexcept KeyError:\n    raise ValueError('b')\n",
    "raises a group": "raise ExceptionGroup('several', [ValueError(1), TypeError(2)])",
    "raises with its own hook": "import sys\nsys.excepthook = lambda *a: print(a[2].tb_lineno, a[2].tb_next)\n{}['a']",
    "fails in a thread": "import threading; t = threading.Thread(target=lambda: 1 / 0, name='t'); t.start(); t.join()",
    "is interrupted": "raise KeyboardInterrupt",
    "is interrupted by a signal": "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
    "aborts": "import os; os.abort()",
    "has a syntax error": "x = 1\nif x\n    pass\n",
    "has bad indentation": "def f():\npass\n",
    "is in another encoding": "# -*- coding: latin-1 -*-\nprint('gr\u00fc\u00df')\n",
    "is empty": "",
}


def reason(number: int) -> str:
    return f"[Errno {number}] {os.strerror(number)}"


def test_an_exit_is_reported_by_code_or_by_signal() -> None:
    assert code_and_signal(3) == (3, None)
    assert code_and_signal(-9) == (None, "SIGKILL")
    assert code_and_signal(-40) == (None, "SIG40")


@pytest.mark.parametrize("content", SAME_AS_PYTHON.values(), ids=SAME_AS_PYTHON.keys())
def test_a_script_ends_as_it_would_under_python_when_it(content: str, host: Agent) -> None:
    script = host.script("")
    script.write_bytes(content.encode("latin-1"))
    _assert_same_ending(host, [str(script)], host.fork(script), script.parent)


def test_a_script_that_does_not_exist_ends_as_under_python(host: Agent, tmp_path: Path) -> None:
    generation = host.fork("absent.py", cwd=tmp_path)
    _assert_same_ending(host, ["absent.py"], generation, tmp_path)
    assert host.finish(generation)["code"] == 2
    assert "can't open file" in host.finish(generation)["tail"][0]


def test_a_script_that_is_not_in_its_encoding_is_a_syntax_error(host: Agent) -> None:
    script = host.script("")
    script.write_bytes(b"print('\xff')\n")
    exited = host.finish(host.fork(script))
    assert exited["code"] == 1
    assert exited["tail"][-1].startswith("SyntaxError: ")


@pytest.mark.parametrize("module", ["absent", "json.absent", "json"])
def test_a_module_that_cannot_run_ends_as_under_python(host: Agent, tmp_path: Path, module: str) -> None:
    _assert_same_ending(host, ["-m", module], host.fork(module=module, cwd=tmp_path), tmp_path)


def test_a_module_that_fails_ends_as_under_python(host: Agent, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("1 / 0")
    _assert_same_ending(host, ["-m", "train"], host.fork(module="train", cwd=tmp_path), tmp_path)


def test_a_folder_that_does_not_exist_is_named(host: Agent, tmp_path: Path) -> None:
    generation = host.fork(host.script(""), cwd=tmp_path / "absent")
    exited = host.finish(generation)
    assert (exited["code"], exited["tail"]) == (2, [cannot_enter(f"{tmp_path}/absent", reason(errno.ENOENT))])


def test_a_folder_that_cannot_be_entered_is_a_failure_in_one_line(host: Agent, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    for folder, why in (
        (f"{tmp_path}/circle", reason(errno.ELOOP)),
        ("~nosuchuser", reason(errno.ENOENT)),
    ):
        exited = host.finish(host.fork(host.script(""), cwd=Path(folder)))
        assert (exited["code"], exited["tail"]) == (2, [cannot_enter(folder, why)])


def test_a_script_that_is_no_regular_file_is_a_failure_in_one_line(host: Agent, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    for script in (f"{tmp_path}/pipe.py", "/dev/zero"):
        exited = host.finish(host.fork(Path(script), cwd=tmp_path))
        [line] = exited["tail"]
        assert exited["code"] == 2
        assert line.startswith(f"{sys.executable}: ") and line.endswith(f" {script!r}: {NOT_REGULAR}")


def _assert_same_ending(host: Agent, arguments: list[str], generation: int, cwd: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    python = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60
    )
    exited = host.finish(generation)
    exitcode = exited["code"] if exited["signal"] is None else -signal.Signals[exited["signal"]]
    assert host.lines(generation, stream="stderr") == python.stderr.decode(errors="replace").splitlines()
    assert host.lines(generation) == python.stdout.decode(errors="replace").splitlines()
    assert exitcode == python.returncode
    assert not exited["peer_lost"]


def test_the_tail_holds_the_last_lines_of_stderr(host: Agent) -> None:
    generation = host.fork(host.script("import sys\nfor i in range(100): print(i, file=sys.stderr)\nsys.exit(3)"))
    exited = host.finish(generation)
    assert (exited["code"], exited["signal"], exited["error"]) == (3, None, None)
    assert exited["tail"] == [str(number) for number in range(80, 100)]


def test_after_an_exception_the_tail_starts_at_its_traceback(host: Agent) -> None:
    script = host.script("import sys\nfor i in range(30): print(i, file=sys.stderr)\n{}['loss']")
    generation = host.fork(script)
    tail = host.finish(generation)["tail"]
    assert tail[0] == TRACEBACK
    assert tail[-1] == "KeyError: 'loss'"


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("import torch\nimport transformers_of_nobody.models", "transformers_of_nobody"),
        ("try:\n    import nowhere\nexcept ImportError as error:\n    raise SystemExit(1) from error", None),
        ("raise ValueError(\"ModuleNotFoundError: No module named 'x'\")", None),
    ],
)
def test_a_module_that_the_interpreter_does_not_have_is_told_with_what_to_do(
    content: str, hint: str | None, host: Agent
) -> None:
    exited = host.finish(host.fork(host.script(content)))
    assert exited["code"] == 1
    assert exited["hint"] == (None if hint is None else missing_module(hint))
    assert hint is None or all(each in exited["hint"] for each in (sys.executable, f" {hint!r}", "launch.python"))


def test_a_missing_module_to_run_is_told_with_what_to_do(host: Agent, tmp_path: Path) -> None:
    assert host.finish(host.fork(module="absent", cwd=tmp_path))["hint"] == missing_module("absent")


def test_the_error_that_torch_records_is_told(host: Agent, tmp_path: Path) -> None:
    script = host.script("""
        from torch.distributed.elastic.multiprocessing.errors import record
        @record
        def main(): raise ValueError("no_column")
        main()
    """)
    generation = host.fork(script, env=lambda _: {"TORCHELASTIC_ERROR_FILE": str(tmp_path / "error.json")})
    exited = host.finish(generation)
    assert exited["code"] == 1
    assert exited["error"] == "ValueError: no_column"
    assert exited["tail"][-1].endswith("ValueError: no_column")


IGNORES_SIGTERM = """
    import signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready")
    time.sleep(600)
"""


def test_stop_ends_every_trainer_of_the_generation_and_below_and_no_other(host: Agent) -> None:
    script = host.script("import time; print('ready'); time.sleep(600)")
    generations = [host.fork(script, ranks=2) for _ in range(3)]
    for generation in generations:
        for rank in range(2):
            host.wait_for_line(generation, "ready", rank)
    host.send(type="stop", generation=generations[1], grace_s=60)
    host.wait_for("stopped", generations[1])
    for generation in generations[:2]:
        for rank in range(2):
            exited = host.finish(generation, rank)
            assert (exited["code"], exited["signal"]) == (None, "SIGTERM")
    kinds = [message["type"] for message in host.messages]
    assert kinds.count("exited") == 4
    assert kinds.index("stopped") > max(at for at, kind in enumerate(kinds) if kind == "exited")
    assert all(alive(host.wait_for("forked", generations[2], rank)["pid"]) for rank in range(2))


def test_a_trainer_may_use_its_grace_to_end_well(host: Agent) -> None:
    script = host.script("""
        import signal, sys, time
        def leave(*_):
            time.sleep(0.3)
            print("saved")
            sys.exit(0)
        signal.signal(signal.SIGTERM, leave)
        print("ready")
        time.sleep(600)
    """)
    generation = host.fork(script)
    host.wait_for_line(generation, "ready")
    host.send(type="stop", generation=generation, grace_s=60)
    assert host.finish(generation)["code"] == 0
    assert host.lines(generation) == ["ready", "saved"]


def test_a_trainer_that_ignores_sigterm_is_killed_after_its_grace(host: Agent) -> None:
    generation = host.fork(host.script(IGNORES_SIGTERM))
    host.wait_for_line(generation, "ready")
    host.send(type="stop", generation=generation, grace_s=0.2)
    host.wait_for("stopped", generation)
    assert host.finish(generation)["signal"] == "SIGKILL"


def test_a_second_stop_may_shorten_the_grace(host: Agent) -> None:
    generation = host.fork(host.script(IGNORES_SIGTERM))
    host.wait_for_line(generation, "ready")
    host.send(type="stop", generation=generation, grace_s=3600)
    host.send(type="stop", generation=generation, grace_s=0)
    host.wait_for("stopped", generation)
    assert host.finish(generation)["signal"] == "SIGKILL"


def test_a_trainer_stopped_in_the_moment_of_its_fork_ends_too(host: Agent) -> None:
    script = host.script("import time; time.sleep(600)")
    for _ in range(10):
        generation = host.fork(script, ranks=2)
        host.send(type="stop", generation=generation, grace_s=60)
        host.wait_for("stopped", generation)
        assert {host.finish(generation, rank)["signal"] for rank in range(2)} == {"SIGTERM"}


def test_a_stop_with_nothing_to_stop_is_answered(host: Agent) -> None:
    host.send(type="stop", generation=0, grace_s=5)
    host.wait_for("stopped", 0)
    assert host.process.poll() is None


HAS_CHILDREN = """
    import os, subprocess, sys, time
    code = "import time, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(99)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    child.stdout.readline()
    grandchild = os.fork()
    if grandchild == 0:
        time.sleep(600)
    print("children", child.pid, grandchild)
    print("ready")
"""


def _children_of(host: Agent, generation: int) -> list[int]:
    host.wait_for_line(generation, "ready")
    (line,) = [line for line in host.lines(generation) if line.startswith("children")]
    pids = [int(word) for word in line.split()[1:]]
    assert all(map(alive, pids))
    return pids


def test_stop_ends_the_whole_process_group(host: Agent) -> None:
    generation = host.fork(host.script(HAS_CHILDREN + "    time.sleep(600)"))
    pids = _children_of(host, generation)
    host.send(type="stop", generation=generation, grace_s=60)
    host.wait_for("stopped", generation)
    wait_gone(pids)
    assert host.finish(generation)["signal"] == "SIGTERM"


def test_what_a_trainer_leaves_behind_is_ended_with_it(host: Agent) -> None:
    generation = host.fork(host.script(HAS_CHILDREN + "    input_ended = sys.stdin.read(); os._exit(4)"))
    exited = host.finish(generation)
    pids = [int(word) for line in host.lines(generation) if line.startswith("children") for word in line.split()[1:]]
    assert exited["code"] == 4
    assert len(pids) == 2
    wait_gone(pids)


def test_a_child_that_left_the_group_and_holds_the_pipe_does_not_delay_the_exit(host: Agent) -> None:
    script = host.script("""
        import subprocess, sys
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        print("last words", child.pid, end="")
    """)
    generation = host.fork(script)
    assert host.finish(generation)["code"] == 0
    (line,) = host.lines(generation)
    assert line.startswith("last words")
    os.kill(int(line.split()[-1]), signal.SIGKILL)


def test_a_rank_that_runs_already_is_not_forked_again(host: Agent) -> None:
    script = host.script("import time; time.sleep(600)")
    generation = host.fork(script)
    pid = host.wait_for("forked", generation)["pid"]
    trainer = {"rank": 0, "env": {}, "script": str(script), "argv": [], "cwd": "/"}
    host.send(type="fork", generation=generation, trainers=[trainer])
    assert host.wait_for("fork_failed", generation, 0)["error"] == ALREADY_RUNNING
    assert alive(pid)


@pytest.mark.parametrize("spare_files", [0, 5, 6])
def test_a_fork_that_fails_is_told_and_leaves_nothing_open(host: Agent, spare_files: int) -> None:
    open_files = Path(f"/proc/{host.process.pid}/fd")
    before = len(list(open_files.iterdir()))
    limits = resource.prlimit(host.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(host.process.pid, resource.RLIMIT_NOFILE, (before + spare_files, limits[1]))
    try:
        failed = host.fork(host.script("print('never')"))
        assert reason(errno.EMFILE) in host.wait_for("fork_failed", failed, 0)["error"]
    finally:
        resource.prlimit(host.process.pid, resource.RLIMIT_NOFILE, limits)
    assert len(list(open_files.iterdir())) == before
    assert host.finish(host.fork(host.script("print('again')")))["code"] == 0


def test_messages_that_make_no_sense_are_refused_and_disturb_nothing(host: Agent) -> None:
    generation = host.fork(host.script("import time; print('ready'); time.sleep(600)"))
    host.wait_for_line(generation, "ready")
    bad = [b"{", b"\xff\xfe", b"[]", b'{"type": "dance"}', b'{"type": "fork", "generation": 1}', b"x" * (17 << 20)]
    bad.append(json.dumps({"type": "abort", "generation": generation, "rank": 5, "why": "nobody"}).encode())
    bad.append(b'{"type": "stop", "generation": 1e999, "grace_s": 0}')
    host.send_raw(b"\n\n" + b"\n".join(bad) + b"\n")
    host.send(type="stop", generation=0, grace_s=0)
    host.wait_for("stopped", 0)
    refusals = [message["why"] for message in host.messages if message["type"] == "refused"]
    assert len(refusals) == len(bad)
    assert all(refusals)
    assert alive(host.wait_for("forked", generation)["pid"])


def test_the_last_words_without_a_line_end_are_in_the_tail_though_they_were_shown_already(host: Agent) -> None:
    script = host.script("""
        import signal, sys
        sys.stderr.write("\\rNCCL error")
        sys.stderr.flush()
        signal.pause()
    """)
    generation = host.fork(script)
    host.wait_for_line(generation, "NCCL error")
    host.send(type="stop", generation=generation, grace_s=10)
    assert host.finish(generation)["tail"] == ["NCCL error"]


def test_a_carriage_return_among_the_reports_wakes_nobody() -> None:
    read_end, write_end = os.pipe()
    try:
        pipe = Pipe(read_end, "progress")
        os.write(write_end, b"\rnot a report")
        assert pipe.read() == []
        assert (pipe.update_at, pipe.update()) == (None, [])
    finally:
        os.close(read_end)
        os.close(write_end)


def test_a_trainer_that_became_another_user_cannot_be_aborted_and_the_host_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(pid: int, number: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    ours, theirs = socket.socketpair()
    with ours, theirs:
        host = Host(AgentConnection(theirs))
        spec = TrainerSpec(rank=0, env={}, script="train.py", argv=(), cwd="/")
        host._trainers[1, 0] = TrainerProcess(1, spec, 4_000_000, -1, (), Tail(), -1)
        monkeypatch.setattr(os, "kill", forbidden)
        for _ in range(2):
            assert host._obey(b'{"type": "abort", "generation": 1, "rank": 0, "why": "its peers wait"}') is None
        host._agent.flush()
        refusals = [json.loads(line)["why"] for line in ours.recv(4096).splitlines()]
    assert refusals == [f"abort: {reason(errno.EPERM)}"] * 2


def test_an_aborted_trainer_leaves_the_stack_of_its_main_thread(host: Agent) -> None:
    script = host.script("""
        import threading, time
        def beside():
            time.sleep(3600)
        def sleeps_for_ever():
            print("here", flush=True)
            time.sleep(3600)
        threading.Thread(target=beside, daemon=True).start()
        sleeps_for_ever()
    """)
    generation = host.fork(script)
    host.wait_for_line(generation, "here")
    host.send(type="abort", generation=generation, rank=0, why=WHY)
    exited = host.finish(generation)
    assert (exited["signal"], exited["stalled"]) == ("SIGKILL", WHY)
    main, other = exited["error"].split("\n\n")
    assert "in sleeps_for_ever" in main and "in beside" not in main
    assert "in beside" in other


def test_a_trainer_that_is_not_there_cannot_be_aborted(host: Agent) -> None:
    host.send(type="abort", generation=99_999, rank=0, why=WHY)
    host.wait_until(
        lambda message: message["type"] == "refused" and bool(re.fullmatch(r"abort: .* 99999 .* 0", message["why"])),
        "refused",
    )
