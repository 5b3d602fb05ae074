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

"""The files that kolla-ansible has rendered, read with the options of their programs."""

import configparser
from pathlib import Path

from nova.conf import scheduler as nova_scheduler
from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova.cmd import upgrades
from kronos_nova.conf import opts
from kronos_nova.conf import scheduler
from kronos_nova.feed import raw_cache
from tests.deploy import kolla_cloud

#: The first two are always there.
DAEMONS = ('kronos-engine', 'kronos-executor', 'kronos-migfra')
#: What we say in nova.conf besides what Nova and kolla-ansible say.
OURS = {'available_filters': ['kronos_nova.filters.all_filters'],
        'enabled_filters': ['KronosPlacementFilter', 'KronosCapacityFilter'],
        'weight_classes': ['kronos_nova.weighers.all_weighers']}
SNIPPET = 'deploy/kolla-ansible/examples/config/nova/nova-scheduler.conf'


def daemon(cloud: kolla_cloud.Cloud, name: str) -> cfg.ConfigOpts:
    """kronos.conf of a daemon."""
    conf = cfg.ConfigOpts()
    logging.register_options(conf)
    opts.register(conf)
    raw_cache.register(conf)
    conf(['--config-file', str(cloud.node / name / 'kronos.conf')], project='kronos')
    return conf


def nova(cloud: kolla_cloud.Cloud, service: str) -> cfg.ConfigOpts:
    """nova.conf of a service: what Nova and we have for nova-scheduler."""
    conf = cfg.ConfigOpts()
    nova_scheduler.register_opts(conf)
    scheduler.register(conf)
    conf(['--config-file', str(cloud.node / service / 'nova.conf')], project='nova')
    return conf


def given(path: Path) -> set[tuple[str, str]]:
    """(section, option) of a file."""
    parser = configparser.RawConfigParser(strict=False, default_section='-')
    parser.read(path)
    return {(section, name) for section in parser.sections() for name in parser[section]}


def known(*listed: tuple[object, list[cfg.Opt]]) -> set[tuple[str, str]]:
    """(section, option), old names among them."""
    return {(str(group or 'DEFAULT'), name.replace('-', '_')) for group, options in listed
            for option in options for name in (option.name, option.dest)}


def mounted(path: str, volumes: list[str]) -> str:
    """Where a path of the container is on the host."""
    for volume in volumes:
        source, _, target = volume.removesuffix(':ro').partition(':')
        if target and path.startswith(target.rstrip('/') + '/'):
            return path.replace(target.rstrip('/'), source.rstrip('/'), 1)
    raise AssertionError(f'{path} is in none of {volumes}')


class NovaScheduler:
    """Rules of nova-scheduler's nova.conf, for a ``cloud`` of any kind."""

    def test_each_option_in_our_groups_exists(self, cloud):
        given_options = {(section, name)
                         for section, name in given(cloud.node / 'nova-scheduler/nova.conf')
                         if section in ('filter_scheduler', 'kronos', 'prometheus')}
        assert {('kronos', 'policies_file'), ('prometheus', 'url')} < given_options
        assert given_options - known(*scheduler.list_opts(), (
            'filter_scheduler', nova_scheduler.filter_scheduler_opts)) == set()

    def test_scheduler_reads_engine_policies_from_volume(self, cloud):
        volumes = cloud.json('nova-scheduler-volumes.json')
        file = daemon(cloud, 'kronos-engine').engine.policies_file
        conf = nova(cloud, 'nova-scheduler')
        assert scheduler.is_configured(conf) and conf.kronos.policies_file == [file]
        assert Path(mounted(file, volumes)).parent == cloud.node / 'kronos-policies'
        conf.set_override('policies_file', [mounted(file, volumes)], 'kronos')
        assert scheduler.check_policy_files(conf) == ([], [])

    def test_scheduler_uses_prometheus_options_of_engine(self, cloud):
        ours, engines = (conf.prometheus for conf in (
            nova(cloud, 'nova-scheduler'), daemon(cloud, 'kronos-engine')))
        assert dict(ours) == dict(engines)
        assert (ours.username, ours.password) == (
            'kronos', cloud.passwords['kronos_prometheus_password'])

    def test_kronos_status_passes(self, cloud):
        file = str(cloud.node / 'nova-scheduler/nova.conf')
        assert upgrades.check_options([file]) == ('SUCCESS', '')
        assert upgrades.check_nova(['--config-file', file]) == ('SUCCESS', '')

    def test_filter_lists_end_with_our_filters(self, cloud):
        """nova-api has kolla-ansible's own nova.conf, and Nova's defaults."""
        theirs = dict(nova(cloud, 'nova-api').filter_scheduler)
        for name, more in OURS.items():
            theirs[name] = [*theirs[name], *more]
        assert dict(nova(cloud, 'nova-scheduler').filter_scheduler) == theirs, (
            f'{SNIPPET} restates what kolla-ansible or Nova no longer say so')
