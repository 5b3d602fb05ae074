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

"""A report in a real browser: nothing runs or is refused, it is styled, and it prints."""

import re

from matplotlib import image
import numpy as np
import pytest

from kronos_nova.rebalancer.report import page
from kronos_nova.rebalancer.report import palette
from kronos_nova.rebalancer.report import values
from tests.fixtures import chromium
from tests.unit.rebalancer.report import made
from tests.unit.rebalancer.report import parsed

#: What a nasty name calls the document if it runs.
OWNED = 'owned'


@pytest.fixture(scope='module')
def browser(tmp_path_factory):
    return chromium.Chromium(tmp_path_factory.mktemp('chromium'))


@pytest.fixture(scope='module')
def write(tmp_path_factory):
    def write(text):
        path = tmp_path_factory.mktemp('report') / 'report.html'
        path.write_text(text, encoding='utf-8')
        return path

    return write


def colour(text):
    return np.array([int(text[n:n + 2], 16) for n in (1, 3, 5)]) / 255


def pixels(path):
    """Height x width x 3, each in [0, 1]."""
    return np.asarray(image.imread(str(path)))[:, :, :3]


def test_tenant_names_run_no_script_and_break_no_policy(browser, write):
    text = page.render_page(made.nasty())
    document, console = browser.document(write(text))
    assert console == []
    found = parsed.parse(document)
    assert '<title>Kronos report, 2023-11-14 22:13:20 UTC</title>' in document
    assert not found.of('script') and not found.of('img')
    assert sorted(tag for tag, _ in found.elements) == sorted(
        tag for tag, _ in parsed.parse(text).elements)


def test_unescaped_name_is_detected(browser, write):
    """Verify that the console shows each refusal, as the tests of this file assume."""
    script = f'<script>document.title = "{OWNED}"</script>'
    text = page.render_page(made.report()).replace('Scope <bdi>', f'{script}Scope <bdi>', 1)
    document, console = browser.document(write(text))
    assert console and 'Content Security Policy' in console[0]
    assert f'<title>{OWNED}' not in document, 'the policy stops what escaping did not'
    without = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', '', text)
    document, _ = browser.document(write(without))
    assert f'<title>{OWNED}</title>' in document


@pytest.mark.turns(3)
@pytest.mark.parametrize(('theme', 'flags'), [('light', ()), ('dark', (chromium.DARK,))])
def test_page_has_own_colours_in_light_and_dark_theme(browser, write, theme, flags):
    found = pixels(browser.picture(write(page.render_page(made.report())), *flags))
    assert found.shape == (2400, 1200, 3)
    assert np.allclose(found[2, 2], colour(palette.INK[theme]['page']), atol=0.005)
    for band in (1, 4, 9):
        same = np.isclose(found, colour(palette.HEAT[theme][band]), atol=0.005).all(axis=2)
        assert same.sum() > 500, (band, 'cells of the heat map')
    written = ~np.isclose(found, colour(palette.INK[theme]['page']), atol=0.005).all(axis=2)
    assert np.flatnonzero(written.any(axis=1)).max() > 2300, 'the page goes on to the end'


@pytest.mark.turns(3)
def test_browser_ignores_style_with_other_hash(browser, write):
    text = page.render_page(made.report()).replace('--h9:', '--h9: ', 1)
    _, console = browser.document(write(text))
    assert console and 'style-src' in console[0]


@pytest.mark.turns(3)
def test_printed_page_unfolds_every_section(browser, write):
    """2,000 hosts are some fifty pages; folded away they would be a few."""
    large = values.WholeReport('', 0.0, 0.0, '', (made.of_cloud(hosts=2000),))
    paper = browser.paper(write(page.render_page(large)))
    assert 35 < len(re.findall(rb'/Type\s*/Page\b', paper)) < 90
