# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Simulation of several policy files over the same past."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
from typing import Any

from kronos_nova.rebalancer.backtest import backtest_run
from kronos_nova.rebalancer.backtest import compare
from kronos_nova.rebalancer.backtest import history
from kronos_nova.rebalancer.backtest import power
from kronos_nova.rebalancer.backtest import review
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import past_loads


@dataclasses.dataclass(frozen=True, slots=True)
class SimulationQuestion:
    """The assumptions of a simulation, and what counts in its results.

    ``ceiling``: a host with a higher score is overloaded. ``return_seconds``: an instance that
    comes back to a host within this time plays ping-pong. ``lag``: seconds until metrics show a
    move whole; None: [engine] settle_seconds. ``bandwidth``: MiB/s that one migration copies.
    ``curve``: the power of a host by its load. ``power_policy``: whose score is that load; None:
    cpu, else the first one.
    """

    ceiling: float = 0.8
    return_seconds: float = 24 * 3600.0
    lag: float | None = None
    bandwidth: float = 250.0
    curve: power.PowerCurve | None = None
    power_policy: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PolicyComparison:
    """A review of each candidate: history as it was, without moves, and each policy file."""

    past: history.LoadHistory
    reviews: Sequence[dict[str, Any]]
    question: review.ReviewQuestion
    assumptions: backtest_run.TimingAssumptions

    def list_names(self) -> list[str]:
        """List the names of the candidates."""
        return [candidate_review['name'] for candidate_review in self.reviews]

    def list_rows(self) -> list[tuple[Any, ...]]:
        """List the measures, each with the value of every candidate."""
        return compare.build_comparison_rows(self.past, self.reviews)

    def build_document(self) -> dict[str, Any]:
        """Build plain data of everything, for programs."""
        return compare.build_document(self.past, self.reviews, self.question, self.assumptions)


def ignore_progress(what: str, part: float) -> None:
    """Show no progress."""


def simulate_policies(session: cloud_state.Session, source: past_loads.PastSource,
                      policies_files: Sequence[str] = (),
                      question: SimulationQuestion = SimulationQuestion(), *,
                      progress: past_loads.Progress = ignore_progress) -> PolicyComparison:
    """Run the planner over a past, once for each policy file.

    :param source: the past: a trace, or the source of metrics over a period.
    :param policies_files: the candidates; empty: [engine] policies_file.
    :param progress: called with the name of each step, and its part in [0, 1] that is done.
    :raises KronosException: an input cannot be read, or does not fit the others.
    """
    conf = session.conf
    sets = past_loads.load_policy_sets(list(policies_files) or [conf.engine.policies_file])
    assumptions = past_loads.build_assumptions(conf, question.lag, question.bandwidth)
    past_load = past_loads.read_past_load(session, sets, source, progress)
    review_question = review.ReviewQuestion(
        scopes=past_load.scopes, ceiling=question.ceiling, return_seconds=question.return_seconds,
        curve=question.curve, limits=assumptions.limits,
        energy_measure=_choose_energy_measure(question.power_policy, past_load.history))
    reviews = [review.review_journey(past_load.history, journey, review_question)
               for journey in _run_journeys(past_load, assumptions, progress)]
    return PolicyComparison(past_load.history, reviews, review_question, assumptions)


def _choose_energy_measure(name: str | None, past: history.LoadHistory) -> str:
    """Return the measure of that name; without a name cpu, else the first one."""
    names = [m.name for m in past.measures]
    if name is None:
        return 'cpu' if 'cpu' in names else names[0]
    if name not in names:
        raise past_loads.make_option_error('--power-policy', f'no policy is named {name}',
                                           f'Name one of {", ".join(names)}')
    return name


def _run_journeys(past_load: past_loads.PastLoad, assumptions: backtest_run.TimingAssumptions,
                  progress: past_loads.Progress) -> list[backtest_run.BacktestResult]:
    past = past_load.history

    def make_step_callback(name: str) -> Callable[[int], None]:
        return lambda k: progress(name, (k + 1) / past.window.count)

    journeys = [backtest_run.run_history(past, make_step_callback('history'))]
    if journeys[0].moved:
        journeys.append(backtest_run.run_without_moves(past, make_step_callback('nothing')))
    return journeys + [
        backtest_run.run_candidate(past, c, assumptions, make_step_callback(c.name))
        for c in past_load.candidates]
