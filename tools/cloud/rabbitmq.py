# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""A private RabbitMQ: its own node name, Erlang port mapper, ports and directories."""

from tools.cloud.run import Run

#: Debian's wrapper in PATH insists on root or the package's user; the script itself does not
SERVER = '/usr/lib/rabbitmq/bin/rabbitmq-server'


def start(run: Run) -> None:
    """Start the broker; ``wait`` says when it serves."""
    home = run.layout.data / 'rabbitmq'
    home.mkdir(exist_ok=True)
    config = run.layout.etc / 'rabbitmq.conf'
    config.write_text(
        f'listeners.tcp.1 = 127.0.0.1:{run.ports["rabbitmq"]}\n'
        'vm_memory_high_watermark.absolute = 1GB\n'
        'disk_free_limit.absolute = 50MB\n'
        'log.console = true\n'
        'log.console.level = warning\n'
        'log.file = false\n'
    )
    plugins = run.layout.etc / 'enabled_plugins'
    plugins.write_text('[].\n')
    run.spawn(
        'rabbitmq',
        [SERVER],
        env={
            # the Erlang cookie lies here
            'HOME': str(home),
            # the port makes the name unique, should host tools ever list nodes
            'RABBITMQ_NODENAME': f'kronos{run.ports["rabbitmq"]}@localhost',
            'RABBITMQ_CONFIG_FILE': str(config),
            'RABBITMQ_CONF_ENV_FILE': '/dev/null',
            'RABBITMQ_ENABLED_PLUGINS_FILE': str(plugins),
            'RABBITMQ_MNESIA_BASE': str(home),
            'RABBITMQ_LOG_BASE': str(run.layout.log),
            'RABBITMQ_DIST_PORT': str(run.ports['rabbitmq_dist']),
            'ERL_EPMD_ADDRESS': '127.0.0.1',
            'ERL_EPMD_PORT': str(run.ports['epmd']),
            # busy waiting of idle schedulers would take the CPU from everything else
            'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS': (
                '-kernel inet_dist_use_interface {127,0,0,1} '
                '+sbwt none +sbwtdcpu none +sbwtdio none'
            ),
        },
    )


def wait(run: Run) -> None:
    """Wait until a client can log in and open a channel, not merely connect."""
    import amqp  # type: ignore[import-untyped]

    def ready() -> str | None:
        try:
            with amqp.Connection(
                f'127.0.0.1:{run.ports["rabbitmq"]}', connect_timeout=5, read_timeout=5
            ) as connection:
                connection.channel()
        except (OSError, amqp.exceptions.AMQPError) as e:
            return str(e) or type(e).__name__
        return None

    run.wait('RabbitMQ serves', ready)
