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

"""A report as one HTML file: without scripts and external resources, with its own style."""

import base64
import hashlib

from kronos_nova.rebalancer.report import rendering
from kronos_nova.rebalancer.report import section_view
from kronos_nova.rebalancer.report import values

#: Content of the meta element by which a report of Kronos is known.
GENERATOR = 'kronos report'


def render_page(report: values.WholeReport) -> str:
    """Render the whole file; the same report gives the same text."""
    style = rendering.render_style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return str(rendering.build_environment().get_template('page.html').render(
        report=report, views=[section_view.build_view(section) for section in report.sections],
        style=style, generator=GENERATOR,
        csp=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
            "form-action 'none'"))
