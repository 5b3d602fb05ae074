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


"""Private servers on loopback and free ports, ended by their own pids.

A test that needs one is skipped when its program is not installed, unless
CI=true: then that is a failure.
"""

import contextlib
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest

from tests import ci
from tests.fixtures import free_ports


def program(*patterns):
    """The newest of the installed programs, or a skip."""
    for pattern in patterns:
        programs = sorted(glob.glob(pattern)) if '/' in pattern else [shutil.which(pattern)]
        if programs and programs[-1]:
            return programs[-1]
    ci.missing(patterns[0], 'its package')


class Server:
    """A process in a group of its own; its output goes to a file."""

    def __init__(self, command, log, env=None, user=None):
        self.log = log
        with open(log, 'ab') as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, user=user,
                env={**os.environ, **(env or {})}, start_new_session=True, cwd='/')

    def wait_for(self, answers, seconds=180):
        """Until it answers; a dead server fails at once, with its log."""
        until = time.monotonic() + seconds
        while True:
            if self.process.poll() is not None or time.monotonic() > until:
                with open(self.log, errors='replace') as f:
                    pytest.fail(f'{self.process.args[0]} did not come up: {f.read()[-3000:]}')
            with contextlib.suppress(Exception):
                if answers() is not False:
                    return
            time.sleep(0.1)

    def stop(self, how=signal.SIGTERM, seconds=60):
        if self.process.poll() is None:
            os.killpg(self.process.pid, how)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(30)


def unprivileged():
    """Servers that refuse root run as this user; None when we are not root."""
    if os.geteuid() != 0:
        return None
    for name in ('postgres', 'nobody'):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_uid
    pytest.skip('no unprivileged user')


def connects(port):
    socket.create_connection(('127.0.0.1', port), 1).close()


class MariaDB:
    """A database server that can be stopped and started again on its port."""

    def __init__(self, directory):
        self._daemon, install = program('mariadbd'), program('mariadb-install-db')
        self._log = directory / 'mariadb.log'
        self._data = directory / 'mariadb'
        self._root = ['--user=root'] if os.geteuid() == 0 else []
        self._server = None
        self.port = free_ports.reserve_port()
        # A server that starts, also one that installs, deletes the temporary tables of others
        # that share its directory for them.
        self._temporary = directory / 'mariadb-temporary'
        self._temporary.mkdir()
        done = subprocess.run(
            [install, '--no-defaults', f'--datadir={self._data}', '--skip-test-db',
             '--auth-root-authentication-method=normal', f'--tmpdir={self._temporary}',
             *self._root],
            check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors='replace', timeout=300)
        if done.returncode:
            pytest.fail(f'{install} ended with status {done.returncode}: {done.stdout[-3000:]}')

    def start(self):
        data = self._data
        self._server = Server(
            [self._daemon, '--no-defaults', f'--datadir={data}', f'--socket={data}/s',
             f'--port={self.port}', '--bind-address=127.0.0.1', f'--tmpdir={self._temporary}',
             '--innodb-flush-log-at-trx-commit=2', f'--pid-file={data}/pid', *self._root],
            self._log)
        self._server.wait_for(lambda: self._connect().close())

    def _connect(self):
        import pymysql

        return pymysql.connect(host='127.0.0.1', port=self.port, user='root')

    def create(self, name):
        """The URL of a new, empty database."""
        connection = self._connect()
        with connection, connection.cursor() as cursor:
            cursor.execute(f'CREATE DATABASE {name} CHARACTER SET utf8mb4')
        return f'mysql+pymysql://root@127.0.0.1:{self.port}/{name}'

    def stop(self, how=signal.SIGTERM):
        if self._server is not None:
            self._server.stop(how)

    close = stop


@contextlib.contextmanager
def memcached(directory, port=None):
    """Yields its port."""
    port = port or free_ports.reserve_port()
    user = ['-u', 'nobody'] if os.geteuid() == 0 else []
    server = Server([program('memcached'), '-l', '127.0.0.1', '-p', str(port), '-U', '0',
                     *user], directory / 'memcached.log')
    try:
        server.wait_for(lambda: connects(port))
        yield port
    finally:
        server.stop()


@contextlib.contextmanager
def mariadb(directory):
    """Yields a URL of an empty database."""
    server = MariaDB(directory)
    try:
        server.start()
        yield server.create('kronos')
    finally:
        server.close()


class PostgreSQL:
    """The same of another kind."""

    def __init__(self, directory):
        self._daemon = program('/usr/lib/postgresql/*/bin/postgres', 'postgres')
        install = os.path.join(os.path.dirname(os.path.realpath(self._daemon)), 'initdb')
        self._log = directory / 'postgresql.log'
        self._user = unprivileged()
        self._server = None
        self.port = free_ports.reserve_port()
        # Not in ``directory``: only its owner may look into pytest's.
        self._data = tempfile.mkdtemp(prefix='kronos-postgresql-')
        if self._user is not None:
            os.chown(self._data, self._user, -1)
        subprocess.run(
            [install, '-D', self._data, '-U', 'kronos', '-A', 'trust', '-E', 'UTF8',
             '--locale=C', '--no-sync'], check=True, capture_output=True, timeout=300,
            user=self._user, cwd='/')

    def start(self):
        self._server = Server(
            [self._daemon, '-D', self._data, '-p', str(self.port), '-k', self._data, '-c',
             'listen_addresses=127.0.0.1', '-c', 'fsync=off'], self._log, user=self._user)
        self._server.wait_for(lambda: self._connect().close())

    def _connect(self):
        import psycopg2

        return psycopg2.connect(host='127.0.0.1', port=self.port, user='kronos',
                                dbname='postgres')

    def create(self, name):
        """The URL of a new, empty database."""
        connection = self._connect()
        connection.autocommit = True
        connection.cursor().execute(f'CREATE DATABASE {name}')
        connection.close()
        return f'postgresql+psycopg2://kronos@127.0.0.1:{self.port}/{name}'

    def stop(self, how=signal.SIGINT):
        if self._server is not None:
            self._server.stop(how)

    def close(self):
        self.stop()
        shutil.rmtree(self._data, ignore_errors=True)


@contextlib.contextmanager
def postgresql(directory):
    """Yields a URL of an empty database."""
    server = PostgreSQL(directory)
    try:
        server.start()
        yield server.create('kronos')
    finally:
        server.close()


class Authority:
    """A CA of our own, and a certificate for 127.0.0.1 that it has signed."""

    def __init__(self, directory):
        self._openssl = program('openssl')
        self.ca, self.certificate, self.key = (
            directory / name for name in ('ca.pem', 'server.pem', 'server.key'))
        self._run('req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj',
                  '/CN=Kronos test CA', '-addext', 'keyUsage=critical,keyCertSign', '-keyout',
                  directory / 'ca.key', '-out', self.ca)
        self._run('req', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=127.0.0.1', '-keyout',
                  self.key, '-out', directory / 'server.csr')
        (directory / 'server.ext').write_text(
            'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n'
            # Python 3.13 believes no certificate without.
            'authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n')
        self._run('x509', '-req', '-days', '2', '-in', directory / 'server.csr', '-CA', self.ca,
                  '-CAkey', directory / 'ca.key', '-CAcreateserial', '-extfile',
                  directory / 'server.ext', '-out', self.certificate)

    def _run(self, *arguments):
        subprocess.run([self._openssl, *map(str, arguments)], check=True, capture_output=True,
                       timeout=120)


class RabbitMQ:
    """A broker that can be stopped and started again on its port.

    :param tls: an :class:`Authority`; then it speaks TLS alone.
    """

    def __init__(self, directory, tls=None):
        self._daemon = program('/usr/lib/rabbitmq/bin/rabbitmq-server', 'rabbitmq-server')
        self._directory = directory
        self.port, self._epmd = free_ports.reserve_port(), free_ports.reserve_port()
        self.url = f'rabbit://guest:guest@127.0.0.1:{self.port}/'
        for name in ('home', 'data', 'log'):
            (directory / name).mkdir()
        (directory / 'plugins').write_text('[].')
        listeners = f'listeners.tcp.default = 127.0.0.1:{self.port}\n'
        if tls is not None:
            listeners = (
                f'listeners.tcp = none\nlisteners.ssl.default = 127.0.0.1:{self.port}\n'
                f'ssl_options.cacertfile = {tls.ca}\nssl_options.certfile = {tls.certificate}\n'
                f'ssl_options.keyfile = {tls.key}\nssl_options.verify = verify_none\n')
        (directory / 'rabbitmq.conf').write_text(listeners)
        self._env = {
            'HOME': str(directory / 'home'), 'ERL_EPMD_PORT': str(self._epmd),
            'ERL_EPMD_ADDRESS': '127.0.0.1',
            'RABBITMQ_NODENAME': f'kronos{self.port}@localhost',
            'RABBITMQ_DIST_PORT': str(free_ports.reserve_port()),
            'RABBITMQ_MNESIA_BASE': str(directory / 'data'),
            'RABBITMQ_LOG_BASE': str(directory / 'log'),
            'RABBITMQ_CONFIG_FILE': str(directory / 'rabbitmq'),
            'RABBITMQ_ENABLED_PLUGINS_FILE': str(directory / 'plugins'),
            'RABBITMQ_PID_FILE': str(directory / 'pid')}
        self._server = None

    def start(self):
        self._server = Server([self._daemon], self._directory / 'rabbitmq.log', self._env)
        self._server.wait_for(lambda: connects(self.port))

    def stop(self, how=signal.SIGTERM):
        if self._server is not None:
            self._server.stop(how)
            self._server = None

    def control(self, *arguments):
        """What rabbitmqctl prints."""
        tool = program('/usr/lib/rabbitmq/bin/rabbitmqctl', 'rabbitmqctl')
        return subprocess.run(
            [tool, *arguments], check=True, capture_output=True, text=True, timeout=180,
            env={**os.environ, **self._env}).stdout

    def close(self):
        self.stop()
        # The Erlang port mapper on our own port; it outlives the broker.
        subprocess.run(['epmd', '-port', str(self._epmd), '-kill'], capture_output=True,
                       timeout=60, check=False)


@contextlib.contextmanager
def rabbitmq(directory, tls=None):
    """Yields a running :class:`RabbitMQ`."""
    server = RabbitMQ(directory, tls)
    try:
        server.start()
        yield server
    finally:
        server.close()


class Mosquitto:
    """An MQTT broker that can be stopped and started again on its port.

    :param users: name -> password; without, everybody may come in.
    :param rights: lines of an ACL file; without, everybody may do anything.
    :param tls: an :class:`Authority`; then it speaks TLS alone.
    """

    def __init__(self, directory, users=None, rights=None, tls=None):
        self._daemon = program('mosquitto', '/usr/sbin/mosquitto')
        # Not in ``directory``: only its owner may look into pytest's, and as root it
        # becomes somebody else. Nor in one of Nova's tests.
        self._directory = tempfile.mkdtemp(prefix='kronos-mosquitto-',
                                           dir=os.environ.get('TMPDIR', '/tmp'))
        self._log = directory / 'mosquitto.log'
        self._server = None
        self.port = free_ports.reserve_port()
        lines = [f'listener {self.port} 127.0.0.1', 'persistence true', 'autosave_interval 1',
                 'autosave_on_changes true', f'persistence_location {self._directory}/',
                 'set_tcp_nodelay true', f'allow_anonymous {"false" if users else "true"}']
        if users:
            passwords = self._file('passwords', ''.join(
                f'{name}:{password}\n' for name, password in users.items()))
            subprocess.run([program('mosquitto_passwd', '/usr/bin/mosquitto_passwd'), '-U',
                            passwords], check=True, capture_output=True, timeout=60)
            lines.append(f'password_file {passwords}')
        if rights:
            lines.append('acl_file ' + self._file('rights', '\n'.join(rights) + '\n'))
        if tls is not None:
            for option, path in (('cafile', tls.ca), ('certfile', tls.certificate),
                                 ('keyfile', tls.key)):
                lines.append(f'{option} ' + self._file(option, path.read_text()))
        self._configuration = self._file('mosquitto.conf', '\n'.join(lines) + '\n')

    def _file(self, name, text):
        path = os.path.join(self._directory, name)
        with open(path, 'w') as f:
            f.write(text)
        return path

    def start(self):
        user = unprivileged()
        if user is not None:
            for name in ('.', *os.listdir(self._directory)):
                os.chown(os.path.join(self._directory, name), user, -1)
        self._server = Server([self._daemon, '-c', self._configuration], self._log, user=user)
        self._server.wait_for(lambda: connects(self.port), seconds=30)

    def stop(self, how=signal.SIGTERM):
        if self._server is not None:
            self._server.stop(how)
            self._server = None

    def close(self):
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


@contextlib.contextmanager
def mosquitto(directory, **settings):
    """Yields a running :class:`Mosquitto`, which ``settings`` go to."""
    server = Mosquitto(directory, **settings)
    try:
        server.start()
        yield server
    finally:
        server.close()
