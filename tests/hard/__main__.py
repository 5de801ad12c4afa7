"""Write the captures of all hard cases into a folder."""

import sys
from pathlib import Path

from tests.hard.cases import all_cases


def main(folder: str) -> None:
    """Write them; existing files of these names are replaced."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for each in all_cases():
        (Path(folder) / each.file_name).write_bytes(each.make())
        print(each.file_name)


if __name__ == "__main__":
    main(*sys.argv[1:])
