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

"""[prometheus]: the source of the metrics, and the age at which they are refused."""

from oslo_config import cfg

GROUP = cfg.OptGroup('prometheus', title='Prometheus')

OPTS: list[cfg.Opt] = [
    cfg.URIOpt('url', default='http://127.0.0.1:9090', schemes=['http', 'https'],
               secret=True,
               help='Base URL of the Prometheus HTTP API; a path prefix is kept. Thanos Query, '
                    'Mimir and VictoriaMetrics speak the same API. It may hold user:password@, '
                    'and is therefore not shown in logs.'),
    cfg.FloatOpt('timeout', default=30, min=0.1,
                 help='Seconds for one query with all its retries. nova-scheduler never waits '
                      'for it: it asks in the background.'),
    cfg.IntOpt('max_retries', default=3, min=0,
               help='How often a query that failed on the way is repeated.'),
    cfg.FloatOpt('retry_backoff', default=1.0, min=0.0,
                 help='Seconds before the first retry; it doubles each time.'),
    cfg.IntOpt('staleness_threshold', default=300, min=1,
               help='Scores older than this are not used. Age is what the age_query of a policy '
                    'says, else the time since the query.'),
    cfg.BoolOpt('verify_ssl', default=True, help='Verify the server\'s TLS certificate.'),
    cfg.StrOpt('ca_cert', help='Bundle of CA certificates to trust instead of the system\'s.'),
    cfg.StrOpt('bearer_token', secret=True, help='Bearer token for every request.'),
    cfg.StrOpt('bearer_token_file',
               help='File with a bearer token; it is read again for every request.'),
    cfg.StrOpt('username', help='User for HTTP basic authentication.'),
    cfg.StrOpt('password', secret=True, help='Password for HTTP basic authentication.'),
    # New in kronos-nova.
    cfg.IntOpt('max_body_bytes', default=8 * 1024 * 1024, min=1024,
               help='An answer larger than this is refused.'),
    cfg.IntOpt('max_series', default=50000, min=1,
               help='An answer with more series than this is refused.'),
]
