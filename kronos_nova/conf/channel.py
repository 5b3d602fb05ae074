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

"""[kronos_channel]: the cache through which kronos-engine and nova-scheduler talk."""

from oslo_config import cfg

GROUP = cfg.OptGroup('kronos_channel', title='Between kronos-engine and nova-scheduler')

OPTS: list[cfg.Opt] = [
    cfg.ListOpt('servers', default=[],
                help='memcached servers, as HOST:PORT, [IPV6]:PORT or unix:/PATH; the same list '
                     'for kronos-engine and nova-scheduler. Empty: [cache] memcache_servers, '
                     'when [cache] is enabled with a backend for memcached. [cache] tls_* '
                     'options hold for both.'),
    cfg.StrOpt('directory',
               help='A directory in place of memcached, where engine and nova-scheduler run on '
                    'one host. Only users who may write scores may write into it.'),
    cfg.ListOpt('hmac_keys', default=[], secret=True,
                help='Secrets of at least 32 characters that kronos-engine and nova-scheduler '
                     'share. The first one signs every record (HMAC-SHA256), and a reader accepts '
                     'the signature of any. Without a key, anyone who can write to memcached can '
                     'close hosts to boots. To rotate, add the new key behind the old one '
                     'everywhere, then put it first, then remove the old one.'),
    cfg.FloatOpt('timeout', default=2.0, min=0.1, max=30.0,
                 help='Seconds for one operation in all, connecting included.'),
    cfg.IntOpt('max_bytes', default=4 * 1024 * 1024, min=65536,
               help='A record larger than this is refused before it is read in whole.'),
]
