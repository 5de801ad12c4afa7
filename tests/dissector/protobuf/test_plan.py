"""Plans: paths become steps, and mistakes in the list of wanted fields are found at once."""

import pytest

from dissector.protobuf import plan as p
from dissector.protobuf.plan import Default, FieldColumn, Root, StepKind, build_plan

COLUMNS = ("number", "text_at", "text_bytes", "name", "first_id", "id_count", "set_at", "set_count")


def step(plan: p.FieldPlan, node: int, number: int) -> int:
    limit = plan.nodes[p.NODE_LIMIT, node]
    return (
        int(plan.steps[plan.nodes[p.NODE_BASE, node] + number])
        if number <= limit
        else StepKind.SKIP
    )


def test_a_path_becomes_a_chain_of_nodes_that_ends_in_a_column() -> None:
    plan = build_plan(
        [Root("BaseCommand", [FieldColumn("send.message_id.ledgerId", "number")])], COLUMNS
    )
    assert plan.nodes.shape[1] == 3
    node = step(plan, 0, 6) >> p.FIRST_SHIFT
    assert step(plan, 0, 6) & p.KIND_BITS == StepKind.NESTED
    inner = step(plan, node, 9) >> p.FIRST_SHIFT
    assert step(plan, inner, 1) == StepKind.INT64
    assert step(plan, inner, 2) == step(plan, 0, 1) == StepKind.UNWANTED
    assert step(plan, 0, 200) == step(plan, inner, 200) == StepKind.SKIP  # no field of theirs


def test_kinds_follow_from_the_type_and_the_columns() -> None:
    wanted = [
        FieldColumn("partition_key", "text"),
        FieldColumn("producer_name", "name"),
        FieldColumn("compression", "number"),
        FieldColumn("null_value", "number"),
        FieldColumn("uncompressed_size", "number"),
        FieldColumn("compacted_batch_indexes", "set"),
        FieldColumn("encryption_keys", "number"),
    ]
    plan = build_plan([Root("MessageMetadata", wanted)], COLUMNS)
    kinds = [step(plan, 0, number) & p.KIND_BITS for number in (6, 1, 8, 25, 9, 31, 13)]
    assert kinds == [
        StepKind.SPAN,
        StepKind.NAME,
        StepKind.INT32,
        StepKind.BOOL,
        StepKind.UINT32,
        StepKind.WORD,
        StepKind.PRESENT,
    ]


def test_a_star_stands_for_every_command_that_has_the_field_once() -> None:
    plan = build_plan([Root("BaseCommand", [FieldColumn("*.request_id", "number")])], COLUMNS)
    nothing = (StepKind.SKIP, StepKind.UNWANTED)
    reached = [number for number in range(82) if step(plan, 0, number) not in nothing]
    assert {4, 5, 13, 14, 67}.issubset(reached) and not {6, 7, 9, 18}.intersection(reached)
    topics = build_plan([Root("BaseCommand", [FieldColumn("*.topic", "name")])], COLUMNS)
    assert step(topics, 0, 4) != StepKind.UNWANTED
    assert step(topics, 0, 65) == StepKind.UNWANTED  # WATCH_TOPIC_LIST_SUCCESS has a list of them


def test_defaults_belong_to_the_message_above() -> None:
    root = Root(
        "BaseCommand", [FieldColumn("subscribe.durable", "number", default=1)], (),
        [Default("ack", "id_count", 0)],
    )  # fmt: skip
    plan = build_plan([root], COLUMNS)
    node = step(plan, 0, 4) >> p.FIRST_SHIFT
    assert plan.nodes[p.NODE_DEFAULT_COUNT, node] == 1
    first = plan.nodes[p.NODE_DEFAULTS, node]
    assert plan.defaults[:, first].tolist() == [0, 1]


@pytest.mark.parametrize(
    "wanted",
    [
        FieldColumn("send.nothing", "number"),
        FieldColumn("nothing.request_id", "number"),
        FieldColumn("send.producer_id", "nothing"),
        FieldColumn("send_error.message", "nothing"),
    ],
    ids=["field", "message", "column", "text_column"],
)
def test_what_does_not_exist_is_refused(wanted: FieldColumn) -> None:
    with pytest.raises(KeyError):
        build_plan([Root("BaseCommand", [wanted])], COLUMNS)
