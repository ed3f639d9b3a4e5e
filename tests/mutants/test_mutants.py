"""The tool finds the mutants that the tests of a small planted core miss."""

import json
from pathlib import Path

import pytest

from tests.mutants.__main__ import main
from tests.mutants.cores import CORES, Choice, Core, choose, modules
from tests.mutants.run import BrokenBaseline, Verdict, limits, run
from tests.mutants.sites import count_sites, mutate

DOOR = Core("door", "tests/mutants/planted/door", ("tests/mutants/planted/door/checks.py",))
ENDLESS = Core("endless", "tests/mutants/planted/endless", ("tests/mutants/planted/endless/checks.py",))


def changes(source: str) -> list[str]:
    return [mutate(source, number).change for number in range(count_sites(source))]


def test_mutants_that_no_check_notices_survive_and_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    assert main(["--json", str(report)], (DOOR,)) == 1
    found = json.loads(report.read_text())
    verdicts = [Verdict(**each) for each in found["verdicts"]]
    survivors = [verdict for verdict in verdicts if not verdict.killer]
    assert {each.change for each in survivors} == {"hour < 22 → hour <= 22", "hour < 22 → hour >= 22", "22 → 23"}
    assert {each.change for each in verdicts if "test_the_door_opens_from_18" in each.killer} == {
        "age >= 18 → age > 18",
        "age >= 18 → age < 18",
        "18 → 19",
    }
    assert found["killed"] == 0.5
    listed = capsys.readouterr().out
    assert all(f"planted/door/core.py:9: {each.change}" in listed for each in survivors)


def test_a_mutant_that_does_not_end_is_killed() -> None:
    (path,) = [path for path in modules(ENDLESS) if path.name == "core.py"]
    (endless,) = [number for number in range(count_sites(path.read_text())) if _deletes(path, number)]
    (verdict,) = run([Choice(ENDLESS, path, endless)], {"endless": 2}, 1, lambda verdict: None)
    assert verdict.killer


def _deletes(path: Path, number: int) -> bool:
    return mutate(path.read_text(), number).change == "number //= 2 → pass"


def test_tests_that_fail_without_a_mutant_are_an_error(tmp_path: Path) -> None:
    failing = tmp_path / "checks.py"
    failing.write_text("def test_nothing():\n    assert False\n")
    with pytest.raises(BrokenBaseline, match="test_nothing"):
        limits([Core("door", "tests/mutants/planted/door", (str(failing),))])


def test_the_same_seed_chooses_the_same_mutants_evenly() -> None:
    sites = {path: count_sites(path.read_text()) for core in CORES for path in modules(core)}
    chosen = choose(CORES, sites, 30, seed=4)
    assert chosen == choose(CORES, sites, 30, seed=4) != choose(CORES, sites, 30, seed=5)
    assert [sum(choice.core is core for choice in chosen) for core in CORES] == [10, 10, 10]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(a: int = 1) -> None: ...", ["1 → 2"]),
        ("x = min(a, 2.5)", ["min(a, 2.5) → max(a, 2.5)", "2.5 → 5.0"]),
        ("if a and not b: stop()", ["stop() → pass", "a and (not b) → a or not b", "not b → not not b"]),
        ("turn.change(done=done, why=why)", [
            "turn.change(done=done, why=why) → pass",
            "turn.change(done=done, why=why) → turn.change(why=why)",
        ]),
        ("def learn(job: Job) -> Job: return heard(job)", ["heard(job) → job"]),
        ("def f(a: A) -> B | None: return a.b", ["a.b → None"]),
        ("def f(a: A) -> list[B]: return [a.b]", ["[a.b] → []"]),
        ("class A(Struct, frozen=True):\n    '''Text.'''\n    on: bool = True", ["True → False"]),
        ("why = 'a' if b > 1 else f'{c + 1}'", []),
        ("import a\nassert b > 1, c\nKind = A | B\nassert_never(x)", []),
        ("match a:\n    case A(1) if b: c = 1", ["1 → 2"]),
    ],
)  # fmt: skip
def test_what_matters_is_mutated_and_texts_and_types_are_not(source: str, expected: list[str]) -> None:
    assert changes(source) == expected
