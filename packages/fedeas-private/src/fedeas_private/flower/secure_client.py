"""The client half of a round under a secure sum: the update goes into the sum, or nowhere.

Imports torch only when there is training to do: in a deployment every message of a sum starts a
process.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedeas._util.optional import import_extra
from fedeas.errors import InputError
from fedeas.flower.site import OpenSite, Site
from fedeas_private.flower.queries import TRAIN, read_question, training_cost
from fedeas_private.flower.secure_sum import (
    SumParticipant,
    answer_secure_sum,
    begin_sum,
    reply_with,
)
from fedeas_private.flower.settings import UPDATES, SiteConfig
from fedeas_private.secure_sum.identity import FEWEST, Identity, Members
from fedeas_private.secure_sum.keys import identity_of
from fedeas_private.secure_sum.memory import end_sums
from fedeas_private.secure_sum.messages import STAGES, RefusedError, Vector

if TYPE_CHECKING:
    from fedeas.flower.client import LocalTraining, Mod


@dataclass(frozen=True)
class SecureUpdates:
    """Lets a client's updates leave it in secure sums, and otherwise where its owner allows that.

    Parameters
    ----------
    identity
        Returns the client's key and the members of the federation; None where it has no key.
    folder
        Of what the client keeps during a sum.
    limits
        What the owner of the site says; None in a simulation.
    """

    identity: Callable[[], Identity | None]
    folder: Path
    limits: SiteConfig | None = None

    def reply(self, training: "LocalTraining") -> Message:
        """Train, and begin the sum that the update goes into."""
        settings = training.request.asked
        if "secure" not in settings:
            if self.limits is not None and UPDATES not in self.limits.allowed:
                raise InputError(
                    "the owner of this site lets no update of training leave it as it is",
                    fix=f"add `{UPDATES}` to `allow` in site.toml; it tells the label counts",
                )
            end_sums(self.folder)  # whatever was summed before is over when training begins
            return training.reply_in_clear()
        identity = self.identity()
        if identity is None:
            raise InputError("this site has no list of members", fix="set identity-key and members")
        secure_round = import_extra("fedeas_private.flower.secure_round", "training", "train")

        def words(asked: object) -> Vector:
            self._check_cost(asked)
            update: Vector = secure_round.update_words(asked, training, identity.members)
            return update

        participant = SumParticipant(identity, words, self.folder)
        return reply_with(begin_sum(str(settings["secure"]), participant), training.message)

    def later_stages(self) -> SumParticipant:
        """Return the client's part in a sum before and after the message that has it train."""
        identity = self.identity()
        if identity is None:
            raise RefusedError("this client has no list of members")
        return SumParticipant(identity, lambda _: np.empty(0, np.uint64), self.folder)

    def _check_cost(self, asked: object) -> None:
        """Refuse a round's sum that the owner does not allow, or that the site cannot pay for."""
        if self.limits is None:
            return
        limits = self.limits
        rho = training_cost(read_question(asked), limits.allowed, limits.unit)
        if rho:  # before other sites pay for the sum
            limits.open_ledger().check(TRAIN, rho)


def simulated_app(open_site: OpenSite, clients: int, mods: "Sequence[Mod]" = ()) -> ClientApp:
    """Return the ClientApp of simulated clients that take part in secure sums of their updates.

    Parameters
    ----------
    open_site
        Opens what a client has.
    clients
        How many of them there are.
    mods
        Wrap messages.
    """

    def updates(site: Site) -> SecureUpdates:
        # Of a plain round nobody needs a key, and a simulation may have more clients than a sum.
        return SecureUpdates(
            lambda: simulated_identities(clients)[site.partition], site.folder / "sums"
        )

    def open_member(context: Context) -> Site:
        site = open_site(context)
        return replace(site, aggregation=updates(site))

    client = import_extra("fedeas.flower.client", "training", "train")
    app: ClientApp = client.make_client_app(open_member, mods)
    # A round's sum begins with training itself.
    answer_secure_sum(app, lambda context: updates(open_site(context)).later_stages(), STAGES[1:])
    return app


def simulated_members(clients: int) -> Members | None:
    """Return the list of simulated clients."""
    identity = simulated_identities(clients)[0]
    return None if identity is None else identity.members


@lru_cache(maxsize=2)
def simulated_identities(clients: int) -> dict[int, Identity | None]:
    """Return the identities of simulated clients, which everybody can compute: one process has all.

    A federation of fewer than three has none.
    """
    if clients < FEWEST:
        return dict.fromkeys(range(clients))
    private = {k: hashlib.sha256(f"simulated client {k}".encode()).digest() for k in range(clients)}
    members = Members.of({f"client-{k}": identity_of(key) for k, key in private.items()})
    return {k: Identity.of(key, members) for k, key in private.items()}
