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

"""Ed25519 keys in a directory, rotated as Keystone rotates its Fernet keys.

``N.pem`` is a private key, ``N.pub`` its public key; N is a number. Key 0 signs nothing yet: it is
the next one, whose public key can reach all executors first. The largest number signs. Keys
between them have signed before, and their signatures are still accepted.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import hashlib
import os
import re
import stat
import threading

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from kronos_nova import exception

PRIVATE, PUBLIC = '.pem', '.pub'
_NAME = re.compile(r'(0|[1-9][0-9]{0,8})\.(pem|pub)')
_FIELD = '[signing] key_repository'


@dataclasses.dataclass(frozen=True, slots=True)
class ListedKey:
    """A key of a directory: its number and ID, its place in the rotation, and its files."""

    number: int
    key_id: str
    role: str
    private: bool

    def __str__(self) -> str:
        return (f'{self.number} {self.key_id} {self.role}'
                + ('' if self.private else ' (public key alone)'))


class KeyRepository:
    """The keys of a directory, read again when it has changed.

    :param directory: its path.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._version: tuple[int, ...] | None = None
        self._public: dict[str, ed25519.Ed25519PublicKey] = {}
        self._signing: tuple[str, ed25519.Ed25519PrivateKey] | None = None

    def find_public_key(self, key_id: str) -> ed25519.Ed25519PublicKey | None:
        """Return the public key with this ID; None: the directory has no such key.

        :raises SigningKeyError: the directory or a key cannot be used.
        """
        with self._lock:
            self._read_changed_keys()
            return self._public.get(key_id)

    def get_signing_key(self) -> tuple[str, ed25519.Ed25519PrivateKey]:
        """Return the ID and the private key that sign now.

        :raises SigningKeyError: no key can sign, or the directory or a key cannot be used.
        """
        with self._lock:
            self._read_changed_keys()
            if self._signing is None:
                raise _make_error(
                    self.directory, 'it has no private key that this user can read',
                    'Run the command as root or as the user of the engines, or make keys with '
                    'kronos-manage signing-key create.')
            return self._signing

    def count_public_keys(self) -> int:
        """Return the number of public keys.

        :raises SigningKeyError: the directory or a key cannot be used.
        """
        with self._lock:
            self._read_changed_keys()
            return len(self._public)

    def list_keys(self) -> list[ListedKey]:
        """Return the keys, the next one first, then the newest.

        :raises SigningKeyError: the directory or a key cannot be used.
        """
        names = list_key_files(self.directory)
        private, public = list_numbers(names, PRIVATE), list_numbers(names, PUBLIC)
        newest = max(public, default=0)
        return [ListedKey(
            number, compute_key_id(_read_public_key(_join(self.directory, number, PUBLIC))),
            'next' if number == 0 else 'signs' if number == newest else 'has signed',
            number in private) for number in sorted(public, key=lambda n: (n > 0, -n))]

    def _read_changed_keys(self) -> None:
        version = _read_version(self.directory)
        if version == self._version:
            return
        names = list_key_files(self.directory)
        self._public = {}
        for name in names:
            if name.endswith(PUBLIC):
                key = _read_public_key(os.path.join(self.directory, name))
                self._public[compute_key_id(key)] = key
        private = [number for number in list_numbers(names, PRIVATE) if number > 0]
        self._signing = None
        if private:
            path = os.path.join(self.directory, f'{max(private)}{PRIVATE}')
            signing_key = _read_private_key(path)
            if signing_key is not None:
                key_id = compute_key_id(signing_key.public_key())
                if key_id not in self._public:
                    raise _make_error(path, 'the directory lacks its public key',
                                      f'Copy {max(private)}{PUBLIC} as well.')
                self._signing = key_id, signing_key
        self._version = version


def create_keys(directory: str) -> None:
    """Make the directory, the first key that signs, and the next one.

    :raises SigningKeyError: it has keys already, or cannot be written.
    """
    with _explain_os_errors(directory):
        os.makedirs(directory, mode=0o755, exist_ok=True)
    if list_key_files(directory):
        raise _make_error(directory, 'it has keys already',
                          'Replace them by and by with kronos-manage signing-key rotate.')
    _write_key(directory, 1)
    _write_key(directory, 0)


def rotate_keys(directory: str, max_active_keys: int) -> int:
    """Let the next key sign, make a new next key, and remove the oldest ones.

    :returns: the number of the key that signs now.
    :raises SigningKeyError: the directory has no next key, or cannot be written.
    """
    numbers = list_numbers(list_key_files(directory), PRIVATE)
    if 0 not in numbers:
        raise _make_error(directory, 'it has no next key, 0.pem',
                          'Rotate where kronos-manage signing-key create made the keys.')
    signing = max(numbers) + 1
    with _explain_os_errors(directory):
        # The public key first: a reader in between must not find a private key without it.
        for suffix in (PUBLIC, PRIVATE):
            target = _join(directory, signing, suffix)
            with contextlib.suppress(FileNotFoundError):
                os.remove(target)  # of a rotation that was interrupted
            os.link(_join(directory, 0, suffix), target)
        _write_key(directory, 0)
        kept = sorted([*(n for n in numbers if n), signing])[-(max_active_keys - 1):]
        for number in numbers:
            if number not in (0, *kept):
                for suffix in (PRIVATE, PUBLIC):
                    os.remove(_join(directory, number, suffix))
    return signing


def list_key_files(directory: str) -> list[str]:
    """Return the names of the files of keys, sorted; other files are none of ours.

    :raises SigningKeyError: the directory cannot be read.
    """
    with _explain_os_errors(directory):
        return sorted(name for name in os.listdir(directory) if _NAME.fullmatch(name))


def list_numbers(names: list[str], suffix: str) -> list[int]:
    """Return the numbers of the files with this suffix, the smallest first."""
    return sorted(int(name.removesuffix(suffix)) for name in names if name.endswith(suffix))


def compute_key_id(key: ed25519.Ed25519PublicKey) -> str:
    """Return the ID of a key: it stays when a rotation gives the key another number."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def _read_version(directory: str) -> tuple[int, ...]:
    """Return numbers that differ when a file of the directory was made, removed or written."""
    with _explain_os_errors(directory):
        found = [os.stat(directory).st_mtime_ns]
        for entry in os.scandir(directory):
            if _NAME.fullmatch(entry.name):
                about = entry.stat()
                found += [about.st_ino, about.st_mtime_ns, about.st_mode]
        return tuple(found)


def _read_public_key(path: str) -> ed25519.Ed25519PublicKey:
    with _explain_os_errors(path), open(path, 'rb') as f:
        data = f.read()
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise _make_error(path, 'it is no Ed25519 public key in PEM format',
                          'Copy the file from the controller that made the keys.')
    return key


def _read_private_key(path: str) -> ed25519.Ed25519PrivateKey | None:
    """Return the private key; None: this user may not read it."""
    try:
        with open(path, 'rb') as f:
            data, mode = f.read(), os.fstat(f.fileno()).st_mode
    except PermissionError:
        return None
    except OSError as e:
        raise _make_error(path, e.strerror or str(e), 'Check the path.') from None
    if mode & stat.S_IRWXO:
        raise _make_error(path, 'every user of the machine can read or write it',
                          f'chmod o= {path}')
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise _make_error(path, 'it is no Ed25519 private key in PEM format without a password',
                          'Copy the file from the controller that made the keys.')
    return key


def _write_key(directory: str, number: int) -> None:
    """Write a new key under this number; a reader finds the old or the new one, whole."""
    key = ed25519.Ed25519PrivateKey.generate()
    with _explain_os_errors(directory):
        about = os.stat(directory)
        for suffix, mode, data in (
                (PUBLIC, 0o644, key.public_key().public_bytes(
                    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)),
                (PRIVATE, 0o640, key.private_bytes(
                    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption()))):
            path = _join(directory, number, suffix)
            descriptor = os.open(f'{path}.new', os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, 'wb') as f:
                f.write(data)
                f.flush()
                os.fsync(descriptor)
            # root makes keys for the user of the daemons: the owner of the directory.
            os.chown(f'{path}.new', about.st_uid, about.st_gid)
            os.chmod(f'{path}.new', mode)
            os.replace(f'{path}.new', path)


def _join(directory: str, number: int, suffix: str) -> str:
    return os.path.join(directory, f'{number}{suffix}')


@contextlib.contextmanager
def _explain_os_errors(path: str) -> Iterator[None]:
    """Raise SigningKeyError, which names the path, for an error of the file system."""
    try:
        yield
    except OSError as e:
        raise _make_error(path, e.strerror or str(e),
                          'Check the path, its owner and its permissions.') from None


def _make_error(path: str, problem: str, remedy: str) -> exception.SigningKeyError:
    return exception.SigningKeyError(path=path, field=_FIELD, problem=problem, remedy=remedy)
