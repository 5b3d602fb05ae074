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

"""[database]: oslo.db's group, with a default of ours."""

from oslo_config import cfg

#: SQLite suits one host and needs no server. Several hosts need MariaDB or PostgreSQL.
DEFAULT_CONNECTION = 'sqlite:////var/lib/kronos/kronos.sqlite'


def register(conf: cfg.ConfigOpts) -> None:
    """Register oslo.db's own options; needs the extra ``rebalancer``."""
    from oslo_db import options  # noqa: PLC0415 (nova-scheduler may lack the extra "rebalancer")

    options.set_defaults(conf, connection=DEFAULT_CONNECTION)


def list_options() -> list[cfg.Opt]:
    from oslo_db import options  # noqa: PLC0415 (nova-scheduler may lack the extra "rebalancer")

    return list(options.database_opts)
