"""The app of the server: what it does is in the run's configuration (see pyproject.toml)."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedeas.private.flower import run_server

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Settle the policy where the sites are to, and train."""
    run_server(grid, context.run_config)
