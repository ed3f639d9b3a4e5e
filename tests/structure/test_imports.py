"""The graph of the project's imports, including those under TYPE_CHECKING."""

import graphlib

import grimp

OWN = ("messages", "runtime", "controlplane", "agents", "tradewind", "simulator")
IMPORTS_AT_MOST = 20
"""Own modules that one module of a role may import: with more, a part is missing."""


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph(*OWN)
    sorter = graphlib.TopologicalSorter(
        {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    )
    sorter.prepare()  # raises CycleError, which names the modules


def test_no_module_of_agents_or_control_plane_imports_more_of_ours_than_a_reader_can_hold() -> None:
    graph = grimp.build_graph(*OWN)
    imported = {
        module: len(graph.find_modules_directly_imported_by(module))
        for module in graph.modules
        if module.startswith(("agents.", "controlplane."))
    }
    assert {module: count for module, count in imported.items() if count > IMPORTS_AT_MOST} == {}
