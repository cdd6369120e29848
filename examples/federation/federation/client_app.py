"""The app of a site: all that it has is named in its node's configuration."""

from fedeas import make_deployed_app

app = make_deployed_app()
