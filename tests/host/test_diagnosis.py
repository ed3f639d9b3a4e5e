import json
from pathlib import Path

import pytest

from tradewind.host.diagnosis import error_message, hint_of, missing_module, peer_lost

TRACEBACK = "Traceback (most recent call last):"
FRAME = '  File "train.py", line 3, in <module>'
OTHER_ERROR = "ValueError: no data"
GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537]"

LOST = [
    f"[rank0]: RuntimeError: {GLOO} Read error [127.0.0.1]:41623: Connection reset by peer. This is typically",
    f"RuntimeError: {GLOO} Connection closed by peer [10.0.0.7]:31880",
    f"RuntimeError: {GLOO} writev [127.0.0.1]:31880: Broken pipe",
    f"RuntimeError: Gloo connectFullMesh failed with {GLOO} no error",
    "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
    "[rank3]: torch.distributed.DistNetworkError: Broken pipe",
    "torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. 1/2 clients joined.",
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1269, remote process exited or there was a"
    " network error, NCCL version 2.27.5",
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    "  what():  [PG ID 0] NCCL error: remote process exited or there was a network error",
    "[rank1]:[E1116 05:42:50.03 ProcessGroupNCCL.cpp:2068] [PG 0] NCCL error: remote process exited or there was a"
    " network error",
]

OWN = [
    "ValueError: Connection closed by peer review",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "torch.OutOfMemoryError: CUDA out of memory.",
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address.",
    "[W1116 05:42:49.5 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=4): Broken pipe",
    "frame #2: c10::DistNetworkError::DistNetworkError(c10::SourceLocation, std::string) + 0x72 (0x7f in libc10.so)",
    f"    raise RuntimeError('{GLOO} Connection closed by peer')",
    "",
]


@pytest.mark.parametrize("line", LOST)
def test_a_broken_connection_to_a_peer_is_recognised(line: str) -> None:
    assert peer_lost([TRACEBACK, FRAME, line])


@pytest.mark.parametrize("line", OWN)
def test_a_failure_of_its_own_is_not_blamed_on_a_peer(line: str) -> None:
    assert not peer_lost([TRACEBACK, line])


def test_the_message_of_an_error_file_is_found_in_both_of_its_shapes(tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    file.write_text(json.dumps({"message": {"message": "RuntimeError: boom", "extraInfo": {"timestamp": "1"}}}))
    assert error_message(str(file)) == "RuntimeError: boom"
    file.write_text(json.dumps({"message": "boom"}))
    assert error_message(str(file)) == "boom"


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"message": 3}', '{"message": {}}', "[" * 100_000])
def test_an_error_file_that_makes_no_sense_says_nothing(content: str, tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    file.write_text(content)
    assert error_message(str(file)) is None


def test_no_error_file_says_nothing(tmp_path: Path) -> None:
    assert error_message(None) is None
    assert error_message(str(tmp_path / "absent.json")) is None


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("ModuleNotFoundError: No module named 'lightning'", "lightning"),
        ("[rank1]: ModuleNotFoundError: No module named 'lightning.pytorch'", "lightning.pytorch"),
        ("/usr/bin/python3: No module named my_package", "my_package"),
        ("/usr/bin/python3: No module named my_package.__main__; 'my_package' is a package and cannot be …", None),
        ("/usr/bin/python3: Error while finding module specification for 'a.b' "
         "(ModuleNotFoundError: No module named 'a')", "a"),
        ("ModuleNotFoundError: No module named 'a.b'; 'a' is not a package", None),
        ("WARNING: No module named 'flash_attn', training without it", None),
        ("ValueError: No module named 'a'", None),
    ],
)  # fmt: skip
def test_only_a_module_that_was_not_found_suggests_another_interpreter(line: str, module: str | None) -> None:
    expected = None if module is None else missing_module(module)
    assert hint_of([TRACEBACK, line]) == expected
    assert hint_of([line, TRACEBACK, OTHER_ERROR]) is None
