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



"""The check of libvirt on one host, where vCPUs are pinned. The check only reads."""

from collections.abc import Iterator
import os
import threading
from typing import Any
import urllib.parse

from kronos_nova import exception
from kronos_nova.checks import base
from kronos_nova.checks import survey
from kronos_nova.rebalancer.migfra import vcpu_pinning

#: Paths of libvirt's files for TLS: the authority's certificate, ours, and our key.
_SYSTEM = ('/etc/pki/CA/cacert.pem', '/etc/pki/libvirt/clientcert.pem',
           '/etc/pki/libvirt/private/clientkey.pem')
_NAMES = ('cacert.pem', 'clientcert.pem', 'clientkey.pem')


def check(context: base.CheckContext) -> Iterator[base.CheckItem]:
    conf = context.conf
    if not conf.repin.uri:
        return
    try:
        pinned = vcpu_pinning.VcpuPinning(conf)
        address = pinned.format_uri('host')
        libvirt = vcpu_pinning.require_libvirt()
    except exception.ConfigError as e:
        yield base.report_failure('repin', f'{e.kwargs["field"]}: {e.kwargs["problem"]}',
                                  e.kwargs['remedy'])
        return
    except exception.RepinUnsupported as e:
        yield base.report_failure('repin', f'{e.kwargs["what"]} {e.kwargs["problem"]}',
                                  e.kwargs['remedy'])
        return
    files = _list_tls_files(address)
    # A host may let clients in without asking for a certificate.
    unread = [path for path in files
              if not os.access(path, os.R_OK) and (path == files[0] or os.path.lexists(path))]
    if unread:
        yield base.report_failure('repin: TLS',
                                  'files that libvirt needs to connect cannot be read: '
                                        + ', '.join(unread),
                                  'Put the client\'s certificate, its key and the authority\'s '
                                  'there, '
                                  'readable to the user of the daemons, or name another directory '
                                  'with ?pkipath= in [repin] uri.')
        return
    yield _check_one_host(context, pinned, libvirt)


def _list_tls_files(address: str) -> list[str]:
    """List the files that TLS to this address needs; empty for another transport."""
    parts = urllib.parse.urlsplit(address)
    _driver, _, transport = parts.scheme.partition('+')
    if not parts.hostname or transport not in ('', 'tls'):
        return []
    path = urllib.parse.parse_qs(parts.query).get('pkipath')
    if path:
        return [os.path.join(path[0], name) for name in _NAMES]
    user = os.path.expanduser('~/.pki/libvirt')
    authority, *pair = (os.path.join(user, name) for name in _NAMES)
    if os.geteuid() == 0:
        return list(_SYSTEM)
    return [authority if os.path.exists(authority) else _SYSTEM[0],
            *(pair if all(map(os.path.exists, pair)) else _SYSTEM[1:])]


def _check_one_host(context: base.CheckContext, pinned: vcpu_pinning.VcpuPinning,
                    libvirt: Any) -> base.CheckItem:
    cluster = context.cluster
    hosts = [] if cluster is None else sorted(
        host for host in survey.restrict_scope(cluster, context.policy_set).scope_hosts
        or cluster.hosts
        if cluster.services[host].up)
    if not hosts:
        return base.report_skip('repin', 'no host of Nova\'s is known that could be asked')
    try:
        uri = pinned.format_uri(hosts[0])
    except exception.RepinRefused as e:
        return base.report_failure('repin', f'{e.kwargs["what"]} {e.kwargs["problem"]}',
                                   e.kwargs['remedy'])
    timeout = context.conf.repin.timeout
    outcome: list[tuple[bool, str]] = []

    def query_libvirt() -> None:
        try:
            connection = libvirt.openReadOnly(uri)
            try:
                outcome.append((True, f'{connection.getType()}, '
                                      f'{connection.getCPUMap()[2]} CPUs online'))
            finally:
                connection.close()
        except libvirt.libvirtError as e:
            outcome.append((False, ' '.join(str(e).split())[:300]))

    thread = threading.Thread(target=query_libvirt, name='repin-check', daemon=True)
    thread.start()
    thread.join(timeout)
    well, text = outcome[0] if outcome else (False, f'no answer within {timeout:g} s')
    if well:
        return base.report_ok('repin', f'libvirt at {uri}: {text}; other hosts were not asked')
    return base.report_failure('repin', f'libvirt at {uri}: {text}',
                               'See whether [repin] uri, its TLS certificates and the libvirt '
                               'daemon of the host are right.')
