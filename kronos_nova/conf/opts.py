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

"""All groups of kronos.conf in one place."""

import re
from typing import Protocol

from oslo_config import cfg

from kronos_nova import conf as groups
from kronos_nova import exception
from kronos_nova.conf import api
from kronos_nova.conf import campaign
from kronos_nova.conf import channel
from kronos_nova.conf import contracts
from kronos_nova.conf import database
from kronos_nova.conf import engine
from kronos_nova.conf import executor
from kronos_nova.conf import hooks
from kronos_nova.conf import messaging
from kronos_nova.conf import migfra
from kronos_nova.conf import monitoring
from kronos_nova.conf import mqtt
from kronos_nova.conf import nova
from kronos_nova.conf import prometheus
from kronos_nova.conf import repin
from kronos_nova.conf import signing


class _OptionGroup(Protocol):
    """A group of options."""

    GROUP: cfg.OptGroup
    OPTS: list[cfg.Opt]


_MODULES: tuple[_OptionGroup, ...] = (
    engine, contracts, campaign, prometheus, channel, executor, hooks, *hooks.GROUPS, messaging,
    monitoring, mqtt, migfra, nova, repin, api, signing)


def register(conf: cfg.ConfigOpts) -> None:
    """Register every option of the daemons and tools on ``conf``."""
    for module in _MODULES:
        groups.register(conf, module.GROUP, module.OPTS)
    nova.register_auth(conf)
    database.register(conf)


def register_planning(conf: cfg.ConfigOpts) -> None:
    """Register only the options that planning offline reads; needs no extra."""
    for module in (engine, contracts, prometheus):
        groups.register(conf, module.GROUP, module.OPTS)


def wrong_values(conf: cfg.ConfigOpts) -> list[exception.ConfigError]:
    """Return an error for each value of the registered groups that its option does not admit.

    oslo.config checks a value at its first use, which is too late for a daemon.
    """
    errors = []
    hidden = secret_names()
    for group in (*(module.GROUP.name for module in _MODULES), 'database'):
        for name in conf[group] if group in conf else ():
            try:
                getattr(conf[group], name)
            except cfg.ConfigSourceValueError as e:
                where = re.search(r"detail='([^']*)'", str(e))
                errors.append(exception.ConfigError(
                    path=where.group(1) if where else 'the configuration',
                    field=f'[{group}] {name}',
                    problem=format_value_error(e, secret=(group, name) in hidden),
                    remedy='Correct the value; the sample file tells what each option takes.'))
    if not errors:
        try:
            re.compile(conf.engine.drain_reason_regex)
        except (re.error, OverflowError, RecursionError) as e:
            errors.append(exception.ConfigError(
                path='the configuration', field='[engine] drain_reason_regex',
                problem=f'it is not a regular expression ({e})',
                remedy='Correct it, or leave it empty to drain every disabled host.'))
        if {'executor', 'nova'} <= set(conf) and (
                inconsistent := executor.find_inconsistency(conf)) is not None:
            errors.append(inconsistent)
        try:
            contracts.load_project_contracts(conf)
        except exception.ConfigError as e:
            errors.append(e)
    return errors


def format_error(error: Exception) -> str:
    """Return oslo.config's error as a sentence, without the line of the file.

    That line may hold half a password.
    """
    text = ' '.join(str(error).split())
    if isinstance(error, cfg.ConfigFileParseError):
        text = re.sub(r"(:\d+, [^']*(?:'[:=]'[^']*)*): ['\"].*", r'\1', text)
    return text if text.endswith('.') else f'{text}.'


def format_value_error(error: cfg.ConfigSourceValueError, *, secret: bool) -> str:
    """Return why a value is not valid, without the value when it is a secret."""
    reason = '' if secret else str(error).partition('is not valid: ')[2]
    return reason or 'the value is not valid'


def secret_names() -> set[tuple[str, str]]:
    """Return (group, name) of each of our options that must not be shown."""
    named = [(module.GROUP.name, opt) for module in _MODULES for opt in module.OPTS]
    try:
        named += [('database', opt) for opt in database.list_options()]
    except ModuleNotFoundError:
        pass  # the extra is not installed, and no such group is registered
    return {(group, opt.dest) for group, opt in named if opt.secret}


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """List the options of kronos.conf for oslo-config-generator."""
    groups = [(module.GROUP.name, list(module.OPTS)) for module in _MODULES]
    groups.append((nova.GROUP.name, nova.auth_opts()))
    groups.append(('database', database.list_options()))
    return groups
