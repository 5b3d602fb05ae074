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


"""The check of the score source: it answers."""

from collections.abc import Iterator

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plugins
from kronos_nova.checks import base


def check(context: base.CheckContext) -> Iterator[base.CheckItem]:
    name = context.conf.engine.source
    title = f'source: {name}'
    try:
        context.source = plugins.load_plugin(plugins.SOURCES, name)(context.conf)
    except exception.ConfigError as e:
        yield base.report_failure(title, f'{e.kwargs["field"]}: {e.kwargs["problem"]}',
                                  e.kwargs['remedy'])
        return
    except exception.PluginNotFound as e:
        yield base.report_failure(title, str(e), 'Correct [engine] source.')
        return
    health, text = context.source.health()
    if health is model.SourceHealth.HEALTHY:
        yield base.report_ok(title, text)
    else:
        context.source.close()
        context.source = None
        yield base.report_failure(title, f'{health}: {text}',
                                  'Start it, or correct url, ca_cert and the login in '
                                  '[prometheus].')
