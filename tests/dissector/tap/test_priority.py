"""A thread may step back behind the loop, and never before it."""

import os
import sys
import threading

import pytest

from dissector.tap.priority import step_back


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux")
def test_a_thread_steps_back_alone_and_never_forward():
    found = []

    def run() -> None:
        thread = threading.get_native_id()
        for nice in (3, 1):
            step_back(nice)
            found.append(os.getpriority(os.PRIO_PROCESS, thread))

    before = os.getpriority(os.PRIO_PROCESS, 0)
    worker = threading.Thread(target=run)
    worker.start()
    worker.join()
    assert found == [max(3, before)] * 2 and os.getpriority(os.PRIO_PROCESS, 0) == before
