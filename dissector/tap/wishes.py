"""What signals ask of a tap that runs: flags that the loop looks at between two pieces."""

from dataclasses import dataclass


@dataclass
class Wishes:
    """is_end_wanted: end with all written; is_rotation_wanted: end the running rotation;
    is_record_wanted: keep the packets of the flight recorder. The loop takes the last two back."""

    is_end_wanted: bool = False
    is_rotation_wanted: bool = False
    is_record_wanted: bool = False
