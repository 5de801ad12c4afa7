"""Thread priorities: the loop runs before other threads of the process."""

import os
import sys
import threading


def step_back(nice: int) -> None:
    """Lower the calling thread's priority below the loop's: rendering thousands of series or
    judging a window takes a second of a processor, for which packets would wait. On Linux each
    thread has its own priority."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        mine = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, max(nice, mine))
