"""Who goes first where threads share a processor: the loop."""

import os
import sys
import threading


def step_back(nice: int) -> None:
    """Let the loop go before the thread that calls: rendering thousands of series, or judging a
    window, takes a second of a processor, in which packets waited. Linux gives each thread a
    priority of its own."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        mine = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, max(nice, mine))
