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


"""What a provider tree of another shape means for a move that was planned before."""

import dataclasses
import logging

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.executors import reshapes
from kronos_nova.rebalancer.planning import provider_tree_digest
from tests.unit.rebalancer.executors import novas

HOSTS = {name: model.Host(name, uuid=f'root of {name}', provider=model.Provider(
    f'root of {name}', 5, {'VCPU': model.Inventory(8)})) for name in ('host1', 'host2', 'host3')}


def provider(name: str, **fields: object) -> dict[str, model.Host]:
    """The hosts with fields of one's root provider changed."""
    host = HOSTS[name]
    assert host.provider is not None
    changed = dataclasses.replace(host.provider, **fields)  # type: ignore[arg-type]
    return HOSTS | {name: dataclasses.replace(host, provider=changed)}


def check(hosts: dict[str, model.Host], marked: tuple[str, ...] = ('host1', 'host2')) -> None:
    marks = [provider_tree_digest.compute_tree_digest(HOSTS[name]) for name in marked]
    task = dataclasses.replace(novas.TASK, trees=tuple(mark for mark in marks if mark))
    reshapes.refuse_reshaped_trees(task, model.Cluster(hosts=hosts, instances={}, services={}))


@pytest.mark.parametrize(('host', 'rule'), [
    ('host1', 'source-reshaped'), ('host2', 'tree-reshaped')])
def test_error_about_a_reshaped_tree_names_host_and_root(host: str, rule: str) -> None:
    with pytest.raises(exception.PreFlightError) as error:
        check(provider(host, inventories={'VCPU': model.Inventory(8), 'VGPU': model.Inventory(1)}))
    assert error.value.kwargs == {
        'instance_uuid': 'vm', 'rule': rule,
        'problem': f'not moved to host2: the resource providers of {host} (root root of {host}) '
                   f'were reshaped since it was planned ({rule}); the next plan knows'}


@pytest.mark.parametrize('hosts', [
    HOSTS,
    provider('host1', generation=9),
    provider('host2', inventories={'VCPU': model.Inventory(64)}),
    # Another one's, and that of no host of the move.
    provider('host3', inventories={}),
    {name: host for name, host in HOSTS.items() if name == 'host3'}])
def test_changes_with_another_cause_are_left_to_the_rules(hosts: dict[str, model.Host]) -> None:
    check(hosts)


def test_an_end_that_the_plan_did_not_know_does_not_hide_the_other_one() -> None:
    reshaped = provider('host2', inventories={})
    with pytest.raises(exception.PreFlightError, match='host2'):
        check(reshaped, marked=('host2',))
    with pytest.raises(exception.PreFlightError, match='host2'):
        check({'host2': reshaped['host2']})


@pytest.mark.mutant
def test_a_changed_generation_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        check(HOSTS)
        assert not caplog.messages
        check(provider('host2', generation=9))
    assert caplog.messages == [
        f'{model.format_task(novas.TASK)}: the resource providers of host2 have changed since it '
        'was planned (generations 5, now 9 in sum); checking it again']
