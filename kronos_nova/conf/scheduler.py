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

"""nova.conf: the options of our filters and weighers inside nova-scheduler.

The multipliers are beside Nova's own in [filter_scheduler]; the other options are in [kronos].
[prometheus] is the same group as in kronos.conf.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import math
import os

from oslo_config import cfg
from oslo_config import types

from kronos_nova import conf as groups
from kronos_nova import exception
from kronos_nova.conf import bindings
from kronos_nova.conf import channel
from kronos_nova.conf import policies
from kronos_nova.conf import prometheus

GROUP = cfg.OptGroup('kronos', title='Load-aware placement')

#: Limit of the default: of more workers, few are busy at the same moment.
MAX_CONCURRENT = 4

FILTER_SCHEDULER_OPTS: list[cfg.Opt] = [
    cfg.FloatOpt('kronos_weight_multiplier', default=1.0,
                 help='Multiplier of KronosWeigher. Positive spreads load, negative packs it, 0 '
                      'disables. Aggregate metadata of the same name overrides it per host.'),
    cfg.FloatOpt('kronos_scarcity_weight_multiplier', default=0.0,
                 help='Multiplier of KronosScarcityWeigher: positive keeps hosts with scarce '
                      'traits or resource classes for those who ask for them. Default: off, '
                      'and Placement is not asked. Aggregate metadata of the same name '
                      'overrides it per host.'),
    cfg.FloatOpt('kronos_project_weight_multiplier', default=0.0,
                 help='Multiplier of KronosProjectWeigher: positive prefers hosts with fewer of '
                      'the requester\'s instances, negative gathers them. Default: off, and '
                      'nothing is looked up. Aggregate metadata of the same name overrides it '
                      'per host.'),
    cfg.FloatOpt('kronos_domain_weight_multiplier', default=0.0,
                 help='Multiplier of KronosDomainWeigher: positive prefers, for instances whose '
                      'flavor has the extra spec kronos:spread, the failure domains with the '
                      'fewest members of their set (kronos:domain of aggregates). Default: off. '
                      'Aggregate metadata of the same name overrides it per host.'),
]

OPTS: list[cfg.Opt] = [
    cfg.MultiStrOpt('policies_file', default=['/etc/kronos/policies.yaml'],
                    help='A policy file, the same one the rebalancer reads. Give the option '
                         'again for each further file: a host is scored by the first file whose '
                         '"aggregates" name one of its aggregates, any other host by the first '
                         'file without "aggregates". A file is read again when it changes; an '
                         'invalid one is refused and its last good version stays.'),
    cfg.StrOpt('source', default='prometheus',
               help='Score source, a name in the entry points kronos_nova.sources.'),
    cfg.FloatOpt('refresh_interval', default=30.0, min=1.0,
                 help='Seconds between two background refreshes of the scores.'),
    cfg.BoolOpt('share_scores', default=False,
                help='One worker of a host asks the score source, and the others read its '
                     'answers from the cache of [kronos_channel]. Without, or when the cache '
                     'does not work, each worker asks the source.'),
    cfg.IntOpt('settle_seconds', default=300, min=0, max=3600,
               help='Seconds after which the metrics show a new instance in full; until then '
                    'its load that they do not show is added to its host. A query whose own mean '
                    'is longer needs as long; set this to ranges that are hidden in recording '
                    'rules, as for settle_seconds of the engine. 0: a sample shows all instances '
                    'booted before it.'),
    cfg.IntOpt('concurrent_boots', min=1, max=1024,
               help='Boots that are under way at once and see nothing of each other, in all '
                    'workers of nova-scheduler together. Hosts whose loads differ by less than '
                    'these could add are as good as each other, and each request ranks them '
                    'differently. 1: always the least loaded host. Default: the workers of this '
                    'nova-scheduler, at most 4.'),
    cfg.StrOpt('unknown_hosts', default='mean', choices=[
        ('mean', 'weighs as the mean of the known hosts'),
        ('penalty', 'weighs as a host that is full (under a negative multiplier, empty)'),
        ('exclude', 'as penalty, and KronosCapacityFilter refuses it to new instances, unless '
                    'no host is known')],
        help='How to treat a host that Nova knows and the metrics do not, such as a new '
             'one, or one whose exporter is down.'),
    cfg.BoolOpt('require_age', default=False,
                help='Treat a policy without age_query as untrusted.'),
    cfg.BoolOpt('hard_ceiling', default=False,
                help='Keep boot_ceiling even when every host is above it: then nothing is '
                     'scheduled. Default: all hosts pass when all are above.'),
    cfg.StrOpt('failover_reserve', default='prefer', choices=[
        ('ignore', 'boots may take the reserve'),
        ('prefer', 'boots take the reserve of a host only when no other host passes'),
        ('keep', 'boots never take the reserve: when nothing else is left, nothing is scheduled')],
               help='How KronosCapacityFilter treats the room that instances need when a host '
                    'fails. kronos-engine with [engine] failover = enforce tells it, through '
                    '[kronos_channel]. Without a certificate, and when it has expired, boots '
                    'go on as without it. Moves, evacuations and rebuilds may take the reserve, '
                    'and so may boots to a named host.'),
    cfg.BoolOpt('fail_closed', default=False,
                help='Refuse every host when there are no fresh scores. Default: without fresh '
                     'scores everything passes, as if we were not there.'),
    cfg.StrOpt('normalisation', default='fixed', choices=[
        ('fixed', 'headroom - 0.5 as it is: 1 % of a host is 0.01 in every request'),
        ('min-max', 'the worst host of a request gets -0.5 and the best 0.5, however near '
                    'they are, as with the weighers of Nova'),
        ('tanh', 'the distance from the mean of the request\'s hosts in units of '
                 'normalisation_scale; far ones count little more than near ones')],
               help='How KronosWeigher scales the hosts that one policy file scores. Without '
                    'scores, and when all are equal, each host gets 0 under every choice.'),
    cfg.FloatOpt('normalisation_scale', default=0.1, min=0.001, max=10.0,
                 help='With normalisation = tanh: the difference of headroom from the mean that '
                      'counts 0.38 of at most 0.5.'),
    cfg.BoolOpt('weigh_request', default=False,
                help='Weigh the headroom that a host would have with the new instance on it: what '
                     'its flavor uses, else its vCPUs (or MiB) times what an allocated one uses. '
                     'Of two equally full hosts the larger one is then preferred. Where all '
                     'hosts are of one size it changes nothing and costs a little time.'),
    cfg.ListOpt('scarcity_traits', default=['CUSTOM_*'],
                help='Traits that KronosScarcityWeigher counts: patterns with * and ?; the last '
                     'one that fits decides, and one that begins with ! leaves out. HW_* would '
                     'charge every host of a new CPU generation, COMPUTE_* every host whose '
                     'nova-compute was upgraded first.'),
    cfg.ListOpt('scarcity_resource_classes', default=['*'],
                help='Resource classes that KronosScarcityWeigher counts, patterns as in '
                     'scarcity_traits. VCPU, MEMORY_MB and DISK_GB never count.'),
    cfg.Opt('scarcity_weights', type=types.Dict(value_type=types.Float(min=0.0, max=100.0)),
            default={}, sample_default='VGPU:2,CUSTOM_LICENSED:0.5',
            help='How much a trait or a resource class counts, as NAME:NUMBER; others count 1, '
                 'and 0 leaves it out.'),
    cfg.FloatOpt('scarcity_refresh_interval', default=300.0, min=30.0,
                 help='Seconds between two looks at Placement: one request for each trait and '
                      'class that counts, for any number of hosts.'),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Register on Nova's configuration object; repeated calls do nothing."""
    conf.register_opts(FILTER_SCHEDULER_OPTS, group='filter_scheduler')
    groups.register(conf, GROUP, OPTS)
    groups.register(conf, prometheus.GROUP, prometheus.OPTS)
    groups.register(conf, channel.GROUP, channel.OPTS)


def check_options(conf: cfg.ConfigOpts, further: Mapping[str, Iterable[str]]) -> None:
    """Read every option of the scheduler side once.

    :param further: groups of libraries -> names of the options that are read.
    :raises ConfigError: a value cannot be used; it names file, option and remedy.
    """
    ours = {group: [opt.dest for opt in opts] for group, opts in list_opts()}
    for group, names in (*ours.items(), *further.items()):
        for name in names:
            try:
                value = conf[group][name]
            except (cfg.Error, ValueError) as e:
                raise _bad_option(conf, group, name, str(e).rstrip('.')) from e
            if isinstance(value, float) and not math.isfinite(value):
                raise _bad_option(conf, group, name, f'{value} is not a finite number')


def _bad_option(conf: cfg.ConfigOpts, group: str, name: str,
                problem: str) -> exception.ConfigError:
    return exception.ConfigError(
        path=', '.join(conf.config_file or ()) or 'nova.conf', field=f'[{group}] {name}',
        problem=problem, remedy='Correct the value, or remove the line to use the default.')


def concurrent_boots(conf: cfg.ConfigOpts) -> int:
    """Return the option, or a default from Nova's own number of workers."""
    if conf.kronos.concurrent_boots is not None:
        return int(conf.kronos.concurrent_boots)
    try:
        workers = conf.scheduler.workers
    except cfg.NoSuchOptError:
        return 1  # not in nova-scheduler
    return min(MAX_CONCURRENT, workers or os.cpu_count() or 1)


def is_configured(conf: cfg.ConfigOpts) -> bool:
    """Return whether a nova.conf was given that sets one of our main options.

    These are policies_file and kronos_weight_multiplier.

    :param conf: with the options of this module registered.
    """
    return any((location := conf.get_location(name, group)) and location.location.is_user_controlled
               for name, group in (('policies_file', GROUP.name),
                                   ('kronos_weight_multiplier', 'filter_scheduler')))


def check_policy_files(conf: cfg.ConfigOpts) -> tuple[list[exception.PolicyFileError], list[str]]:
    """Return the errors of policy files that do not load, and contradictions in the others.

    Aggregates may override the multiplier, which only nova-scheduler sees.
    """
    errors, loaded = [], []
    for path in dict.fromkeys(conf.kronos.policies_file):
        try:
            loaded.append((path, policies.load_policies(path)))
        except exception.PolicyFileError as e:
            errors.append(e)
    return errors, bindings.check_bindings(loaded, conf.filter_scheduler.kronos_weight_multiplier)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """List the options of nova.conf for oslo-config-generator."""
    return [('filter_scheduler', FILTER_SCHEDULER_OPTS), (GROUP.name, OPTS),
            (prometheus.GROUP.name, prometheus.OPTS), (channel.GROUP.name, channel.OPTS)]
