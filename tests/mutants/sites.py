"""The places where a module can be mutated, and the mutations.

A site changes one node of a syntax tree in place. Docstrings, annotations, decorators, imports, assertions and texts
for people are not sites: tests should not depend on them.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SWAPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitAnd: (ast.BitOr,),
}
OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}
CHANGES = {"replace", "_replace", "change"}
"""Functions whose keyword arguments are what a state learns, with those that begin with `set_`."""
EMPTY = {"list": "[]", "dict": "{}", "tuple": "()", "set": "set()", "frozenset": "frozenset()"}
PROSE = {"why", "by", "reason", "reasons"}
"""Names of texts for people."""
NEVER = (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert, ast.Raise, ast.pattern)


@dataclass(frozen=True, slots=True)
class Site:
    """One slot of the tree, and its replacement."""

    line: int
    holder: Any
    """A node, or a list of a node."""
    slot: str | int
    new: object
    shown: ast.AST | None = None
    """The node that shows the difference, if the slot does not hold one itself."""

    def apply(self) -> str:
        """Mutates the tree and describes the change in one line."""
        old = getattr(self.holder, self.slot) if isinstance(self.slot, str) else self.holder[self.slot]
        before = _text(self.shown or old)
        if isinstance(self.slot, str):
            setattr(self.holder, self.slot, self.new)
        else:
            self.holder[self.slot] = self.new
        return f"{before} → {_text(self.shown or self.new)}"


@dataclass(frozen=True, slots=True)
class Mutant:
    line: int
    change: str
    tree: ast.Module


def count_sites(source: str) -> int:
    return sum(1 for _ in _sites(ast.parse(source)))


def mutate(source: str, number: int) -> Mutant:
    """The mutant of one of the sites of a module."""
    tree = ast.parse(source)
    site = list(_sites(tree))[number]
    change = site.apply()
    return Mutant(site.line, change, ast.fix_missing_locations(tree))


def _text(node: Any) -> str:
    return " ".join(ast.unparse(node).split())


def _sites(tree: ast.Module) -> Iterator[Site]:
    for node in _mutable(tree):
        yield from _deletions(node)
        yield from _negations(node)
        match node:
            case ast.Compare(ops=operators):
                for place, operator in enumerate(operators):
                    for other in SWAPS[type(operator)]:
                        yield Site(node.lineno, operators, place, other(), node)
            case ast.BoolOp(op=operator) | ast.BinOp(op=operator) | ast.AugAssign(op=operator):
                for other in SWAPS.get(type(operator), ()):
                    yield Site(node.lineno, node, "op", other(), node)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield Site(node.lineno, node, "operand", _not(operand), node)
            case ast.Constant(value=bool() | int() | float() as value):
                yield Site(node.lineno, node, "value", _other_value(value), node)
            case ast.Call(func=ast.Name(id=name) as function) if name in OPPOSITES:
                yield Site(node.lineno, function, "id", OPPOSITES[name], node)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), keywords=keywords):
                if name in CHANGES or name.startswith("set_"):
                    for word in keywords:
                        if word.arg is not None and not _is_prose(word):
                            rest = [each for each in keywords if each is not word]
                            yield Site(word.lineno, node, "keywords", rest, node)
            case ast.FunctionDef():
                yield from _other_results(node)


def _mutable(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes whose change a test should notice."""
    yield node
    for name, child in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or (isinstance(node, ast.ClassDef) and name != "body"):
            continue
        for each in child if isinstance(child, list) else [child]:
            if isinstance(each, ast.AST) and not (isinstance(each, NEVER) or _is_prose(each) or _is_type(each)):
                yield from _mutable(each)


def _is_prose(node: ast.AST) -> bool:
    match node:
        case ast.keyword(arg=name) | ast.Assign(targets=[ast.Name(id=name)]):
            return name in PROSE
        case ast.IfExp(body=one, orelse=other):
            return _is_text(one) or _is_text(other)
        case ast.FunctionDef(name=name, returns=ast.Name(id="str")):
            return name.startswith("_")
    return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_type(node: ast.AST) -> bool:
    """A union of classes, as in `isinstance`, or an alias of types."""
    match node:
        case ast.BinOp(op=ast.BitOr(), right=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name[0].isupper()
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() | ast.BinOp(op=ast.BitOr())):
            return name[0].isupper()
    return False


def _deletions(node: ast.AST) -> Iterator[Site]:
    """Statements that can be left out so that no name is missing."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        for place, statement in enumerate(block if isinstance(block, list) else []):
            match statement:
                case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
                    pass
                case (
                    ast.Expr(value=ast.Call())
                    | ast.Continue()
                    | ast.Break()
                    | ast.Return(value=None)
                    | ast.AugAssign()
                    | ast.Delete()
                    | ast.Assign(targets=[ast.Attribute() | ast.Subscript()])
                ):
                    yield Site(statement.lineno, block, place, ast.Pass())


def _negations(node: ast.AST) -> Iterator[Site]:
    """Negations of conditions without an operator; other conditions are mutated at their operator."""
    match node:
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not _has_operator(test):
            yield Site(test.lineno, node, "test", _not(test))
        case ast.comprehension(ifs=tests):
            for place, test in enumerate(tests):
                if not _has_operator(test):
                    yield Site(test.lineno, tests, place, _not(test))


def _has_operator(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant)


def _not(expression: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), expression)


def _other_value(value: float) -> float:
    """The next integer; for a float, twice the value."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value * 2 or 1.0


def _other_results(function: ast.FunctionDef) -> Iterator[Site]:
    """Returned values, replaced by another value that the annotation allows: None, the negation, or the given state."""
    for node in _mutable(function):
        if isinstance(node, ast.Return) and node.value is not None:
            other = _other_result(function, node.value)
            if other is not None and ast.unparse(other) != ast.unparse(node.value):
                yield Site(node.lineno, node, "value", other)


def _other_result(function: ast.FunctionDef, value: ast.expr) -> ast.expr | None:
    match function.returns:
        case ast.BinOp(op=ast.BitOr(), right=ast.Constant(value=None)):
            return ast.Constant(None)
        case ast.Name(id="bool"):
            return None if _has_operator(value) else _not(value)
        case ast.Name(id="int" | "float"):
            return None if isinstance(value, ast.Constant) else ast.BinOp(value, ast.Add(), ast.Constant(1))
        case ast.Subscript(value=ast.Name(id=name)) if name in EMPTY:
            return ast.parse(EMPTY[name], mode="eval").body
        case ast.Name(id=name):
            given = function.args.args[:1]
            if given and isinstance(given[0].annotation, ast.Name) and given[0].annotation.id == name:
                return ast.Name(given[0].arg, ast.Load())
    return None
