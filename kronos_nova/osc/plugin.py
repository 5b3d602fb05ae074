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

"""The plug-in as OpenStackClient loads it, at each of its starts: keep its imports light."""

import argparse
import re
from typing import Any

from osc_lib import exceptions
from osc_lib import utils

#: Also the name of the client at OpenStackClient's client manager.
API_NAME = 'rebalance'
API_VERSION_OPTION = 'os_rebalance_api_version'
#: The newest microversion that these commands know.
DEFAULT_API_VERSION = '1.0'
#: Major versions, each with a group of entry points.
API_VERSIONS = ('1',)
_FORM = re.compile(r'1(\.(\d+|latest))?')


def make_client(instance: Any) -> Any:
    """Return the client of kronos-api for OpenStackClient's client manager."""
    # Loaded only when a command of ours runs.
    from kronos_nova.osc import client  # noqa: PLC0415

    return client.connect(instance.sdk_connection.config, instance.session,
                          choose_microversion(instance._api_version[API_NAME]))


def build_option_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the global options of this plug-in."""
    parser.add_argument(
        '--os-rebalance-api-version', metavar='<rebalance-api-version>', type=_parse_version,
        default=utils.env('OS_REBALANCE_API_VERSION') or None,
        help=f'Microversion of the rebalance API, as 1.0 or latest, default='
             f'{DEFAULT_API_VERSION} (Env: OS_REBALANCE_API_VERSION)')
    return parser


def check_api_version(check_version: str) -> bool:
    """Return True: the version is one that these commands can ask for.

    :raises CommandError: it is not; OpenStackClient would find no commands for it.
    """
    if not _FORM.fullmatch(check_version):
        raise exceptions.CommandError(
            f'rebalance_api_version: {check_version!r} is no version of the rebalance API; write '
            f'{DEFAULT_API_VERSION} or 1.latest')
    return True


def choose_microversion(version: str) -> str:
    """Return the microversion to ask for; the major version alone means the one we know best."""
    return {'1': DEFAULT_API_VERSION, '1.latest': 'latest'}.get(version, version)


def _parse_version(text: str) -> str:
    """Return the option's value; OpenStackClient derives the group of commands from its begin."""
    version = '1.latest' if text == 'latest' else text
    if not _FORM.fullmatch(version):
        raise argparse.ArgumentTypeError(
            f'{text!r} is no version of the rebalance API; write {DEFAULT_API_VERSION} or latest')
    return version
