"""The graph of our imports, also of those under TYPE_CHECKING."""

import graphlib

import grimp

OWN = ("messages", "runtime", "controlplane", "agents", "tradewind", "simulator")


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph(*OWN)
    sorter = graphlib.TopologicalSorter(
        {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    )
    sorter.prepare()  # raises CycleError, which names the modules
