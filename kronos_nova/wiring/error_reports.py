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

"""The Guru Meditation Report of OpenStack's services: a daemon's present state."""

import sys

from oslo_log import log as logging
from oslo_reports import guru_meditation_report

from kronos_nova import version
from kronos_nova.conf import secret_mask

LOG = logging.getLogger(__name__)


class _DaemonVersion:
    """The names and version of the daemon, with the interface of Nova's version module."""

    def __init__(self, prog: str) -> None:
        self._prog = prog

    def vendor_string(self) -> str:
        return version.DISTRIBUTION

    def product_string(self) -> str:
        return self._prog

    def version_string_with_package(self) -> str:
        return version.read_release()


def render_report(prog: str) -> str:
    """Return the report: the stack of each thread, the process, and every option.

    Secrets are masked, also those that oslo.reports does not recognise, such as logins in URLs.
    """
    return secret_mask.mask_text(
        guru_meditation_report.TextGuruMeditation(_DaemonVersion(prog)).run())


def print_report(prog: str) -> None:
    """Print the report on standard error. The daemon goes on even if this fails."""
    try:
        print(render_report(prog), file=sys.stderr, flush=True)
    except OSError as e:
        LOG.error('No Guru Meditation Report: standard error cannot be written to: %s', e)
    except Exception:
        LOG.exception('No Guru Meditation Report, for a reason that is a defect of ours')
