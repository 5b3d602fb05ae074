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

"""``application`` for a WSGI server, as in ``uwsgi --module kronos_nova.api.wsgi:application``.

It reads the files that ``OS_KRONOS_CONFIG_FILES`` names, separated by semicolons; without that
variable, those in the places where oslo.config looks (``/etc/kronos/kronos.conf``).
"""

import os
from typing import Any

from kronos_nova.wiring import extras

PROG = 'kronos-api'
FILES = 'OS_KRONOS_CONFIG_FILES'

with extras.needs_extra(PROG, 'api,rebalancer'):
    from kronos_nova import exception
    from kronos_nova.api import application as applications
    from kronos_nova.wiring import daemon_configuration
    from kronos_nova.wiring import tools


def load_application() -> Any:
    """Read the configuration, set up the log, and return the application.

    :raises SystemExit: 1 with one line on stderr: a file or value is wrong.
    """
    tools.native_threads()
    files = [name for name in os.environ.get(FILES, '').split(';') if name]
    conf = daemon_configuration.configure_daemon(
        PROG, [part for name in files for part in ('--config-file', name)])
    try:
        return applications.make_application(conf)
    except exception.KronosException as e:
        tools.exit_with_error(PROG, str(e))


#: A WSGI server imports this module and takes the name from its dictionary.
application = load_application()
