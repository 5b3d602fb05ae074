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

"""No error of our plug-ins reaches Nova, wherever it is raised and whatever the options say."""

import contextlib
import math
from pathlib import Path
import subprocess
import sys
import time
from unittest import mock

from nova.scheduler import filters as nova_filters
from nova.scheduler import weights as nova_weights
from oslo_cache import core
from oslo_config import cfg
import pytest
import yaml

import kronos_nova
from kronos_nova import background
from kronos_nova import boot
from kronos_nova import exception
from kronos_nova import guard
from kronos_nova import model
from kronos_nova import published
from kronos_nova import raw_cache
from kronos_nova.conf import scheduler as scheduler_conf
from kronos_nova.filters import all_filters
from kronos_nova.sources import base
from kronos_nova.weighers import all_weighers
from kronos_nova.weighers import specials
from tests.unit import nova_fakes

HOME = Path(kronos_nova.__file__).parent
#: Its wrappers are what the test is about.
GUARD = str(HOME / 'guard.py')
REQUIRED = ('filters/base.py', 'filters/capacity.py', 'filters/placement.py',
            'weighers/headroom.py', 'weighers/optional.py', 'weighers/project.py',
            'weighers/scarcity.py', 'weighers/normalisation.py', 'boot.py', 'scoreboard.py')
POLICY = {'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'cpu', 'boot_ceiling': 0.5}


class Source(base.Source):
    def fetch(self, policy, *, profile=True):
        return model.PolicySamples('cpu', model.QueryResult(
            'cpu', model.Health.HEALTHY, series={'a': 0.2, 'b': 0.9, 'c': 0.4}))

    def health(self):
        return model.Health.HEALTHY, 'fake'


class Injected(Exception):
    """An error at a line of ours, whose text cannot be had either."""

    def __str__(self):
        raise RuntimeError('no text')


class Flavor(nova_fakes.Fields):
    """Enough of a request for the scarcity weigher."""


def read_options(tmp_path, text=''):
    """Return a configuration with the options of nova-scheduler."""
    (tmp_path / 'nova.conf').write_text(text)
    (tmp_path / 'policies.yaml').write_text(yaml.safe_dump({'policies': [POLICY]}))
    conf = cfg.ConfigOpts()
    scheduler_conf.register(conf)
    raw_cache.register(conf)
    conf.register_opt(cfg.ListOpt('enabled_filters', default=['DifferentHostFilter']),
                      group='filter_scheduler')
    conf([], default_config_files=[str(tmp_path / 'nova.conf')])
    conf.set_override('policies_file', [str(tmp_path / 'policies.yaml')], 'kronos')
    return conf


@pytest.fixture
def quiet():
    """No thread starts, and the source answers at once."""
    with mock.patch.object(background.Refresher, 'ensure', autospec=True), \
            mock.patch('kronos_nova.plugins.load', autospec=True,
                       return_value=lambda conf: Source()), \
            mock.patch('kronos_nova.weighers.scarcity.asked_for', lambda spec: set()):
        boot.close()
        yield
        boot.close()


def make_hosts():
    hosts = nova_fakes.hosts('a', 'b', 'c', 'unknown')
    hosts[2].instances = {'u-member': object()}
    for host in hosts:
        host.aggregates = [nova_fakes.Fields(name='rack', metadata={
            'kronos_weight_multiplier': '2.0'})]
        host.uuid = host.host
    return hosts


def make_spec():
    group = nova_fakes.Fields(uuid='g', policy='anti-affinity', rules={},
                              members=['u-member', 'u-moving'])
    return nova_fakes.spec(project_id='p', num_instances=1, instance_group=group,
                           scheduler_hints={'different_host': 'u-moving'})


def ask(plugins):
    """Send one request through Nova's own handlers; return what comes out."""
    filters, weighers = plugins
    hosts = make_hosts()
    passing = nova_filters.HostFilterHandler().get_filtered_objects(
        filters, hosts, make_spec())
    weighed = nova_weights.HostWeightHandler().get_weighed_objects(
        weighers, hosts, make_spec())
    return passing, weighed


def check(found):
    passing, weighed = found
    assert passing and {host.host for host in passing} <= {'a', 'b', 'c', 'unknown'}
    assert sorted(each.obj.host for each in weighed) == ['a', 'b', 'c', 'unknown']
    assert all(math.isfinite(each.weight) for each in weighed)


def prepare(kind):
    """Bring the runtime into one of three states before a request."""
    boot.close()
    if kind == 'first request':
        return
    door = boot.door()
    door.look(make_hosts())
    if kind == 'with scores':
        door.scores.refresh()
        now = time.time()
        door.notices._newest = published.Published(
            frozenset({'b'}), frozenset({'unknown'}),
            (model.Flight('u-moving', 'b', 'unknown', 'kronos'),), now, now + 600)
        board = door.keep(specials.Board)
        board._newest = specials.tally({'CUSTOM_X': {'b'}}, {'a', 'b', 'c'}, {})
        board._until = math.inf


OPTIONS = {
    'plain': {}, 'costly': {'normalisation': 'tanh', 'weigh_request': True,
                            'unknown_hosts': 'exclude', 'fail_closed': True}}
STATES = ('first request', 'without scores', 'with scores')


@contextlib.contextmanager
def tracing(see):
    """Call ``see(file, line)`` at each line of ours on this thread."""
    def local(frame, event, argument):
        if event == 'line':
            see(frame.f_code.co_filename, frame.f_lineno)
        return local

    def enter(frame, event, argument):
        name = frame.f_code.co_filename
        return local if name.startswith(str(HOME)) and name != GUARD else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)


def find_lines(plugins, state):
    lines = {}
    prepare(state)
    with tracing(lambda *place: lines.setdefault(place)):
        check(ask(plugins))
    assert guard.FAULTS.counts == {}, 'the request itself must be healthy'
    return list(lines)


@pytest.mark.parametrize('options', OPTIONS)
def test_an_error_at_any_line_never_reaches_nova(quiet, tmp_path, options):
    conf = read_options(tmp_path)
    for name, value in OPTIONS[options].items():
        conf.set_override(name, value, 'kronos')
    for name in ('scarcity', 'project'):
        conf.set_override(f'kronos_{name}_weight_multiplier', 1.0, 'filter_scheduler')
    with mock.patch.object(boot, 'CONF', conf):
        plugins = [kind() for kind in all_filters()], [kind() for kind in all_weighers()]
        reached, raised = set(), []
        for state in STATES:
            for place in find_lines(plugins, state):
                prepare(state)
                struck = []

                def strike(*at, place=place, struck=struck):
                    if at == place and not struck:
                        struck.append(at)
                        raise Injected
                try:
                    with tracing(strike):
                        found = ask(plugins)
                    check(found)
                except Exception as error:
                    raised.append((state, place, error.__class__.__name__))
                assert struck, f'{place} was not reached again'
                assert sum(guard.FAULTS.counts.values()) >= 1, place
                reached.add(str(Path(place[0]).relative_to(HOME)))
    assert raised == []
    assert reached >= set(REQUIRED) - ({'weighers/normalisation.py'} if options == 'plain'
                                       else set())


def find_bad_values():
    """Yield (group, option, text) with a text that the option's type refuses."""
    bad = {'float': 'much', 'integer': 'many', 'boolean': 'on;', 'URI': 'ftp://x',
           'Dict of Float': 'x'}
    lists = [*scheduler_conf.list_opts(),
             ('cache', [opt for group, opts in core._opts.list_opts() for opt in opts
                        if opt.name in raw_cache.OPTIONS['cache']])]
    for group, opts in lists:
        for opt in opts:
            kind = repr(opt.type).partition('(')[0]
            text = 'nonsense' if getattr(opt.type, 'choices', None) else next(
                (text for name, text in bad.items() if name.lower() == kind.lower()), None)
            if text is not None:
                yield group, opt.dest, text
            else:
                assert kind in ('String', 'List of String'), (group, opt.dest, kind)


BAD = list(find_bad_values())


@pytest.mark.parametrize(('group', 'option', 'text'), BAD)
def test_a_bad_option_stops_the_load_and_never_a_request(quiet, tmp_path, group, option, text):
    conf = read_options(tmp_path)
    with mock.patch.object(boot, 'CONF', conf):
        plugins = [kind() for kind in all_filters()], [kind() for kind in all_weighers()]
    conf = read_options(tmp_path, f'[{group}]\n{option} = {text}\n')
    with mock.patch.object(boot, 'CONF', conf):
        for kind in (*all_filters(), *all_weighers()):
            with pytest.raises(exception.ConfigError) as caught:
                kind()
            assert f'nova.conf: [{group}] {option}: ' in str(caught.value)
            assert 'remove the line' in str(caught.value)
        for state in STATES:
            with contextlib.suppress(boot.RuntimeUnavailable, cfg.Error, ValueError):
                prepare(state)  # in nova-scheduler on a thread of its own, which survives
            check(ask(plugins))


def test_most_options_have_a_value_that_is_refused():
    assert len(BAD) >= 20 and ('cache', 'enabled', 'on;') in BAD


@pytest.mark.parametrize('text', ['nan', 'inf'])
def test_a_multiplier_that_is_no_number_stops_the_load(tmp_path, text):
    conf = read_options(tmp_path, f'[filter_scheduler]\nkronos_weight_multiplier = {text}\n')
    with mock.patch.object(boot, 'CONF', conf), \
            pytest.raises(exception.ConfigError, match='kronos_weight_multiplier'):
        boot.check_options()


def test_an_unknown_score_source_stops_the_load(tmp_path):
    conf = read_options(tmp_path, '[kronos]\nsource = prometeus\n')
    with mock.patch.object(boot, 'CONF', conf), pytest.raises(
            exception.ConfigError, match=r'\[kronos\] source.*prometeus.*prometheus, snapshot'):
        boot.check_options()


def test_nova_scheduler_does_not_start_with_a_typo(tmp_path):
    """In a process of its own, with Nova's own configuration object and loader."""
    (tmp_path / 'nova.conf').write_text('[cache]\nenabled = on;\n')
    code = '''
import sys
import nova.conf
from nova.scheduler import filters
nova.conf.CONF(['--config-file', sys.argv[1]])
for kind in filters.HostFilterHandler().get_matching_classes(['kronos_nova.filters.all_filters']):
    kind()
'''
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', code,
                           str(tmp_path / 'nova.conf')], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 1
    assert f'{tmp_path}/nova.conf: [cache] enabled: ' in done.stderr.splitlines()[-1]


def test_a_runtime_that_cannot_be_built_is_not_tried_in_each_request(quiet, tmp_path):
    conf = read_options(tmp_path)
    with mock.patch.object(boot, 'CONF', conf):
        plugins = [kind() for kind in all_filters()], [kind() for kind in all_weighers()]
        with mock.patch.object(boot, 'Door', autospec=True,
                               side_effect=OSError('no more threads')) as made:
            for _ in range(3):
                passing, weighed = ask(plugins)
                assert len(passing) == 4 and {each.weight for each in weighed} == {0.0}
            assert made.call_count == 1
        assert guard.FAULTS.counts['KronosWeigher: RuntimeUnavailable'] >= 3
        with mock.patch.object(boot.time, 'monotonic', autospec=True,
                               return_value=time.monotonic() + boot.RETRY_SECONDS + 1):
            assert boot.door() is boot.door()


@pytest.mark.parametrize('error', [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_process_is_not_swallowed(quiet, tmp_path, error):
    conf = read_options(tmp_path)
    with mock.patch.object(boot, 'CONF', conf):
        plugins = [kind() for kind in all_filters()], [kind() for kind in all_weighers()]
        with mock.patch.object(boot, 'door', autospec=True, side_effect=error), \
                pytest.raises(error):
            ask(plugins)


def test_a_log_that_fails_hides_no_error(quiet, tmp_path):
    conf = read_options(tmp_path)
    with mock.patch.object(boot, 'CONF', conf):
        plugins = [kind() for kind in all_filters()], [kind() for kind in all_weighers()]
        with mock.patch.object(boot, 'door', autospec=True, side_effect=Injected), \
                mock.patch.object(background.LOG, 'error', autospec=True,
                                  side_effect=OSError('disk full')):
            check(ask(plugins))
        assert guard.FAULTS.counts['KronosWeigher: Injected'] >= 1
