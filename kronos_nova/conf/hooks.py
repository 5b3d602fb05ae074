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


import dataclasses

from oslo_config import cfg

GROUP = cfg.OptGroup('hooks', title='Actions before and after a migration')

OPTS: list[cfg.Opt] = [
    cfg.ListOpt('enabled', default=[],
                help='Hooks that every migration of kronos-executor has, in this order; '
                     'afterwards they are called in the reverse order. Installed ones: '
                     'kronos plugin list, namespace kronos_nova.hooks.'),
    cfg.ListOpt('on_request', default=['pause'],
                help='Hooks that a single task may bring beside these, because a request names '
                     'them: kronos-migfra brings pause for warm migrations and pscom for '
                     'pscom-hook-procs. A task that brings another one is not carried out.'),
    cfg.FloatOpt('deadline', default=60.0, min=0.1, max=3600.0,
                 help='Seconds that one hook may take, each time that it is called.'),
    cfg.StrOpt('on_failure', default='abort', choices=[
        ('abort', 'Nova is not asked; it is tried again as after a failure of Nova\'s API'),
        ('continue', 'it is logged, and the instance is migrated')],
        help='What becomes of a migration when a hook before it fails, or takes longer than '
             'its deadline.'),
    cfg.IntOpt('after_tries', default=10, min=1, max=1000,
               help='How often a hook is called after a migration until it is given up, with '
                    'an error in the log that says how to finish by hand. The wait in between '
                    'begins with 5 s and doubles up to 5 min. Until then no other migration of '
                    'the instance begins.'),
]


@dataclasses.dataclass
class HookOptions:
    """The option group of one hook."""

    GROUP: cfg.OptGroup
    OPTS: list[cfg.Opt]


PSCOM = HookOptions(cfg.OptGroup('hook_pscom', title='The hook pscom'), [
    cfg.ListOpt('processes', default=[],
                help='Processes as INSTANCE/PROCESS, INSTANCE being a UUID or a name. An '
                     'instance that is named here has these; any other one has those that '
                     'have answered on response_topic since kronos-executor has started, or '
                     'have left a retained message there.'),
    cfg.StrOpt('request_topic', default='pscom/{name}/any_proc/request',
               help='Topic of requests, below [mqtt] prefix. {host} is the compute host, {name} '
                    'and {uuid} are those of the instance, {process} is a process; each is a '
                    'whole level. Needs {name} or {uuid}. Without {process} one request is for '
                    'all processes of the instance. Tenants choose names: {uuid} alone tells '
                    'instances of the same name apart.'),
    cfg.StrOpt('response_topic', default='pscom/{name}/{process}/response',
               help='Topic of answers, below [mqtt] prefix, with the same placeholders. Needs '
                    '{process}, and {name} or {uuid}: only answers on the topic of the '
                    'instance count.'),
    cfg.StrOpt('suspend_payload', default='task: suspend',
               help='Payload of a request to close connections. Placeholders as in topics; their '
                    'values stand in quotes.'),
    cfg.StrOpt('resume_payload', default='task: resume',
               help='Payload of a request to open connections again.'),
])


def _build_answer_options(service: str) -> list[cfg.Opt]:
    return [
        cfg.FloatOpt('timeout', default=10.0, min=0.1, max=600.0,
                     help=f'Seconds that {service} has to answer.'),
        cfg.StrOpt('ca_cert', help='Bundle of CA certificates to trust instead of the '
                                   'system\'s.')]


def _build_webhook_options(purpose: str) -> list[cfg.Opt]:
    return [
        cfg.URIOpt('url', schemes=['http', 'https'], secret=True, help=purpose),
        cfg.StrOpt('secret_file', help='File with the secret that the body is signed with, '
                                       '16 octets or more; it is read again each time.'),
        *_build_answer_options('the program')]


WEBHOOK = HookOptions(
    cfg.OptGroup('hook_webhook', title='The hook webhook'), _build_webhook_options(
        'Where to POST to. It may hold user:password@, and is therefore not shown in logs.'))


PLAN_WEBHOOK = HookOptions(
    cfg.OptGroup('plan_webhook', title='Plan events for a webhook'), _build_webhook_options(
        'Where kronos-engine POSTs events of plans and drains to: a plan is created and may wait '
        'for approval, is approved, rejected or lapses. It may hold user:password@, and is '
        'therefore not shown in logs. Not set: nowhere.'))


ALERTMANAGER = HookOptions(cfg.OptGroup('hook_alertmanager', title='The hook alertmanager'), [
    cfg.URIOpt('url', schemes=['http', 'https'], secret=True,
               help='Base URL of Alertmanager; a path prefix is kept. It may hold '
                    'user:password@, and is therefore not shown in logs.'),
    cfg.DictOpt('matchers', default={'instance_uuid': 'instance_uuid'},
                help='Labels of the alerts to be silenced, as LABEL:VALUE with commas '
                     'between them; an alert must have every label. VALUE is '
                     'instance_uuid, from_host or to_host.'),
    cfg.IntOpt('seconds', default=3600, min=60,
               help='Alertmanager ends a silence after so long.'),
    *_build_answer_options('Alertmanager'),
])


#: All groups of hooks and of the webhook of plans, in the order of the sample.
GROUPS = (PSCOM, WEBHOOK, PLAN_WEBHOOK, ALERTMANAGER)
