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


"""kronos-test-config: check that the daemons have all that they need."""

from collections.abc import Sequence
import sys
from typing import Any

from kronos_nova.wiring import extras

PROG = 'kronos-test-config'

with extras.needs_extra(PROG):
    from oslo_config import cfg

    from kronos_nova.checks import base
    from kronos_nova.checks import catalogue
    from kronos_nova.conf import opts
    from kronos_nova.wiring import tools

DESCRIPTION = ('Checks the configuration, the policy file and its queries, and every service '
               'that the daemons talk to. It changes nothing.')


@extras.needs_extra(PROG)
def main(argv: Sequence[str] | None = None) -> int:
    """Print one line for each item.

    :returns: 0, or 1 when an item failed.
    """
    # oslo.messaging insists on the global configuration.
    conf = cfg.CONF
    opts.register(conf)
    tools.configure_command(conf, PROG, argv, [
        cfg.StrOpt('format', default='table', choices=['table', 'json'],
                   help='How the result is printed.')], DESCRIPTION, strict=False)
    tools.silence_libraries(conf)
    return tools.run_guarded(PROG, lambda: _print_report(list(catalogue.run(conf)), conf.format))


def _print_report(items: Sequence[Any], form: str) -> int:
    failed = sum(1 for item in items if item.status is base.CheckStatus.FAILED)
    if form == 'json':
        tools.print_document({'ok': not failed, 'items': [
            {'name': i.name, 'status': str(i.status), 'text': i.text, 'remedy': i.remedy}
            for i in items]}, 'json')
    else:
        print(tools.format_table(('Item', 'Status', 'What', 'What to do'),
                                 [(i.name, i.status, i.text, i.remedy) for i in items]))
        warned = sum(1 for item in items if item.status is base.CheckStatus.WARNING)
        more = f' {warned} {"warning" if warned == 1 else "warnings"}.' if warned else ''
        print((f'{failed} of {len(items)} items failed.' if failed
               else f'{len(items)} items, none failed.') + more)
    sys.stdout.flush()
    return int(failed > 0)
