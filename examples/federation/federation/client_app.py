"""The app of a site: all that it has is named in its node's configuration."""

from fedeas.private.flower import client_app

app = client_app()
