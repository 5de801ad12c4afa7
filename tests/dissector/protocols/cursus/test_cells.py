"""Rows as plain numbers."""

import numpy as np

from dissector.protocols.columns import FrameColumns
from dissector.protocols.cursus.bodies import BodyColumns
from dissector.protocols.cursus.cells import Cell, cell_of, cells_of


def test_one_row_and_many_say_the_same():
    frames, bodies = FrameColumns.new(9), BodyColumns.new(9)
    for place, matrix in enumerate((frames.matrix, bodies.matrix)):
        matrix[:] = np.arange(matrix.size).reshape(matrix.shape) + place * 1_000_000
    cell = cell_of(frames, bodies, 4)
    for name in Cell._fields:
        source = bodies if hasattr(bodies, name) and not hasattr(frames, name) else frames
        assert getattr(cell, name) == getattr(source, name)[4]
    many = cells_of(frames, bodies, np.array([2, 4]))
    assert list(many) == [2, 4] and many[4] == cell
