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

"""The values that all other modules use: frozen, complete, free of I/O.

Units: memory in MiB, disk in GiB, time in seconds since the epoch (UTC), a score is a host's
utilisation ratio in [0, 1], a usage is an instance's share in the unit of the policy's capacity
(cores, bytes, bytes/s). Every identity is a UUID or a Nova service host name; names that tenants
choose are carried for people to read and are never keys.
"""

from kronos_nova.model.campaigns import Campaign as Campaign
from kronos_nova.model.campaigns import CAMPAIGN_MARK as CAMPAIGN_MARK
from kronos_nova.model.campaigns import CampaignHost as CampaignHost
from kronos_nova.model.campaigns import CampaignHostState as CampaignHostState
from kronos_nova.model.campaigns import CampaignOverview as CampaignOverview
from kronos_nova.model.campaigns import CampaignState as CampaignState
from kronos_nova.model.campaigns import summarise_campaign as summarise_campaign
from kronos_nova.model.campaigns import UnreadableCampaign as UnreadableCampaign
from kronos_nova.model.cloud import BootLimit as BootLimit
from kronos_nova.model.cloud import Cluster as Cluster
from kronos_nova.model.cloud import DOMAIN_KEY as DOMAIN_KEY
from kronos_nova.model.cloud import GroupPolicy as GroupPolicy
from kronos_nova.model.cloud import Host as Host
from kronos_nova.model.cloud import InFlightMove as InFlightMove
from kronos_nova.model.cloud import Instance as Instance
from kronos_nova.model.cloud import Inventory as Inventory
from kronos_nova.model.cloud import Provider as Provider
from kronos_nova.model.cloud import ServerGroup as ServerGroup
from kronos_nova.model.cloud import Service as Service
from kronos_nova.model.cloud import UNASSIGNED as UNASSIGNED
from kronos_nova.model.cloud import UNKNOWN as UNKNOWN
from kronos_nova.model.contracts import Contract as Contract
from kronos_nova.model.contracts import ContractOptions as ContractOptions
from kronos_nova.model.contracts import ContractRecords as ContractRecords
from kronos_nova.model.contracts import ContractSource as ContractSource
from kronos_nova.model.contracts import Disruption as Disruption
from kronos_nova.model.contracts import MoveNotice as MoveNotice
from kronos_nova.model.contracts import MoveQuota as MoveQuota
from kronos_nova.model.contracts import NoticePeriod as NoticePeriod
from kronos_nova.model.contracts import NoticeReason as NoticeReason
from kronos_nova.model.metrics import ClusterScores as ClusterScores
from kronos_nova.model.metrics import PolicySamples as PolicySamples
from kronos_nova.model.metrics import PolicyScores as PolicyScores
from kronos_nova.model.metrics import QueryResult as QueryResult
from kronos_nova.model.metrics import SourceHealth as SourceHealth
from kronos_nova.model.options import DrainMode as DrainMode
from kronos_nova.model.options import FailoverMode as FailoverMode
from kronos_nova.model.options import OfflineDrains as OfflineDrains
from kronos_nova.model.options import PlanningOptions as PlanningOptions
from kronos_nova.model.plan import DrainDeadline as DrainDeadline
from kronos_nova.model.plan import find_drain_deadline as find_drain_deadline
from kronos_nova.model.plan import MeasuredAttempt as MeasuredAttempt
from kronos_nova.model.plan import Move as Move
from kronos_nova.model.plan import MoveHistory as MoveHistory
from kronos_nova.model.plan import PackingDensity as PackingDensity
from kronos_nova.model.plan import Phase as Phase
from kronos_nova.model.plan import Plan as Plan
from kronos_nova.model.plan import PolicyReport as PolicyReport
from kronos_nova.model.plan import QuietWait as QuietWait
from kronos_nova.model.plan import Rejection as Rejection
from kronos_nova.model.plan import ScoreChange as ScoreChange
from kronos_nova.model.plan import Swap as Swap
from kronos_nova.model.task import ACCEPTED as ACCEPTED
from kronos_nova.model.task import ACCEPTED_POSTCOPY as ACCEPTED_POSTCOPY
from kronos_nova.model.task import Attempt as Attempt
from kronos_nova.model.task import EscalationKind as EscalationKind
from kronos_nova.model.task import EscalationStep as EscalationStep
from kronos_nova.model.task import format_task as format_task
from kronos_nova.model.task import MoveMethod as MoveMethod
from kronos_nova.model.task import Task as Task
from kronos_nova.model.task import TaskHook as TaskHook
from kronos_nova.model.task import TaskResult as TaskResult
from kronos_nova.model.task import TaskState as TaskState
from kronos_nova.model.task import TreeDigest as TreeDigest
