"""A mixed-integer program, solved by HiGHS: the nodes for a given ring and number of nodes.

Ring and number determine the time of a step, so that all costs are sums over nodes, used zones and used regions. Only
this module calls HiGHS. The same program always has the same solution.
"""

import highspy
import numpy as np
from msgspec import Struct

from controlplane.planning.step_times import Floats

INFINITY = float("inf")
NODES_AT_MOST = 2000
"""Nodes of the solver's search tree; after that the best solution so far is used."""


class Program(Struct):
    """A program under construction: columns and rows."""

    costs: list[float]
    lower: list[float]
    upper: list[float]
    rows: list[tuple[float, dict[int, float], float]]
    continuous: set[int]

    def column(self, cost: float, lower: float, upper: float, *, integer: bool = True) -> int:
        self.costs.append(cost)
        self.lower.append(lower)
        self.upper.append(upper)
        number = len(self.costs) - 1
        if not integer:
            self.continuous.add(number)
        return number

    def row(self, lower: float, terms: dict[int, float], upper: float) -> None:
        self.rows.append((lower, terms, upper))


def new_program() -> Program:
    return Program([], [], [], [], set())


def solve(program: Program) -> tuple[Floats | None, bool]:
    """The values of the columns, and whether no others are better; None without a solution, proven if none exists."""
    solver = highspy.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("random_seed", 0)):
        solver.setOptionValue(option, value)
    for option, number in (("mip_rel_gap", 0.0), ("mip_abs_gap", 1e-9)):
        solver.setOptionValue(option, number)
    solver.setOptionValue("mip_max_nodes", NODES_AT_MOST)
    solver.passModel(_model(program))
    solver.run()
    status = solver.getModelStatus()
    stopped = status == highspy.HighsModelStatus.kSolutionLimit
    if status != highspy.HighsModelStatus.kOptimal and not (stopped and solver.getInfo().primal_solution_status == 2):
        return None, status == highspy.HighsModelStatus.kInfeasible
    return np.array(solver.getSolution().col_value), not stopped


def _model(program: Program) -> highspy.HighsLp:
    made = highspy.HighsLp()
    made.num_col_ = len(program.costs)
    made.num_row_ = len(program.rows)
    made.col_cost_ = np.array(program.costs)
    made.col_lower_ = np.array(program.lower)
    made.col_upper_ = np.array(program.upper)
    made.row_lower_ = np.array([row[0] for row in program.rows])
    made.row_upper_ = np.array([row[2] for row in program.rows])
    made.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    starts = np.cumsum([0, *(len(terms) for _, terms, _ in program.rows)])
    made.a_matrix_.start_ = starts.astype(np.int32)
    made.a_matrix_.index_ = np.array([column for _, terms, _ in program.rows for column in terms], dtype=np.int32)
    made.a_matrix_.value_ = np.array([value for _, terms, _ in program.rows for value in terms.values()])
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    made.integrality_ = [kinds[number not in program.continuous] for number in range(len(program.costs))]
    return made
