"""Retired words of docs/glossary.md are in no public name, and in no text of a folder that is rewritten."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("agents", "benchmarks", "controlplane", "messages", "runtime", "simulator", "tradewind")
PAGES = ("README.md", "CONTRIBUTING.md", "docs")
"""Not the changelog and the decision records: they tell what was, and are rewritten apart from the code."""
FOLDERS_NOT_YET_REWRITTEN: tuple[str, ...] = ()
"""Folders and pages whose sentences still use retired words. Remove an entry when it is rewritten."""

EXCEPTIONS = {
    "held": "nodes, samples and leases that something holds; the design's own verb",
    "sum": "an arithmetic sum, such as that of the ranks' losses",
    "tail": "the last lines or messages, as in tail(1)",
    "words": "the control words of a step, inside the SDK",
    "kept": "a fate of the reaper's findings, shown to people beside `gone` and `stuck`",
}
"""Retired in names by their old meaning; allowed in the names below, each for this reason."""
ALLOWED_NAMES = {
    "held": {"held", "HeldSamples", "Held", "held_until_s", "ranks_held_once"},
    "sum": {"loss_sum", "ready_sum"},
    "tail": {"tail", "Tail", "read_tail", "tail_of", "failed_tail", "TAIL_AT_MOST", "TAIL_LINES"},
    "words": {"words", "words_begin", "control_words"},
    "kept": {"KEPT"},
}
GLOSSARY = Path("docs/glossary.md")


@dataclass(frozen=True)
class Retired:
    names: frozenset[str]
    """Retired in names, in lower case, parts joined by `_`."""
    texts: frozenset[str]
    """Retired in sentences, too."""


def retired_words(page: str) -> Retired:
    names, texts = set(), set()
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[3] in ("names", "everywhere"):
            words, where = cells[2], cells[3]
        elif len(cells) == 3 and cells[2] in ("names", "everywhere"):
            words, where = cells[0], cells[2]
        else:
            continue
        found = {word.strip() for word in words.split(",")}
        names |= {word.replace(" ", "_") for word in found}
        texts |= found if where == "everywhere" else set()
    return Retired(frozenset(names), frozenset(texts))


def public_names(tree: ast.Module) -> Iterator[str]:
    """Classes, functions, methods, fields and constants; not what functions define inside."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    yield name
                case ast.ClassDef(name=name):
                    yield name
                    waiting.append(node)
                case ast.Assign(targets=targets):
                    yield from (
                        each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)
                    )
                case ast.AnnAssign(target=ast.Name(id=name)):
                    yield name
                case ast.If() | ast.Try():
                    waiting.append(node)


def retired_in_name(name: str, retired: frozenset[str]) -> Iterator[str]:
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    for word in retired:
        if f"_{word}_" in f"_{parts}_" and name not in ALLOWED_NAMES.get(word, ()):
            yield word


def wrong_names(source: str, module: str, retired: Retired) -> list[str]:
    names = {module, *public_names(ast.parse(source))}
    return sorted(
        f"{name}: {word}" for name in names if not name.startswith("_") for word in retired_in_name(name, retired.names)
    )


def texts_of(source: str) -> Iterator[str]:
    """String literals with a space in them: docstrings, help, messages."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def wrong_texts(texts: Iterator[str], retired: Retired) -> list[str]:
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, sorted(retired.texts)))})\b", re.IGNORECASE)
    return sorted({match.group(0).lower() for text in texts for match in pattern.finditer(re.sub(r"\s+", " ", text))})


def files_of(place: str, pattern: str) -> list[Path]:
    path = ROOT / place
    return [path] if path.is_file() else sorted(path.glob(pattern))


@pytest.fixture(scope="module")
def retired() -> Retired:
    return retired_words((ROOT / GLOSSARY).read_text())


def test_the_glossary_retires_words(retired: Retired) -> None:
    assert {"hot", "told", "put_out", "whoever"} <= retired.names
    assert "whoever" in retired.texts and "told" not in retired.texts
    assert set(ALLOWED_NAMES) == set(EXCEPTIONS) <= retired.names


def test_no_public_name_has_a_retired_word(retired: Retired) -> None:
    found = {
        str(path.relative_to(ROOT)): wrong
        for package in PACKAGES
        for path in files_of(package, "**/*.py")
        if (wrong := wrong_names(path.read_text(), path.parent.name if path.stem == "__init__" else path.stem, retired))
    }
    assert found == {}


@pytest.mark.parametrize("place", [each for each in (*PACKAGES, *PAGES) if each not in FOLDERS_NOT_YET_REWRITTEN])
def test_no_text_has_a_retired_word(place: str, retired: Retired) -> None:
    found = {}
    for path in files_of(place, "**/*.py" if place in PACKAGES else "*.md"):
        texts = texts_of(path.read_text()) if path.suffix == ".py" else iter([path.read_text()])
        if path != ROOT / GLOSSARY and (wrong := wrong_texts(texts, retired)):
            found[str(path.relative_to(ROOT))] = wrong
    assert found == {}


def test_retired_words_are_found(retired: Retired) -> None:
    source = '''
class HotWorld:
    """Whoever comes late is told."""
    given_up: bool = False
    def desk(self) -> None: ...
    def _told(self) -> None: ...
SHOTS = hotter = 1
'''
    assert wrong_names(source, "news", retired) == ["HotWorld: hot", "desk: desk", "given_up: given_up", "news: news"]
    assert wrong_texts(texts_of(source), retired) == ["whoever"]
    assert wrong_texts(iter(["The job goes\n  on."]), retired) == ["goes on"]


def test_an_allowed_name_passes_and_others_with_its_word_do_not(retired: Retired) -> None:
    assert wrong_names("loss_sum = 1\nmean_sum = 2", "losses", retired) == ["mean_sum: sum"]
