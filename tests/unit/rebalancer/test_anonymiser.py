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


"""An anonymised snapshot has no original name and gives the same plan."""

import dataclasses
import itertools
import json
import os
from pathlib import Path
import re
import shutil
import stat
import subprocess
import sys
import uuid

import hypothesis
from hypothesis import strategies as st
from oslo_config import cfg
import pytest
import yaml

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy
from kronos_nova.conf import opts
from kronos_nova.conf import policies as policy_files
from kronos_nova.constraints import aggregates
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import prefilters
from kronos_nova.constraints import rules
from kronos_nova.model import movement_hours
from kronos_nova.rebalancer.operations import why_not
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.snapshots import anonymiser
from kronos_nova.rebalancer.snapshots import names as naming
from kronos_nova.rebalancer.snapshots import pins
from kronos_nova.rebalancer.snapshots import reader
from kronos_nova.rebalancer.snapshots import replay
from kronos_nova.rebalancer.snapshots import writer
from tests.unit import clouds

TOP = Path(__file__).resolve().parents[3]
EXAMPLE = TOP / 'doc/examples/replay'
SALT = b'a salt of thirty-two bytes, none'
NOW = 1_793_491_200.25

#: All begin with it, so that a search for it finds any of them.
MARK = 'zorgon'
NAMES = {name: f'{MARK}-{name}' for name in (
    'host-a', 'host-b', 'gone', 'instance', 'internal', 'project', 'group', 'rack', 'zone',
    'cell', 'reason', 'pause', 'error', 'label', 'warning')}
INSTANCE, MEMBER, GROUP, NODE, CARD, POOL = (
    f'{n}{n}{n}{n}{n}{n}{n}{n}-aaaa-4bbb-8ccc-{n * 12}' for n in '123467')


def recording():
    provider = model.Provider(NODE, 7, {
        'VCPU': model.Inventory(32, 2, 4.0, 1, 32, 1),
        f'CUSTOM_{MARK.upper()}_GPU': model.Inventory(2, 0, 1.0, 1, 2, 1)}, {'VCPU': 4},
        NAMES['host-a'])
    card = model.Provider(CARD, 1, {'VGPU': model.Inventory(2)}, {'VGPU': 1},
                          f'{MARK}_pci_0000:81', NODE, frozenset({f'CUSTOM_{MARK.upper()}_T'}))
    pool = model.Provider(POOL, 1, {f'CUSTOM_{MARK.upper()}_GPU': model.Inventory(8)}, {},
                          f'{MARK}-pool', aggregates=frozenset({GROUP}))
    a, b = f'{NAMES["host-a"]}.example.org', NAMES['host-b']
    cluster = model.Cluster(
        hosts={a: model.Host(a, f'{a}.lan', NODE, 'QEMU', NAMES['zone'], NAMES['cell'], provider,
                             frozenset({'HW_CPU_X86_VMX', f'CUSTOM_{MARK.upper()}_T'}),
                             (card,), frozenset({POOL})),
               b: model.Host(b)},
        instances={
            INSTANCE: model.Instance(
                INSTANCE, a, NAMES['instance'], NAMES['internal'], 4, 8192, 40, 'ACTIVE',
                'migrating', True, {'VCPU': 4, f'CUSTOM_{MARK.upper()}_GPU': 1},
                f'other-allocations: on {NAMES["reason"]}', NAMES['zone'], NAMES['project'], 20,
                allocations={NODE: {'VCPU': 4}, POOL: {f'CUSTOM_{MARK.upper()}_GPU': 1}},
                extra_specs={f'{MARK}:1': f'<or> {MARK} <or> 5', 'accel:device_profile': MARK,
                             f'aggregate_instance_extra_specs:{MARK}': MARK,
                             f'trait1:CUSTOM_{MARK.upper()}_T': 'required'},
                image_properties={'os_admin_user': MARK, 'hw_video_ram': '16'},
                scheduler_hints={'same_host': (MEMBER,)}, power_state=1,
                opted_out=f'metadata {NAMES["reason"]}',
                contracts=(model.Contract(model.ContractSource.TAG, model.Disruption.LIVE,
                                          movement_hours.parse_hours('* 1 * * *'),
                                          model.MoveQuota(1, 60), ('hours',),
                                          model.NoticePeriod(60), NOW + 5.0, 1),)),
            MEMBER: model.Instance(MEMBER, NAMES['gone'], project_id='5' * 32)},
        services={a: model.Service(a, 'disabled', 'down', True, f'AUTO: {NAMES["reason"]}',
                                   NAMES['zone']),
                  b: model.Service(b, disabled_reason=f'{NAMES["reason"]} [campaign {GROUP}]',
                             status='disabled')},
        groups=(model.ServerGroup(GROUP, model.GroupPolicy.ANTI_AFFINITY,
                                  frozenset({INSTANCE, MEMBER}), 3, NAMES['group']),),
        flights=(model.InFlightMove(INSTANCE, a, b, 'task', (a,), NAMES['rack']),),
        aggregates={NAMES['rack']: (a,)}, taken_at=NOW, sharing={POOL: pool}, aggregate_metadata={
            NAMES['rack']: {f'{MARK}-1': f'{MARK}, 5', f'filter_tenant_id:{MARK}': '5' * 32,
                            f'trait:CUSTOM_{MARK.upper()}_T': 'required'}})

    def answer(query, series, error=None):
        return model.QueryResult(query, model.SourceHealth.PARTIAL, series, error=error,
                                 warnings=(NAMES['warning'],), missing_labels=(NAMES['label'],),
                                 duplicates=(b,))

    query = f'rate(x{{host=~"{MARK}.*", job=\'{MARK}\'}}[5m]) # {MARK}\n'
    policies = policy.parse_policies({'aggregates': [NAMES['rack']], 'policies': [
        {'name': 'cpu', 'weight': 1.0, 'imbalance_query': query,
         'vm_profile_query': f'vm{{a=`{MARK}`}}[1h]', 'vm_dirty_rate_query': 'dirty',
         'host_regex': rf'^(?:{MARK})?-?(.*):[0-9]+$', 'host_capacity_query': 'cores'}]})
    samples = {'cpu': model.PolicySamples(
        'cpu', answer(query, {a: 0.5, f'{b}:9100': 0.25}),
        answer(policies.policies[0].vm_profile_query, {NAMES['instance']: 2.5, INSTANCE: 1.0}),
        None, answer('cores', {}, error=f'cannot reach http://{NAMES["error"]}:9090'), 12.5, NOW,
        dirty_rate=answer('dirty', {NAMES['instance']: 4096.0, INSTANCE: 1.0}))}
    history = model.MoveHistory(
        cooling={INSTANCE: 5.5}, quarantined={MEMBER: -1.0}, quarantined_hosts=frozenset({b}),
        late_drains={MEMBER: a},
        local_disk_hosts=frozenset({a}), other_cells=frozenset({(a, b)}),
        scope_cooling=90.0, draining=frozenset({a}),
        paused=NAMES['pause'], waiting=NAMES['reason'],
        completed=((model.Move(MEMBER, a, b, model.Phase.PACK), NOW - 60.0),),
        measured=(model.MeasuredAttempt(MEMBER, 2048, 7, 30.0),),
        move_times={INSTANCE: (NOW - 60.0,)}, drain_begins={a: NOW - 60.0},
        window_ends={a: NOW + 60.0},
        drain_deadlines={a: model.DrainDeadline(NOW + 600.0, f'AUTO: {NAMES["reason"]}')},
        hourly_write_rates={INSTANCE: ((NOW - 3600.0, 1.5),)}, freezes=((NOW, NOW + 60.0),),
        awaited_write_rates={MEMBER: NOW + 300.0},
        notices={INSTANCE: model.MoveNotice(
            INSTANCE, NAMES['project'], a, model.NoticeReason.DRAIN, NOW - 9.0, NOW + 9.0,
            NOW + 99.0, may_shut_down=True)})
    return writer.SnapshotContent(
        now=NOW, scopes=(NAMES['rack'], model.UNASSIGNED), policies=policies, samples=samples,
        cluster=cluster, histories={NAMES['rack']: history, model.UNASSIGNED: history})


@pytest.fixture
def original(tmp_path):
    return writer.write_snapshot(str(tmp_path / 'original'), recording())


def copied(tmp_path, found, name='copy'):
    text = None if found.policies is None else yaml.safe_dump(dict(found.policies))
    return Path(writer.publish_directory(str(tmp_path / name), found.documents, 'snapshot', text))


@pytest.mark.parametrize('keep_order', [False, True])
def test_no_name_of_any_kind_is_left_in_any_file(tmp_path, original, keep_order):
    found = anonymiser.anonymise_snapshot(original, SALT, keep_order=keep_order,
                                          policy_set=recording().policies)
    copy = copied(tmp_path, found)
    before = b''.join(p.read_bytes() for p in Path(original).rglob('*.json'))
    assert before.lower().count(MARK.encode()) > 40, 'there was something to hide'
    files = [p for p in copy.rglob('*') if p.is_file()]
    assert {str(p.relative_to(copy)) for p in files} == {'policies.yaml', *(
        str(p.relative_to(original)) for p in Path(original).rglob('*.json'))}
    for path in files:
        data = path.read_bytes().lower() + path.name.encode()
        for word in (MARK, INSTANCE, MEMBER, GROUP, NODE, CARD, POOL, '5' * 32,
                     'example.org', 'lan"',
                     SALT.decode(), SALT.hex()):
            assert word.lower().encode() not in data, (path.name, word)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_numbers_and_structure_stay(tmp_path, original):
    copy = copied(tmp_path, anonymiser.anonymise_snapshot(original, SALT))

    def skeleton(value):
        """Without texts; keys that are names are counted, not compared."""
        match value:
            case dict():
                kept = {k: skeleton(v) for k, v in value.items() if re.fullmatch('[a-z_]+', k)}
                others = [skeleton(v) for k, v in value.items() if k not in kept]
                return kept, sorted(others, key=str)
            case list():
                return [skeleton(v) for v in value]
            case str():
                return 'text'
        return value

    for path in sorted(Path(original).rglob('*.json')):
        there = json.loads(path.read_text())
        here = json.loads((copy / path.relative_to(original)).read_text())
        assert skeleton(there) == skeleton(here), path.name
    cluster, was = reader.read_snapshot(str(copy)).cluster, reader.read_snapshot(original).cluster
    names = naming.AnonymousNames(SALT)
    assert {names.rename_identifier(u) for u in was.instances} == set(cluster.instances)
    assert {names.rename_host(h) for h in was.hosts} == set(cluster.hosts)
    moved = cluster.instances[names.rename_identifier(INSTANCE)]
    assert str(uuid.UUID(moved.uuid)) == moved.uuid
    assert moved.pinned == f'other-allocations: {anonymiser.REMOVED}'
    assert (moved.status, moved.task_state, moved.locked) == ('ACTIVE', 'migrating', True)
    service = cluster.services[names.rename_host(f'{NAMES["host-a"]}.example.org')]
    assert service.disabled_reason == f'AUTO: {anonymiser.REMOVED}'
    in_campaign = cluster.services[names.rename_host(NAMES['host-b'])]
    assert in_campaign.disabled_reason == f'{anonymiser.REMOVED} [campaign {anonymiser.REMOVED}]'
    host = next(h for h in cluster.hosts.values() if h.provider is not None)
    assert host.hypervisor_hostname.startswith(f'{host.name}.')
    assert set(moved.claims) <= set(host.provider.inventories)
    assert 'HW_CPU_X86_VMX' in host.traits


def test_rules_about_flavors_images_and_projects_say_the_same(tmp_path):
    """Before and after, of every instance and host."""
    projects = [n * 32 for n in '12']
    specs = [{'ssd': '<or> nvme <or> fast'}, {'ssd': 's== slow'}, {'hw:cpu_policy': 'mixed'},
             {'aggregate_instance_extra_specs:cores': '>= 8'}, {'trait:CUSTOM_GPU': 'required'}]
    images = [{'os_distro': 'debian'}, {'architecture': 'amd64'}, {'hw_qemu_guest_agent': 'yes'}]
    metadata = [{'ssd': 'fast, slow'}, {'cores': '16'}, {'filter_tenant_id_x': ','.join(projects)},
                {'filter_tenant_id': projects[0]}, {'os_distro': 'windows,debian'},
                {'hw_architecture': 'x86_64'}, {'hw_architecture': 'aarch64'},
                {'hw_qemu_guest_agent': 'True'}, {'trait:CUSTOM_GPU': 'required'}]
    hosts = ['source', *(f'h{n}' for n in range(len(metadata)))]
    instances = {str(uuid.UUID(int=n)): model.Instance(
        str(uuid.UUID(int=n)), 'source', extra_specs=s, image_properties=i, project_id=p)
        for n, (s, i, p) in enumerate(itertools.product(specs, images, projects))}
    was = model.Cluster(
        {h: model.Host(h) for h in hosts}, instances, {h: model.Service(h) for h in hosts},
        aggregates={f'agg{n}': (f'h{n}',) for n in range(len(metadata))},
        aggregate_metadata={f'agg{n}': found for n, found in enumerate(metadata)})
    path = writer.write_snapshot(str(tmp_path / 'original'), dataclasses.replace(
        recording(), cluster=was))
    there = reader.read_snapshot(str(copied(tmp_path,
                                            anonymiser.anonymise_snapshot(path, SALT)))).cluster
    names = naming.AnonymousNames(SALT)
    options = model.PlanningOptions(
        nova_enabled_filters=frozenset({aggregates.EXTRA_SPECS, aggregates.TENANTS,
                                        aggregates.IMAGES}),
        nova_prefilters=frozenset({prefilters.TENANTS, prefilters.ISOLATED}))
    before, after = cluster_view.ClusterView(was, options), cluster_view.ClusterView(there, options)
    verdicts = set()
    for instance, host in itertools.product(instances, hosts[1:]):
        move = model.Move(instance, 'source', host, model.Phase.SPREAD)
        renamed = model.Move(names.rename_identifier(instance), names.rename_host('source'),
                             names.rename_host(host), model.Phase.SPREAD)
        for rule in constraints.PAIRS:
            said, says = rule.judge(before, move), rule.judge(after, renamed)
            assert (said and said.rule) == (says and says.rule), (move, rule)
            verdicts.add(said and said.rule)
    assert len(verdicts) == 6, verdicts


WORDS = ('fast', 'faster', 'slow', 'big one', '8', '16', '1e2', 'true', 'required', 'amd64')
KEYS = ('ssd', 'site:ssd', 'site:rack:ssd', 'hw:ssd', 'hw_machine_type', 'os_type',
        'hw_architecture', 'filter_tenant_id:x', 'availability_zone', 'trait:CUSTOM_GPU')
values = st.sampled_from(WORDS)
operators = st.sampled_from(['=', '==', '!=', '>=', '<=', 's==', 's!=', 's<', 's<=', 's>', 's>=',
                             '<in>', '<all-in>', '<or>'])
requirements = st.one_of(
    values, st.builds('{} {}'.format, operators, values),
    st.builds('<or> {} <or> {}'.format, values, values))
flavor_keys = st.sampled_from([*KEYS, *(f'{aggregates.SCOPE}:{key}' for key in KEYS)])


@pytest.mark.turns(3)
@hypothesis.settings(max_examples=600, deadline=None)
@hypothesis.example({'os_type': 's== fast'}, {'os_type': 'fast'})
@hypothesis.example({'hw_architecture': 's< fast'}, {'hw_architecture': 'big one'})
@hypothesis.given(st.dictionaries(flavor_keys, requirements, max_size=3), st.dictionaries(
    st.sampled_from(KEYS), st.lists(values, min_size=1, max_size=3).map(', '.join), max_size=4))
def test_a_flavor_fits_an_aggregate_or_not_as_before(extra_specs, metadata):
    def verdict(extra_specs, metadata):
        cluster = model.Cluster(
            {h: model.Host(h) for h in 'ab'},
            {'i': model.Instance('i', 'a', extra_specs=extra_specs)},
            {h: model.Service(h) for h in 'ab'}, aggregates={'x': ('b',)},
            aggregate_metadata={'x': metadata})
        view = cluster_view.ClusterView(cluster, model.PlanningOptions(
            nova_enabled_filters=frozenset({aggregates.EXTRA_SPECS})))
        return aggregates.extra_specs(view, model.Move('i', 'a', 'b', model.Phase.SPREAD)) is None

    renaming = pins.ConstraintAnonymiser(naming.AnonymousNames(SALT), [metadata])
    assert verdict(extra_specs, metadata) == verdict(
        renaming.rename_extra_specs(extra_specs), renaming.rename_metadata(metadata))


def test_an_extra_spec_of_an_unknown_scope_keeps_a_scope():
    found, = pins.ConstraintAnonymiser(naming.AnonymousNames(SALT)).rename_extra_specs(
        {f'{MARK}:{MARK}': MARK})
    assert re.fullmatch('n[0-9a-f]{20}:n[0-9a-f]{20}', found)


def test_keys_that_a_rule_compares_by_name_stay(monkeypatch):
    site = rules.Rule(lambda view, move: None, {}, keys=frozenset({f'{MARK}:a', MARK}))
    monkeypatch.setattr(constraints, 'ALL', (*constraints.ALL, site))
    renaming = pins.ConstraintAnonymiser(naming.AnonymousNames(SALT))
    assert renaming.rename_extra_specs({f'{MARK}:a': 'true'}) == {f'{MARK}:a': 'true'}
    (key, value), = renaming.rename_metadata({MARK: 'r1'}).items()
    assert key == MARK
    assert re.fullmatch('n[0-9a-f]{20}', value)


def test_live_migratable_devices_keep_their_count():
    found = pins.ConstraintAnonymiser(naming.AnonymousNames(SALT)).rename_extra_specs(
        {'pci_passthrough:alias': f'{MARK}:2, b:1'})
    assert re.fullmatch('n[0-9a-f]{20}:2, n[0-9a-f]{20}:1', found['pci_passthrough:alias'])


class Renaming:
    """Names of a cloud with its order, applied to values of the model."""

    def __init__(self, cluster):
        uuids = {*cluster.instances, *(g.uuid for g in cluster.groups),
                 *(m for g in cluster.groups for m in g.members),
                 *(f.instance_uuid for f in cluster.flights), *cluster.sharing}
        hosts = {*cluster.hosts, *cluster.services, *(i.host for i in cluster.instances.values())}
        names = naming.AnonymousNames(SALT, uuids, hosts)
        self.texts = {**{u: names.rename_identifier(u) for u in uuids},
                      **{h: names.rename_host(h) for h in hosts}}

    def __call__(self, value):
        match value:
            case str() if type(value) is str:
                return self.texts.get(value, value)
            case dict():
                return {self(k): self(v) for k, v in value.items()}
            case tuple() | frozenset() | list():
                return type(value)(map(self, value))
        if dataclasses.is_dataclass(value):
            return dataclasses.replace(value, **{
                f.name: self(getattr(value, f.name)) for f in dataclasses.fields(value)})
        return value


@pytest.mark.turns(3)
@hypothesis.settings(max_examples=60, deadline=None, suppress_health_check=list(
    hypothesis.HealthCheck))
@hypothesis.given(k=clouds.knobs())
def test_a_plan_its_rejections_and_the_answers_of_why_not_stay(tmp_path_factory, k):
    request = clouds.request(k)
    flavors = itertools.cycle([{'site:ssd': 'fast'}, {'ssd': '<in> as'}, None])
    request = dataclasses.replace(
        request, options=dataclasses.replace(
            request.options, nova_enabled_filters=frozenset({aggregates.EXTRA_SPECS})),
        cluster=dataclasses.replace(
            request.cluster, instances={
                u: dataclasses.replace(i, extra_specs=next(flavors) or i.extra_specs)
                for u, i in request.cluster.instances.items()},
            aggregates={**request.cluster.aggregates, 'fast': ('h0', 'h1')},
            aggregate_metadata={**request.cluster.aggregate_metadata,
                                'fast': {'ssd': 'fast, slow'}}))
    path = writer.write_snapshot(str(tmp_path_factory.mktemp('original')), dataclasses.replace(
        recording(), cluster=request.cluster, histories={}))
    was = reader.read_snapshot(path).cluster
    again = copied(tmp_path_factory.mktemp('copy'),
                   anonymiser.anonymise_snapshot(path, SALT, keep_order=True))
    there = reader.read_snapshot(str(again)).cluster
    renaming = Renaming(was)
    scope = next(name for name in there.aggregates
                 if set(there.aggregates[name]) == set(map(renaming, was.aggregates['scope'])))
    before = dataclasses.replace(request, cluster=was.replace_scope('scope'))
    # As the documentation says: aliases of the original no longer fit.
    aliases = frozenset(naming.AnonymousNames(SALT).rename_identifier(a)
                        for a in request.options.live_migratable_pci_aliases)
    after = dataclasses.replace(
        request, cluster=there.replace_scope(scope), scores=renaming(request.scores),
        history=renaming(request.history),
        options=dataclasses.replace(request.options, live_migratable_pci_aliases=aliases))
    plan, other = planner.plan(before), planner.plan(after)
    assert [renaming(m) for m in plan.moves] == list(other.moves)
    assert plan.rejections == other.rejections
    for name, instance in itertools.islice(was.instances.items(), 6):
        if instance.host in before.cluster.scope_hosts:
            for host in sorted(before.cluster.scope_hosts):
                one = why_not.why_not(before, name, host, model.Phase.SPREAD)
                two = why_not.why_not(after, renaming(name), renaming(host),
                                      model.Phase.SPREAD)
                assert [v.rule for v in one.refused] == [v.rule for v in two.refused]


def test_spreads_over_failure_domains_are_judged_as_before(tmp_path):
    said = set()
    for seed in range(12):
        request = clouds.request(clouds.Knobs(seed, hosts=6, instances=14, groups=2, domains=True,
                                              clean=seed % 2 == 0))
        path = writer.write_snapshot(str(tmp_path / f'original{seed}'), dataclasses.replace(
            recording(), cluster=request.cluster, histories={}))
        again = copied(tmp_path / f'copy{seed}', anonymiser.anonymise_snapshot(
            path, SALT, keep_order=True))
        was, there = (reader.read_snapshot(str(p)).cluster for p in (path, again))
        assert {u: i.spread for u, i in was.instances.items()} == {
            u: i.spread for u, i in request.cluster.instances.items()}
        renaming = Renaming(was)
        rule = constraints.domain_spread.WORSENS_SPREAD_RULE
        views = [cluster_view.ClusterView(c, request.options) for c in (was, there)]
        for number, host in itertools.product(was.instances, was.hosts):
            move = model.Move(number, was.instances[number].host, host, model.Phase.SPREAD)
            one, two = rule.judge(views[0], move), rule.judge(views[1], renaming(move))
            assert (one and one.rule) == (two and two.rule)
            said.add(one and one.rule)
        text = ''.join(p.read_text() for p in again.rglob('*.json'))
        assert 'rack' not in text and '"web' not in text and 'pdu' not in text
    assert said == {None, 'worsens-spread', 'unclear-domain', 'unclear-source-domain'}


def test_one_salt_gives_one_name_and_another_another(original):
    first, again = (anonymiser.anonymise_snapshot(original, SALT).documents for _ in range(2))
    assert first == again
    other = anonymiser.anonymise_snapshot(original, SALT[::-1]).documents
    a, b = (json.dumps(d['nova/instances.json']) for d in (first, other))
    assert not set(re.findall(r'[0-9a-f]{12}', a)) & set(re.findall(r'[0-9a-f]{12}', b))


def test_labels_lead_to_the_same_hosts_without_the_regular_expression(tmp_path, original):
    given = recording().policies
    found = anonymiser.anonymise_snapshot(original, SALT, policy_set=given)
    assert 'host_regex' not in found.policies['policies'][0]
    policy.parse_policies(json.loads(json.dumps(found.policies)))
    names = naming.AnonymousNames(SALT)
    answer = found.documents['prometheus/imbalance_cpu.json']
    assert answer['series'][names.rename_host(f'{NAMES["host-a"]}.example.org')] == 0.5
    assert answer['query'] == found.policies['policies'][0]['imbalance_query']
    assert '[5m]' in answer['query'] and answer['query'].startswith('rate(x{host=~"q')


def replayed(policies, directory):
    conf = cfg.ConfigOpts()
    opts.register_planning(conf)
    conf([], default_config_files=[])
    for name, value in (('policies_file', str(policies)), ('evacuate_disabled_hosts', True),
                        ('enforce_hard_affinity', True), ('aggregates', []),
                        ('include_unassigned_hosts', True)):
        conf.set_override(name, value, 'engine')
    return replay.replay_snapshot(conf, str(directory), lambda: 0.0)


def plans(rows):
    return [[{k: m[k] for k in ('instance_uuid', 'from_host', 'to_host', 'phase', 'wave',
                                'improvement', 'alternates', 'requires')}
             for m in row['moves']] for row in rows]


def renamed(plan, names):
    return [[{**m, 'instance_uuid': names.rename_identifier(m['instance_uuid']),
              'from_host': names.rename_host(m['from_host']),
              'to_host': names.rename_host(m['to_host']),
              'alternates': [names.rename_host(h) for h in m['alternates']],
              'requires': [names.rename_identifier(u) for u in m['requires']]} for m in moves]
            for moves in plan]


@pytest.mark.turns(3)
def test_a_replay_with_the_order_kept_gives_the_same_plan(tmp_path):
    source = EXAMPLE / 'snapshot'
    given = policy_files.load_policies(str(EXAMPLE / 'policies.yaml'))
    found = anonymiser.anonymise_snapshot(str(source), SALT, policy_set=given, keep_order=True)
    assert found.ordered
    copy = copied(tmp_path, found)
    was = plans(replayed(EXAMPLE / 'policies.yaml', source))
    assert sum(len(moves) for moves in was) > 5
    cluster = reader.read_snapshot(str(source)).cluster
    uuids = {*cluster.instances, *(g.uuid for g in cluster.groups),
             *(m for g in cluster.groups for m in g.members)}
    names = naming.AnonymousNames(SALT, uuids, cluster.hosts)
    assert plans(replayed(copy / 'policies.yaml', copy)) == renamed(was, names)


@pytest.mark.turns(3)
def test_a_replay_without_the_order_gives_as_good_a_plan(tmp_path):
    """Ties are decided by names, so that the moves may be others."""
    source = EXAMPLE / 'snapshot'
    given = policy_files.load_policies(str(EXAMPLE / 'policies.yaml'))
    copy = copied(tmp_path, anonymiser.anonymise_snapshot(str(source), SALT, policy_set=given))
    before = replayed(EXAMPLE / 'policies.yaml', source)
    after = replayed(copy / 'policies.yaml', copy)
    for was, row in zip(before, after, strict=True):
        assert row['combined_before'] == pytest.approx(was['combined_before'])
        assert row['combined_after'] == pytest.approx(was['combined_after'], abs=0.02)
        assert len(row['draining']) == len(was['draining'])


def test_a_part_that_was_not_read_stays_unread(tmp_path):
    path = writer.write_snapshot(str(tmp_path), dataclasses.replace(
        recording(), histories=f'no route to {NAMES["error"]}'))
    found = anonymiser.anonymise_snapshot(path, SALT)
    assert found.documents['cooldowns.json'] == {'unknown': True, 'error': anonymiser.REMOVED}


def test_an_invalid_snapshot_or_salt_is_refused(tmp_path, original):
    (tmp_path / 'short').write_bytes(b'123')
    with pytest.raises(exception.SnapshotError, match='3 bytes can be guessed'):
        anonymiser.salt_of(str(tmp_path / 'short'))
    with pytest.raises(exception.SnapshotError, match='salt cannot be read'):
        anonymiser.salt_of(str(tmp_path / 'none'))
    broken = tmp_path / 'broken'
    shutil.copytree(original, broken)
    os.remove(broken / 'nova/instances.json')
    with pytest.raises(exception.SnapshotError, match='instances'):
        anonymiser.anonymise_snapshot(str(broken), SALT)


@pytest.mark.parametrize(('one', 'other', 'fits'), [
    ('node-1', 'node-1.example.org', lambda a, b: b.startswith(f'{a}.')),
    ('node-1', 'node-1:9100', lambda a, b: b == f'{a}:9100'),
    ('Node-1', 'node-1', lambda a, b: a != b and a.lower() == b),
    ('10.0.0.1', '10.0.0.1:9100', lambda a, b: b == f'{a}:9100' and '.' not in a),
    ('10.0.0.1', '10.0.0.2', lambda a, b: a != b and '.' not in a + b),
    ('fe80::1', 'fe80::2', lambda a, b: a != b and ':' not in a + b)])
def test_names_of_hosts_fit_each_other_as_before(one, other, fits):
    names = naming.AnonymousNames(SALT)
    assert fits(names.rename_host(one), names.rename_host(other))
    assert one not in names.rename_host(one)


def test_a_word_of_a_query_that_is_a_name_is_renamed_and_no_function_is():
    names = naming.AnonymousNames(SALT)
    for word in ('acme', 'rate', 'by', 'host'):
        names.rename_identifier(word)
    names.freeze_words()
    query = names.rename_query('sum by (host) (rate(acme[5m] offset 1h)) > 0.5')
    assert re.fullmatch(r'sum by \(m_\w+\) \(rate\(m_\w+\[5m\] offset 1h\)\) > 0\.5', query)


def test_the_command_writes_it_and_never_the_salt(tmp_path, original):
    salt = tmp_path / 'salt'
    salt.write_bytes(SALT)

    def run(*arguments):
        return subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', 'import sys; from kronos_nova.cli import app; '
             'sys.exit(app.main())', 'snapshot', 'anonymise', *arguments],
            cwd=TOP, capture_output=True, text=True, check=False)

    done = run(original, str(tmp_path / 'out'), '--salt-file', str(salt))
    assert done.returncode == 0, done.stderr
    copy = Path(done.stdout.strip())
    assert copy.name == 'kronos-anonymised-20261101T000000Z'
    assert reader.read_snapshot(str(copy)).cluster.instances
    assert SALT not in b''.join(p.read_bytes() for p in copy.rglob('*.json'))
    done = run(original, str(tmp_path / 'out'), '--salt-file', str(tmp_path / 'none'))
    assert done.returncode == 1
    assert 'openssl rand' in done.stderr and 'Traceback' not in done.stderr
