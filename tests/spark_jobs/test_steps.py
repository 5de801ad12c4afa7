"""How far a report is: sections are done when all that they are made from is."""

from spark_jobs.job import Steps


def test_sections_are_counted_as_their_parts_are_computed() -> None:
    said: list[tuple[int, int, str]] = []
    steps = Steps(lambda *step: said.append(step), 2)
    steps.at("what the captures hold")
    steps.expect("coverage", ["files", "frames"])
    steps.expect("errors", ["errors", "frames"])
    for part in ("names", "files", "frames", "errors"):
        steps.done(part)
    steps.at("writing the report")
    assert said == [
        (0, 2, "what the captures hold"), (0, 2, "coverage"), (0, 2, "coverage"), (1, 2, "errors"),
        (2, 2, "the last numbers"), (2, 2, "writing the report"),
    ]  # fmt: skip
