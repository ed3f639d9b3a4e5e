"""Sets of positions in the global batch of a step."""

from tradewind.sdk.samples import Range, Ranges, merged


def without(ranges: Ranges, taken: Ranges) -> Ranges:
    left: list[Range] = list(merged(ranges))
    for taken_first, taken_last in taken:
        left = [
            piece
            for first, last in left
            for piece in ((first, min(last, taken_first)), (max(first, taken_last), last))
            if piece[0] < piece[1]
        ]
    return tuple(left)
