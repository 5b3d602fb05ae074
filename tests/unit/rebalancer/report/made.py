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

"""Reports that have everything in them, with names that tenants or others have chosen."""

from kronos_nova import model
from kronos_nova.rebalancer.report import heat
from kronos_nova.rebalancer.report import values

NOW = 1_700_000_000.0
UUID = '00000000-0000-4000-8000-{:012}'
#: What somebody may call an instance, a host, an aggregate or a label.
NASTY = (
    '<script>document.title = "owned"</script>', '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)", '</style><script>document.title = "owned"</script>',
    '</title></svg><svg onload=document.title="owned">', 'javascript:alert(1)', '&lt;&amp;&#60;',
    '{{ 7 * 7 }}{% raw %}', '\u202egnp.exe\u202c', '\u05d0\u05d1\u05d2 left to right',
    'bell\x07 nul\x00 esc\x1b[31m', 'line\nfeed\ttab', 'lone \ud800 half', ']]><!--', '\ufeff',
    'url(https://example.org/x.png)', 'a' * 300)


def plain(role: str) -> str:
    return role


def line(name, n, count, names):
    before, after = 1.0 - n / count, 1.0 - (n + 1) / (count + 2)
    known = n % 17 != 16
    return values.HostLine(
        name, (values.HostLevel(before, after), values.HostLevel(after if known else None,
                                                                 after if known else None)),
        values.HostLevel(before if known else None, after if known else None),
        zone=names('zone'), notes=(names('note'),) if n % 5 == 0 else (), instances=n,
        gives=int(n == 0), takes=int(n == count - 1))


def moves(names, tasks=False):
    """Six moves in two waves; with tasks, one in each state."""
    known = {
        1: ('completed', (values.AttemptSpan(names('to 1'), NOW + 5, NOW + 90),), None),
        2: (f'completed on {names("else")}', (
            values.AttemptSpan(names('to 2'), NOW + 35, NOW + 60, names('error')),
            values.AttemptSpan(names('else'), NOW + 70, NOW + 200)), None),
        3: ('failed', (values.AttemptSpan(names('to 3'), NOW + 65, NOW + 80, names('error')),),
            names('error')),
        4: ('submitted', (values.AttemptSpan(names('to 4'), NOW + 210, None),), None),
        5: ('cancelled', (), names('error')), 6: ('queued', (), None)}
    lines = []
    for n in range(1, 7):
        state, spans, error = known[n] if tasks else (None, (), None)
        lines.append(values.MoveLine(
            n, UUID.format(n), names(f'from {n % 3}'), names(f'to {n}'),
            ('spread', 'evacuate', 'affinity', 'pack', 'requested')[n % 5], int(n > 3), 0.01 * n,
            (NOW if tasks else 0) + 30.0 * ((n - 1) % 3), name=names(f'instance {n}'),
            requires=(1, 2) if n > 3 else (), alternates=(names('else'),),
            task_id=UUID.format(100 + n) if tasks else None, state=state, spans=spans,
            error=error))
    return tuple(lines)


def points(names, count=9):
    return tuple(values.PlanPoint(
        NOW - 600 * n, None if n == 4 else 0.5 - 0.02 * n, 0.3, 0.32 if n in (1, 2) else None,
        moves=n % 3, dry_run=n == 5, shown=n == 0,
        policies=((names('policy 1'), None if n == 4 else 0.4), (names('policy 2'), 0.2)))
        for n in range(count))


def policies(names, left_out=None):
    return (values.PolicyLine(names('policy 1'), 0.15, 0.6, 0.2, weight=0.6),
            values.PolicyLine(names('policy 2'), 0.15, None if left_out else 0.3,
                              None if left_out else 0.1, left_out=left_out, weight=0.4))


def of_cloud(names=plain, hosts=8):
    lines = tuple(line(names(f'host {n}'), n, hosts, names) for n in range(hosts))
    return values.ScopeSection(
        names('scope'), NOW, hosts=hosts, instances=99, policies=policies(names), before=0.5,
        after=0.2, lines=lines, moves=moves(names), seen=NOW, points=points(names),
        refusals=(values.RefusalCount('would-worsen', 949), values.RefusalCount(names('rule'), 1)),
        held=(names('held'),), gaps=(values.DataGap('Warnings.', (names('warning'),) * 60),
                                     values.DataGap('Alone.')))


def of_plan(names=plain):
    return values.ScopeSection(
        names('stored'), NOW, plan_id=UUID.format(0), policies=policies(names, names('reason')),
        no_lines='Not stored.', moves=moves(names, tasks=True), started=NOW, seen=NOW + 300,
        before=0.5, after=0.2, realised=0.25, decisions=(names('decision'),),
        points=points(names, 4))


def campaigns(names=plain):
    """A campaign that pauses, with a host that failed, one that has ended, an unreadable one."""
    paused = values.CampaignProgress(
        UUID.format(0), names('scope'), model.CampaignState.PAUSED, NOW - 3600, names('person'),
        None, over=2, total=5, states=(('to-come', 2), ('failed', 1), ('done', 2)),
        next_host=names('next'), held=names('reason'), waits=names('waits'),
        begun=(model.CampaignHost(names('host'), 0, model.CampaignHostState.FAILED, NOW,
                                  detail=names('problem')),),
        migrations=7, migrations_left=5, seconds_left=1500.0)
    return paused, values.CampaignProgress(
        UUID.format(1), names('scope'), model.CampaignState.DONE, NOW - 7200, names('person'),
        NOW - 60, over=3, total=3, states=(('done', 3),), next_host=None, held='', waits='',
        begun=(), migrations=1, migrations_left=None, seconds_left=None), (
            model.UnreadableCampaign(UUID.format(2), names('scope'), 'windows', names('value')))


def report(names=plain, large=heat.FEW + 240):
    """A small and a large scope, a stored plan, one without moves and one without a plan."""
    return values.WholeReport(names('source'), NOW, NOW + 1, names('version'), (
        of_cloud(names), of_cloud(names, large), of_plan(names),
        values.ScopeSection(names('idle'), NOW, reason=names('reason'), hosts=0, instances=0,
                            points=points(names, 1)),
        values.ScopeSection(names('broken'), NOW, failed=names('failure'))), campaigns(names))


def nasty():
    """A report in which each name is a nasty one, and no two are equal."""
    taken = {}

    def names(role):
        if role not in taken:
            taken[role] = f'{NASTY[len(taken) % len(NASTY)]} {len(taken)}'
        return taken[role]

    return report(names)
