"""Only the right to capture is left, in a process of its own."""

import os
import subprocess
import sys

import pytest

CODE = """
import os, socket
from dissector.tap.privileges import CAP_NET_RAW, drop_all_but_capturing, held
before = held()
dropped = drop_all_but_capturing()
assert held() == before & 1 << CAP_NET_RAW, hex(held())
assert dropped == (before != held())
again = drop_all_but_capturing()
assert not again
if before >> CAP_NET_RAW & 1:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
if before >> 7 & 1:
    try:
        os.setuid(12345)
    except PermissionError:
        print("refused")
    else:
        print("allowed")
"""


def test_all_but_capturing_is_dropped_for_good():
    if not os.path.exists("/proc/self/status"):
        pytest.skip("needs /proc")
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if os.geteuid() == 0 and done.stdout:
        assert done.stdout == "refused\n"
