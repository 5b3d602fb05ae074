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

"""A host costs more, the more of the requester's instances it has."""

from unittest import mock

from nova import objects
import pytest

from kronos_nova.feed import periodic
from kronos_nova.scheduler import runtime
from kronos_nova.weighers import all_weighers
from kronos_nova.weighers import project
from kronos_nova.weighers import project_cache
from tests.unit import nova_fakes

objects.register_all()


class Mapping:
    def __init__(self, instance_uuid, project_id):
        self.instance_uuid, self.project_id = instance_uuid, project_id


@pytest.fixture()
def api_database():
    """Stands for Nova's instance mappings; the functional test has the real ones."""
    known, asked = {}, []

    def get(context, uuids):
        if 'boom' in known:
            raise RuntimeError('boom')
        asked.append(tuple(uuids))
        return [Mapping(u, known[u]) for u in uuids if u in known]

    with mock.patch.object(project_cache.objects.InstanceMappingList, 'get_by_instance_uuids',
                           autospec=True, side_effect=get):
        yield mock.Mock(known=known, asked=asked)


def book():
    found = project_cache.ProjectBook(mock.Mock(), periodic.FaultCounters())
    found._refresher.ensure_running = lambda: None
    return found


def host(name, *uuids, **told):
    """A host with instances; ``told`` are those whose project Nova's object tells."""
    instances = {u: nova_fakes.Fields(uuid=u) for u in uuids}
    instances |= {u: nova_fakes.Fields(uuid=u, project_id=p) for u, p in told.items()}
    return nova_fakes.HostState(name, instances=instances, num_instances=len(instances))


def test_projects_are_looked_up_once_and_only_where_nova_does_not_tell(api_database):
    api_database.known.update(u1='mine', u2='other')
    found, hosts = book(), [host('a', 'u1', 'u2', 'u3', u4='mine')]
    assert found.list_project_instances(hosts, 'mine') == set()
    found.refresh_projects()
    assert found.list_project_instances(hosts, 'mine') == {'u1', 'u4'}
    assert {u for batch in api_database.asked for u in batch} == {'u1', 'u2', 'u3'}
    api_database.asked.clear()
    found.refresh_projects()
    assert api_database.asked == []


def test_projects_noted_from_requests_need_no_lookup(api_database):
    found, hosts = book(), [host('a', 'u1')]
    found.record_project('u1', 'mine')
    assert found.list_project_instances(hosts, 'mine') == {'u1'}
    found.refresh_projects()
    assert found.list_project_instances(hosts, 'mine') == {'u1'} and api_database.asked == []


def test_an_instance_is_forgotten_when_no_host_has_had_it_for_long(api_database):
    api_database.known.update(u1='mine', u2='mine')
    found = book()
    with mock.patch.object(project_cache, 'GENERATION', 0.0):
        for hosts in ([host('a', 'u1', 'u2')], [host('a', 'u2')], [host('a', 'u2')]):
            found.list_project_instances(hosts, 'mine')
            found.refresh_projects()
    assert found.list_project_instances([], 'mine') == {'u2'}


def test_a_failing_database_loses_nothing_that_is_known(api_database):
    found, hosts = book(), [host('a', 'u1', u2='mine')]
    found.record_project('u0', 'mine')
    found.list_project_instances(hosts, 'mine')
    api_database.known['boom'] = ''
    with pytest.raises(RuntimeError):
        found.refresh_projects()
    assert found.list_project_instances(hosts, 'mine') == {'u0', 'u2'}


def weights(states, theirs, spec=None, multiplier=1.0):
    door = nova_fakes.FakeDoor()
    known = book()
    for uuid in theirs:
        known.record_project(uuid, 'mine')
    door.kept = {project_cache.ProjectBook: known}
    runtime.CONF.set_override(project.KronosProjectWeigher.OPTION, multiplier, 'filter_scheduler')
    try:
        with door.opened():
            found = project.KronosProjectWeigher().weigh_objects(
                [nova_fakes.Fields(obj=s) for s in states],
                spec or nova_fakes.spec(project_id='mine'))
    finally:
        runtime.CONF.clear_override(project.KronosProjectWeigher.OPTION, 'filter_scheduler')
    assert not door.faults.counts
    return found


def test_the_first_instance_costs_most():
    states = [host('a', 'x'), host('b', 'u1'), host('c', 'u1', 'u2', 'x'),
              host('d', 'u1', 'u2', 'u3')]
    assert weights(states, ('u1', 'u2', 'u3')) == [0.0, -0.5, -0.66667, -0.75]


def test_the_instance_that_is_moved_does_not_count():
    spec = nova_fakes.spec(project_id='mine', instance_uuid='u1')
    assert weights([host('a', 'u1'), host('b', 'u2')], ('u1', 'u2'), spec) == [0.0, -0.5]


def test_elder_siblings_of_the_request_count():
    states = [host('a', 'x'), host('b', 'u1')]
    assert weights(states, ('u1',)) == [0.0, -0.5]
    states[0].num_instances += 2  # as HostState.consume_from_request does
    assert weights(states, ('u1',)) == [-0.66667, -0.5]


def test_a_request_without_a_project_gives_no_weights():
    assert weights([host('a', 'u1')], ('u1',), nova_fakes.spec(project_id=None)) == [0.0]


def test_the_entry_point_names_it():
    assert project.KronosProjectWeigher in all_weighers()
