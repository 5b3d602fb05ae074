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

"""Recording of a trace from a live source: every question of every policy file, over time."""

from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

import numpy as np

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.rebalancer.backtest import recorded_trace
from kronos_nova.sources import base
from kronos_nova.sources import ranges


def collect_questions(policy_sets: Iterable[policies.PolicySet]) -> dict[recorded_trace.Question,
                                                                         str]:
    """Collect every question once, with the field and policy that ask it first."""
    out: dict[recorded_trace.Question, str] = {}
    for policy_set in policy_sets:
        for policy in policy_set.enabled_policies:
            for field, question in recorded_trace.list_questions(policy).items():
                out.setdefault(question, f'{field} of policy {policy.name}')
    return out


def gather_trace(source: base.MetricsSource, policy_sets: Iterable[policies.PolicySet],
                 window: ranges.QueryWindow,
                 cluster: model.Cluster, scopes: tuple[str, ...],
                 progress: Callable[[float],
                                    None] = lambda part: None) -> recorded_trace.RecordedTrace:
    """Ask the source every question.

    :param progress: called with the part done, in [0, 1].
    :raises HistoryError: a question has no answer.
    """
    asker_by_question = collect_questions(policy_sets)
    answers: dict[recorded_trace.Question, recorded_trace.RecordedSeries] = {}
    warnings: list[str] = []
    for number, (question, who) in enumerate(asker_by_question.items()):
        answers[question], new_warnings = ask_question(
            source, question, window, who,
            _make_part_progress(progress, number, len(asker_by_question), window.count))
        warnings += new_warnings
    return recorded_trace.RecordedTrace(window, cluster, scopes, answers, tuple(warnings))


def ask_question(source: base.MetricsSource, question: recorded_trace.Question,
                 window: ranges.QueryWindow,
                 who: str,
                 progress: ranges.Progress) -> tuple[recorded_trace.RecordedSeries, list[str]]:
    """Ask the source one question.

    :raises HistoryError: the source does not answer, or the answer is empty.
    """
    range_result = source.query_range(*question, window, progress)
    if range_result.error is not None:
        raise exception.HistoryError(what=who, problem=range_result.error,
                                     remedy='Correct the query or [prometheus] and ask again.')
    if not range_result.values:
        raise exception.HistoryError(
            what=who, problem='; '.join(range_result.warnings) or 'no series in this time',
            remedy='Ask for a time that the source still keeps; a join on a label that is not '
                   'there gives no series either.')
    values: Any = np.empty((window.count, len(range_result.values)), dtype=np.float32)
    for number, series in enumerate(range_result.values):
        values[:, number] = series
    return (recorded_trace.RecordedSeries(range_result.keys, range_result.marks, values),
            [f'{who}: {text}' for text in range_result.warnings])


def _make_part_progress(progress: Callable[[float], None], number: int, of: int,
                        points: int) -> ranges.Progress:
    done = 0

    def report_progress(more: int) -> None:
        nonlocal done
        done += more
        progress((number + done / points) / of)
    return report_progress
