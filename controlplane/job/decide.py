"""The job core's one entry: learn from the event, then reconcile."""

from controlplane.job.effects import JobEffect
from controlplane.job.events import JobEvent
from controlplane.job.learn import learn
from controlplane.job.reconcile import reconcile, wake_at_s
from controlplane.job.state import Job
from controlplane.job.story import tell
from controlplane.job.turn import Turn
from runtime.decision import Decision


def decide(job: Job, event: JobEvent) -> Decision[Job, JobEffect]:
    """No fact is acted on only once: whatever is not confirmed is asked for again at the next event."""
    turn = Turn(learn(job, event), event.at_s)
    reconcile(turn)
    return Decision(turn.job, (*turn.effects, *tell(job, turn.job)), turn.job.why, wake_at_s(turn))
