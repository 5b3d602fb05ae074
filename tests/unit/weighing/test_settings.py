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



"""--set: names, values, and having everything back."""

import pytest

from kronos_nova import exception
from kronos_nova.scheduler import runtime
from kronos_nova.weighing import settings

CONF = runtime.CONF


@pytest.fixture(autouse=True)
def nova_conf():
    CONF([], default_config_files=[], default_config_dirs=[])
    yield
    CONF.reset()


@pytest.mark.parametrize('text, expected', [
    ('kronos_weight_multiplier=2', ('filter_scheduler', 'kronos_weight_multiplier', '2')),
    ('ram-weight-multiplier = 3', ('filter_scheduler', 'ram_weight_multiplier', '3')),
    ('hard_ceiling=true', ('kronos', 'hard_ceiling', 'true')),
    ('kronos.settle_seconds=60', ('kronos', 'settle_seconds', '60')),
    ('metrics.weight_multiplier=0', ('metrics', 'weight_multiplier', '0')),
])
def test_names(text, expected):
    assert settings.parse_setting(CONF, [text]) == [expected]


@pytest.mark.parametrize('text', [
    'x=1', 'x', '=1', 'enabled_filters=x', 'database.connection=x', 'kronos.x=1', ''])
def test_other_names_are_refused_with_those_there_are(text):
    with pytest.raises(exception.WeighError, match='--set'):
        settings.parse_setting(CONF, [text])


def test_apply_sets_values_and_returns_the_old_ones():
    before = (CONF.filter_scheduler.ram_weight_multiplier, CONF.kronos.hard_ceiling,
              CONF.kronos.policies_file)
    taken = settings.apply_settings(CONF, settings.parse_setting(CONF, [
        'ram_weight_multiplier=2.5', 'hard_ceiling=on', 'policies_file=/a', 'policies_file=/b']))
    assert CONF.filter_scheduler.ram_weight_multiplier == 2.5
    assert CONF.kronos.hard_ceiling is True
    assert CONF.kronos.policies_file == ['/a', '/b']
    settings.restore_options(CONF, taken)
    assert before == (CONF.filter_scheduler.ram_weight_multiplier, CONF.kronos.hard_ceiling,
                      CONF.kronos.policies_file)


def test_a_list_is_written_as_in_nova_conf():
    taken = settings.apply_settings(CONF, settings.parse_setting(CONF, [
        'scarcity_traits=CUSTOM_A,!CUSTOM_B', 'scarcity_weights=VGPU:2']))
    assert CONF.kronos.scarcity_traits == ['CUSTOM_A', '!CUSTOM_B']
    assert CONF.kronos.scarcity_weights == {'VGPU': 2.0}
    settings.restore_options(CONF, taken)
    assert CONF.kronos.scarcity_traits == ['CUSTOM_*'] and CONF.kronos.scarcity_weights == {}


@pytest.mark.parametrize('text', [
    'ram_weight_multiplier=much', 'hard_ceiling=maybe', 'settle_seconds=-1',
    'settle_seconds=9999'])
def test_values_that_nova_conf_may_not_have(text):
    with pytest.raises(exception.WeighError, match=text):
        settings.apply_settings(CONF, settings.parse_setting(CONF, [text]))


@pytest.mark.parametrize('texts', [
    ['ram_weight_multiplier=2.5', 'policies_file=/a', 'hard_ceiling=maybe'],
    ['ram_weight_multiplier=2.5', 'policies_file=/a', 'settle_seconds=-1']])
def test_one_refused_value_leaves_all_options_as_they_were(texts):
    def read_values():
        return (CONF.filter_scheduler.ram_weight_multiplier, CONF.kronos.policies_file,
                CONF.kronos.hard_ceiling, CONF.kronos.settle_seconds)

    before = read_values()
    with pytest.raises(exception.WeighError, match=texts[-1]):
        settings.apply_settings(CONF, settings.parse_setting(CONF, texts))
    assert read_values() == before


def test_option_that_cannot_be_read_leaves_the_others_as_they_were(tmp_path):
    path = tmp_path / 'nova.conf'
    path.write_text('[kronos]\nsettle_seconds = soon\n')
    CONF([], default_config_files=[str(path)], default_config_dirs=[])
    before = CONF.filter_scheduler.ram_weight_multiplier
    with pytest.raises(ValueError, match='soon'):
        settings.apply_settings(CONF, settings.parse_setting(CONF, ['ram_weight_multiplier=2.5',
                                                                    'settle_seconds=60']))
    assert CONF.filter_scheduler.ram_weight_multiplier == before
