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


"""Write etc/kronos/nova-policy.yaml and placement-policy.yaml, from the rules of
the installed Nova and Placement.

    python tools/generate_policies.py          writes them

Nova ties some of our reads to context_is_admin, which no other rule grants.
So our roles must fulfil it, and every rule of Nova that asks for it is written
out with role:admin in its place. tests/functional/test_policies.py proves that
nothing is left.
"""

from collections.abc import Collection
from collections.abc import Iterable
from pathlib import Path
import textwrap

TOP = Path(__file__).resolve().parent.parent
NOVA_FILE = TOP / 'etc/kronos/nova-policy.yaml'
PLACEMENT_FILE = TOP / 'etc/kronos/placement-policy.yaml'

ENGINE, EXECUTOR, MIGFRA = 'kronos_engine', 'kronos_executor', 'kronos_migfra'

_ALL = 'os_compute_api:'
#: All roles: what a planning cycle reads, and what a move reads again.
READ = frozenset(_ALL + name for name in (
    'os-aggregates:index', 'os-extended-server-attributes', 'os-hypervisors:list-detail',
    'os-migrations:index', 'os-migrations:index:all_projects', 'os-migrations:index:host',
    'os-server-groups:index', 'os-server-groups:index:all_projects', 'os-services:list',
    'servers:allow_all_filters', 'servers:detail', 'servers:detail:get_all_tenants',
    'servers:show', 'servers:show:flavor-extra-specs'))
#: The executor alone: what a single move reads ...
WATCH = frozenset(_ALL + name for name in (
    'os-instance-actions:events', 'os-instance-actions:events:details',
    'os-instance-actions:list', 'os-instance-actions:show', 'os-server-groups:show',
    'servers:migrations:index'))
#: ... and does: a live migration, its abort and its completion by force; a cold one to a named
#: host and its confirmation.
ACT = frozenset(_ALL + name for name in (
    'os-migrate-server:migrate:host', 'os-migrate-server:migrate_live:host',
    'servers:confirm_resize', 'servers:migrations:delete', 'servers:migrations:force_complete'))
#: kronos-migfra alone, but for those that the executor has for warm migrations.
POWER = frozenset(_ALL + name for name in ('servers:start', 'servers:stop'))
PAUSE = frozenset(_ALL + name for name in ('os-pause-server:pause', 'os-pause-server:unpause'))
#: What no daemon needs: ``kronos drain start``. The rule remains an administrator's.
OPTIONAL = _ALL + 'os-services:update'

_PLACEMENT = 'placement:'
PLACEMENT_READ = frozenset(_PLACEMENT + name for name in (
    'resource_providers:list', 'resource_providers:inventories:list',
    'resource_providers:usages', 'resource_providers:traits:list',
    'resource_providers:aggregates:list', 'resource_providers:allocations:list'))
PLACEMENT_WATCH = frozenset({_PLACEMENT + 'allocations:list'})
#: The engine alone: confirm_moves.
PLACEMENT_ASK = frozenset({_PLACEMENT + 'allocation_candidates:list'})

#: What Nova's own rules are made of, without context_is_admin. The last four
#: say what Nova says in other words, since oslo.policy warns of the same ones:
#: an override drops the deprecated variant, which asks for is_admin, where
#: [oslo_policy] enforce_new_defaults is off.
BASE = {
    'admin_api': 'role:admin',
    'admin_or_owner': 'role:admin or project_id:%(project_id)s',
    'project_manager_or_admin': 'rule:project_manager_api or role:admin',
    'project_member_or_admin': 'rule:project_member_api or role:admin',
    'project_reader_or_admin': 'rule:project_reader_api or role:admin',
    'service_or_admin': 'rule:service_api or role:admin',
    'project_manager_api': 'project_id:%(project_id)s and role:manager',
    'project_member_api': 'project_id:%(project_id)s and role:member',
    'project_reader_api': 'project_id:%(project_id)s and role:reader',
    'service_api': 'role:service or role:service'}

LICENCE = (Path(__file__).read_text().split('\n\n')[0]).split('\n')


def roles_of(rule: str) -> tuple[str, ...]:
    """Which of our roles a rule of Nova or Placement is for."""
    if rule in READ | PLACEMENT_READ:
        return (ENGINE, EXECUTOR, MIGFRA)
    if rule in PAUSE:
        return (EXECUTOR, MIGFRA)
    if rule in POWER:
        return (MIGFRA,)
    if rule in PLACEMENT_ASK:
        return (ENGINE,)
    return (EXECUTOR,) if rule in WATCH | ACT | PLACEMENT_WATCH else ()


def nova(rules: Iterable[tuple[str, str]]) -> str:
    """The file for Nova, from its (name, check string)s."""
    lines = [*LICENCE, '', *_comment(
        'Three roles for kronos-nova, for Nova: kronos_engine reads, kronos_executor also '
        'migrates, kronos_migfra also starts, stops, pauses and unpauses. '
        'Put it into /etc/nova/policy.d of every nova-api and restart nova-api; '
        'what policy.yaml says of these rules is overridden.'), '', *_comment(
        'Our roles fulfil context_is_admin, without which Nova hides the servers and server '
        'groups of other projects. Every rule that asks for it asks for role:admin here '
        'instead: who is an administrator with Nova\'s defaults remains one, and our roles '
        'may do what names them and nothing else.'), '',
        _rule('context_is_admin', ' or '.join(
            f'role:{role}' for role in ('admin', ENGINE, EXECUTOR, MIGFRA)))]
    lines += [_rule(name, text) for name, text in BASE.items()]
    found = dict(rules)
    for title, names in (('All roles', READ), ('kronos_executor reads', WATCH),
                         ('kronos_executor does', ACT),
                         ('kronos_executor and kronos_migfra do', PAUSE),
                         ('kronos_migfra does', POWER)):
        lines += ['', f'# {title}.']
        lines += [_rule(name, ' or '.join([_without(found[name]),
                                           *(f'role:{role}' for role in roles_of(name))]))
                  for name in sorted(names)]
    lines += ['', '# None: administrators alone, as ever.']
    lines += [_rule(name, _without(text)) for name, text in sorted(found.items())
              if 'context_is_admin' in text and not roles_of(name)
              and name not in {'context_is_admin', OPTIONAL, *BASE}]
    only = _without(found[OPTIONAL])
    lines += ['', *_comment(
        'Administrators alone, unless you take the second line in place of the first: kronos '
        'drain start disables a host. No daemon needs it. It is left out because whoever has '
        'it may also enable hosts and say that one is down (forced_down), after which its '
        'instances can be rebuilt elsewhere while they still run there.'),
        _rule(OPTIONAL, only), '# ' + _rule(OPTIONAL, f'{only} or role:{EXECUTOR}')]
    return '\n'.join(lines) + '\n'


def placement(rules: Iterable[tuple[str, str]]) -> str:
    found = dict(rules)
    lines = [*LICENCE, '', *_comment(
        'Three roles for kronos-nova, for Placement: all read, nobody writes. Put it into '
        '/etc/placement/policy.d of every Placement API and restart it.'), '']
    lines += [_rule(name, ' or '.join([found[name], *(f'role:{r}' for r in roles_of(name))]))
              for name in sorted(PLACEMENT_READ | PLACEMENT_WATCH | PLACEMENT_ASK)]
    return '\n'.join(lines) + '\n'


def _without(text: str) -> str:
    return text.replace('(rule:context_is_admin)', 'role:admin').replace(
        'rule:context_is_admin', 'role:admin')


def _rule(name: str, text: str) -> str:
    return f'"{name}": "{text}"'


def _comment(text: str) -> list[str]:
    return [f'# {line}' for line in textwrap.wrap(text, 76)]


def write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
        print(f'wrote {path.relative_to(TOP)}')


def _named(found: Collection[object]) -> list[tuple[str, str]]:
    return [(r.name, r.check_str) for r in found]  # type: ignore[attr-defined]


def main() -> None:
    from nova import policies as nova_policies
    from placement import policies as placement_policies

    write(NOVA_FILE, nova(_named(list(nova_policies.list_rules()))))
    write(PLACEMENT_FILE, placement(_named(list(placement_policies.list_rules()))))


if __name__ == '__main__':
    main()
