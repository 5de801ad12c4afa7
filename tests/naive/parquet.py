"""Decoders of Parquet's encodings, one value at a time: the twins of dissector.lake.encodings."""

_MASK = (1 << 64) - 1


def signed(value: int) -> int:
    """The low 64 bits as a signed number."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def read_zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def read_bits(data: bytes, at: int, count: int, width: int) -> tuple[list[int], int]:
    """Values of `width` bits, the first one lowest."""
    size = (count * width + 7) // 8
    bits = int.from_bytes(data[at : at + size], "little")
    values = [bits >> (k * width) & ((1 << width) - 1) for k in range(count)]
    return values, at + size


def read_hybrid(data: bytes, at: int, count: int, width: int) -> tuple[list[int], int]:
    """Runs of one value and of bit-packed values."""
    values: list[int] = []
    while len(values) < count:
        head, at = read_varint(data, at)
        if head & 1:
            more, at = read_bits(data, at, (head >> 1) * 8, width)
        else:
            size = (width + 7) // 8
            more = [int.from_bytes(data[at : at + size], "little")] * (head >> 1)
            at += size
        values += more
    return values[:count], at


def read_levels(data: bytes, at: int, count: int, width: int) -> tuple[list[int], int]:
    """Levels behind their length."""
    size = int.from_bytes(data[at : at + 4], "little")
    values, end = read_hybrid(data, at + 4, count, width)
    assert end == at + 4 + size
    return values, end


def read_deltas(data: bytes, at: int) -> tuple[list[int], int]:
    """DELTA_BINARY_PACKED."""
    block, at = read_varint(data, at)
    parts, at = read_varint(data, at)
    count, at = read_varint(data, at)
    value, at = read_zigzag(data, at)
    values = [signed(value)] if count else []
    while len(values) < count:
        least, at = read_zigzag(data, at)
        widths, at = data[at : at + parts], at + parts
        for width in widths:
            if len(values) >= count:
                assert width == 0
                continue
            above, at = read_bits(data, at, block // parts, width)
            for delta in above[: count - len(values)]:
                values.append(signed(values[-1] + least + delta))
    return values, at
