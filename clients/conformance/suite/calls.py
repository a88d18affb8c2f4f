"""The requests of the API, as rules of the proxy name them. A library may use the route for one or the one for many."""

from .world import GROUP

_GROUP = f"/v1/groups/{GROUP}"

JOIN = ("POST", f"{_GROUP}/members")
BEAT = ("PUT|POST", f"{_GROUP}/(tenures/[^/]+/beat|beats)")
LEAVE = ("DELETE", f"{_GROUP}/tenures/[^/]+")
CLAIM = ("PUT|POST", f"{_GROUP}/registries/r/claims(/k[0-9]*)?")
ACQUIRE = ("POST", f"{_GROUP}/(leases/l/acquire|leases-acquire)")
RELEASE = ("POST", f"{_GROUP}/(leases/l/release|leases-release)")
ATTACH = ("PUT|POST", f"{_GROUP}/(sessions/s|sessions-attach)")
RESERVE = ("POST", "/v1/rosters/care/reserve")
