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

"""Nova's configuration and databases, opened as nova-scheduler does, for reading.

Functions here import Nova, which may be missing and decides at import how it threads:
:func:`native_threads` comes first. So import no other part of the package before
:func:`configure_nova` has run.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import functools
import os
import sys
from typing import Any
import warnings

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova.conf import opts
from kronos_nova.conf import scheduler
from kronos_nova.conf import secret_mask

#: The program whose sections and file names this module uses.
BINARY = 'nova-scheduler'
#: Sections of nova.conf whose values are checked first.
READ = ('scheduler', 'filter_scheduler', 'kronos', 'prometheus')


def configure_nova(files: Sequence[str], debug: bool = False) -> Any:
    """Read nova.conf and point Nova's database layer at its databases.

    The log goes to standard error, from warnings on; the configured log file is the
    daemon's.

    :param files: none: the files that nova-scheduler reads.
    :returns: Nova's global ConfigOpts.
    :raises WeighError: nova.conf does not exist, or cannot be used.
    """
    paths = find_config_files(files)
    if not paths:
        raise exception.WeighError(
            what='nova.conf', problem='nova-scheduler finds none in its directories',
            remedy='Run the command where nova-scheduler runs, or name it with --config-file')
    conf = _load_configuration(paths, debug)
    from nova.db.api import api as api_db  # noqa: PLC0415
    from nova.db.main import api as main_db  # noqa: PLC0415
    import oslo_messaging as messaging  # noqa: PLC0415

    # Cell mappings may refer to transport_url; this process does not connect there.
    try:
        messaging.TransportURL.parse(conf)
    except (messaging.InvalidTransportURL, ValueError) as e:
        # Its text may hold a part of the password.
        raise exception.WeighError(
            what=', '.join(paths), problem=f'transport_url cannot be used ({type(e).__name__})',
            remedy='Correct it; special characters of the password are quoted') from None
    for group in ('database', 'api_database'):
        if not conf[group].connection:
            raise exception.WeighError(
                what=', '.join(paths), problem=f'[{group}] connection is not set',
                remedy='Name the nova.conf of nova-scheduler, which has it')
        # An operator waits: say at once that a database cannot be reached.
        conf.set_override('max_retries', 0, group)
    main_db.configure(conf)
    api_db.configure(conf)
    return conf


def configure_offline(files: Sequence[str], debug: bool = False) -> Any:
    """Read nova.conf for its options alone; without one, Nova's defaults hold.

    :raises WeighError: a named file cannot be used.
    """
    return _load_configuration(find_config_files(files), debug)


@functools.cache
def native_threads() -> None:
    """Load Nova on native threads, also where nova-scheduler still runs on eventlet.

    Call this before any import of oslo.service.

    :raises WeighError: Nova is not installed here.
    """
    os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = '1'
    warnings.filterwarnings('ignore')
    try:
        from nova import monkey_patch  # noqa: PLC0415
        from oslo_service import backend  # noqa: PLC0415

        # Silence the messages on threading: they come before the log is set up.
        for logger in (backend.LOG, logging.getLogger('nova').logger):
            logger.setLevel('WARNING')
        # Before Nova 34 monkey_patch warns of risks for nova-scheduler.
        logging.getLogger('nova.monkey_patch').logger.setLevel('ERROR')
        monkey_patch.patch()  # the variable decides; Nova 32 takes no backend
        import nova.conf  # noqa: F401, PLC0415
    except ImportError as e:
        raise exception.WeighError(
            what='Nova', problem=f'its code cannot be imported here ({e})',
            remedy='Run the command where nova-scheduler runs, in its Python environment') from e


def _load_configuration(paths: Sequence[str], debug: bool) -> Any:
    native_threads()
    from nova import config  # noqa: PLC0415
    from nova import objects  # noqa: PLC0415
    import nova.conf  # noqa: PLC0415

    conf = nova.conf.CONF
    scheduler.register(conf)
    _read(conf, config, paths)
    _log_to_stderr(conf, debug)
    objects.register_all()
    return conf


def find_config_files(files: Sequence[str]) -> list[str]:
    """Return the configuration files to read, maybe none.

    :raises WeighError: a named file is missing.
    """
    for path in files:
        if not os.access(path, os.R_OK) or os.path.isdir(path):
            raise exception.WeighError(
                what=path, problem='no such file can be read',
                remedy='Name the nova.conf of nova-scheduler, and run as a user who may read it')
    return list(files) or list(cfg.find_config_files(project='nova', prog=BINARY))


@contextlib.contextmanager
def _set_program_name(name: str) -> Iterator[None]:
    """Set the program name to ``name``, so that oslo.config also reads its directories.

    Nova 32 takes its name from nowhere else.
    """
    ours, sys.argv[0] = sys.argv[0], name
    try:
        yield
    finally:
        sys.argv[0] = ours


def _read(conf: cfg.ConfigOpts, config: Any, files: Sequence[str]) -> None:
    try:
        with _set_program_name(BINARY):
            config.parse_args([BINARY], default_config_files=list(files), configure_db=False,
                              init_rpc=False)
    except cfg.Error as e:
        raise exception.WeighError(what=', '.join(files), problem=opts.format_error(e).rstrip('.'),
                                   remedy='Correct the file') from e
    for group in READ:
        for name in conf[group]:
            try:
                getattr(conf[group], name)
            except cfg.ConfigSourceValueError as e:
                raise exception.WeighError(
                    what=', '.join(files), problem=f'[{group}] {name}: ' + opts.format_value_error(
                        e, secret=(group, name) in opts.secret_names()),
                    remedy='Correct the value') from e


def _log_to_stderr(conf: cfg.ConfigOpts, debug: bool) -> None:
    for name, value in (('log_config_append', None), ('log_file', None), ('log_dir', None),
                        ('use_syslog', False), ('use_journal', False), ('use_stderr', True),
                        ('debug', debug)):
        conf.set_override(name, value)
    if not debug:
        conf.set_override('default_log_levels', [
            *conf.default_log_levels, 'nova=WARN', 'kronos_nova=ERROR', 'oslo_db=CRITICAL',
            'oslo_messaging=WARN', 'oslo_concurrency=WARN', 'oslo_service=WARN',
            # These loggers show tracebacks; our error reports the problem in one line.
            'nova.context=CRITICAL', 'nova.image.glance=CRITICAL', 'keystoneauth=ERROR'])
    logging.setup(conf, 'nova')
    secret_mask.install_mask(conf)
