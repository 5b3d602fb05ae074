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

"""[messaging]: Kronos 0.2.0's broker options, mapped to transport_url."""

import urllib.parse

from oslo_config import cfg

_WHY = 'Use transport_url in [DEFAULT]: it takes several hosts and TLS.'

GROUP = cfg.OptGroup('messaging', title='Deprecated broker options')


def _deprecate_option(opt: cfg.Opt) -> cfg.Opt:
    opt.deprecated_for_removal = True
    opt.deprecated_reason = _WHY
    return opt


OPTS: list[cfg.Opt] = [
    cfg.BoolOpt('plan_notifications', default=False,
                help='Publish a notification of every plan that has moves, and of drains that '
                     'begin and end, on kronos.plans.<scope>. RabbitMQ keeps unread messages: '
                     'switch it on when a consumer reads them.'),
    _deprecate_option(cfg.StrOpt('transport', default='rabbit', help='oslo.messaging driver.')),
    _deprecate_option(cfg.StrOpt('host', default='localhost', help='Broker host.')),
    _deprecate_option(cfg.PortOpt('port', default=5672, help='Broker port.')),
    _deprecate_option(cfg.StrOpt('username', help='Broker user.')),
    _deprecate_option(cfg.StrOpt('password', secret=True, help='Broker password.')),
    _deprecate_option(cfg.StrOpt('virtual_host', default='/', help='Broker virtual host.')),
]


def _is_set(conf: cfg.ConfigOpts, name: str) -> bool:
    location = conf.get_location(name, GROUP.name)
    return location is not None and location.location is not cfg.Locations.opt_default


def transport_url(conf: cfg.ConfigOpts) -> str | None:
    """Return the URL for the options of [messaging], or None when all are unset.

    An option that is set to its default counts: it names a broker. ``transport_url`` wins when
    both are set. Special characters in user, password and virtual host are quoted.
    """
    group = conf.messaging
    if not any(_is_set(conf, opt.name) for opt in OPTS if opt.deprecated_for_removal):
        return None

    def quote_part(text: str) -> str:
        return urllib.parse.quote(text, safe='')

    login = ''
    if group.username:
        login = quote_part(group.username)
        if group.password:
            login += ':' + quote_part(group.password)
        login += '@'
    host = f'[{group.host}]' if ':' in group.host else group.host
    # As in 0.2.0, a slash is a part of the name, and / is the name of the default.
    vhost = '' if group.virtual_host == '/' else group.virtual_host
    return f'{group.transport}://{login}{host}:{group.port}/{quote_part(vhost)}'
