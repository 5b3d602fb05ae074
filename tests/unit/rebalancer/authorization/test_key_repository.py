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

"""Keys in a directory: made, rotated, read again, and refused with the name of the file."""

import os
import stat

import pytest

from kronos_nova import exception
from kronos_nova.rebalancer.authorization import key_repository


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / 'keys'
    key_repository.create_keys(str(path))
    return path


def read_id(path):
    return key_repository.compute_key_id(key_repository._read_public_key(str(path)))


def test_created_keys_are_private_to_their_owner_and_group(directory):
    assert sorted(os.listdir(directory)) == ['0.pem', '0.pub', '1.pem', '1.pub']
    for name in os.listdir(directory):
        mode = stat.S_IMODE(os.stat(directory / name).st_mode)
        assert mode == (0o640 if name.endswith('.pem') else 0o644), name
    with pytest.raises(exception.SigningKeyError, match='it has keys already'):
        key_repository.create_keys(str(directory))


def test_the_next_key_signs_after_a_rotation_and_old_keys_still_verify(directory):
    keys = key_repository.KeyRepository(str(directory))
    first, next_id = keys.get_signing_key()[0], read_id(directory / '0.pub')
    assert key_repository.rotate_keys(str(directory), 3) == 2
    assert keys.get_signing_key()[0] == next_id, 'its public key was there before'
    assert keys.find_public_key(first) is not None
    assert read_id(directory / '0.pub') not in (first, next_id)
    assert [key.role for key in keys.list_keys()] == ['next', 'signs', 'has signed']
    assert key_repository.rotate_keys(str(directory), 3) == 3
    assert keys.find_public_key(first) is None, 'three keys remain'
    assert sorted(os.listdir(directory)) == ['0.pem', '0.pub', '2.pem', '2.pub', '3.pem', '3.pub']


@pytest.mark.parametrize('half', ['3.pub', '3.pem'])
def test_a_rotation_that_was_interrupted_can_be_repeated(directory, half):
    key_repository.rotate_keys(str(directory), 3)
    os.link(directory / '0.pub', directory / '3.pub')
    if half == '3.pem':
        os.link(directory / '0.pem', directory / '3.pem')
    keys = key_repository.KeyRepository(str(directory))
    keys.get_signing_key()
    key_repository.rotate_keys(str(directory), 3)
    key_id, key = keys.get_signing_key()
    assert key_id == key_repository.compute_key_id(key.public_key())
    assert len(keys.list_keys()) == 3


def test_public_keys_alone_verify_and_cannot_sign(directory):
    for name in ('0.pem', '1.pem'):
        os.remove(directory / name)
    keys = key_repository.KeyRepository(str(directory))
    assert keys.count_public_keys() == 2
    assert [str(key).partition('(')[2] for key in keys.list_keys()] == ['public key alone)'] * 2
    with pytest.raises(exception.SigningKeyError, match='no private key that this user can read'):
        keys.get_signing_key()
    with pytest.raises(exception.SigningKeyError, match='no next key'):
        key_repository.rotate_keys(str(directory), 3)


def test_other_files_are_no_keys(directory):
    for name in ('README', '1.pem.new', '01.pem', 'x.pub', '-1.pub', '1.PUB'):
        (directory / name).write_text('no key')
    assert key_repository.KeyRepository(str(directory)).count_public_keys() == 2


def spoil_text(directory):
    (directory / '1.pub').write_text('no key')
    return '1.pub'


def spoil_private_text(directory):
    (directory / '1.pem').write_text('no key')
    return '1.pem'


def open_to_all(directory):
    os.chmod(directory / '1.pem', 0o644)
    return '1.pem'


def take_public_key_away(directory):
    os.remove(directory / '1.pub')
    return '1.pem'


def take_all_away(directory):
    for name in os.listdir(directory):
        os.remove(directory / name)
    os.rmdir(directory)
    return 'keys'


def swap_kinds(directory):
    os.replace(directory / '0.pem', directory / '1.pub')
    return '1.pub'


@pytest.mark.parametrize('spoil', [spoil_text, spoil_private_text, open_to_all,
                                   take_public_key_away, take_all_away, swap_kinds])
def test_an_unusable_key_is_named_with_a_remedy_and_works_again_when_repaired(directory, tmp_path,
                                                                              spoil):
    keys = key_repository.KeyRepository(str(directory))
    keys.get_signing_key()
    name = spoil(directory)
    for _ in range(2):
        with pytest.raises(exception.SigningKeyError) as error:
            keys.get_signing_key()
        assert error.value.kwargs['path'].endswith(f'/{name}')
        assert error.value.kwargs['field'] == '[signing] key_repository'
        assert error.value.kwargs['remedy']
    if directory.exists():
        take_all_away(directory)
    key_repository.create_keys(str(directory))
    keys.get_signing_key()
