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


"""Labels map to Nova's names exactly, by regex, or unambiguously; never by luck."""

import string

from hypothesis import given
from hypothesis import strategies as st
import pytest

from kronos_nova import labels
from kronos_nova import model


def _find(label, *hosts, regex=None):
    return labels.HostNames(dict(hosts), regex).find_service_host(label)


@pytest.mark.parametrize(('hosts', 'label', 'expected'), [
    # Exactly.
    ([('cn1', 'cn1.a.org')], 'cn1', 'cn1'),
    ([('cn1.a.org', '')], 'cn1.a.org', 'cn1.a.org'),
    # The hypervisor's name is an alias of the service host.
    ([('compute-1', 'cn1.a.org')], 'cn1.a.org', 'compute-1'),
    ([('compute-1', 'cn1.a.org')], 'cn1', 'compute-1'),
    # Short and FQDN, both ways, in any case.
    ([('cn1.a.org', '')], 'CN1', 'cn1.a.org'),
    ([('cn1', '')], 'cn1.A.org', 'cn1'),
    ([('cn1', 'cn1')], 'cn1.a.org', 'cn1'),
    # Another domain is another host.
    ([('cn1.a.org', '')], 'cn1.b.org', None),
    ([('cn1', 'cn1.a.org')], 'cn1.b.org', None),
    # Not if two would fit.
    ([('cn1.a.org', ''), ('cn1.b.org', '')], 'cn1', None),
    ([('cn1', ''), ('cn1.a.org', '')], 'cn1.b.org', None),
    ([('x', 'same.a.org'), ('y', 'same.a.org')], 'same.a.org', None),
    # The exact name wins over everything that folds.
    ([('cn1', ''), ('cn1.a.org', '')], 'cn1', 'cn1'),
    ([('cn1', ''), ('cn1.a.org', '')], 'cn1.a.org', 'cn1.a.org'),
    # Addresses do not fold.
    ([('10.0.0.1', ''), ('10.0.0.2', '')], '10.0.0.1', '10.0.0.1'),
    ([('10.0.0.1', '')], '10', None),
    ([('10.0.0.1', '')], '10.0.0.2', None),
    ([('10.0.0.1', '')], '10.0.0.1:9100', None),
    ([('cn1', '10.0.0.7')], '10.0.0.7', 'cn1'),
    ([('fe80::1', '')], 'fe80::2', None),
    ([('cn1', '')], '', None),
])
def test_a_label_finds_its_host(hosts, label, expected):
    assert _find(label, *hosts) == expected


def test_the_regex_captures_the_host():
    host = ('cn1', '')
    assert _find('node-cn1:9100', host, regex=r'^node-(.+):\d+$') == 'cn1'
    assert _find('node-cn2:9100', host, regex=r'^node-(.+):\d+$') is None
    assert _find('other', host, regex=r'node-(x)?') is None
    assert _find('node-', host, regex=r'node-(x)?') is None


def test_two_labels_for_one_host_are_neither():
    names = labels.HostNames({'cn1': '', 'cn2': ''})
    mapped = names.map_answer({'cn1': 1.0, 'cn1.a.org': 2.0, 'CN1': 3.0, 'cn2': 4.0, 'web': 5.0})
    assert mapped.values == {'cn2': 4.0}
    assert mapped.ambiguous == ('cn1',)
    assert mapped.unknown == ('web',)


def test_another_region_with_the_same_short_names_changes_nothing():
    names = labels.HostNames({'cn1.a.org': 'cn1.a.org'})
    mapped = names.map_answer({'cn1.a.org': 0.5, 'cn1.b.org': 0.9})
    assert mapped.values == {'cn1.a.org': 0.5}
    assert not mapped.ambiguous


names = st.text(string.ascii_lowercase + '.', min_size=1, max_size=5)


@given(st.dictionaries(names, names | st.just(''), max_size=6), names)
def test_a_found_name_is_a_host_and_an_exact_match_comes_first(hosts, label):
    found = labels.HostNames(hosts).find_service_host(label)
    assert found is None or found in hosts
    if label in hosts:
        assert found == label
    elif found is not None:
        aliases = {a.lower() for a in (found, hosts[found]) if a}
        assert label in aliases or labels.fold_host_name(label) in {labels.fold_host_name(a)
                                                                    for a in aliases}
        if label not in aliases and labels.fold_host_name(label) != label:
            # A qualified label folded: no alias of the host names a domain.
            assert all(labels.fold_host_name(a) == a for a in aliases)


@given(st.dictionaries(names, st.just(''), max_size=6),
       st.dictionaries(names, st.floats(0, 1), max_size=8))
def test_every_label_is_used_once_or_named(hosts, series):
    host_names = labels.HostNames(hosts)
    mapped = host_names.map_answer(series)
    found = [host_names.find_service_host(label) for label in series]
    assert len(mapped.unknown) == found.count(None)
    for host in hosts:
        claims = found.count(host)
        assert (host in mapped.values) == (claims == 1)
        assert (host in mapped.ambiguous) == (claims > 1)


def _instances(*rows):
    return [model.Instance(uuid, 'cn1', name=name, internal_name=internal)
            for uuid, name, internal in rows]


def test_instances_by_uuid():
    mapped = labels.map_instances({'u1': 1.0, 'u9': 2.0}, _instances(('u1', 'a', 'i-1')),
                                  'nova_instance_uuid')
    assert mapped.values == {'u1': 1.0}
    assert mapped.unknown == ('u9',)


@pytest.mark.parametrize(('label_type', 'name'), [
    ('nova_display_name', 'web'), ('nova_internal_name', 'i-1')])
def test_a_name_that_two_instances_share_maps_to_none(label_type, name):
    instances = _instances(('u1', 'web', 'i-1'), ('u2', 'web', 'i-1'), ('u3', 'db', 'i-3'))
    other = 'db' if label_type == 'nova_display_name' else 'i-3'
    mapped = labels.map_instances({name: 1.0, other: 2.0}, instances, label_type)
    assert mapped.values == {'u3': 2.0}
    assert mapped.ambiguous == ('u1', 'u2')


def test_an_instance_without_a_name_is_not_the_series_without_one():
    mapped = labels.map_instances({'': 1.0}, _instances(('u1', '', '')), 'nova_internal_name')
    assert not mapped.values
