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

"""Options of daemons and plug-ins by group, and the only readers of configuration files."""

from collections.abc import Sequence

from oslo_config import cfg


def register(conf: cfg.ConfigOpts, group: cfg.OptGroup, opts: Sequence[cfg.Opt]) -> None:
    """Register a group of options; repeated calls do nothing.

    A fresh OptGroup each time: oslo.config keeps values in it, and a shared
    one would carry an override from one configuration into the next.
    """
    fresh = cfg.OptGroup(group.name, title=group.title)
    conf.register_group(fresh)
    conf.register_opts(list(opts), group=fresh)
