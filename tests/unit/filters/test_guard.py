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

"""No error of our plug-ins reaches Nova, from any line and with any options."""

import ast
import contextlib
import inspect
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
from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import scheduler as scheduler_conf
from kronos_nova.feed import feed_channel
from kronos_nova.feed import periodic
from kronos_nova.feed import raw_cache
from kronos_nova.filters import all_filters
from kronos_nova.scheduler import guard
from kronos_nova.scheduler import runtime
from kronos_nova.sources import base
from kronos_nova.weighers import all_weighers
from kronos_nova.weighers import scarce_traits
from tests.unit import nova_fakes

HOME = Path(kronos_nova.__file__).parent
#: Its wrappers are what the test is about.
GUARD = str(HOME / 'scheduler/guard.py')
#: Formats log records, in processes whose logging another test has set up. logging catches its
#: errors.
MASKING = str(HOME / 'conf/secret_mask.py')
COUNTER = {(periodic.__file__, line) for text, first in [
    inspect.getsourcelines(periodic.FaultCounters.count_swallowed_error)]
           for line in range(first, first + len(text))}
REQUIRED = ('filters/base.py', 'filters/capacity.py', 'filters/placement.py',
            'weighers/headroom.py', 'weighers/optional.py', 'weighers/project.py',
            'weighers/scarcity.py', 'weighers/normalisation.py', 'scheduler/runtime.py',
            'scheduler/score_cache.py')
#: Functions of filters and weighers that no request runs, and why.
NEVER = {
    'filters/base.py': {'__init__'},  # when nova-scheduler loads it
    'filters/capacity.py': {'find_limit_excesses'},  # for weigh explain
    # The last is for weigh tune.
    'weighers/headroom.py': {'__init__', '_weigh_object', 'compute_request_weights'},
    'weighers/optional.py': {'__init__', '_weigh_object'},
    'weighers/scarcity.py': {'asked_for'}}  # needs Nova's own RequestSpec; replaced here
#: Statements for arguments that our callers never pass: these bodies may stay unreached.
COLD = {'if not hosts:', 'if not known:', 'if kind not in KINDS:', 'if kind == FIXED:'}
POLICY = {'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'cpu', 'boot_ceiling': 0.5}


class Source(base.MetricsSource):
    def fetch(self, policy, *, profile=True):
        return model.PolicySamples('cpu', model.QueryResult(
            'cpu', model.SourceHealth.HEALTHY, series={'a': 0.2, 'b': 0.9, 'c': 0.4, 'x': 0.1}))

    def health(self):
        return model.SourceHealth.HEALTHY, 'fake'


class Injected(Exception):
    """An error at a line of ours whose text cannot be read either."""

    def __str__(self):
        raise RuntimeError('no text')


class Flavor(nova_fakes.Fields):
    """Enough of a request for the scarcity weigher."""


def read_options(tmp_path, text=''):
    """Return a configuration with the options of nova-scheduler."""
    (tmp_path / 'nova.conf').write_text(text)
    (tmp_path / 'policies.yaml').write_text(yaml.safe_dump({'policies': [POLICY]}))
    (tmp_path / 'rack.yaml').write_text(yaml.safe_dump(
        {'policies': [POLICY], 'mode': 'pack', 'aggregates': ['rack']}))
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
    with mock.patch.object(periodic.BackgroundRefresher, 'ensure_running', autospec=True), \
            mock.patch('kronos_nova.plugins.load_plugin', autospec=True,
                       return_value=lambda conf: Source()), \
            mock.patch('kronos_nova.weighers.scarcity.asked_for', lambda spec: set()):
        runtime.close()
        yield
        runtime.close()


HOSTS = 'a', 'b', 'c', 'unknown'


def make_hosts():
    hosts = nova_fakes.hosts(*HOSTS)
    hosts[2].instances = {'u-member': object()}
    hosts[2].disk_mb_used = None
    rack = nova_fakes.Fields(name='rack', metadata={'kronos_weight_multiplier': '2.0'})
    strange = nova_fakes.Fields(name='strange', metadata={'kronos_weight_multiplier': 'inf'})
    for host in hosts:
        host.aggregates = [strange] if host.host == 'c' else [rack]
        host.uuid = host.host
    return hosts


def make_group(policy):
    return nova_fakes.Fields(uuid='g', policy=policy, rules={},
                             members=['u-member', 'u-moving', 'u-new'])


HINTS = {'different_host': 'u-moving'}
CELL, HOST = nova_fakes.Fields(cell='c'), nova_fakes.Fields(host='a')
REQUESTS = {
    'anti-affinity': {'instance_group': make_group('anti-affinity'), 'scheduler_hints': HINTS},
    'affinity': {'instance_group': make_group('affinity')},
    'plain': {},
    'group at rest': {'instance_group': nova_fakes.Fields(
        uuid='g', policy='affinity', rules={}, members=['u-member'])},
    'many': {'num_instances': 9, 'project_id': None},
    'move': {'requested_destination': CELL, 'scheduler_hints': HINTS},
    'move across cells': {'ignore_hosts': ['x']},
    'pinned': {'requested_destination': HOST}, 'forced': {'force_hosts': ['a']},
    'rebuild': {'scheduler_hints': {'_nova_check_type': ['rebuild']}}}


def make_spec(**fields):
    return nova_fakes.spec(**{'project_id': 'p', 'num_instances': 1, 'root_gb': 1, **fields})


def ask(plugins, request='anti-affinity'):
    """Send one request through Nova's own handlers; return what comes out."""
    filters, weighers = plugins
    hosts = make_hosts()
    passing = nova_filters.HostFilterHandler().get_filtered_objects(
        filters, hosts, make_spec(**REQUESTS[request]))
    weighed = nova_weights.HostWeightHandler().get_weighed_objects(
        weighers, hosts, make_spec(**REQUESTS[request]))
    return passing, weighed


def check(found, may_refuse_all=False):
    passing, weighed = found
    assert passing or may_refuse_all
    assert {host.host for host in passing} <= {'a', 'b', 'c', 'unknown'}
    assert sorted(each.obj.host for each in weighed) == ['a', 'b', 'c', 'unknown']
    assert all(math.isfinite(each.weight) for each in weighed)


def prepare(kind):
    """Bring the runtime into one of the states before a request."""
    runtime.close()
    if kind == 'first request':
        return
    if kind == 'broken':
        with mock.patch.object(runtime, 'SchedulerRuntime', autospec=True, side_effect=OSError), \
                contextlib.suppress(runtime.RuntimeUnavailable):
            runtime.get_runtime()
        return
    door = runtime.get_runtime()
    door.list_scored_groups(make_hosts())
    door.scores._answered = kind == 'lost scores'
    now = time.time()
    if kind == 'nothing moves':
        door.notices._newest = feed_channel.PublishedState(frozenset({'b'}), frozenset(), (), now,
                                                           now + 600)
    if kind in ('with scores', 'all reserved'):
        refresh(door)
        door.notices._limits = ({'b': model.BootLimit(0.0), 'c': model.BootLimit(disk_gb=1.0)}
                                if kind == 'with scores' else
                                dict.fromkeys(HOSTS, model.BootLimit(0.0))), math.inf
        door.notices._newest = feed_channel.PublishedState(
            frozenset({'b'}), frozenset({'unknown'}),
            (model.InFlightMove('u-moving', 'b', 'unknown', 'kronos'),), now, now + 600)
        board = door.get_shared_state(scarce_traits.ScarcityBoard)
        board._newest = scarce_traits.build_specials({'CUSTOM_X': {'b'}}, {'a', 'b', 'c'}, {})
        board._until = math.inf


def refresh(door):
    """Run each background thread's work once, on this one, as the threads would."""
    for refresher in (door.scores._refresher, door.notices._refresher):
        refresher._call_safely(refresher._work)
        refresher._find_pause()


TWO_FILES = ('policies.yaml', 'rack.yaml')
OPTIONS = {
    'plain': {},
    'costly': {'normalisation': 'tanh', 'weigh_request': True, 'unknown_hosts': 'exclude',
               'fail_closed': True},
    'two files': {'normalisation': 'min-max', 'unknown_hosts': 'penalty',
                  'policies_file': TWO_FILES},
    'reserve kept': {'failover_reserve': 'keep'},
    'no file for them': {'policies_file': TWO_FILES[1:], 'share_scores': True},
    'optional weighers off': {'scarcity': 0.0, 'project': 0.0}}
STATES = ('first request', 'broken', 'without scores', 'lost scores', 'nothing moves',
          'with scores', 'all reserved')
#: What every option is asked in; the rest adds lines that these do not reach.
MAIN = [('anti-affinity', state) for state in ('first request', 'without scores', 'with scores')]


@contextlib.contextmanager
def tracing(see, but=(GUARD, MASKING)):
    """Call ``see(file, line)`` at each line of ours on this thread."""
    def local(frame, event, argument):
        if event == 'line':
            see(frame.f_code.co_filename, frame.f_lineno)
        return local

    def enter(frame, event, argument):
        name = frame.f_code.co_filename
        return local if name.startswith(str(HOME)) and name not in but else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)


def find_lines(act, but=(GUARD, MASKING)):
    lines = {}
    with tracing(lambda *place: lines.setdefault(place), but):
        act()
    return list(lines)


@contextlib.contextmanager
def striking(place, but=(GUARD, MASKING)):
    """Raise once at a line of ours."""
    struck = []

    def strike(*at):
        if at == place and not struck:
            struck.append(at)
            raise Injected
    with tracing(strike, but):
        yield
    assert struck, f'{place} was not reached again'


def configure(tmp_path, name):
    conf = read_options(tmp_path)
    given = dict(OPTIONS[name])
    for weigher in ('scarcity', 'project'):
        conf.set_override(f'kronos_{weigher}_weight_multiplier', given.pop(weigher, 1.0),
                          'filter_scheduler')
    for option, value in given.items():
        if option == 'policies_file':
            value = [str(tmp_path / file) for file in value]
        conf.set_override(option, value, 'kronos')
    return conf


def walk_requests(tmp_path, strike):
    """Call ``strike`` for each line that each kind of request executes; return the lines.

    :param strike: called with the plug-ins, the request, the state, a line, and whether all
        hosts may be refused.
    """
    reached = set()
    for name in OPTIONS:
        conf = configure(tmp_path, name)
        with mock.patch.object(runtime, 'CONF', conf):
            plugins = [kind() for kind in all_filters()], [kind() for kind in all_weighers()]
            others = [(request, state) for request in REQUESTS for state in STATES]
            for request, state in dict.fromkeys([*MAIN, *others]):
                may_refuse_all = (state, name) in (('lost scores', 'costly'),
                                                   ('all reserved', 'reserve kept'))
                prepare(state)
                lines = find_lines(lambda plugins=plugins, request=request, refuse=may_refuse_all:
                                   check(ask(plugins, request), refuse))
                assert state == 'broken' or guard.FAULTS.counts == {}, 'it must be healthy'
                # The counter of errors is, as the guard, what the test is about.
                lines = [place for place in lines if place not in COUNTER]
                if (request, state) not in MAIN or name not in ('plain', 'costly'):
                    lines = [place for place in lines if place not in reached]
                reached.update(lines)
                for place in lines:
                    strike(plugins, request, state, place, may_refuse_all)
    return reached


def test_an_error_at_any_line_never_reaches_nova(quiet, tmp_path):
    raised = []

    def strike(plugins, request, state, place, may_refuse_all):
        prepare(state)
        try:
            with striking(place):
                found = ask(plugins, request)
            check(found, may_refuse_all)
        except Exception as error:
            raised.append((request, state, place, repr(type(error)), error.args))
        assert sum(guard.FAULTS.counts.values()) >= 1, place

    reached = walk_requests(tmp_path, strike)
    assert raised == []
    assert {str(Path(file).relative_to(HOME)) for file, _ in reached} >= set(REQUIRED)
    assert find_unreached(reached) == []


def find_unreached(reached):
    """Return the lines of filters and weighers that no request executed."""
    missing = []
    for name in REQUIRED[:-2]:
        text = (HOME / name).read_text()
        lines = text.splitlines()
        for function in ast.walk(ast.parse(text)):
            if not isinstance(function, ast.FunctionDef) or function.name in NEVER.get(name, ()):
                continue
            for statement in ast.walk(function):
                place = str(HOME / name), getattr(statement, 'lineno', None)
                # A docstring, a declaration and "try" execute nothing.
                if (isinstance(statement, ast.stmt) and statement is not function
                        and place not in reached
                        and not isinstance(statement, ast.Try | ast.Global | ast.FunctionDef)
                        and not (isinstance(statement, ast.Expr)
                                 and isinstance(statement.value, ast.Constant))
                        and lines[statement.lineno - 2].strip() not in COLD):
                    missing.append(f'{name}:{statement.lineno}: {lines[statement.lineno - 1]}')
    return sorted(set(missing))


#: The loop around the work of a thread is what the next test is about.
LOOP = (GUARD, MASKING, periodic.__file__)
BACKGROUND = {str(HOME / 'scheduler' / name) for name in ('runtime.py', 'score_cache.py')}


def find_background_lines(tmp_path, name):
    runtime.close()
    with mock.patch.object(runtime, 'CONF', configure_background(tmp_path, name)):
        door = runtime.get_runtime()
        door.list_scored_groups(make_hosts())
        lines = find_lines(lambda: [refresh(door) for _ in range(2)], LOOP)
        assert guard.FAULTS.counts == {}, 'the work itself must be healthy'
    return [place for place in lines if place[0] in BACKGROUND]


def configure_background(tmp_path, name):
    """Have the threads read and publish records as well."""
    conf = configure(tmp_path, name)
    conf.set_override('directory', str(tmp_path), 'kronos_channel')
    channel, now = feed_channel.FeedChannel(conf), time.time()
    channel.write(feed_channel.PublishedState(
        frozenset({'b'}), frozenset(), (model.InFlightMove('u-moving', 'b', 'c', 'kronos'),),
        now, now + 600, frozenset({'blue'})))
    channel.write_boot_limits('blue', {'b': model.BootLimit(8.0)}, now, now + 600)
    return conf


def test_a_threads_error_reaches_no_request_and_ends_with_its_next_run(quiet, tmp_path):
    reached = set()
    for name in OPTIONS:
        places = [place for place in find_background_lines(tmp_path, name)
                  if place not in reached]
        reached.update(places)
        with mock.patch.object(runtime, 'CONF', configure_background(tmp_path, name)):
            plugins = [kind() for kind in all_filters()], [kind() for kind in all_weighers()]
            for place in places:
                runtime.close()
                door = runtime.get_runtime()
                door.list_scored_groups(make_hosts())
                with striking(place, LOOP):
                    refresh(door)
                    refresh(door)
                check(ask(plugins))
                guard.FAULTS.clear()
                refresh(door)
                assert guard.FAULTS.counts == {}, place
                assert all(card.snapshot.is_fresh() for card in door.scores._cards), place
                assert door.notices.read_publication() is not None, place
                assert door.notices.read_boot_limits() == {'b': model.BootLimit(8.0)}, place
                check(ask(plugins))


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
    with mock.patch.object(runtime, 'CONF', conf):
        plugins = [kind() for kind in all_filters()], [kind() for kind in all_weighers()]
    conf = read_options(tmp_path, f'[{group}]\n{option} = {text}\n')
    with mock.patch.object(runtime, 'CONF', conf):
        for kind in (*all_filters(), *all_weighers()):
            with pytest.raises(exception.ConfigError) as caught:
                kind()
            assert f'nova.conf: [{group}] {option}: ' in str(caught.value)
            assert 'remove the line' in str(caught.value)
        for state in STATES:
            with contextlib.suppress(runtime.RuntimeUnavailable, cfg.Error, ValueError):
                prepare(state)  # in nova-scheduler on a thread of its own, which survives
            check(ask(plugins))


def test_most_options_have_a_value_that_is_refused():
    assert len(BAD) >= 20 and ('cache', 'enabled', 'on;') in BAD


@pytest.mark.parametrize('text', ['nan', 'inf'])
def test_a_multiplier_that_is_no_number_stops_the_load(tmp_path, text):
    conf = read_options(tmp_path, f'[filter_scheduler]\nkronos_weight_multiplier = {text}\n')
    with mock.patch.object(runtime, 'CONF', conf), \
            pytest.raises(exception.ConfigError, match='kronos_weight_multiplier'):
        runtime.check_options()


@pytest.mark.parametrize(('option', 'text'), [
    ('servers', 'memcached:eleven'), ('hmac_keys', 'short'), ('directory', '/none/of/ours')])
def test_a_channel_that_cannot_be_opened_stops_the_load(tmp_path, option, text):
    """These are texts to oslo.config: our own parsers refuse them."""
    conf = read_options(tmp_path, f'[kronos_channel]\n{option} = {text}\n')
    with mock.patch.object(runtime, 'CONF', conf):
        for kind in (*all_filters(), *all_weighers()):
            with pytest.raises(exception.ConfigError) as caught:
                kind()
            assert f'nova.conf: [kronos_channel] {option}' in str(caught.value)


def test_an_unknown_score_source_stops_the_load(tmp_path):
    conf = read_options(tmp_path, '[kronos]\nsource = prometeus\n')
    with mock.patch.object(runtime, 'CONF', conf), pytest.raises(
            exception.ConfigError, match=r'\[kronos\] source.*prometeus.*prometheus, snapshot'):
        runtime.check_options()


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


@pytest.mark.parametrize('weights', [[0.0], [0.0] * 5, [math.nan] * 4, [math.inf] * 4, None])
def test_weights_that_nova_cannot_use_count_as_an_error(quiet, tmp_path, weights):
    with mock.patch.object(runtime, 'CONF', read_options(tmp_path)):
        plugins = [], [kind() for kind in all_weighers()]
        with mock.patch('kronos_nova.weighers.headroom.compute_group_weights', autospec=True,
                        return_value=weights):
            _, weighed = ask(plugins)
    assert [each.weight for each in weighed] == [0.0] * 4
    assert any(kind.startswith('KronosWeigher: ') for kind in guard.FAULTS.counts)


def test_a_runtime_that_cannot_be_built_is_not_tried_in_each_request(quiet, tmp_path):
    conf = read_options(tmp_path)
    with mock.patch.object(runtime, 'CONF', conf):
        plugins = [kind() for kind in all_filters()], [kind() for kind in all_weighers()]
        with mock.patch.object(runtime, 'SchedulerRuntime', autospec=True,
                               side_effect=OSError('no more threads')) as made:
            for _ in range(3):
                passing, weighed = ask(plugins)
                assert len(passing) == 4 and {each.weight for each in weighed} == {0.0}
            assert made.call_count == 1
        assert guard.FAULTS.counts['KronosWeigher: RuntimeUnavailable'] >= 3
        with mock.patch.object(runtime.time, 'monotonic', autospec=True,
                               return_value=time.monotonic() + runtime.RETRY_SECONDS + 1):
            assert runtime.get_runtime() is runtime.get_runtime()


@pytest.mark.parametrize('error', [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_process_is_not_swallowed(quiet, tmp_path, error):
    conf = read_options(tmp_path)
    with mock.patch.object(runtime, 'CONF', conf):
        plugins = [kind() for kind in all_filters()], [kind() for kind in all_weighers()]
        with mock.patch.object(runtime, 'get_runtime', autospec=True, side_effect=error), \
                pytest.raises(error):
            ask(plugins)


def test_a_log_that_fails_hides_no_error(quiet, tmp_path):
    conf = read_options(tmp_path)
    with mock.patch.object(runtime, 'CONF', conf):
        plugins = [kind() for kind in all_filters()], [kind() for kind in all_weighers()]
        with mock.patch.object(runtime, 'get_runtime', autospec=True, side_effect=Injected), \
                mock.patch.object(periodic.LOG, 'error', autospec=True,
                                  side_effect=OSError('disk full')):
            check(ask(plugins))
        assert guard.FAULTS.counts['KronosWeigher: Injected'] >= 1
