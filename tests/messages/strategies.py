"""Values of any message type, made from the type itself: a new kind is tested as soon as it exists."""

from typing import Any

from hypothesis import strategies as st
from msgspec import inspect

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
INTEGERS = st.integers(-(2**31), 2**31)


def values_of(wanted: Any) -> st.SearchStrategy[Any]:
    return _values(inspect.type_info(wanted))


def _values(info: inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case inspect.Metadata():
            return _values(info.type)
        case inspect.StructType():
            return st.builds(info.cls, **{field.name: _values(field.type) for field in info.fields})
        case inspect.UnionType():
            return st.one_of([_values(each) for each in info.types])
        case inspect.VarTupleType():
            return st.lists(_values(info.item_type), max_size=3).map(tuple)
        case inspect.TupleType():
            return st.tuples(*map(_values, info.item_types))
        case inspect.ListType():
            return st.lists(_values(info.item_type), max_size=3)
        case inspect.LiteralType():
            return st.sampled_from(info.values)
        case inspect.DictType():
            return st.dictionaries(_values(info.key_type), _values(info.value_type), max_size=3)
        case inspect.EnumType():
            return st.sampled_from(list(info.cls))
        case inspect.StrType(pattern=str() as pattern):
            return st.from_regex(pattern, fullmatch=True)
        case inspect.AnyType():
            return st.one_of(INTEGERS, TEXT, st.lists(TEXT, max_size=3))
        case inspect.StrType():
            return TEXT
        case inspect.IntType(ge=None):
            return INTEGERS
        case inspect.IntType():
            return st.integers(info.ge, info.le)
        case inspect.FloatType():
            return st.floats(info.ge, info.le, allow_nan=False, allow_infinity=False)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
    raise TypeError(f"no values for {info}")
