"""Names of values of Google's enums. A value that the installed library does not know is only a number."""


def name_of(value: object) -> str:
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else str(value)
