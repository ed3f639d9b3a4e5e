"""How long to wait before something is tried again."""

DOUBLED_AT_MOST = 30


def pause_s(first_s: float, most_s: float, failures: int) -> float:
    """Doubles with each failure before this one."""
    return min(first_s * 2.0 ** min(failures, DOUBLED_AT_MOST), most_s)
