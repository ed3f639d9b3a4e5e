"""Values of Google's enums by name. A value that is newer than the installed library is only a number."""


def name_of(value: object) -> str:
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else str(value)
