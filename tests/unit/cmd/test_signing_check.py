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

"""The check of the keys that sign tasks."""

import os

from oslo_config import cfg
import pytest

from kronos_nova.checks import base
from kronos_nova.checks import signing
from kronos_nova.conf import opts
from kronos_nova.rebalancer.authorization import key_repository


def run_check(directory):
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    conf.set_override('key_repository', str(directory), 'signing')
    return list(signing.check(base.CheckContext(conf)))


@pytest.fixture
def directory(tmp_path):
    key_repository.create_keys(str(tmp_path / 'keys'))
    return tmp_path / 'keys'


def test_check_without_keys_has_no_item():
    assert run_check('') == []


def test_keys_that_sign_are_well(directory):
    key_id, _key = key_repository.KeyRepository(str(directory)).get_signing_key()
    assert run_check(directory) == [base.report_ok(
        'signing keys', f'{directory} has 2 public keys; {key_id} signs')]


def test_public_keys_alone_are_a_warning(directory):
    os.remove(directory / '0.pem')
    os.remove(directory / '1.pem')
    item, = run_check(directory)
    assert item.status is base.CheckStatus.WARNING and 'only executors can run here' in item.text


@pytest.mark.parametrize(('spoil', 'text'), [
    (lambda path: (path / '1.pub').write_text('x'), '1.pub: it is no Ed25519 public key'),
    (lambda path: [os.remove(path / name) for name in os.listdir(path)],
     'has no public key: executors refuse every task'),
    (lambda path: path.rename(f'{path}.away'), 'No such file or directory')])
def test_broken_keys_fail_with_a_remedy(directory, spoil, text):
    spoil(directory)
    item, = run_check(directory)
    assert item.status is base.CheckStatus.FAILED and text in item.text and item.remedy
