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

"""Errors in policy files, found before an engine reads them; the choice of the PromQL parser."""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import re
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova import version
from kronos_nova.checks import base
from kronos_nova.checks import policies as policies_check
from kronos_nova.conf import config_sessions
from kronos_nova.conf import policies as policy_files

#: The format of Prometheus: ``1:7: parse error: ...``.
_PLACE = re.compile(r'(\d+):(\d+): (?:parse error: )?(.*?)\)?$')
_CORRECT = 'Correct the query in the policy file.'
_VARIABLE = 'Grafana alone knows variables that begin with $: write their values.'


@dataclasses.dataclass(frozen=True, slots=True)
class LintRow:
    """One finding in one file; ``item.name`` is the field."""

    path: str
    item: base.CheckItem


class PrometheusConnection:
    """The Prometheus of kronos.conf, connected on the first query.

    After a query without answer it gets no other: each would wait for the timeout.
    """

    def __init__(self, session: config_sessions.ConfigSession) -> None:
        self._session = session
        self._source: Any = None
        self._read = False
        #: Why no server can check a query; ``remedy`` is the next step.
        self.away = 'no kronos.conf names a Prometheus'
        self.remedy = 'Name a kronos.conf with --config-file to have its Prometheus asked.'

    def check(self, query: str) -> model.QueryResult | None:
        """Check a query's syntax, by ``MetricsSource.check_syntax``; None: no server can."""
        if not self._read:
            self._read = True
            self._source = self._connect_source()
        if self._source is None:
            return None
        syntax_result: model.QueryResult = self._source.check_syntax(query)
        if syntax_result.health is model.SourceHealth.UNREACHABLE:
            self.away = f'the source of kronos.conf could not tell: {syntax_result.error}'
            self.remedy = 'See that the Prometheus of kronos.conf answers.'
            self._source = None
            return None
        return syntax_result

    def _connect_source(self) -> Any:
        """Return the source of kronos.conf; None without a kronos.conf.

        :raises KronosException: kronos.conf cannot be used.
        """
        # The operator did not choose the default URL: without a file, ask no server.
        return self._session.metrics_source if self._session.conf.config_file else None


def lint_policy_files(session: config_sessions.ConfigSession, files: Sequence[str],
                      interval: float = 60.0) -> list[LintRow]:
    """Return the findings in policy files: fields, weights, and the PromQL of every query.

    :param interval: seconds between two scrapes of exporters.
    :raises KronosException: kronos.conf cannot be used.
    """
    server = PrometheusConnection(session)
    return [LintRow(path, base.mask_item(item)) for path in files
            for item in _lint_file(path, server, interval)]


def _lint_file(path: str, server: PrometheusConnection,
               interval: float) -> Iterator[base.CheckItem]:
    try:
        document = policy_files.read_document(path)
    except exception.PolicyFileError as e:
        yield _make_failed_item(e)
        return
    problems = policies.list_problems(document, path)
    yield from map(_make_failed_item, problems)
    query_items: list[base.CheckItem] = []
    unparsed: list[str] = []
    number = 0
    for field, query, entry in _list_queries(document):
        number += 1
        items = _lint_query(field, query, entry, server, interval)
        if items is None:
            unparsed.append(field)
        query_items += items or ()
    yield from query_items
    if unparsed:
        yield base.CheckItem(
            'queries', base.CheckStatus.SKIPPED,
            f'PromQL of {len(unparsed)} queries was not parsed: '
            f'promql-parser is not installed, and {server.away}. They are: {", ".join(unparsed)}',
            f'Run pip install "{version.DISTRIBUTION}[promql]". {server.remedy}')
    if problems:
        return
    policy_set = policies.parse_policies(document, path)
    yield from policies_check.check_risks(policy_set)
    for note in policies.find_ignored(document):
        where = f'line {note.line}: ' if note.line is not None else ''
        yield base.report_warning(note.field, f'{where}{note.problem}',
                                  'Remove it, or correct its name.')
    if not unparsed and not any(item.status in (base.CheckStatus.FAILED, base.CheckStatus.SKIPPED)
                                for item in query_items):
        yield base.report_ok('file', f'{policies_check.format_summary(policy_set)}; {number} '
                                     'queries parsed')


def _make_failed_item(error: exception.PolicyFileError) -> base.CheckItem:
    return base.report_failure(error.kwargs['field'], error.kwargs['problem'],
                               error.kwargs['remedy'])


def _list_queries(document: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield (field, PromQL, policy) for each query in the file, even if the file is not valid."""
    listed = document.get('policies') if isinstance(document, dict) else None
    for index, entry in enumerate(listed if isinstance(listed, list) else ()):
        for name in policies.QUERIES:
            query = entry.get(name) if isinstance(entry, dict) else None
            # A longer query is an error already, and takes a parser too long.
            if isinstance(query, str) and query.strip() and len(query) <= policies.LONGEST_QUERY:
                yield policies.format_location(('policies', index, name), document), query, entry


def _lint_query(field: str, query: str, entry: Any, server: PrometheusConnection,
                interval: float) -> list[base.CheckItem] | None:
    """Return the findings on a query; None if no parser could read it."""
    try:
        # The extra "promql" may be missing.
        from kronos_nova.checks import promql  # noqa: PLC0415
        from kronos_nova.checks import promql_tree  # noqa: PLC0415
    except ModuleNotFoundError as e:
        if e.name != 'promql_parser':
            raise
        answer = server.check(query)
        if answer is None:
            return None
        return [] if answer.error is None else [_make_refused_item(field, query, answer.error)]
    fault = promql.find_fault(query)
    if fault is None:
        name = field.rpartition('.')[2]
        label = entry.get(*(('vm_profile_label', 'instance_name') if name.startswith('vm_')
                            else ('host_label', 'host')))
        # A label that is no string is an error already.
        return [_make_finding_item(field, finding) for finding in promql_tree.list_findings(
            promql.parse_query(query), label if isinstance(label, str) else None,
            unlabelled=name == 'age_query', interval=interval)]
    answer = server.check(query)
    if answer is not None:
        # The server decides: its PromQL may be newer, or another dialect.
        return [] if answer.error is None else [_make_refused_item(field, query, answer.error)]
    text = fault.problem
    if fault.offset is not None:
        text += f': {promql.format_place(query, fault.offset)}'
    if not fault.certain:
        state = base.CheckStatus.WARNING if fault.parsed else base.CheckStatus.SKIPPED
        return [base.CheckItem(field, state, f'{text}; {server.away}', server.remedy)]
    return [base.report_failure(field, text, _VARIABLE if "'$'" in fault.problem else _CORRECT)]


def _make_finding_item(field: str, finding: Any) -> base.CheckItem:
    make = base.report_failure if finding.wrong else base.report_warning
    return make(field, finding.problem, finding.remedy)


def _make_refused_item(field: str, query: str, problem: str) -> base.CheckItem:
    """Return Prometheus's error with its place in the query."""
    if (place := _PLACE.search(problem)) is None:
        return base.report_failure(field, problem, _CORRECT)
    line, column, text = int(place[1]), int(place[2]), place[3]
    lines = query.split('\n')
    rest = lines[line - 1][max(0, column - 1):] if 1 <= line <= len(lines) else ''
    return base.report_failure(field, f'{text}: line {line}, column {column} of the query'
                              + (f', at {rest[:30]}' if rest.strip() else ''), _CORRECT)
